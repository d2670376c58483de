#!/bin/sh
# Install the system packages that the build needs, or say which are missing.
#
# usage: t/setup.sh PYTHON

python=$1
missing=

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || {
    echo "setup: $python is not Python 3.9 or newer; set PYTHON=..." >&2
    exit 1
}
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
command -v pkg-config >/dev/null || missing="$missing pkg-config"
pkg-config --exists jansson 2>/dev/null || missing="$missing libjansson-dev"
"$python" -c 'import venv, ensurepip' 2>/dev/null \
    || missing="$missing python3-venv"
"$python" -c '
import os, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not os.path.exists(header))' || missing="$missing python3-dev"

test -n "$missing" || exit 0
if test "$(id -u)" -eq 0 && command -v apt-get >/dev/null; then
    echo "setup: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get update -q >/dev/null && apt-get install -y -q $missing >/dev/null
else
    echo "setup: please install these packages first:$missing" >&2
    echo "setup: (on Debian: sudo apt-get install$missing)" >&2
    exit 1
fi
