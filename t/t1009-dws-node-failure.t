#!/bin/sh
test_description='Nodes that cannot mount, and jobs that tolerate it'
. "$(dirname "$0")/tap.sh"

cluster_start --fault 'PreRun:mount:compute-0[23]'
instance_start 4

# usage: job_with_bad_nodes [OPTION...]: set $id to a job on all nodes, of which two are
# given up when the others are ready
job_with_bad_nodes () {
    id=$(job_submit -N4 "$@") &&
    kube wait "$(workflow "$id")" PreRun &&
    eventually are_late "$id" compute-02 compute-03 &&
    config_reload "tc_timeout = 0.5" &&
    wait_event "$id" clean &&
    config_reload
}

test_expect_success 'a job that tolerates failed nodes goes on without them' '
    module_load &&
    job_with_bad_nodes --setattr=system.dw_failure_tolerance=2 hostname &&
    flux job status $id &&
    in_order "$(events $id)" prolog-start:dws-setup exception dws_environment \
        prolog-finish:dws-setup start finish epilog-start:dws-epilog \
        epilog-finish:dws-epilog free clean &&
    test $(flux job attach $id | wc -l) -eq 4
'
test_expect_success 'one exception, which is not fatal, names the failed nodes' '
    event_context $id exception >told &&
    test $(wc -l <told) -eq 1 &&
    grep "dws-node-failure.*\"compute-\[02-03\]: " told
'
test_expect_success 'failed nodes are drained, for a reason that names the job' '
    for node in compute-02 compute-03; do
        is_drained $node "$(flux job id --to=f58plain $id):.*mounted" || return 1
    done
'
test_expect_success 'the next job does not get the nodes that failed' '
    id=$(job_submit -N2 hostname) &&
    wait_event $id clean &&
    test "$(nodes_of $id)" = "compute-[01,04]"
'
test_expect_success 'a job that tolerates no failed node fails, and is told which' '
    undrain_all &&
    job_with_bad_nodes true &&
    job_exception $id dws "TransientCondition in PreRun" &&
    job_exception $id dws "failed nodes: 2 of 4 (compute-[02-03])" &&
    ! has_event $id start &&
    only_drained
'
test_done
