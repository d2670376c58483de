#!/bin/sh
test_description='Another jobtap plugin raises exceptions in callbacks'
. "$(dirname "$0")/tap.sh"

# usage: compile SOURCE PLUGIN, with what the plugin itself is compiled with
compile () {
    compile_flags=$("$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
from component import pkg_config
print(*pkg_config("--cflags", "--libs", "flux-core", "jansson") or sys.exit(1))
' "$TOP/src/standin") &&
    # shellcheck disable=SC2086
    ${CC:-cc} -Wall -Werror -fPIC -shared "$1" -o "$2" $compile_flags
}

cluster_start
test -n "$FLUX_DWS_INSIDE" || compile "$TESTDIR/hostile.c" "$TRASH/hostile.so" ||
    skip_all "a plugin cannot be compiled here"
instance_start 2

# usage: hostile_in TOPIC: from now on it raises in this callback
hostile_in () {
    jobtap_remove hostile.so
    jobtap_load "$TRASH/hostile.so" "{\"topic\": \"$1\"}"
}

# usage: ends_clean JOBID: it is inactive, and nothing of its storage is left
ends_clean () {
    wait_event "$1" clean &&
    job_exception "$1" hostile &&
    test "$(events "$1" | tr ' ' '\n' | grep -c "^epilog-start:dws-epilog")" -eq 1 &&
    test "$(events "$1" | tr ' ' '\n' | grep -c "^epilog-finish:dws-epilog")" -eq 1 &&
    kube wait-gone "$(workflow "$1")"
}

test_expect_success 'the module is loaded' '
    module_load
'
for topic in job.update job.event.jobspec-update job.event.dependency-remove \
    job.event.alloc job.state.run job.event.prolog-start \
    job.event.dws_environment; do
    test_expect_success "in $topic: the job ends without having run" '
        hostile_in $topic &&
        id=$(job_submit true) &&
        ends_clean $id &&
        ! has_event $id start
    '
done
for topic in job.event.prolog-finish job.event.start job.event.finish job.state.cleanup \
    job.event.epilog-start job.event.release; do
    test_expect_success "in $topic: the job ends and gives its storage back" '
        hostile_in $topic &&
        id=$(job_submit true) &&
        ends_clean $id
    '
done
test_expect_success 'in job.event.dependency-add: there may be no Workflow yet' '
    hostile_in job.event.dependency-add &&
    id=$(job_submit true) &&
    wait_event $id clean &&
    job_exception $id hostile &&
    no_workflows
'
test_expect_success 'in job.event.memo, while jobs wait for the module' '
    hostile_in job.event.memo &&
    flux module remove dws &&
    id=$(job_submit true) &&
    wait_event $id clean &&
    job_exception $id hostile &&
    module_load &&
    no_workflows
'
test_expect_success 'the epilog timeout counts for a job that was ended in job.update' '
    plugin_remove &&
    plugin_load 1 &&
    hostile_in job.update &&
    gate_shut Teardown &&
    id=$(job_submit true) &&
    wait_event $id clean &&
    flux job eventlog $id | grep "type=\"dws-epilog-timeout\"" &&
    rm "$TRASH/gates/Teardown" &&
    kube enable rabbit-01 && kube enable rabbit-02 &&
    no_workflows
'
test_expect_success 'other jobs run after the hostile plugin' '
    jobtap_remove hostile.so &&
    id=$(job_submit true) &&
    job_succeeds $id &&
    broker_lives
'
test_done
