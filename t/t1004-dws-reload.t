#!/bin/sh
test_description='The module or the plugin goes away, and comes back, while there are jobs'
. "$(dirname "$0")/tap.sh"

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

plugin_remove () {
    flux jobtap remove dws-jobtap.so
}

plugin_is_missed () {
    flux dmesg | grep "dws.warning.*dws-jobtap.so is not loaded: new jobs with #DW directives fail"
}

plugin_load () {
    flux jobtap load "$JOBTAP" epilog-timeout=60
}

# ---- the module -------------------------------------------------------------

test_expect_success 'a job that is submitted while the module is not loaded waits' '
    id=$(job_submit true) &&
    wait_event $id memo
'
test_expect_success 'it says why in a memo' '
    has_memo $id dws "dws module is not loaded" &&
    ! has_event $id depend
'
test_expect_success 'the log has one line about it, however many jobs there are' '
    flux submit --quiet --cc=1-5 --setattr=system.dw="$DW" true &&
    other=$(flux job last) &&
    wait_event $other memo &&
    test "$(flux dmesg | grep -c "module is not loaded")" -eq 1
'
test_expect_success 'it goes on when the module is loaded' '
    module_load &&
    job_succeeds $id &&
    job_succeeds $other
'
test_expect_success 'the memo is gone then' '
    ! has_memo $id dws &&
    ! has_memo $other dws
'
test_expect_success 'flux module reload is possible while there are jobs' '
    jobs_in_all_phases &&
    flux module reload dws scheduler=none &&
    let_go
'
expect_each_to_succeed 'after a reload'
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
test_expect_success 'and the module is loaded again' '
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
test_expect_success 'it is killed and loaded at any moment' '
    flux submit --cc=1-30 --setattr=system.dw="$DW" true >ids &&
    for round in 1 2 3 4; do
        module_kill && module_load || return 1
    done &&
    flux queue idle --quiet --timeout=${PATIENCE}s &&
    for id in $(cat ids); do
        job_succeeds $id || return 1
    done
'
test_expect_success 'a Workflow whose job ended meanwhile is taken down' '
    id=$(job_in running) &&
    module_remove &&
    flux cancel $id &&
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
test_expect_success 'DWS goes on while the plugin is not loaded' '
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
expect_each_to_succeed 'after the absence of the plugin'
test_expect_success 'the module is reloaded while the plugin is not loaded' '
    jobs_in_all_phases &&
    plugin_remove &&
    module_remove &&
    flux dmesg -C &&
    module_load &&
    eventually plugin_is_missed &&
    plugin_load &&
    let_go
'
expect_each_to_succeed 'after both were away'
test_expect_success 'both are killed and removed, and the plugin comes first' '
    jobs_in_all_phases &&
    module_kill &&
    plugin_remove &&
    plugin_load &&
    module_load &&
    let_go
'
expect_each_to_succeed 'after both were away'
test_expect_success 'a job that ends while the plugin is not loaded' '
    id=$(job_in running) &&
    plugin_remove &&
    job_end $id &&
    wait_event $id clean
'
test_expect_success 'has no storage any more when the plugin is there again' '
    plugin_load &&
    no_workflows
'
test_expect_success 'one that is started meanwhile fails, as it has no storage' '
    id=$(job_in sched) &&
    plugin_remove &&
    job_go $id &&
    wait_event $id clean &&
    job_exception $id exec &&
    plugin_load &&
    no_workflows
'
test_expect_success 'none is while its queue is stopped' '
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
test_expect_success 'one that is cancelled meanwhile has no storage any more' '
    id=$(job_in depend) &&
    plugin_remove &&
    flux cancel $id &&
    wait_event $id clean &&
    gates_open $id &&
    plugin_load &&
    no_workflows
'
test_done
