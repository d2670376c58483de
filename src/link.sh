#!/bin/sh
# Link what is installed below PREFIX to where the Flux on PATH looks for it, or
# remove these links. A virtual environment stays one this way: nothing that Flux
# or the system has installed is replaced.
#
# usage: src/link.sh PREFIX [--remove]

set -eu
umask 022

prefix=$1
remove=${2:-}
command -v flux >/dev/null || {
    echo "link.sh: no flux on PATH" >&2
    exit 1
}

# The Python of Flux does not know PREFIX. These modules are found there instead of
# the packages, and what is imported becomes the package itself, with what that needs
# beside it. Another package of the name would hide it, or be hidden.
mark="# Written by src/link.sh of flux-dws: finds the package in its environment."
packages="flux_k8s sssjob"
python_path=$(flux config builtin python_path)
for package in $packages; do
    finder=$python_path/$package.py
    for other in "${finder%.py}" "$finder"; do
        if test -e "$other" && ! grep -qsxF "$mark" "$other"; then
            test -z "$remove" || continue
            echo "link.sh: $other: is another $package; remove it first" >&2
            exit 1
        fi
        test "$other" != "$finder" || rm -f "$finder"
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
    cat >"$python_path/$package.py" <<END
$mark
import sys

sys.path.insert(0, "$site")
del sys.modules["$package"]
import $package
END
done
