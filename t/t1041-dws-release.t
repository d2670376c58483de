#!/bin/sh
test_description='Data goes out, or is rescued, when its job has ended, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
rabbit_conf 'keep_failed = "1h"' 'keep_failed_limit = 100'
fluxion_start 8

# usage: in_dataout JOBID: the job has ended, and its data goes out
in_dataout () {
    wait_event "$1" clean &&
    kube wait "$(workflow "$1")" DataOut
}

# usage: is_kept JOBID: the job has ended, and its data may be rescued
is_kept () {
    wait_event "$1" clean &&
    eventually shows_rescue "$1"
}

shows_rescue () {
    flux dws show "$1" >shown &&
    grep "^Waits for: *flux dws rescue .*: its data is not out, and is kept until" shown &&
    grep "^Limit: *keep_failed in [0-9]" shown
}

# usage: wait_for_storage JOBID: print the exit status of flux dws wait at the end
wait_for_storage () {
    flux dws wait "$1"
    echo "status $?"
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    module_start &&
    ssds_down 0 0
'

# ---- data that goes out later -----------------------------------------------

test_expect_success 'a job ends when its nodes have unmounted' '
    gate_shut DataOut &&
    { command flux event sub -c 1 dws.data-out >published & } &&
    first=$(saving_job 200 results/ -N8 -S dw_release=unmounted) &&
    in_dataout $first &&
    events=$(events $first) &&
    in_order "$events" finish epilog-start:dws-epilog epilog-finish:dws-epilog clean &&
    case $events in *exception*) false ;; esac
'
# It takes seven of each Rabbit. What was chosen while the job had all eight stays.
test_expect_success 'its nodes run other jobs at once, and its storage is kept from them' '
    ssds_down 14 16 &&
    flux run -N8 true &&
    second=$(saving_job 200 results/ -N8) &&
    after=$(flux submit --dependency=dws-out:$first true) &&
    depends $after &&
    waits $second
'
test_expect_success 'a module that was killed goes on, also with another plugin' '
    { wait_for_storage $first >waited 2>&1 & } &&
    eventually grep -q DataOut waited &&
    module_kill &&
    jobtap_remove dws-jobtap.so &&
    plugin_load &&
    eventually grep -q "module is away" waited &&
    module_start &&
    in_dataout $first &&
    waits $second
'
test_expect_success 'when the data is out, the next job gets the storage' '
    rm gates/DataOut &&
    wait_event $after clean &&
    job_succeeds $second &&
    no_workflows &&
    ssds_down 0 0
'
test_expect_success 'who waits is told that the data is out' '
    eventually grep -q "^status" waited &&
    grep "^status 0" waited &&
    test "$(job_kvs $first rabbit_data_out)" = "{\"success\": true}" &&
    log_says ": its data is out" &&
    eventually grep -q "\"success\": *true" published
'
test_expect_success 'a job that is purged meanwhile gets no KVS directory again' '
    gate_shut DataOut &&
    purged=$(saving_job 10 results/ -N8 -S dw_release=unmounted) &&
    in_dataout $purged &&
    directory=$(flux job id --to=kvs $purged) &&
    flux kvs ls $directory &&
    flux job purge -f $purged &&
    test_must_fail flux kvs ls $directory &&
    rm gates/DataOut &&
    no_workflows &&
    test_must_fail flux kvs ls $directory
'

# ---- data that could not go out ---------------------------------------------

test_expect_success 'a job whose data cannot be copied out ends, and its storage is kept' '
    rm -r scratch/lustre/results &&
    echo "a file where a folder is to be" >scratch/lustre/results &&
    first=$(saving_job 200 results/ -N8) &&
    is_kept $first &&
    event_context $first exception >exceptions &&
    test $(wc -l <exceptions) -eq 1 &&
    grep "DWS failed in DataOut: .*; not copied: " exceptions &&
    grep "its storage is kept until .*Z: flux dws rescue f.* copies again" exceptions &&
    grep "^Failed: *DWS failed in DataOut" shown &&
    flux dws list | grep "DataOut.*flux dws rescue" &&
    job_kvs $first rabbit_data_failed | grep "\"reason\": \"dws-failed\"" &&
    test_must_fail job_kvs $first rabbit_data_out &&
    log_says "its data is not out: DWS failed in DataOut"
'
test_expect_success 'a module that was killed keeps it' '
    module_kill &&
    module_start &&
    is_kept $first &&
    ssds_down 14 14 &&
    after=$(flux submit --dependency=dws-out:$first true) &&
    depends $after
'
test_expect_success 'another user can neither rescue it nor give it up' '
    test_must_fail as_guest flux dws rescue $first 2>err &&
    test_must_fail as_guest flux dws rescue --give-up $first 2>>err &&
    grep -c "is not yours" err | grep -x 2
'
test_expect_success 'the data is rescued, and what has waited for that goes on' '
    rm scratch/lustre/results &&
    mkdir scratch/lustre/results &&
    flux dws rescue $first >rescued &&
    grep "8 copies are started again. flux dws wait" rescued &&
    flux dws wait $first &&
    grep saved scratch/lustre/results/x &&
    test "$(job_kvs $first rabbit_data_out)" = "{\"success\": true}" &&
    wait_event $after clean &&
    has_event $after start &&
    no_workflows &&
    ssds_down 0 0
'
test_done
