#!/bin/sh
test_description='Whole jobs with the DWS and the NNF of a real cluster'
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/real.sh"

PHASES="depend sched prolog setup running epilog"

# ---- jobs -------------------------------------------------------------------

# usage: submit_dw DIRECTIVES [OPTION...] COMMAND...
submit_dw () {
    submit_dw_directives=$1
    shift
    flux submit -n"$SIZE" -N"$SIZE" --label-io --setattr=system.dw="$submit_dw_directives" "$@"
}

# usage: tasks_have JOBID NAME...: each task has all variables that DWS gave the job,
# and these are among them and name an absolute path
tasks_have () {
    tasks_have_id=$1
    shift
    flux job attach --label-io "$tasks_have_id" >"$TRASH/tasks" &&
    event_context "$tasks_have_id" dws_environment >"$TRASH/environment.json" &&
    python_stdin '
import json, sys
size, workflow, *names = sys.argv[1:]
variables = json.load(open("environment.json"))["variables"]
assert variables["DW_WORKFLOW_NAME"] == workflow, variables
for name in names:
    assert variables[name].startswith("/"), (name, variables)
lines = set(open("tasks").read().splitlines())
wanted = {
    f"{task}: {name}={value}"
    for task in range(int(size)) for name, value in variables.items()}
sys.exit(f"missing: {wanted - lines}" if wanted - lines else 0)
' "$SIZE" "$(workflow "$tasks_have_id")" "$@"
}

# usage: workflow_state JOBID: the one in which its last Workflow is
workflow_state () {
    flux job info "$1" rabbit_workflow | python_stdin '
import json, sys
print(json.load(sys.stdin)["status"]["state"])'
}

# usage: drivers_said JOBID: what DWS found wrong with its Workflow in Proposal
drivers_said () {
    flux job info "$1" rabbit_workflow | python_stdin '
import json, sys
for driver in json.load(sys.stdin)["status"]["drivers"]:
    if driver["watchState"] == "Proposal" and driver["status"] == "Error":
        print(driver["message"])'
}

# usage: is_refused DIRECTIVE: its job, whose ID is in $id then, has an exception and
# never gets nodes
is_refused () {
    id=$(submit_dw "$1" true) &&
    wait_event "$id" clean &&
    job_exception "$id" dws &&
    ! has_event "$id" alloc
}

# usage: note_has TEXT: so has the one exception of the job $id
note_has () {
    test -n "$1" && job_exception "$id" dws "$1"
}

# usage: ends_cancelled JOBID
ends_cancelled () {
    wait_event "$1" clean &&
    job_exception "$1" cancel &&
    in_order "$(events "$1")" prolog-start:dws-setup prolog-finish:dws-setup \
        epilog-start:dws-epilog epilog-finish:dws-epilog free clean
}

# usage: in_setup JOBID: DWS has begun to make the storage of a job that was held
in_setup () {
    job_go "$1" &&
    kube wait "$(workflow "$1")" Setup DataIn PreRun
}

# Set $id to a job that is in its prolog, with a module that does not get on. DWS does
# not wait for us: a job may have started before the module is stopped.
job_in_prolog () {
    for _ in 1 2 3 4 5 6 7 8; do
        id=$(job_submit -N"$SIZE" --urgency=hold sh -c "$LOOP") &&
        wait_event "$id" depend &&
        in_setup "$id" &&
        process_stop "$(service_pid)" || return 1
        has_event "$id" prolog-finish || return 0
        module_resume &&
        flux cancel "$id" &&
        wait_event "$id" clean || return 1
    done
    return 1
}

# As in tap.sh, but DWS has no gates: it is the module that does not get on, until
# module_resume or module_kill.
jobs_in_all_phases () {
    # shellcheck disable=SC2046
    set -- $(job_submit -N1 --cc=1-5 --urgency=hold sh -c "$LOOP") &&
    sched=$1 prolog=$2 setup=$3 running=$4 epilog=$5 &&
    job_go "$running" &&
    job_go "$epilog" &&
    wait_event "$running" start &&
    wait_event "$epilog" start &&
    wait_event "$sched" depend &&
    wait_event "$prolog" depend &&
    in_setup "$setup" &&
    process_stop "$(service_pid)" &&
    job_go "$prolog" &&
    wait_event "$prolog" prolog-start &&
    job_end "$epilog" &&
    wait_event "$epilog" epilog-start &&
    depend=$(job_submit -N1 sh -c "$LOOP") &&
    wait_event "$depend" dependency-add
}

module_resume () {
    kill -CONT "$(service_pid)"
}

# ---- the tests --------------------------------------------------------------

cluster_real
real_conf
if has_fluxion; then
    # The cluster may have other nodes, too.
    fluxion_start "$SIZE" --no-validate
else
    instance_start "$SIZE"
fi

test_expect_success 'load the module' '
    module_start $scheduler
'
for type in xfs gfs2 lustre raw; do
    test_expect_success "a job on all nodes gets $type, and each task knows where" '
        id=$(submit_dw "#DW jobdw type=$type capacity=10GiB name=p1" env) &&
        job_succeeds $id &&
        tasks_have $id DW_JOB_p1
    '
    test_expect_success 'the Workflow went through all states' '
        test "$(workflow_state $id)" = Teardown &&
        for state in proposal setup datain prerun postrun dataout teardown; do
            flux job info $id rabbit_${state}_timing >seconds &&
            grep -xE "[0-9]+(\.[0-9]{1,6})?" seconds || return 1
        done
    '
    expect_nothing_left
done
test_expect_success 'two directives give two file systems' '
    id=$(submit_dw "$DW
        #DW jobdw type=gfs2 capacity=1GiB name=p2" env) &&
    job_succeeds $id &&
    tasks_have $id DW_JOB_p1 DW_JOB_p2
'
expect_nothing_left

keep=t4000n$(date +%s)p$$
# usage: data_is_out JOBID
data_is_out () {
    test "$(flux job info "$1" rabbit_data_out)" = "{\"success\": true}"
}

test_expect_success 'a job ends when its nodes have unmounted, the next one gets them' '
    released=$(submit_dw "$DW" -S dw_release=unmounted true) &&
    next=$(submit_dw "$DW" -S dw_release=unmounted true) &&
    job_succeeds $released &&
    job_succeeds $next &&
    eventually data_is_out $released &&
    eventually data_is_out $next
'
expect_nothing_left

test_expect_success 'a job makes persistent storage' '
    ! kube get persistentstorageinstances $keep | grep $keep &&
    id=$(submit_dw "#DW create_persistent type=xfs capacity=10GiB name=$keep" true) &&
    job_succeeds $id &&
    kube get persistentstorageinstances $keep | grep $keep
'
for nth in first second; do
    test_expect_success "a $nth job uses persistent storage" '
        id=$(submit_dw "#DW persistentdw name=$keep" env) &&
        job_succeeds $id &&
        tasks_have $id DW_PERSISTENT_$keep
    '
done
test_expect_success 'another job destroys persistent storage' '
    id=$(submit_dw "#DW destroy_persistent name=$keep" true) &&
    job_succeeds $id &&
    ! kube get persistentstorageinstances $keep | grep $keep
'
expect_nothing_left

test_expect_success 'an unknown type is refused at once, by the rules of the cluster' '
    directive="#DW jobdw type=nosuch capacity=10GiB name=p1" &&
    test_must_fail directive_try "$directive" 2>err &&
    is_refused "$directive" &&
    note_has "type=nosuch is not one of "
'
for directive in "$DW profile=nosuch" "#DW persistentdw name=nosuch" \
    "$DW
    #DW copy_in source=/nosuch/file destination=\$DW_JOB_p1/"; do
    test_expect_success "a job is refused in the words of DWS: ${directive##*
    }" '
        is_refused "$directive" &&
        note_has nosuch &&
        note_has "$(drivers_said $id)"
    '
done
expect_nothing_left

test_expect_success 'a job is cancelled in its prolog, while DWS makes its storage' '
    job_in_prolog &&
    flux cancel $id &&
    module_resume &&
    ends_cancelled $id &&
    ! has_event $id start &&
    event_context $id prolog-finish | grep "\"status\": 1"
'
test_expect_success 'a job is cancelled while it runs' '
    id=$(job_submit -N$SIZE sh -c "$LOOP") &&
    wait_event $id start &&
    flux cancel $id &&
    ends_cancelled $id
'
expect_nothing_left

test_expect_success 'the module is reloaded while there are jobs in all phases' '
    jobs_in_all_phases &&
    module_resume &&
    flux module reload dws $scheduler &&
    let_go
'
expect_each_to_succeed 'after a reload'
test_expect_success 'the module is killed while there are jobs in all phases' '
    jobs_in_all_phases &&
    module_kill &&
    broker_lives &&
    let_go &&
    module_load
'
expect_each_to_succeed 'after its death'
test_expect_success 'the module is killed and loaded at any moment' '
    job_submit -N1 --cc=1-12 true >ids &&
    for round in 1 2 3 4 5 6; do
        module_kill && module_load || return 1
    done &&
    for id in $(cat ids); do
        job_succeeds $id || return 1
    done
'
expect_nothing_left

expect_nothing_forbidden
test_expect_success 'no node was drained' '
    test -z "$(flux resource drain -no "{ranks} {reason}")"
'
test_expect_success 'DWS waits for all nodes' '
    for node in $(echo $NODES | tr , " "); do
        test "$(kube node $node)" = Enabled || return 1
    done
'
# As above: what a test that failed has left in the cluster goes.
flux cancel --all --quiet
test_done
