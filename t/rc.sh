#!/bin/sh
# What each broker of a test's instance runs at its start and at its end.
#
# usage: t/rc.sh rc1|rc3
#
# The brokers get the modules that they would have from Flux, and need no Python for
# that, which would take a third of the time of a broker. A test of what Flux starts has
# FLUX_MODPROBE_PATH; then rank 0 and one of the others run what Flux would. So does
# each instance that a test starts by "flux start", "flux batch" or "flux alloc".

# In this order, and at the end the last one first. What the other brokers lack is asked of
# rank 0.
MODULES="resource"
FIRST_MODULES="heartbeat content content-sqlite kvs kvs-watch resource job-manager
    job-info job-ingest job-list job-exec"
FLUXION="sched-fluxion-resource sched-fluxion-feasibility sched-fluxion-qmanager"

# usage: module load|remove [OPTION...] NAME...: flux(1) takes longer to start this program
# than it takes to run.
module () {
    "${FLUX_EXEC_PATH##*:}/flux-module" "$@"
}

# usage: load NAME
load () {
    case $1 in
    sched-fluxion-resource | sched-fluxion-feasibility)
        set -- "$1" load-allowlist=node,core,gpu
        ;;
    sched-rabbit)
        set -- "$1" chunks=8
        ;;
    esac
    module load "$@"
}

rank=$(flux getattr rank)
if test -n "$FLUX_MODPROBE_PATH" && test "$rank" -le 1; then
    # shellcheck disable=SC2046
    exec $(flux config builtin "$1_path")
fi
if test "$rank" -eq 0; then
    scheduler=$(flux config get --default="$FLUXION" modules.alternatives.sched)
    MODULES="$FIRST_MODULES $scheduler"
fi
case $1 in
rc1)
    for name in $MODULES; do
        load "$name" || exit 1
    done
    ;;
rc3)
    reversed=
    for name in $MODULES; do
        reversed="$name $reversed"
    done
    for name in $reversed; do
        module remove --force "$name" || exit 1
    done
    ;;
esac
