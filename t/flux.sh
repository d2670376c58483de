# flux.sh: the commands of Flux, without most of the time that they take to start
#
# shellcheck shell=sh
# Sourced by tap.sh, and by a bash(1) that has it as BASH_ENV: not by those that it starts.
unset BASH_ENV

# usage: flux COMMAND...: as flux(1), which takes longer to start these programs of its
# than they take to run. In an instance it has told where they are. (Where the process in
# the background is to be flux(1) itself, for a signal: command flux.)
flux () {
    case $FLUX_DWS_INSIDE$1 in
    1job | 1module | 1kvs)
        flux_program=${FLUX_EXEC_PATH##*:}/flux-$1
        shift
        "$flux_program" "$@"
        ;;
    1python) flux_python "$@" ;;
    1*) flux_command "$@" ;;
    *) command flux "$@" ;;
    esac
}

# usage: flux_command COMMAND...: as flux(1) in an instance, which looks for a command in
# the same folders
flux_command () {
    flux_command_rest=${FLUX_DWS_FORK:+$FLUX_EXEC_PATH:}
    while test -n "$flux_command_rest"; do
        flux_command_file=${flux_command_rest%%:*}/flux-$1.py
        flux_command_rest=${flux_command_rest#*:}
        if test -e "$flux_command_file"; then
            shift
            # py-runner.py removes what flux(1) sets.
            PYTHONPATH='' "$FLUX_DWS_FORK/client" "$FLUX_DWS_FORK/flux" \
                "${FLUX_EXEC_PATH##*:}/py-runner.py" "$flux_command_file" "$@"
            return
        fi
    done
    command flux "$@"
}

# usage: flux_python python ARG...: as flux(1) in an instance
flux_python () {
    test -n "$FLUX_DWS_FORK" || { command flux "$@"; return; }
    shift
    PYTHONPATH=$FLUX_PYTHONPATH_PREPEND "$FLUX_DWS_FORK/client" "$FLUX_DWS_FORK/flux" "$@"
}
