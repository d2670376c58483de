# shellcheck shell=sh
# What the prolog and the epilog script for Rabbit storage have in common. They
# run as root on each node of a job, in the environment that flux-imp lets through:
# root must be allowed to see the jobs of others ([access] allow-root-owner = true).

CLIENTMOUNT=nnf-clientmount
LOCK=${RUNTIME_DIRECTORY:-/run}/flux-dws.lock
UNITS=${RUNTIME_DIRECTORY:-/run}/flux-dws-units

say () {
    echo "$(basename "$0")${FLUX_JOB_ID:+: $FLUX_JOB_ID}: $*" >&2
}

die () {
    say "$@"
    exit 1
}

command -v flux >/dev/null || die "no flux on PATH=$PATH"
test -n "${FLUX_JOB_ID:-}" ||
    die "FLUX_JOB_ID is not set: see allowed-environment of flux-imp"

# Read what is looked for in the job's eventlog, and no more: its user may post as many
# memos and exceptions as he likes. It must be tied to the name of the event.
eventlog_read () {
    # What fails in the middle of a line is to be told on a line of its own. In other
    # locales than C, grep takes what it cannot decode for binary, and prints no more.
    eventlog=$({ flux job eventlog --format=json "$FLUX_JOB_ID" || printf '\nfailed'; } |
        LC_ALL=C grep -e "$(event dependency-add)" -e "$(event dws_environment)" \
            -e '^failed$') || test $? -eq 1 || die "cannot search the eventlog of the job"
    # To cut the text at a pattern takes a shell the square of its length.
    case $eventlog in
    *failed)
        die "cannot read the eventlog of the job, as root: see access.allow-root-owner"
        ;;
    esac
}

# usage: event NAME: how the line of such an event begins
event () {
    echo "^{\"timestamp\":[0-9.e+]*,\"name\":\"$1\""
}

# usage: events NAME: those that were read, one on a line
events () {
    printf '%s\n' "$eventlog" | grep "$(event "$1")" || :
}

# Whether the job has #DW directives.
is_dw_job () {
    events dependency-add | grep -q '"context":{"description":"dws-create"'
}

# The systemd units of the daemons that the job's directives require, as the service
# has written them to the job's KVS directory, which only the instance owner can write.
# Of these, the ones that [rabbit] daemons names.
units () {
    units_wanted=$(flux job info "$FLUX_JOB_ID" rabbit_units 2>/dev/null) || :
    flux config get --default="{}" rabbit.daemons | grep -o '"unit":"[^"]*"' |
        while IFS= read -r units_entry; do
            units_quoted=${units_entry#'"unit":'}
            case $units_wanted in
            *[[,]"$units_quoted"[],]*)
                # A backslash in JSON is two.
                printf '%s\n' "$units_quoted" | sed 's/^"//; s/"$//; s/\\\\/\\/g'
                ;;
            esac
        done
}

# usage: unit start|stop NAME
unit () {
    # Or systemd would refuse the sixth start within 10 s: short jobs get there.
    test "$1" = stop || systemctl reset-failed "$2" 2>/dev/null || :
    systemctl "$1" "$2"
}

# usage: units_each start|stop
units_each () {
    units_each_status=0
    units_each_units=$(units)
    test -n "$units_each_units" || return 0
    umask 077
    exec 8>>"$UNITS.lock"
    flock -x 8
    for units_each_unit in $units_each_units; do
        "unit_$1" "$UNITS/$units_each_unit" "$units_each_unit" || {
            say "cannot $1 $units_each_unit"
            units_each_status=1
        }
    done
    exec 8>&-
    return "$units_each_status"
}

# usage: unit_start FOLDER NAME: the folder has a file for each job that uses the unit
unit_start () {
    mkdir -p "$1" && : >"$1/$FLUX_JOB_ID" && unit start "$2" 8>&-
}

# usage: unit_stop FOLDER NAME: unless another job on this node uses it
unit_stop () {
    rm -f "$1/$FLUX_JOB_ID"
    test -z "$(ls -A "$1" 2>/dev/null)" || return 0
    unit stop "$2" 8>&-
}

# Have the service run that mounts and unmounts. Who holds the lock needs it, so
# that a job does not stop what another one on the same node waits for.
clientmount_start () {
    umask 077
    exec 9>>"$LOCK"
    flock -s 9
    unit start "$CLIENTMOUNT" || die "cannot start $CLIENTMOUNT"
}

# Let go of it: the last one stops it, which resets the state of the unit. What
# is mounted stays mounted.
clientmount_stop () {
    if flock -n -x 9; then
        unit stop "$CLIENTMOUNT" || say "cannot stop $CLIENTMOUNT"
    fi
    exec 9>&-
}

# Whether the storage is kept for this node, which has not unmounted it in time
# ([rabbit] unmount_failure). Only the instance owner can write that.
is_kept () {
    kept_for=$(flux job info "$FLUX_JOB_ID" rabbit_kept_for 2>/dev/null) || return 1
    kept_for=${kept_for#*'"nodes": "'}
    kept_host=$(flux hostlist --nth="$(flux getattr rank)" instance) || return 1
    flux hostlist --quiet --fallback --intersect "${kept_for%%'"'*}" "$kept_host"
}

# usage: action_wait prolog|epilog NAME [OPTION...]: until this action of the
# job has ended. Being told to end ends this, too, as a failure.
action_wait () {
    action_event=$1-finish
    action_name=$2
    shift 2
    action_told=
    action_waiter=
    trap 'action_told=1; action_end' HUP INT TERM
    flux job wait-event --quiet "$@" --match-context="description=$action_name" \
        "$FLUX_JOB_ID" "$action_event" 9>&- &
    action_waiter=$!
    test -z "$action_told" || action_end
    action_status=0
    wait "$action_waiter" || action_status=$?
    trap - HUP INT TERM
    return "$action_status"
}

# Whenever the script is told to end, the wait ends by a signal, too.
action_end () {
    test -z "$action_waiter" || kill "$action_waiter" 2>/dev/null || :
}
