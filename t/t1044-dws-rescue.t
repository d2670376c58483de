#!/bin/sh
test_description='Data that could not be copied out is rescued, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
keep_failed = "1h"
keep_failed_limit = 100
END
fluxion_start 8

# usage: storage_job GIB [OPTION...]: submit a job of a moment on all nodes, with so much
# storage each, of which a file is copied
storage_job () {
    storage_job_size=$1
    shift
    flux submit -N8 -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/results/" \
        "$@" sh -c 'echo saved >$DW_JOB_p1/x'
}

# A file is where a directory is to be.
break_destination () {
    rm -rf scratch/lustre/results &&
    mkdir -p scratch/lustre &&
    echo >scratch/lustre/results
}

mend_destination () {
    rm scratch/lustre/results &&
    mkdir scratch/lustre/results
}

# usage: is_kept JOBID: the job has ended, and its data may be rescued
is_kept () {
    wait_event "$1" clean &&
    eventually shows_rescue "$1"
}

shows_rescue () {
    flux dws show "$1" >shown &&
    grep "^Waits for: *flux dws rescue .*: its data is not out, and is kept until" shown &&
    grep "^Limit: *keep_failed in [56]" shown
}

# usage: kvs JOBID KEY
kvs () {
    flux kvs get "$(flux job id --to=kvs "$1").$2"
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
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'a job whose data cannot be copied out ends with an exception' '
    break_destination &&
    first=$(storage_job 200) &&
    wait_event $first clean &&
    event_context $first exception >exceptions &&
    test $(wc -l <exceptions) -eq 1 &&
    grep "DWS failed in DataOut: .*; not copied: " exceptions &&
    grep "its storage is kept until .*Z: flux dws rescue f.* copies again" exceptions
'
test_expect_success 'its storage is kept, and flux dws show and list say so' '
    is_kept $first &&
    grep "^Failed: *DWS failed in DataOut" shown &&
    flux dws list | grep "DataOut.*flux dws rescue" &&
    kvs $first rabbit_data_failed | grep "\"errstr\": \"DWS failed in DataOut" &&
    kvs $first rabbit_data_failed | grep "\"reason\": \"dws-failed\"" &&
    test_must_fail kvs $first rabbit_data_out &&
    log_says "its data is not out: DWS failed in DataOut"
'
test_expect_success 'its nodes run other jobs, and its storage goes to none' '
    flux run -N8 true &&
    eventually ssds_are_down 14 &&
    second=$(storage_job 200) &&
    wait_event $second depend &&
    ! flux job wait-event -q -t 1 $second alloc
'
test_expect_success 'a job that depends on its data waits' '
    after=$(flux submit --dependency=dws-out:$first true) &&
    ! flux job wait-event -q -t 1 $after depend
'
test_expect_success 'a module that was killed keeps it' '
    module_kill &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    is_kept $first
'
test_expect_success 'another user can neither rescue it nor give it up' '
    test_must_fail as_guest flux dws rescue $first 2>err &&
    test_must_fail as_guest flux dws rescue --give-up $first 2>>err &&
    grep -c "is not yours" err | grep -x 2 &&
    is_kept $first
'
test_expect_success 'a copy that fails again leaves it' '
    until=$(flux dws show --json $first | grep -o "\"kept_until\": [0-9.]*") &&
    flux dws rescue $first >rescued &&
    grep "8 copies are started again. flux dws wait" rescued &&
    is_kept $first &&
    ! flux dws show --json $first | grep -F "$until"
'
test_expect_success 'the data is rescued' '
    { wait_for_storage $first >waited 2>&1 & } &&
    eventually grep -q DataOut waited &&
    mend_destination &&
    flux dws rescue $first &&
    eventually grep -q "^status" waited &&
    grep "^status 0" waited &&
    grep saved scratch/lustre/results/x &&
    test "$(kvs $first rabbit_data_out)" = "{\"success\": true}" &&
    log_says "its data is out"
'
test_expect_success 'what has waited for that goes on' '
    wait_event $after clean &&
    has_event $after start &&
    job_succeeds $second
'
test_expect_success 'there is nothing more to be rescued' '
    test_must_fail flux dws rescue $first 2>err &&
    grep "no active job with #DW directives" err &&
    no_workflows
'
test_expect_success 'data that is given up is lost, and its storage goes at once' '
    break_destination &&
    third=$(storage_job 10 -S dw_release=unmounted) &&
    is_kept $third &&
    flux dws rescue --give-up $third >given &&
    grep "its data is given up, and its storage goes" given &&
    wait_for_storage $third >waited 2>&1 &&
    grep "^status 1" waited &&
    grep "DWS failed in DataOut: .*; not copied: " waited &&
    no_workflows &&
    eventually ssds_are_down 0
'
test_expect_success 'a copy that fails costs no other one its data' '
    fourth=$(flux submit -N8 -S dw="#DW jobdw type=xfs capacity=10GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/results/
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/other/" \
        sh -c "echo saved >\$DW_JOB_p1/x") &&
    is_kept $fourth &&
    event_context $fourth exception >exceptions &&
    grep "not copied: .DW_JOB_p1/x to /lustre/results/; its storage is kept" exceptions &&
    grep saved scratch/lustre/other/x &&
    flux dws rescue --give-up $fourth &&
    no_workflows
'
test_expect_success 'a wrong value is refused' '
    sed "s/\"1h\"/\"soon\"/" -i conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep "keep_failed: .soon. is not a duration" err
'
test_done
