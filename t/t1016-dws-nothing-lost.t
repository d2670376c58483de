#!/bin/sh
test_description='Nothing is lost in silence: data that is not copied, nodes that do not unmount'
. "$(dirname "$0")/tap.sh"

APART=yes
cluster_start --fault 'PostRun:mount:compute-02' --fault DataOut:stall
instance_conf job-manager.toml </dev/null
instance_start 4

OUT='#DW copy_out source=$DW_JOB_p1/result destination=/lustre/result'
LOST='not copied: $DW_JOB_p1/result to /lustre/result'

# usage: in_postrun JOBID: only the node that does not has not unmounted
in_postrun () {
    wait_event "$1" epilog-start &&
    kube wait "$(workflow "$1")" PostRun &&
    eventually are_late "$1" compute-02
}

test_expect_success 'postrun_timeout: the job fails, and its user is told what was not copied' '
    plugin_load 600 &&
    module_load &&
    id=$(flux submit -N2 --requires=host:compute-[01-02] --setattr=system.dw="$DW
        $OUT" true) &&
    in_postrun $id &&
    config_reload "postrun_timeout = 1" &&
    test_must_fail flux job attach $id 2>err &&
    config_reload &&
    grep -F "PostRun took more than postrun_timeout=1s; $LOST" err
'
test_expect_success 'the node that has not unmounted is drained by name, and no other' '
    is_drained compute-02 "$(flux job id --to=f58plain $id): .*could not be unmounted" &&
    only_drained compute-02
'
test_expect_success 'no job gets it, DWS does not wait for it, and the Workflow goes' '
    kube wait-node compute-02 Disabled &&
    no_workflows &&
    other=$(job_submit -N3 hostname) &&
    job_succeeds $other &&
    test "$(nodes_of $other)" = "compute-[01,03-04]"
'
test_expect_success 'DWS waits again for a node that is undrained' '
    undrain_all &&
    kube wait-node compute-02 Enabled
'
test_expect_success 'a copy_out that stalls fails its job, by a limit that is set later' '
    id=$(flux submit -N1 --requires=host:compute-01 --setattr=system.dw="$DW
        $OUT" sh -c "echo saved >\$DW_JOB_p1/result") &&
    kube wait $(workflow $id) DataOut &&
    config_reload "stall_timeout = 1" &&
    wait_event $id clean &&
    job_exception $id dws "no data moved in DataOut for stall_timeout=1s; $LOST" &&
    test_must_fail flux job status $id &&
    no_workflows
'
test_expect_success 'an abort survives an outage in which plugin and module are lost' '
    config_reload &&
    id=$(job_submit -N2 --requires=host:compute-[01-02] true) &&
    in_postrun $id &&
    dws_pause &&
    process_stop $KUBE_PID &&
    flux job raise --type=dws-epilog-timeout $id &&
    wait_event $id clean &&
    is_drained compute-01 "may still be in use" &&
    is_drained compute-02 "may still be in use" &&
    module_kill &&
    plugin_remove &&
    plugin_load 600 &&
    kill -CONT $KUBE_PID &&
    module_load &&
    eventually log_says "compute-02: still mounted, drained; rabbit-01: still" &&
    eventually only_drained compute-02
'
test_expect_success 'the node that had not unmounted comes back when it has' '
    flux module remove dws &&
    module_load &&
    sleep 1 &&
    is_drained compute-02 "may still be in use" &&
    dws_resume &&
    kube enable rabbit-01 &&
    eventually log_says "undraining compute-02: storage is not mounted there" &&
    eventually only_drained &&
    no_workflows
'
test_done
