#!/bin/sh
test_description='Cancelling a job with #DW directives in each phase of its life'
. "$(dirname "$0")/tap.sh"

MANY=20  # jobs at once
test -z "$SOAK" || MANY=100

cluster_start
instance_start 2

# usage: ends_cancelled JOBID: it is inactive, cancelled, without storage, and
# whatever was started for it was finished
ends_cancelled () {
    wait_event "$1" clean &&
    job_exception "$1" cancel &&
    ends_balanced "$1" &&
    kube wait-gone "$(workflow "$1")"
}

ends_balanced () {
    events "$1" >"$TRASH/events"
    for pair in prolog-start/prolog-finish epilog-start/epilog-finish; do
        test "$(grep -o "${pair%/*}:dws-" "$TRASH/events" | wc -l)" -eq \
             "$(grep -o "${pair#*/}:dws-" "$TRASH/events" | wc -l)" || return 1
    done
}

test_expect_success 'a job is cancelled in DEPEND without the module' '
    id=$(job_submit true) &&
    wait_event $id dependency-add &&
    job_cancel $id &&
    wait_event $id clean &&
    job_exception $id cancel
'
test_expect_success 'a job cancelled in DEPEND without the module has no Workflow and no epilog' '
    ! has_event $id epilog-start &&
    ! has_memo $id rabbit_workflow
'
test_expect_success 'nor has one that waits for another job as well' '
    first=$(flux submit --urgency=hold true) &&
    id=$(job_submit --dependency=afterany:$first true) &&
    wait_event $id dependency-add &&
    job_cancel $id &&
    wait_event $id clean &&
    ! has_event $id epilog-start &&
    flux cancel $first &&
    wait_event $first clean
'
test_expect_success 'load the module' '
    module_load
'
test_expect_success 'a job is cancelled in DEPEND, while DWS makes its proposal' '
    id=$(job_in depend) &&
    job_cancel $id &&
    ends_cancelled $id &&
    ! has_event $id depend &&
    gates_open $id
'
test_expect_success 'a job is cancelled in SCHED, while it waits for nodes' '
    id=$(job_in sched) &&
    job_cancel $id &&
    ends_cancelled $id &&
    ! has_event $id alloc
'
test_expect_success 'a job is cancelled in SCHED, while the queue is stopped' '
    flux queue stop &&
    id=$(job_submit true) &&
    wait_event $id priority &&
    job_cancel $id &&
    ends_cancelled $id &&
    ! has_event $id alloc &&
    flux queue start
'
for phase in setup datain prerun; do
    test_expect_success "a job is cancelled in the prolog, while DWS is in $(state_of $phase)" '
        id=$(job_in $phase) &&
        job_cancel $id &&
        ends_cancelled $id &&
        ! has_event $id start &&
        ! has_event $id dws_environment
    '
    test_expect_success 'the prolog of a cancelled job has a status other than 0' '
        event_context $id prolog-finish | grep "\"status\": 1"
    '
done
test_expect_success 'a job is cancelled while it runs' '
    id=$(job_in running) &&
    job_cancel $id &&
    ends_cancelled $id &&
    in_order "$(events $id)" start exception epilog-start:dws-epilog \
        epilog-finish:dws-epilog free clean &&
    has_event $id finish
'
test_expect_success 'the data of a job cancelled while it ran is copied out' '
    id=$(flux submit --setattr=system.dw="$DW
        #DW copy_out source=\$DW_JOB_p1/result destination=/lustre/result" \
        sh -c "echo saved >\$DW_JOB_p1/result && $LOOP") &&
    wait_event $id start &&
    eventually grep -qr saved scratch/mnt &&
    job_cancel $id &&
    ends_cancelled $id &&
    grep saved scratch/lustre/result
'
test_expect_success 'the data of a job that exceeds its time limit is copied out' '
    rm scratch/lustre/result &&
    id=$(flux submit -t 3s --setattr=system.dw="$DW
        #DW copy_out source=\$DW_JOB_p1/result destination=/lustre/result" \
        sh -c "echo saved >\$DW_JOB_p1/result && $LOOP") &&
    wait_event $id clean &&
    job_exception $id timeout &&
    grep saved scratch/lustre/result
'
for phase in postrun dataout; do
    state=$(state_of $phase)
    test_expect_success "one cancel in the epilog, while DWS is in $state, is enough" '
        id=$(job_in $phase) &&
        job_cancel $id &&
        ends_cancelled $id
    '
done
test_expect_success 'while storage is taken down a cancel cannot make that faster' '
    id=$(job_in teardown) &&
    job_cancel $id &&
    wait_event $id exception &&
    ! has_event $id epilog-finish:dws-epilog &&
    gates_open $id &&
    ends_cancelled $id
'
test_expect_success 'a job cancelled while it ran needs another cancel in the epilog' '
    id=$(job_in running) &&
    dws_pause &&
    job_cancel $id &&
    kube wait $(workflow $id) PostRun &&
    job_cancel $id &&
    kube wait $(workflow $id) Teardown &&
    dws_resume &&
    wait_event $id clean &&
    ends_balanced $id
'
test_expect_success 'jobs in every phase are cancelled at once' '
    jobs_in_all_phases &&
    flux cancel --all &&
    gates_open $teardown &&
    for phase in $PHASES; do
        ends_cancelled $(job_of $phase) || return 1
    done &&
    gates_open $depend
'
test_expect_success 'many jobs are cancelled right after submission' '
    flux submit --cc="1-$MANY" --setattr=system.dw="$DW" sleep inf >ids &&
    flux cancel $(cat ids) &&
    queue_idle $PATIENCE &&
    for id in $(tail -n 5 ids); do
        ends_cancelled $id || return 1
    done
'
test_expect_success 'jobs that are not cancelled are not affected' '
    id=$(job_submit true) &&
    job_succeeds $id
'
test_done
