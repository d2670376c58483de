#!/bin/sh
test_description='Nodes that cannot mount, and jobs that tolerate it'
. "$(dirname "$0")/tap.sh"

cluster_start --fault 'PreRun:mount:compute-0[23]'
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
tc_timeout = 0.5
END
instance_start 4

# usage: tolerant N [OPTION...] COMMAND...: submit a job that tolerates N failures
tolerant () {
    tolerant_number=$1
    shift
    job_submit --setattr=system.dw_failure_tolerance="$tolerant_number" "$@"
}

# usage: is_told JOBID HOSTLIST: one exception, which is not fatal, tells of nodes
is_told () {
    event_context "$1" exception | python -c '
import json, sys
told = [json.loads(line) for line in sys.stdin]
if [c["type"] for c in told] != ["dws-node-failure"] or told[0]["severity"] < 1 \
        or not told[0]["note"].startswith(sys.argv[1] + ": "):
    sys.exit(f"expected {sys.argv[1:]}, got {told}")' "$2"
}

test_expect_success 'load the module' '
    module_load
'
test_expect_success 'a job that tolerates failed nodes goes on without them' '
    id=$(tolerant 2 -N4 hostname) &&
    wait_event $id clean &&
    flux job status $id &&
    in_order "$(events $id)" prolog-start:dws-setup exception dws_environment \
        prolog-finish:dws-setup start finish epilog-start:dws-epilog \
        epilog-finish:dws-epilog free clean
'
test_expect_success 'an exception that is not fatal names the failed nodes' '
    is_told $id "compute-[02-03]"
'
test_expect_success 'failed nodes are drained, for a reason that names the job' '
    for node in compute-02 compute-03; do
        is_drained $node "$(flux job id --to=f58plain $id):.*mounted" || return 1
    done
'
test_expect_success 'the job runs on all its nodes all the same' '
    test $(flux job attach $id | wc -l) -eq 4
'
test_expect_success 'the next job does not get the nodes that failed' '
    id=$(job_submit -N2 hostname) &&
    wait_event $id clean &&
    flux jobs -no "{nodelist}" $id >nodelist &&
    grep -F "compute-[01,04]" nodelist
'
test_expect_success 'a job that tolerates fewer fails, with their number and names' '
    undrain_all &&
    id=$(tolerant 1 -N4 true) &&
    wait_event $id clean &&
    job_exception $id dws "failed nodes: 2 of 4 (compute-[02-03]), dw_failure_tolerance=1" &&
    ! has_event $id start
'
test_expect_success 'a job that tolerates no failed node fails, and is told which' '
    id=$(job_submit -N4 true) &&
    wait_event $id clean &&
    job_exception $id dws "TransientCondition in PreRun" &&
    job_exception $id dws "failed nodes: 2 of 4 (compute-[02-03])" &&
    ! has_event $id start
'
test_expect_success 'a job that would have no node left fails' '
    id=$(tolerant 9 -N1 --requires=host:compute-02 true) &&
    wait_event $id clean &&
    job_exception $id dws "failed nodes: 1 of 1 (compute-02), dw_failure_tolerance=9"
'
test_expect_success 'no node is drained for a job that fails' '
    only_drained
'
test_expect_success 'a node that is drained already does not spare the others' '
    gate_shut DataIn &&
    id=$(tolerant 2 -N4 true) &&
    kube wait $(workflow $id) DataIn &&
    flux resource drain compute-02 "by hand" &&
    rm gates/DataIn &&
    wait_event $id clean &&
    flux job status $id &&
    is_drained compute-02 "by hand" &&
    is_drained compute-03 mounted
'
test_expect_success 'a module that is loaded meanwhile knows what is tolerated' '
    undrain_all &&
    gate_shut DataIn &&
    id=$(tolerant 2 -N4 true) &&
    kube wait $(workflow $id) DataIn &&
    flux module remove dws &&
    module_load &&
    rm gates/DataIn &&
    wait_event $id clean &&
    flux job status $id &&
    is_told $id "compute-[02-03]"
'
for value in -1 0.5 '"one"' 2147483648; do
    test_expect_success "dw_failure_tolerance=$value is refused at submission" "
        test_must_fail tolerant '$value' true 2>err &&
        grep -F 'dw_failure_tolerance is $value, expected an integer from 0 to' err
    "
done
test_done
