#!/bin/sh
# Link what is installed below PREFIX to where the Flux on PATH looks for it, or
# remove these links. PREFIX stays a virtual environment this way: nothing that Flux
# or the system has installed is replaced.
#
# usage: src/link.sh PREFIX [--check|--remove]
#
# The Python packages are linked like all else, into the folder of
# `flux config builtin python_path`, which holds links to Flux's own packages. It comes
# before all other folders in Flux's Python, but is no site directory: Python reads no
# .pth files there. A .pth file in a site directory of that Python would show what our
# packages need (kubernetes, a newer urllib3) to all programs of the system, and behind
# the system's own: where that has an older urllib3, ours would not be found. A link
# shows nothing but the package; msgspec, which it needs everywhere, it finds by itself
# (flux_k8s/__init__.py). The two programs that need more, the service
# (flux_k8s/broker/__main__.py) and `flux rabbitmapping`, are ours as a whole, and put
# what is installed beside flux_k8s first for themselves.
#
# With --check, nothing is changed: the links could be made, as far as that can be told
# before anything is installed.

set -eu
umask 022

prefix=$1
mode=${2:-}

fail () {
    echo "link.sh: $*" >&2
    exit 1
}

command -v flux >/dev/null || fail "no flux on PATH"

# Flux's commands read their formats from the folders of XDG. The last one is that of
# the whole machine, wherever Flux itself is installed.
xdg=${XDG_CONFIG_DIRS:-/etc/xdg}
xdg=${xdg##*:}

packages="dwscli flux_k8s sssjob"
python_path=$(flux config builtin python_path)

# usage: is_ours PATH: this script made it, or there is nothing
is_ours () {
    if test -L "$1"; then
        case $(readlink "$1") in "$prefix"/*) ;; *) return 1 ;; esac
    elif test -e "$1"; then
        return 1
    fi
}

# usage: in_each_place FUNCTION: call it with each folder below PREFIX, and Flux's own
in_each_place () {
    "$1" lib/flux/modules "$(flux config builtin module_path)"
    "$1" lib/flux/job-manager/plugins "$(flux config builtin jobtap_pluginpath)"
    "$1" lib/flux/shell/plugins "$(flux config builtin shell_pluginpath)"
    "$1" libexec/flux/cmd "$(flux config builtin exec_path)"
    "$1" etc/flux "$(flux config builtin confdir)"
    "$1" share/man "$(flux config builtin man_path)"
    "$1" share/flux/help.d "$(dirname "$(flux config builtin cmdhelp_pattern)")"
    ! is_writable "$xdg" || "$1" etc/xdg "$xdg"
}

# usage: each_file DIRECTORY FOLDER FUNCTION: call it with each file below
# PREFIX/DIRECTORY, and the link to it in FOLDER
each_file () {
    test -d "$prefix/$1" || return 0
    find "$prefix/$1" -type f ! -name '*.pyc' | while read -r file; do
        "$3" "$file" "$2/${file#"$prefix/$1/"}"
    done
}

# usage: is_writable FOLDER: or it can be made
is_writable () {
    folder=$1
    while ! test -e "$folder"; do
        folder=$(dirname "$folder")
    done
    test -d "$folder" && test -w "$folder"
}

check_writable () {
    is_writable "$2" || fail "$2: cannot be written to"
}

check_link () {
    is_ours "$2" || fail "$2: is another file; remove it first"
}

check_links () {
    each_file "$1" "$2" check_link
}

# A link that is right stays: a job that starts meanwhile finds it.
make_link () {
    test "$(readlink "$2")" != "$1" || return 0
    mkdir -p "$(dirname "$2")"
    ln -sfn "$1" "$2"
}

make_links () {
    each_file "$1" "$2" make_link
}

# Python keeps what it has compiled beside the link. Other folders stay: they may be
# Flux's own.
remove_link () {
    cache=$(dirname "$1")/__pycache__
    rm -f "$cache/$(basename "$1" .py)".*.pyc "$1"
    rmdir "$cache" 2>/dev/null || true
}

# usage: remove_links DIRECTORY FOLDER: those to files that are gone; with --remove, all
remove_links () {
    test -d "$2" || return 0
    find "$2" -lname "$prefix/$1/*" | while read -r link; do
        test "$mode" != --remove && test -e "$link" || remove_link "$link"
    done
}

# usage: refuse LINK NAME: another package is in the way, or an installation elsewhere
refuse () {
    elsewhere=$(readlink "$1") && elsewhere=${elsewhere%/lib/*} || elsewhere=
    # Flux itself may have such a module in /lib, a link of ours.
    test ! -e "$elsewhere/pyvenv.cfg" ||
        test ! -e "$elsewhere/lib/flux/modules/dws.py" ||
        fail "$1: is of the installation in $elsewhere;" \
            "make uninstall DEST='$elsewhere' first"
    fail "$1: is another $2; remove it first"
}

# Another package of the name would hide ours, or be hidden.
check_packages () {
    for package in $packages; do
        for other in "$python_path/$package" "$python_path/$package.py"; do
            is_ours "$other" || refuse "$other" "$package"
        done
    done
}

remove_packages () {
    for package in $packages; do
        ! is_ours "$python_path/$package" || remove_link "$python_path/$package"
    done
}

if test "$mode" != --remove; then
    check_packages
    check_writable python_path "$python_path"
    in_each_place check_writable
    in_each_place check_links
fi
test "$mode" != --check || exit 0

in_each_place remove_links
if test "$mode" = --remove; then
    remove_packages
    exit 0
fi

in_each_place make_links
is_writable "$xdg" ||
    echo "link.sh: $xdg: cannot be written to: flux jobs -o rabbit is not there" >&2
site=$("$prefix/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')
for package in $packages; do
    make_link "$site/$package" "$python_path/$package"
done
