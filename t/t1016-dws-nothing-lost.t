#!/bin/sh
test_description='Nothing is lost in silence: data that is not copied, nodes that do not unmount'
. "$(dirname "$0")/tap.sh"

cluster_start --fault 'PostRun:mount:compute-02' --fault DataOut:stall
instance_conf job-manager.toml </dev/null
rabbit_conf 'postrun_timeout = 1'
instance_start 4

OUT='#DW copy_out source=$DW_JOB_p1/result destination=/lustre/result'
LOST='not copied: $DW_JOB_p1/result to /lustre/result'

# Put back what was taken out of service.
restore () {
    kube enable rabbit-01 &&
    no_workflows &&
    undrain_all
}

# usage: has_unmounted HOST: nothing is mounted there any more
has_unmounted () {
    kube get clientmounts | python_stdin '
import json, sys
mounts = [
    mount
    for clientmount in json.load(sys.stdin)["items"]
    if clientmount["metadata"]["namespace"] == sys.argv[1]
    for mount in clientmount["status"]["mounts"]
]
sys.exit(any(m["state"] != "unmounted" or not m["ready"] for m in mounts))' "$1"
}

in_postrun () {
    wait_event "$1" epilog-start && kube wait "$(workflow "$1")" PostRun
}

test_expect_success 'postrun_timeout: flux run fails, and says what was not copied' '
    plugin_load 600 &&
    module_load &&
    test_must_fail flux run -N2 --requires=host:compute-[01-02] \
        --setattr=system.dw="$DW
        $OUT" true 2>err &&
    grep -F "PostRun took more than postrun_timeout=1s; $LOST" err
'
test_expect_success 'the node that has not unmounted is drained by name, and no other' '
    id=$(flux job last) &&
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
    config_reload &&
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
    eventually has_unmounted compute-01 &&
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
    restore
'
test_done
