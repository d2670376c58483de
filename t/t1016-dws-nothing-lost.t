#!/bin/sh
test_description='Nothing is lost in silence: data that is not copied, nodes that do not unmount'
. "$(dirname "$0")/tap.sh"

cluster_start --fault 'PostRun:mount:compute-02'
instance_conf job-manager.toml </dev/null
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
postrun_timeout = 1
END
instance_start 4

OUT='#DW copy_out source=$DW_JOB_p1/result destination=/lustre/result'
SAVE='echo saved >$DW_JOB_p1/result'
LOST='not copied: $DW_JOB_p1/result to /lustre/result'

# usage: submit_out [OPTION...] COMMAND...: a job whose result is to be copied
submit_out () {
    flux submit --setattr=system.dw="$DW
        $OUT" "$@"
}

# usage: notes JOBID: of its exceptions, each as "TYPE SEVERITY NOTE"
notes () {
    event_context "$1" exception | python -c '
import json, sys
for line in sys.stdin:
    context = json.loads(line)
    print(context["type"], context["severity"], context.get("note", ""))'
}

# usage: node_is HOST STATUS: in SystemStatus
node_is () {
    test "$(kube node "$1")" = "$2"
}

# Put back what was taken out of service.
restore () {
    kube enable rabbit-01 &&
    no_workflows &&
    undrain_all
}

# usage: plugin_reload SECONDS
plugin_reload () {
    { plugin_remove || true; } &&
    plugin_load "$1"
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

test_expect_success 'load the plugin and the module' '
    plugin_reload 600 &&
    module_load
'
test_expect_success 'postrun_timeout: flux run fails, and says what was not copied' '
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
test_expect_success 'DWS does not wait for a node that has not unmounted' '
    kube wait-node compute-02 Disabled
'
test_expect_success 'no job gets a node that has not unmounted, and the Workflow goes' '
    no_workflows &&
    other=$(job_submit -N1 hostname) &&
    job_succeeds $other &&
    test "$(flux job attach $other)" != compute-02
'
test_expect_success 'DWS waits again for a node that is undrained' '
    undrain_all &&
    kube wait-node compute-02 Enabled
'
test_expect_in_soak 'a job that has nothing to copy does not fail for it' '
    id=$(job_submit -N2 --requires=host:compute-[01-02] true) &&
    wait_event $id clean &&
    flux job status $id &&
    notes $id >notes &&
    test $(wc -l <notes) -eq 1 &&
    grep "^dws-node-failure 1 compute-02: PostRun took more" notes &&
    is_drained compute-02 unmounted &&
    restore
'
test_expect_success 'a cancel in DataOut says that the data is not out' '
    gate_shut DataOut &&
    id=$(submit_out -N1 --requires=host:compute-01 sh -c "$SAVE") &&
    kube wait $(workflow $id) DataOut &&
    job_cancel $id &&
    wait_event $id clean &&
    notes $id | grep -F "dws 0 given up in DataOut; $LOST" &&
    test_must_fail flux job status $id &&
    rm gates/DataOut
'
test_expect_success 'without limits of the module' '
    flux module remove dws &&
    sed -i /postrun_timeout/d conf/rabbit.toml &&
    flux config reload &&
    module_load
'
test_expect_in_soak 'at epilog-timeout nodes, Rabbits and the state are named' '
    plugin_reload 1 &&
    id=$(submit_out -N2 --requires=host:compute-[01-02] true) &&
    wait_event $id clean &&
    notes $id >notes &&
    grep "^dws-epilog-timeout 0" notes &&
    grep -F "dws 0 epilog-timeout in PostRun: compute-02: still mounted, drained;" \
        notes &&
    grep -F "rabbit-01: still allocated, disabled; $LOST" notes
'
test_expect_in_soak 'the node was drained before the job let it go' '
    drained=$(flux resource eventlog -f json | grep "\"drain\"" | tail -n1 \
        | python -c "import json, sys; print(json.load(sys.stdin)[\"timestamp\"])") &&
    released=$(flux job eventlog -f json $id | grep epilog-finish | tail -n1 \
        | python -c "import json, sys; print(json.load(sys.stdin)[\"timestamp\"])") &&
    python -c "import sys; sys.exit(not $drained < $released)" &&
    is_drained compute-02 "$(flux job id --to=f58plain $id): .*epilog-timeout" &&
    restore
'
test_expect_in_soak 'after dws-epilog-timeout by a person nodes, Rabbits and the state are named' '
    plugin_reload 600 &&
    id=$(submit_out -N2 --requires=host:compute-[01-02] true) &&
    in_postrun $id &&
    flux job raise --type=dws-epilog-timeout $id &&
    wait_event $id clean &&
    notes $id | grep -F "still mounted, drained" &&
    is_drained compute-02 epilog-timeout &&
    restore
'
test_expect_in_soak 'a timeout that a person raises asks for Teardown' '
    gate_shut DataOut &&
    id=$(submit_out -N1 --requires=host:compute-01 sh -c "$SAVE") &&
    kube wait $(workflow $id) DataOut &&
    wait_event $id release &&
    flux job raise --type=timeout $id &&
    wait_event $id clean &&
    notes $id | grep -F "given up in DataOut; $LOST" &&
    rm gates/DataOut
'
test_expect_success 'an abort survives an outage in which plugin and module are lost' '
    id=$(submit_out -N2 --requires=host:compute-[01-02] true) &&
    in_postrun $id &&
    eventually has_unmounted compute-01 &&
    dws_pause &&
    process_stop $KUBE_PID &&
    flux job raise --type=dws-epilog-timeout $id &&
    wait_event $id clean &&
    is_drained compute-01 "may still be in use" &&
    is_drained compute-02 "may still be in use" &&
    module_kill &&
    plugin_reload 600 &&
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
test_expect_in_soak 'a node that has not unmounted goes to no job that waits for it' '
    id=$(job_submit -N1 --requires=host:compute-02 true) &&
    in_postrun $id &&
    other=$(flux submit -N1 --requires=host:compute-02 true) &&
    job_cancel $id &&
    kube wait $(workflow $id) Teardown &&
    kube node compute-02 Disabled &&
    wait_event $id clean &&
    is_drained compute-02 "could not be unmounted" &&
    sleep 1 &&
    ! has_event $other alloc &&
    job_cancel $other &&
    kube node compute-02 Enabled &&
    restore
'
test_expect_in_soak 'a node that somebody else has disabled is avoided, and stays so' '
    kube node compute-01 Disabled &&
    eventually log_says "compute-01 is disabled by somebody else" &&
    id=$(job_submit -N1 --requires=-host:compute-02 hostname) &&
    job_succeeds $id &&
    test "$(flux job attach $id)" != compute-01 &&
    flux module remove dws &&
    module_load &&
    sleep 1 &&
    node_is compute-01 Disabled
'
test_done
