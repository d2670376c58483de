#!/bin/sh
# Link what is installed below PREFIX to where the Flux on PATH looks for it, or
# remove these links. PREFIX stays a virtual environment this way: nothing that Flux
# or the system has installed is replaced.
#
# usage: src/link.sh PREFIX [--remove]
#
# The Python packages are linked like all else, into the folder of
# `flux config builtin python_path`, which holds links to Flux's own packages. It comes
# before all other folders in Flux's Python, but is no site directory: Python reads no
# .pth files there. A .pth file in a site directory of that Python would show what our
# packages need (kubernetes, a newer urllib3) to all programs of the system, and behind
# the system's own: where that has an older urllib3, ours would not be found. A link
# shows nothing but the package. The two programs that need more, the service
# (flux_k8s/broker/__main__.py) and `flux rabbitmapping`, are ours as a whole, and put
# what is installed beside flux_k8s first for themselves.

set -eu
umask 022

prefix=$1
remove=${2:-}
command -v flux >/dev/null || {
    echo "link.sh: no flux on PATH" >&2
    exit 1
}

packages="flux_k8s sssjob"
python_path=$(flux config builtin python_path)
# Before there were links to packages, this script wrote modules that began with this.
mark="# Written by src/link.sh of flux-dws: finds the package in its environment."

# usage: is_ours PATH: this script made it, or there is nothing
is_ours () {
    if test -L "$1"; then
        case $(readlink "$1") in "$prefix"/*) ;; *) return 1 ;; esac
    elif test -e "$1"; then
        grep -qsxF "$mark" "$1"
    fi
}

# Another package of the name would hide ours, or be hidden.
for package in $packages; do
    for other in "$python_path/$package" "$python_path/$package.py"; do
        if test -z "$remove" && ! is_ours "$other"; then
            echo "link.sh: $other: is another $package; remove it first" >&2
            exit 1
        fi
    done
done
for package in $packages; do
    for ours in "$python_path/$package" "$python_path/$package.py"; do
        ! is_ours "$ours" || rm -f "$ours"
    done
done

# usage: link DIRECTORY FOLDER: the files below PREFIX/DIRECTORY, in FOLDER
link () {
    test ! -d "$2" || find "$2" -lname "$prefix/$1/*" -delete
    test -z "$remove" || return 0
    find "$prefix/$1" -type f ! -name '*.pyc' | while read -r file; do
        target=$2/${file#"$prefix/$1/"}
        mkdir -p "$(dirname "$target")"
        ln -s "$file" "$target"
    done
}

link lib/flux/modules "$(flux config builtin module_path)"
link lib/flux/job-manager/plugins "$(flux config builtin jobtap_pluginpath)"
link lib/flux/shell/plugins "$(flux config builtin shell_pluginpath)"
link libexec/flux/cmd "$(flux config builtin exec_path)"
link etc/flux "$(flux config builtin confdir)"

test -z "$remove" || exit 0
site=$("$prefix/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$python_path"
for package in $packages; do
    ln -s "$site/$package" "$python_path/$package"
done
