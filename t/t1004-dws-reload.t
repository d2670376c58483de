#!/bin/sh
test_description='The module or the plugin goes away, and comes back, while there are jobs

More of them, and more often (make soak):
    SOAK=1 MANY=30 ROUNDS=4 ./t1004-dws-reload.t'
. "$(dirname "$0")/tap.sh"

MANY=${MANY:-10}     # jobs at once
ROUNDS=${ROUNDS:-2}  # times that the module is killed while they run

cluster_start
instance_conf job-manager.toml <<END
[[job-manager.plugins]]
load = "$JOBTAP"
conf = { epilog-timeout = 60.0 }
END
instance_start 2

module_remove () {
    flux module remove dws
}

plugin_is_missed () {
    flux dmesg | grep "dws.warning.*dws-jobtap.so is not loaded: new jobs with #DW directives fail"
}

# ---- the module -------------------------------------------------------------

test_expect_success 'a job that is submitted while the module is not loaded waits' '
    id=$(job_submit true) &&
    wait_event $id memo
'
test_expect_success 'a job that waits for the module says why in a memo' '
    has_memo $id dws "dws module is not loaded" &&
    ! has_event $id depend
'
test_expect_success 'the log has one line about the missing module for all jobs' '
    flux submit --quiet --cc=1-5 --setattr=system.dw="$DW" true &&
    other=$(flux job last) &&
    wait_event $other memo &&
    test "$(flux dmesg | grep -c "module is not loaded")" -eq 1
'
test_expect_success 'a waiting job goes on when the module is loaded' '
    module_load &&
    job_succeeds $id &&
    job_succeeds $other
'
test_expect_success 'the memo is gone when the module is loaded' '
    ! has_memo $id dws &&
    ! has_memo $other dws
'
test_expect_in_soak 'flux module reload is possible while there are jobs' '
    jobs_in_all_phases &&
    flux module reload dws scheduler=none &&
    let_go
'
expect_each_to_succeed 'after a reload' test_expect_in_soak
test_expect_success 'jobs for which something is to be done wait without the module' '
    jobs_in_all_phases &&
    module_remove &&
    let_go &&
    wait_event $running epilog-start &&
    eventually has_memo $running dws "not loaded" &&
    eventually has_memo $sched dws "not loaded" &&
    ! has_event $depend depend &&
    for phase in sched setup datain prerun; do
        ! has_event $(job_of $phase) start || return 1
    done &&
    for phase in running postrun dataout teardown; do
        ! has_event $(job_of $phase) clean || return 1
    done
'
test_expect_success 'jobs that wait for the module go on when it is loaded again' '
    module_load
'
expect_each_to_succeed 'after its absence'
test_expect_success 'the broker lives when the module is killed' '
    jobs_in_all_phases &&
    module_kill &&
    broker_lives &&
    let_go &&
    wait_event $running epilog-start &&
    module_load
'
expect_each_to_succeed 'after its death'
test_expect_success 'the module is killed and loaded at any moment' '
    flux submit --cc="1-$MANY" --setattr=system.dw="$DW" true >ids &&
    for round in $(seq "$ROUNDS"); do
        module_kill && module_load || return 1
    done &&
    queue_idle $PATIENCE &&
    for id in $(cat ids); do
        job_succeeds $id || return 1
    done
'
test_expect_success 'a Workflow whose job ended meanwhile is taken down' '
    id=$(job_in running) &&
    module_remove &&
    job_cancel $id &&
    wait_event $id epilog-start &&
    module_load &&
    wait_event $id clean &&
    job_exception $id cancel &&
    no_workflows
'

# ---- the plugin -------------------------------------------------------------

test_expect_success 'the plugin is removed and loaded while there are jobs' '
    jobs_in_all_phases &&
    plugin_remove &&
    plugin_load &&
    let_go
'
expect_each_to_succeed 'after a reload of the plugin'
test_expect_in_soak 'DWS goes on while the plugin is not loaded' '
    jobs_in_all_phases &&
    plugin_remove &&
    for phase in $PHASES; do
        gates_open $(job_of $phase) || return 1
    done &&
    kube wait-ready $(workflow $depend) Proposal &&
    for phase in setup datain prerun; do
        kube wait-ready $(workflow $(job_of $phase)) PreRun || return 1
    done &&
    for phase in postrun dataout teardown; do
        kube wait-ready $(workflow $(job_of $phase)) Teardown || return 1
    done &&
    plugin_load &&
    let_go
'
expect_each_to_succeed 'after the absence of the plugin' test_expect_in_soak
test_expect_in_soak 'the module is reloaded while the plugin is not loaded' '
    jobs_in_all_phases &&
    plugin_remove &&
    module_remove &&
    flux dmesg -C &&
    module_load &&
    eventually plugin_is_missed &&
    plugin_load &&
    let_go
'
expect_each_to_succeed 'after both were away' test_expect_in_soak
test_expect_in_soak 'both are killed and removed, and the plugin comes first' '
    jobs_in_all_phases &&
    module_kill &&
    plugin_remove &&
    plugin_load &&
    module_load &&
    let_go
'
expect_each_to_succeed 'after both were away' test_expect_in_soak
test_expect_success 'a job that ends while the plugin is not loaded' '
    id=$(job_in running) &&
    plugin_remove &&
    job_end $id &&
    wait_event $id clean
'
test_expect_success 'a job that ended without the plugin has no storage when the plugin is back' '
    plugin_load &&
    no_workflows
'
test_expect_success 'a job that waits for nodes does not notice that its Workflow is deleted' '
    id=$(job_in sched) &&
    kube delete workflows $(workflow $id) &&
    eventually log_says "Workflow $(workflow $id) was lost, and is made again" &&
    kube wait-ready $(workflow $id) Proposal &&
    job_let_go $id sched &&
    job_succeeds $id
'
test_expect_success 'nor that its cluster is installed anew while the module is away' '
    id=$(job_in sched) &&
    module_remove &&
    kube remove workflows $(workflow $id) &&
    module_load &&
    kube wait-ready $(workflow $id) Proposal &&
    job_let_go $id sched &&
    job_succeeds $id
'
test_expect_success 'a job that is started without the plugin fails, as it has no storage' '
    id=$(job_in sched) &&
    plugin_remove &&
    job_go $id &&
    wait_event $id clean &&
    job_exception $id exec &&
    plugin_load &&
    no_workflows
'
test_expect_success 'no job is started without the plugin while its queue is stopped' '
    id=$(job_in sched) &&
    flux queue stop --all --quiet &&
    plugin_remove &&
    job_go $id &&
    wait_event $id urgency &&
    plugin_load &&
    flux queue start --all --quiet &&
    job_end $id &&
    job_succeeds $id
'
test_expect_success 'a job that is cancelled without the plugin has no storage in the end' '
    id=$(job_in depend) &&
    plugin_remove &&
    job_cancel $id &&
    wait_event $id clean &&
    gates_open $id &&
    plugin_load &&
    no_workflows
'
test_done
