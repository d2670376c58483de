#!/bin/sh
test_description='Jobs that are cancelled in each phase, and storage that stays as long as tasks run'
. "$(dirname "$0")/tap.sh"

MANY=8  # jobs at once
test -z "$SOAK" || MANY=100

cluster_start
instance_start 2

# usage: ends_cancelled JOBID: it is inactive, cancelled, without storage, and
# whatever was started for it was finished
ends_cancelled () {
    wait_event "$1" clean &&
    job_exception "$1" cancel &&
    kube wait-gone "$(workflow "$1")" &&
    events "$1" >"$TRASH/events" || return 1
    for pair in prolog-start/prolog-finish epilog-start/epilog-finish; do
        test "$(grep -o "${pair%/*}:dws-" "$TRASH/events" | wc -l)" -eq \
             "$(grep -o "${pair#*/}:dws-" "$TRASH/events" | wc -l)" || return 1
    done
}

test_expect_success 'without the module a job that is cancelled has no Workflow and no epilog' '
    first=$(flux submit --urgency=hold true) &&
    id=$(job_submit --dependency=afterany:$first true) &&
    wait_event $id dependency-add &&
    job_cancel $id $first &&
    wait_event $id clean &&
    ! has_event $id epilog-start &&
    ! has_memo $id rabbit_workflow
'
test_expect_success 'jobs in every phase are cancelled at once' '
    flux module reload job-exec kill-timeout=300s &&
    module_load &&
    jobs_in_all_phases &&
    flux cancel --all &&
    for phase in ${PHASES%teardown}; do
        ends_cancelled $(job_of $phase) || return 1
    done &&
    gates_open $depend &&
    ! flux dmesg | grep "job-exec does not have the job"
'
test_expect_success 'no tasks of them start, and prologs have a status other than 0' '
    ! has_event $depend depend &&
    ! has_event $sched alloc &&
    for phase in setup datain prerun; do
        id=$(job_of $phase) &&
        ! has_event $id start &&
        ! has_event $id dws_environment &&
        event_context $id prolog-finish | grep "\"status\": 1" || return 1
    done
'
test_expect_success 'one that ran has its epilog after its tasks' '
    in_order "$(events $running)" start exception epilog-start:dws-epilog \
        epilog-finish:dws-epilog free clean &&
    has_event $running finish
'
test_expect_success 'while storage is taken down a cancel cannot make that faster' '
    wait_event $teardown exception &&
    ! has_event $teardown epilog-finish:dws-epilog &&
    gates_open $teardown &&
    ends_cancelled $teardown
'
test_expect_success 'many jobs are cancelled right after submission, and others go on' '
    flux submit --cc="1-$MANY" --setattr=system.dw="$DW" sleep inf >ids &&
    other=$(job_submit true) &&
    flux cancel $(cat ids) &&
    for id in $(cat ids); do
        ends_cancelled $id || return 1
    done &&
    job_succeeds $other
'

# ---- tasks that take their time to end --------------------------------------

# A job whose task writes a checkpoint when it is to end: for two seconds, one line
# each tenth of a second, to its storage. What it could not write is a line of "lost".
# It does not end before there is a file "may_end".
CHECKPOINT='trap "for i in \$(seq 20); do
        echo \$i >>\$DW_JOB_p1/checkpoint || echo \$i >>\"\$TRASH/lost\"
        sleep 0.1
    done
    until test -e \"\$TRASH/may_end\"; do sleep 0.1; done
    touch \"\$TRASH/\$DW_WORKFLOW_NAME.saved\"
    exit 0" TERM ALRM
touch "$TRASH/$DW_WORKFLOW_NAME.ready"
while test -e "$TRASH"; do sleep 0.1; done'

# usage: job_with_checkpoint [OPTION...]: set $id to such a job, which runs
job_with_checkpoint () {
    rm -f "$TRASH/lost" scratch/lustre/saved
    id=$(flux submit "$@" --setattr=system.dw="$DW
        #DW copy_out source=\$DW_JOB_p1/checkpoint destination=/lustre/saved" \
        sh -c "$CHECKPOINT") &&
    eventually test -e "$TRASH/$(workflow "$id").ready"
}

has_exception () {
    flux job eventlog "$1" | grep "exception type=\"$2\""
}

# usage: says_that_a_cancel JOBID WORD SENTENCE
says_that_a_cancel () {
    test "$(flux dws list -n -o "{id.f58} {cancel}" | grep "^$1")" = "$1 $2" &&
    flux dws show "$1" | grep "^Cancel: *$3"
}

# usage: ends_after_checkpoint JOBID: its storage was there for all of it
ends_after_checkpoint () {
    wait_event "$1" clean &&
    test -e "$TRASH/$(workflow "$1").saved" &&
    ! test -e "$TRASH/lost" &&
    test "$(tail -n 1 scratch/lustre/saved)" = 20 &&
    kube wait-gone "$(workflow "$1")"
}

plugin_is_loaded () {
    flux jobtap list | grep dws-jobtap
}

# usage: test_expect_reload 'what is true' 'command && command'
#
# One that reloads job-exec while jobs run, which ends it in flux-core before 0.88.
test_expect_reload () {
    case $(flux getattr version) in
    0.8[67].*)
        test_count=$((test_count + 1))
        echo "ok $test_count - $1 # SKIP flux-core before 0.88 reloads no job-exec"
        ;;
    *) test_expect_success "$@" ;;
    esac
}

test_expect_success 'a job that is cancelled twice, and after reloads, writes its checkpoint' '
    job_with_checkpoint &&
    says_that_a_cancel $id copied "the data is copied out" &&
    job_cancel $id &&
    wait_event $id exception &&
    job_cancel $id &&
    plugin_remove &&
    plugin_load &&
    flux module reload dws scheduler=none &&
    touch may_end &&
    ends_after_checkpoint $id &&
    ! has_exception $id dws &&
    in_order "$(events $id)" exception finish epilog-finish:dws-epilog
'
test_expect_success 'so does one that is cancelled after its time limit' '
    rm may_end &&
    job_with_checkpoint -t 1h &&
    flux update $id duration=$(($(flux jobs -no "{runtime:.0f}" $id) + 2))s &&
    wait_event $id exception &&
    job_cancel $id &&
    touch may_end &&
    ends_after_checkpoint $id &&
    has_exception $id timeout
'
test_expect_success 'a cancel after the tasks have ended gives the data up' '
    job_with_checkpoint &&
    gate_shut PostRun $id &&
    job_cancel $id &&
    wait_event $id finish &&
    kube wait $(workflow $id) PostRun &&
    says_that_a_cancel $id lost "the storage is freed at once, and what is not" &&
    job_cancel $id &&
    wait_event $id clean &&
    flux job eventlog $id | grep "given up in PostRun; not copied" &&
    ! test -e scratch/lustre/saved
'
test_expect_reload 'a job whose job-exec is reloaded ends without a finish event' '
    id=$(job_in running) &&
    flux module reload job-exec &&
    wait_event $id clean &&
    job_exception $id exec &&
    ! has_event $id finish &&
    in_order "$(events $id)" exception release epilog-finish:dws-epilog &&
    kube wait-gone "$(workflow $id)"
'
test_expect_reload 'a job cancelled before a reload of job-exec ends without a finish event' '
    job_with_checkpoint &&
    job_cancel $id &&
    wait_event $id exception &&
    flux module reload job-exec &&
    wait_event $id clean &&
    ! has_event $id finish && ! has_event $id release &&
    flux dmesg | grep "job-exec does not have the job" &&
    kube wait-gone "$(workflow $id)"
'
# The last ones: the scheduler ends with the job manager that it answers to. job-exec is
# left alone, as tasks would end with it.
test_expect_success 'tasks run on when the job manager is reloaded' '
    job_with_checkpoint &&
    flux module reload job-manager &&
    eventually plugin_is_loaded
'
test_expect_success 'a cancel after a reload leaves tasks their storage for the checkpoint' '
    job_cancel $id &&
    ends_after_checkpoint $id
'
test_done
