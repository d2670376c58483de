#!/bin/sh
test_description='Jobs whose R is large'
. "$(dirname "$0")/tap.sh"

# Beside other files, once in fifty times, a minute was not enough.
PATIENCE=180

cluster_start
instance_start 2

# usage: R_key JOBID
R_key () {
    flux job id --to=kvs "$1" | sed 's/$/.R/'
}

# usage: R_grow JOBID VERTICES: so many more cores in the graph of the job's R
R_grow () {
    flux kvs get --raw "$(R_key "$1")" | python -c '
import json, sys
R = json.load(sys.stdin)
core = {"id": "9", "metadata": {"type": "core", "id": 0, "rank": 0, "uniq_id": 0,
    "name": "core0", "paths": {"containment": "/cluster0/compute-01/core0"}}}
R["scheduling"] = {"graph": {"nodes": [core] * int(sys.argv[1]), "edges": []}}
sys.stdout.write(json.dumps(R))' "$2" >"$TRASH/R" &&
    flux kvs put --raw "$(R_key "$1")=-" <"$TRASH/R"
}

# usage: R_replace JOBID TEXT
R_replace () {
    printf %s "$2" | flux kvs put --raw "$(R_key "$1")=-"
}

# The process that reads R, if there is one.
reader_pid () {
    child_of "$(service_pid)" flux_k8s.broker.readerprogram
}

# Kill it as soon as it is there.
reader_kill () {
    for _ in $(seq 800); do
        reader_kill_pid=$(reader_pid) && kill -KILL "$reader_kill_pid" && return 0
        sleep 0.05
    done
    return 1
}

# A job that gets dws.setup for the first time when the module is loaded; its ID.
job_before_setup () {
    module_load >&2 &&
    job_before_setup_id=$(job_in sched) &&
    flux module remove dws >&2 &&
    job_go "$job_before_setup_id" &&
    wait_event "$job_before_setup_id" prolog-start >&2 &&
    job_end "$job_before_setup_id" &&
    echo "$job_before_setup_id"
}

test_expect_success 'a job whose R has 10 MB runs' '
    id=$(job_before_setup) &&
    R_grow $id 100000 &&
    test $(flux kvs get --raw $(R_key $id) | wc -c) -gt 10000000 &&
    module_load &&
    job_succeeds $id
'
test_expect_success 'the memory for a large R is given back' '
    ! reader_pid &&
    flux module remove dws
'
test_expect_in_soak 'a large R that is not JSON fails its job, which is told why' '
    id=$(job_before_setup) &&
    R_replace $id "{$(printf "%400000s")}{}" &&
    module_load &&
    wait_event $id clean &&
    job_exception $id dws "dws.setup: the payload is not JSON" &&
    flux module remove dws
'
test_expect_in_soak 'an R that is no object fails its job, too' '
    id=$(job_before_setup) &&
    R_replace $id "$(printf "[%400000s]")" &&
    module_load &&
    wait_event $id clean &&
    job_exception $id dws "error reading R" &&
    flux module remove dws
'
test_expect_in_soak 'the process that reads it is killed: that job fails, and no other' '
    id=$(job_before_setup) &&
    R_grow $id 100000 &&
    { reader_kill & } &&
    module_load &&
    echo "$(module_pid)" >pid &&
    wait $! &&
    wait_event $id clean &&
    job_exception $id dws "the process that reads R was ended by signal 9" &&
    other=$(job_submit true) &&
    job_succeeds $other &&
    test "$(module_pid)" = "$(cat pid)"
'

test_done
