#!/bin/sh
test_description='The module or the plugin goes away, and comes back, while there are jobs'
. "$(dirname "$0")/tap.sh"

MANY=10   # jobs at once
ROUNDS=2  # times that the module is killed while they run
test -z "$SOAK" || MANY=30 ROUNDS=4

cluster_start
instance_conf job-manager.toml <<END
[[job-manager.plugins]]
load = "$JOBTAP"
conf = { epilog-timeout = 60.0 }
END
instance_start 2

# usage: R_grow JOBID VERTICES: so many more cores in the graph of the job's R
R_grow () {
    R_grow_key=$(flux job id --to=kvs "$1").R &&
    flux kvs get --raw "$R_grow_key" | python_stdin '
import json, sys
R = json.load(sys.stdin)
core = {"id": "9", "metadata": {"type": "core", "id": 0, "rank": 0, "uniq_id": 0,
    "name": "core0", "paths": {"containment": "/cluster0/compute-01/core0"}}}
R["scheduling"] = {"graph": {"nodes": [core] * int(sys.argv[1]), "edges": []}}
sys.stdout.write(json.dumps(R))' "$2" >R &&
    flux kvs put --raw "$R_grow_key=-" <R
}

test_expect_success 'jobs that are submitted while the module is not loaded say so, and wait' '
    flux submit --cc=1-3 --setattr=system.dw="$DW" true >ids &&
    for id in $(cat ids); do
        wait_event $id memo &&
        has_memo $id dws "dws module is not loaded" &&
        ! has_event $id depend || return 1
    done &&
    test "$(flux dmesg | grep -c "module is not loaded")" -eq 1
'
test_expect_success 'jobs that wait go on when the module is loaded' '
    module_load &&
    for id in $(cat ids); do
        job_succeeds $id && ! has_memo $id dws || return 1
    done
'
test_expect_success 'the broker lives when the module is killed' '
    jobs_in_all_phases &&
    module_kill &&
    broker_lives &&
    let_go
'
test_expect_success 'jobs for which something is to be done wait without the module' '
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
test_expect_success 'they go on when the plugin and the module are loaded again' '
    plugin_remove &&
    plugin_load &&
    module_load
'
expect_each_to_succeed 'after that'
test_expect_in_soak 'the module is killed and loaded at any moment' '
    flux submit --cc="1-$MANY" --setattr=system.dw="$DW" true >ids &&
    for round in $(seq "$ROUNDS"); do
        module_kill && module_load || return 1
    done &&
    queue_idle $PATIENCE &&
    for id in $(cat ids); do
        job_succeeds $id || return 1
    done
'
test_expect_success 'a job that is started without the plugin fails, as it has no storage' '
    running=$(job_in running) &&
    sched=$(job_in sched) &&
    depend=$(job_in depend) &&
    plugin_remove &&
    job_go $sched &&
    wait_event $sched clean &&
    job_exception $sched exec
'
test_expect_success 'what ends while the plugin is not loaded has no storage when it is back' '
    job_end $running &&
    wait_event $running clean &&
    job_cancel $depend &&
    wait_event $depend clean &&
    gates_open $depend &&
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
test_expect_success 'a job whose R has 10 MB runs' '
    id=$(job_in sched) &&
    flux module remove dws &&
    job_go $id &&
    wait_event $id prolog-start &&
    job_end $id &&
    R_grow $id 100000 &&
    test $(wc -c <R) -gt 10000000 &&
    module_load &&
    PATIENCE=180 job_succeeds $id &&
    ! child_of "$(service_pid)" flux_k8s.jobs.setupreader
'
test_done
