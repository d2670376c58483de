#!/bin/sh
# Install flux-dws for the Flux on PATH, or remove it again. Run in the top folder of
# the sources, by `make install` and `make uninstall`.
#
# usage: PYTHON=... src/install.sh DEST [WHEELS]
#        src/install.sh --remove DEST
#
# DEST becomes a virtual environment of Flux's Python: outside of one, pip would replace
# what the system has of a package where a newer one is needed. src/link.sh links its
# files to where Flux looks for them. With WHEELS, a folder of wheels, nothing is taken
# from the network, and nothing is compiled if a wheel of flux-dws is among them.
#
# A new version is installed in a folder of its own, and takes the place of the one before
# at once: a job that starts meanwhile finds all files. An installation that fails leaves
# nothing behind, or the version before.

set -eu
umask 022

fail () {
    echo "install.sh: $*" >&2
    exit 1
}

# usage: is_installed: DEST is what this script made of it
is_installed () {
    test -e "$dest/pyvenv.cfg" && test -e "$dest/lib/flux/modules/dws.py"
}

# usage: is_empty: DEST has nothing in it but what an installation left that was killed
is_empty () {
    test -z "$(find "$dest" -mindepth 1 -maxdepth 1 ! -name .new ! -name .lock \
        2>/dev/null)"
}

remove () {
    lock
    is_installed || fail "DEST=$dest: is no installation of flux-dws"
    check_unnamed
    ./src/link.sh "$dest" --remove
    delete
}

# usage: check_unnamed: no file of Flux's configuration names a file of flux-dws. Flux does
# not start, or refuses all jobs, where a plugin that is named is gone.
check_unnamed () {
    named="dws-jobtap\\.so|(frobnicator|validator)/dws\\.py|sched-rabbit|$(regex "$dest")/"
    set -- "${FLUX_CONF_DIR:-/etc/flux/system/conf.d}"
    confdir=$(flux config builtin confdir 2>/dev/null) || confdir=/etc/flux
    test -n "${FLUX_CONF_DIR:-}" || test "$confdir" = /etc/flux ||
        set -- "$1" "$confdir/system/conf.d"
    found=$(find -H "$@" -maxdepth 1 '(' -name '*.toml' -o -name '*.json' ')' \
        -exec grep -HnE "$named" {} + 2>/dev/null |
        grep -vE '^[^:]*:[0-9]+:[[:space:]]*#') || return 0
    fail "nothing is removed: the configuration of Flux names files of flux-dws. Take" \
        "these lines out, and reload it, before:
$found"
}

# usage: regex TEXT: an extended regular expression of which only TEXT is matched
regex () {
    printf %s "$1" | sed 's/[][\\.*^$+?(){}|]/\\&/g'
}

# usage: delete: DEST, and its lock last, or another installation makes a new one
delete () {
    find "$dest" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
    rm -rf "$dest"
}

# Do not let two installations write to the same folder. Where that cannot be told, as on
# some network file systems, it is not. Others may not open the file: they could lock it.
lock () {
    test -w "$dest" || return 0
    is_installed || is_empty || test -e "$dest/.new" || return 0
    (umask 077 && : >>"$dest/.lock") && exec 9<"$dest/.lock"
    flock -n 9 || test $? -ne 1 || fail "DEST=$dest: is being installed already"
}

# Undo what src/replace.py has begun, if it was killed, with this script or before.
put_back () {
    for part in "$new"/.before/*; do
        if test -e "$part" || test -L "$part"; then
            rm -rf "${dest:?}/${part##*/}"
            mv "$part" "$dest/"
        fi
    done
}

clean_up () {
    put_back
    rm -rf "$new"
    test -n "$unfinished" || return 0
    ./src/link.sh "$dest" --remove || true
    delete
}

# usage: check_folder: DEST is ours, or new, and can be written to
check_folder () {
    unfinished=
    new=$dest/.new
    # One that is made first can be locked.
    is_installed || error=$(mkdir -p "$dest" 2>&1) || fail "DEST=$dest: $error"
    lock
    put_back
    is_installed || is_empty ||
        fail "DEST=$dest: is there, and is no installation of flux-dws"
    trap clean_up EXIT
    trap 'exit 1' INT TERM HUP
    is_installed || unfinished=1
    test -w "$dest" || fail "DEST=$dest: cannot be written to"
}

# usage: check_python: what is installed is for the Python that runs Flux's modules
check_python () {
    show='import sys; print("%d.%d" % sys.version_info[:2])'
    command -v flux >/dev/null || fail "no flux on PATH"
    of_flux=$(flux python -c "$show") || fail "flux python: cannot be run"
    version=$("$PYTHON" -c "$show" 2>/dev/null) || fail "PYTHON=$PYTHON: cannot be run"
    test "$version" = "$of_flux" ||
        fail "PYTHON=$PYTHON: is Python $version, that of Flux is $of_flux"
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "PYTHON=$PYTHON: has no venv (on Debian: apt-get install python3-venv)"
}

# usage: find_wheel: set $built if WHEELS has a wheel of flux-dws for this Python
find_wheel () {
    built=
    test -n "$wheels" || return 0
    test -d "$wheels" || fail "WHEELS=$wheels: is no folder"
    other=
    for wheel in "$wheels"/flux_dws-*.whl; do
        case $wheel in
        *"-cp${version%.*}${version#*.}-"*) built=1 ;;
        *'*'*) ;;
        *) other=$wheel ;;
        esac
    done
    test -n "$built" || test -z "$other" ||
        fail "WHEELS=$wheels: ${other##*/} is not for Python $version, that of Flux"
}

install () {
    check_python
    find_wheel
    check_folder
    ./src/link.sh "$dest" --check
    test ! -t 1 || echo "flux-dws is built and installed into $dest: about a minute"
    test -n "$built" || ./t/setup.sh "$PYTHON"
    rm -rf "$new"
    "$PYTHON" -m venv "$new" --prompt "${dest##*/}"
    set -- .
    test -z "$built" || set -- --pre flux-dws
    test -z "$wheels" || set -- --no-index --find-links "$wheels" "$@"
    # Isolated: what is on PYTHONPATH would count as installed.
    "$new/bin/python" -I -m pip --disable-pip-version-check install --quiet "$@" || {
        test -z "$wheels" || fail "WHEELS=$wheels: lacks what pip names above," \
            "for Python $version on this machine"
        fail "flux-dws could not be built and installed: see above"
    }
    # Half of each is no version, nor is one without its links. Children ignore these, too.
    trap '' INT TERM HUP
    "$PYTHON" src/replace.py "$new" "$dest"
    ./src/link.sh "$dest"
    unfinished=
    echo "installed into $dest; next: \"Load it\" in doc/admin.md"
}

do=install
if test "$1" = --remove; then
    do=remove
    shift
fi
test -n "$1" || fail "DEST=: expected a folder"
dest=$(realpath -ms -- "$1")
wheels=${2:+$(realpath -ms -- "$2")}
"$do"
