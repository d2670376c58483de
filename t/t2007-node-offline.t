#!/bin/sh
test_description='Brokers that go offline and come back, and what DWS is told of it'
. "$(dirname "$0")/tap.sh"

cluster_start
brokers_return "compute-[01-04]"
instance_start 4 --test-exit-mode=leader

test_expect_success 'DWS is not to wait for nodes that are offline when the module is loaded, or go offline' '
    node_is Enabled compute-04 &&
    broker_dies 3 &&
    module_load &&
    kube wait-node compute-04 Disabled &&
    broker_dies 2 &&
    kube wait-node compute-03 Disabled &&
    are_offline "compute-[03-04]" &&
    node_is Enabled compute-02
'
test_expect_success 'DWS waits again for nodes that are back' '
    broker run 2 &&
    broker run 3 &&
    kube wait-node compute-03 Enabled &&
    kube wait-node compute-04 Enabled
'
test_expect_success 'DWS waits for a node on which a job waits for its storage, until that has given up' '
    gate_shut PreRun &&
    id=$(job_submit --requires=host:compute-04 true) &&
    kube wait $(workflow $id) PreRun &&
    broker_dies 3 &&
    eventually are_offline compute-04 &&
    broker_dies 2 &&
    kube wait-node compute-03 Disabled &&
    node_is Enabled compute-04 &&
    job_cancel $id &&
    kube wait-node compute-04 Disabled &&
    rm gates/PreRun &&
    wait_event $id clean &&
    kube wait-gone $(workflow $id)
'
test_expect_success 'a node that is back in time has its storage' '
    broker run 2 &&
    broker run 3 &&
    eventually are_offline &&
    gate_shut PreRun &&
    id=$(job_submit --requires=host:compute-04 sh -c "test -d \$DW_JOB_p1") &&
    kube wait $(workflow $id) PreRun &&
    broker_dies 3 &&
    eventually are_offline compute-04 &&
    broker run 3 &&
    eventually are_offline &&
    rm gates/PreRun &&
    job_succeeds $id
'
test_expect_success 'a job ends when its node goes offline, and so does its storage' '
    id=$(job_submit --requires=host:compute-04 sh -c "$LOOP") &&
    wait_event $id start &&
    broker_dies 3 &&
    wait_event $id clean &&
    kube wait-gone $(workflow $id) &&
    kube wait-node compute-04 Disabled
'
# usage: drain_first REASON
drain_first () {
    rpc resource.drain "{\"targets\": \"compute-01\", \"reason\": \"$1\"}"
}

test_expect_success 'the module sees drains after the resource module was loaded again, and warns of no short eventlog' '
    eventually are_offline compute-04 &&
    drain_first "none of ours" &&
    undrain_all &&
    flux dmesg -C &&
    flux module remove sched-simple &&
    flux module reload resource &&
    flux module load sched-simple &&
    drain_first "$(flux job id --to=f58plain $id): Rabbit storage could not be mounted" &&
    kube wait-node compute-01 Disabled &&
    undrain_all &&
    kube wait-node compute-01 Enabled &&
    flux dmesg >log &&
    ! grep kvs-watch log
'
test_done
