#!/bin/sh
test_description='stall_timeout: data that does not move any more is given up'
. "$(dirname "$0")/tap.sh"

cluster_start --fault 'DataIn:stall' --fault 'DataOut:stall'
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
END
instance_start 2

IN='#DW copy_in source=/lustre/input destination=$DW_JOB_p1/'
OUT='#DW copy_out source=$DW_JOB_p1/result destination=/lustre/result'
LOST='not copied: $DW_JOB_p1/result to /lustre/result'

# usage: limits [KEY=VALUE...]: reload the configuration with these time limits
limits () {
    {
        sed '/timeout/d' conf/rabbit.toml &&
        for limit; do echo "$limit"; done
    } >rabbit.toml.new &&
    mv rabbit.toml.new conf/rabbit.toml &&
    flux config reload
}

# usage: submit_with DIRECTIVE COMMAND...
submit_with () {
    copy=$1 &&
    shift &&
    flux submit --setattr=system.dw="$DW
        $copy" "$@"
}

submit_out () {
    submit_with "$OUT" sh -c 'echo saved >$DW_JOB_p1/result'
}

# usage: moves_in STATE JOBID: a data movement is under way
moves_in () {
    kube wait "$(workflow "$2")" "$1" &&
    eventually movement_runs "$2"
}

movement_runs () {
    flux dws show --json "$1" | grep -F '"state": "Running"'
}

shows_limit () {
    flux dws show "$1" | grep "^Limit: .*stall_timeout in 9.*m, at .*; no data moved for"
}

test_expect_success 'load the plugin and the module' '
    mkdir -p scratch/lustre &&
    echo data >scratch/lustre/input &&
    module_load
'
test_expect_success 'a copy_in that stalls fails its job' '
    limits "stall_timeout = 2" &&
    id=$(submit_with "$IN" true) &&
    wait_event $id clean &&
    ! has_event $id start &&
    job_exception $id dws "no data moved in DataIn for stall_timeout=2s; flux dws show" &&
    no_workflows
'
test_expect_success 'flux dws show has the limit, and since when no data has moved' '
    limits "stall_timeout = 600" &&
    id=$(submit_out) &&
    moves_in DataOut $id &&
    eventually shows_limit $id
'
test_expect_success 'a shorter limit is in force for jobs that are there' '
    limits "stall_timeout = 2" &&
    wait_event $id clean
'
test_expect_success 'a copy_out that stalls fails its job, which names what is lost' '
    job_exception $id dws \
        "no data moved in DataOut for stall_timeout=2s; $LOST; flux dws show" &&
    test_must_fail flux job status $id &&
    no_workflows &&
    ! test -e scratch/lustre/result
'
test_done
