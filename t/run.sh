#!/bin/sh
# Run the tests in t/*.t against the flux on PATH, four times as many at a time as there
# are cores: each has an instance and a cluster of its own, and waits half of its time.
# (All boots together are a twelfth of the processor time: to share instances would save
# less than that, and a file that fails would leave its state to the next.)
#
# usage: t/run.sh [FILE...]
#
# A file that passes is one line, of one that fails all that it said is shown. JOBS says
# how many run at a time, LIMIT how many seconds a file may take. The exit status is 0
# if all passed, or if there is no Flux.

LIMIT=${LIMIT:-600}

# These take longest, and begin first, so that none runs alone at the end.
FIRST="t1007 t1033 t1045 t2004 t3000 t1035 t1017 t2021 t1043 t1003 t1004 t1048 t1018"
FIRST="$FIRST t2003 t2006 t2012 t1001 t1036 t2002 t1008 t1002"

# These repeat others with another scheduler, and run only where they are named.
LEFT_OUT="t1046 t1047"

# usage: run_one FILE: what prove starts for each file. A signal for all of us does not
# reach timeout(1) by itself.
run_one () {
    TMPDIR=$FLUX_DWS_OUTPUT timeout -k 10 "$LIMIT" "./$1" >"$FLUX_DWS_OUTPUT/$1" 2>&1 &
    trap 'kill $!' INT TERM HUP
    wait $!
    run_one_status=$?
    test "$run_one_status" -ne 124 ||
        echo "# $1 was stopped after $LIMIT s" >>"$FLUX_DWS_OUTPUT/$1"
    cat "$FLUX_DWS_OUTPUT/$1"
    return "$run_one_status"
}

# usage: show_failed SUMMARY: all that each file said that is named there
show_failed () {
    sed -n 's/^\([^ ]*\.t\) *(Wstat: .*/\1/p' "$1" | while read -r name; do
        echo "---- $name"
        cat "$FLUX_DWS_OUTPUT/$name"
    done
}

# What was not run, and how often for each reason. That a test is one of soak is known.
show_skipped () {
    sed -n 's/^\(ok .*\|1\.\.0 \)# SKIP /  /p' "$FLUX_DWS_OUTPUT"/t[0-9]*.t |
        grep -v "only in soak" | sort | uniq -c >"$FLUX_DWS_OUTPUT/skipped"
    test ! -s "$FLUX_DWS_OUTPUT/skipped" || { echo "Skipped:" && cat "$FLUX_DWS_OUTPUT/skipped"; }
}

# Start forkserver.py for the programs of Flux and those of the stand-in, and tell tap.sh.
# Where that is not possible each program starts by itself, as in a file that is run alone.
forkservers_start () {
    FLUX_DWS_FORK=$FLUX_DWS_OUTPUT/fork
    mkdir "$FLUX_DWS_FORK" &&
    ${CC:-cc} -O -o "$FLUX_DWS_FORK/client" forkclient.c 2>/dev/null || return
    set -- "$FLUX_DWS_FORK/flux" "$FLUX_DWS_FORK/standin"
    setsid flux python forkserver.py "$1" \
        flux.cli.base flux.job flux.resource flux.util \
        </dev/null >"$1.log" 2>&1 &
    forkservers=$!
    setsid "${FLUX_DWS_PREFIX:-../.venv}/bin/python" forkserver.py "$2" \
        rabbitsim.cli.cluster rabbitsim.dws.cli rabbitsim.kube.cli \
        </dev/null >"$2.log" 2>&1 &
    forkservers="$forkservers $!"
    for _ in $(seq 100); do
        test -S "$1" && test -S "$2" && export FLUX_DWS_FORK && return
        # shellcheck disable=SC2086
        kill -0 $forkservers 2>/dev/null || break
        sleep 0.1
    done
    return 1
}

# With the programs that run yet. The time of this run has that of the servers then, and of
# all that they have run.
# shellcheck disable=SC2329
forkservers_stop () {
    for group in $forkservers; do
        kill -- "-$group" 2>/dev/null
    done
    wait
}

cd "$(dirname "$0")" || exit 1
if test -n "$FLUX_DWS_OUTPUT"; then
    run_one "$1"
    exit
fi
if ! command -v flux >/dev/null; then
    echo "t/*.t skipped: no flux on PATH"
    exit 0
fi
if ! command -v prove >/dev/null; then
    echo "t/run.sh: prove is not installed (Debian: perl, Fedora: perl-Test-Harness)" >&2
    exit 1
fi
echo "t/*.t with $(flux version | sed -n 's/^commands:[[:space:]]*/flux /p')"

FLUX_DWS_OUTPUT=$(mktemp -d "${TMPDIR:-/tmp}/flux-dws-tests.XXXXXX") || exit 1
export FLUX_DWS_OUTPUT
trap 'forkservers_stop; rm -rf "$FLUX_DWS_OUTPUT"' EXIT
trap 'exit 1' INT TERM HUP PIPE
forkservers_start || echo "t/*.t take longer: forkserver.py cannot be used"

if test $# -eq 0; then
    for number in $FIRST; do
        for file in "$number"-*.t; do
            test ! -e "$file" || set -- "$@" "$file"
        done
    done
    for file in t[0-9]*.t; do
        case " $FIRST $LEFT_OUT " in
        *" ${file%%-*} "*) ;;
        *) set -- "$@" "$file" ;;
        esac
    done
fi
for file; do
    shift
    set -- "$@" "${file##*/}"
done
{
    prove --jobs "${JOBS:-$((4 * $(nproc)))}" --timer --norc --exec ./run.sh "$@" 2>&1
    echo $? >"$FLUX_DWS_OUTPUT/status"
} | tee "$FLUX_DWS_OUTPUT/summary"
show_failed "$FLUX_DWS_OUTPUT/summary"
show_skipped
exit "$(cat "$FLUX_DWS_OUTPUT/status")"
