#!/bin/sh
test_description='Nodes go to other jobs when they have unmounted, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
fluxion_start 8

# usage: storage_job GIB [OPTION...]: submit a job of a moment on all nodes, with so much
# storage each, of which a file is copied
storage_job () {
    storage_job_size=$1
    shift
    flux submit -N8 -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/" \
        "$@" sh -c 'echo saved >$DW_JOB_p1/x'
}

# usage: in_dataout JOBID: the job has ended, and its data goes out
in_dataout () {
    wait_event "$1" clean &&
    kube wait "$(workflow "$1")" DataOut
}

data_may_go () {
    rm gates/DataOut
}

# usage: waits JOBID: for room, as Fluxion sees it
waits () {
    wait_event "$1" depend &&
    ! flux job wait-event -q -t 1 "$1" alloc
}

# usage: data_out JOBID: the record of what became of its data
data_out () {
    flux kvs get "$(flux job id --to=kvs "$1").rabbit_data_out"
}

# usage: wait_for_storage JOBID: print the exit status of flux dws wait at the end
wait_for_storage () {
    flux dws wait "$1"
    echo "status $?"
}

ssds_are_down () {
    ssds_down >down &&
    test "$(wc -w <down)" -eq "$1"
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    ssds_are_down 0
'
test_expect_success 'a job ends when its nodes have unmounted' '
    gate_shut DataOut &&
    { command flux event sub -c 1 dws.data-out >published & } &&
    first=$(storage_job 200 -S dw_release=unmounted) &&
    in_dataout $first &&
    events=$(events $first) &&
    in_order "$events" finish epilog-start:dws-epilog epilog-finish:dws-epilog clean &&
    case $events in *exception*) false ;; esac
'
# It takes seven of each Rabbit. What was chosen while the job had all eight stays.
test_expect_success 'its storage is kept from other jobs: as many ssd are down' '
    ssds_down >down &&
    test "$(wc -w <down)" -ge 14
'
test_expect_success 'its nodes run other jobs at once' '
    flux run -N8 true
'
test_expect_success 'a job that needs storage waits until it is gone' '
    second=$(storage_job 200) &&
    waits $second
'
test_expect_success 'a job that depends on its data waits, too' '
    after=$(flux submit --dependency=dws-out:$first true) &&
    ! flux job wait-event -q -t 1 $after depend
'
test_expect_success 'a module that was killed goes on with the data' '
    { wait_for_storage $first >waited 2>&1 & } &&
    eventually grep -q DataOut waited &&
    module_kill &&
    eventually grep -q "module is away" waited &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    in_dataout $first &&
    waits $second
'
test_expect_success 'so does one that is loaded again with the plugin' '
    jobtap_remove dws-jobtap.so &&
    plugin_load &&
    flux module reload dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    in_dataout $first &&
    waits $second
'
test_expect_success 'when the data is out, the next job gets the storage' '
    data_may_go &&
    wait_event $after clean &&
    job_succeeds $second &&
    no_workflows &&
    eventually ssds_are_down 0
'
test_expect_success 'flux dws wait has waited for that, and for the module' '
    eventually grep -q "^status" waited &&
    grep "^status 0" waited
'
test_expect_success 'it is told that the data is out' '
    test "$(data_out $first)" = "{\"success\": true}" &&
    log_says ": its data is out" &&
    eventually grep -q "\"success\": *true" published
'
test_expect_success 'the site has it for all jobs that do not say' '
    gate_shut DataOut &&
    echo "release = \"unmounted\"" >>conf/rabbit.toml &&
    flux config reload &&
    third=$(storage_job 10) &&
    fourth=$(storage_job 10 -S dw_release=teardown) &&
    in_dataout $third &&
    ! flux job wait-event -q -t 1 $fourth clean &&
    data_may_go &&
    job_succeeds $fourth
'
test_expect_success 'a job that is purged meanwhile gets no KVS directory again' '
    gate_shut DataOut &&
    purged=$(storage_job 10) &&
    in_dataout $purged &&
    directory=$(flux job id --to=kvs $purged) &&
    flux kvs ls $directory &&
    flux job purge -f $purged &&
    test_must_fail flux kvs ls $directory &&
    data_may_go &&
    no_workflows &&
    test_must_fail flux kvs ls $directory
'
test_expect_success 'data that does not go out is told, after the end of the job' '
    echo "teardown_after = 2" >>conf/rabbit.toml &&
    flux config reload &&
    gate_shut DataOut &&
    lost=$(storage_job 10) &&
    in_dataout $lost &&
    never=$(flux submit --dependency=dws-out:$lost true) &&
    wait_event $never clean &&
    job_exception $never dependency "not copied" &&
    eventually data_out $lost &&
    data_out $lost | grep -q "not copied: .DW_JOB_p1/x to /lustre/" &&
    data_out $lost | grep -q "\"reason\": \"teardown-after\"" &&
    log_says ": its data is not out: PostRun and DataOut took more than teardown_after=2s" &&
    flux dmesg | grep "dws.err.*: its data is not out: .* \[teardown-after\]$" &&
    data_may_go &&
    no_workflows
'
test_expect_success 'who waits for data whose Workflow is deleted unseen is told, too' '
    gate_shut DataOut &&
    unseen=$(storage_job 10) &&
    in_dataout $unseen &&
    before=$(flux submit --dependency=dws-out:$unseen true) &&
    module_kill &&
    kube remove workflows "$(workflow $unseen)" &&
    ! flux job wait-event -q -t 1 $before clean &&
    flux module load dws &&
    wait_event $before clean &&
    job_exception $before dependency "was deleted under the job" &&
    later=$(flux submit --dependency=dws-out:$unseen true) &&
    wait_event $later clean &&
    data_may_go &&
    no_workflows
'
test_expect_success 'a job with a container keeps its nodes' '
    contained=$(flux submit -N1 -S dw_release=unmounted \
        -S dw="#DW jobdw type=xfs capacity=1GiB name=p1 requires=copy-offload" true) &&
    wait_event $contained clean &&
    job_exception $contained dws "dw_release=unmounted"
'
test_expect_success 'a wrong value is refused' '
    test_must_fail flux submit -N1 -S dw_release=soon \
        -S dw="#DW jobdw type=xfs capacity=1GiB name=p1" true 2>err &&
    grep "dw_release is .*soon.*, expected .teardown. or .unmounted." err
'
test_done
