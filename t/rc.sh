#!/bin/sh
# What each broker of a test's instance runs at its start and at its end.
#
# usage: t/rc.sh rc1|rc3
#
# Rank 0 runs what Flux would. The other ranks get the modules that they would have, and
# need no Python for that, which would take a third of the time of a broker.

MODULES="heartbeat content kvs kvs-watch resource job-info job-ingest"
# The last one first.
REVERSED="job-ingest job-info resource kvs-watch kvs content heartbeat"

if test "$(flux getattr rank)" -eq 0; then
    # shellcheck disable=SC2046
    exec $(flux config builtin "$1_path")
fi
case $1 in
rc1)
    for module in $MODULES; do
        flux module load "$module" || exit 1
    done
    ;;
rc3)
    for module in $REVERSED; do
        flux module remove "$module" || exit 1
    done
    ;;
esac
