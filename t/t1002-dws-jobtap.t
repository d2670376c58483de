#!/bin/sh
test_description='The jobtap plugin: loading it, its services, its epilog timeout, and others beside it'
. "$(dirname "$0")/tap.sh"

APART=yes
cluster_start
instance_conf job-manager.toml </dev/null
instance_start 2

# usage: plugin_load_with KEY=VALUE...: by the command that an administrator has
plugin_load_with () {
    flux jobtap load "$JOBTAP" "$@"
}

# usage: plugin_build FILE CFLAGS: the plugin that ships, compiled with more flags
plugin_build () {
    plugin_file=$PWD/$1
    (cd "$TOP" && CFLAGS="-O0 $2" "$PYTHON" -c '
import runpy, subprocess, sys
component = runpy.run_path("src/jobtap/build_jobtap.py")["COMPONENT"]
subprocess.run(component.plugin_command(sys.argv[1]), check=True)
' "$plugin_file")
}

# usage: compile SOURCE PLUGIN, with what the plugin itself is compiled with
compile () {
    # shellcheck disable=SC2086
    compile_flags=$("$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
from component import pkg_config
print(*pkg_config("--cflags", "--libs", "flux-core", "jansson") or sys.exit(1))
' "$TOP/src/standin") &&
    ${CC:-cc} -Wall -Werror -fPIC -shared "$1" -o "$2" $compile_flags
}

is_disabled () {
    kube get storages "$1" | grep "\"state\": \"Disabled\""
}

# ---- loading it -------------------------------------------------------------

test_expect_success 'the plugin refuses a wrong configuration, says which, and is not loaded' '
    test_must_fail plugin_load_with epilog_timeout=5 2>err &&
    grep "unknown key epilog_timeout" err &&
    test_must_fail plugin_load_with epilog-timeout=soon 2>err &&
    grep "epilog-timeout .*\"soon\"" err &&
    test_must_fail plugin_remove
'
test_expect_success 'a plugin that needs a newer Flux is refused, and says which' '
    found=$(flux getattr version) &&
    found=${found%%-*} &&
    next=${found%.*}.$((${found##*.} + 1)) &&
    plugin_build newer.so "-UDWS_OLDEST_FLUX -DDWS_OLDEST_FLUX=\\\"$next\\\"" &&
    test_must_fail flux jobtap load "$PWD/newer.so" 2>err &&
    grep "dws-jobtap.so needs flux-core $next or newer, this is $found" err
'
test_expect_success 'the module is loaded without the plugin, and waits for it' '
    module_load &&
    flux module stats dws &&
    eventually log_says "dws-jobtap.so is not loaded"
'
test_expect_success 'a job that waits for resources when the plugin is loaded fails' '
    id=$(job_submit --urgency=hold true) &&
    wait_event $id priority &&
    plugin_load_with epilog-timeout=0.5 &&
    job_go $id &&
    wait_event $id clean &&
    ! has_event $id start &&
    job_exception $id dws "submitted while dws-jobtap was not loaded"
'
test_expect_success 'the plugin and the module have found each other' '
    eventually log_says "hello from the dws module" &&
    id=$(job_in running) &&
    rpc job-manager.dws.hello >hello &&
    grep "\"id\": $(flux job id --to=dec $id)," hello &&
    grep "\"phase\": \"running\"" hello
'
test_expect_success 'a guest who calls its services gets EPERM' '
    for method in resource-update prolog-remove epilog-remove data-out hello; do
        test_must_fail as_guest rpc job-manager.dws.$method 2>err &&
        grep EPERM err || return 1
    done
'

# ---- its epilog timeout -----------------------------------------------------

test_expect_success 'a job whose storage is not released in time ends all the same' '
    flux module remove dws &&
    dws_pause &&
    job_end $id &&
    wait_event $id clean &&
    job_exception $id dws-epilog-timeout "epilog-timeout of 0.5 seconds" &&
    in_order "$(events $id)" epilog-start:dws-epilog exception \
        epilog-finish:dws-epilog free clean &&
    event_context $id finish | grep "\"status\": 0" &&
    node=$(flux jobs -no "{nodelist}" $id) &&
    flux job eventlog $id | grep "exception.*severity=1.*the dws module is not loaded; storage may still be mounted on $node, and allocated (Workflow $(workflow $id))" &&
    eventually log_says "dws.abort is sent again when the dws module is there"
'
test_expect_success 'a module that comes back drains the node, and disables the Rabbit' '
    module_load &&
    eventually is_drained $node "$(flux job id --to=f58plain $id).*epilog-timeout" &&
    rabbit=$(memos $id rabbits) &&
    eventually is_disabled $rabbit &&
    kube get storages $rabbit >storage &&
    grep "disable-reason.*$(flux job id --to=f58plain $id)" storage
'
test_expect_success 'the Workflow is in Teardown, in a hurry' '
    kube wait $(workflow $id) Teardown &&
    kube get workflows $(workflow $id) | grep "\"hurry\": true"
'
test_expect_success 'the node and the Rabbit can be used again when DWS works' '
    dws_resume &&
    kube enable $rabbit &&
    no_workflows &&
    undrain_all &&
    plugin_remove &&
    plugin_load_with epilog-timeout=60 &&
    id=$(job_submit -N2 true) &&
    job_succeeds $id
'

# ---- another plugin, which raises exceptions in callbacks --------------------

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

test_expect_success 'in job.event.dependency-add: there may be no Workflow yet' '
    compile "$TESTDIR/hostile.c" hostile.so &&
    hostile_in job.event.dependency-add &&
    id=$(job_submit true) &&
    wait_event $id clean &&
    job_exception $id hostile &&
    no_workflows
'
# In the stand-in test_jobtap_hostile has more of them.
for topic in job.update job.event.dependency-remove job.event.prolog-start \
    ${SOAK:+job.event.jobspec-update job.event.alloc job.state.run job.event.dws_environment}; do
    test_expect_success "in $topic: the job ends without having run" '
        hostile_in $topic &&
        id=$(job_submit true) &&
        ends_clean $id &&
        ! has_event $id start
    '
done
for topic in job.event.start job.event.epilog-start \
    ${SOAK:+job.event.prolog-finish job.event.finish job.state.cleanup job.event.release}; do
    test_expect_success "in $topic: the job ends and gives its storage back" '
        hostile_in $topic &&
        id=$(job_submit true) &&
        ends_clean $id
    '
done
test_expect_success 'other jobs run after the hostile plugin' '
    jobtap_remove hostile.so &&
    id=$(job_submit true) &&
    job_succeeds $id &&
    broker_lives
'
test_done
