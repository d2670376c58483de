#!/bin/sh
test_description='The jobtap plugin: loading it, its services and its epilog timeout'
. "$(dirname "$0")/tap.sh"

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

storage_state () {
    kube get storages "$1" | sed -n '/"spec"/,/}/s/.*"state": "\(.*\)".*/\1/p'
}

is_disabled () {
    test "$(storage_state "$1")" = Disabled
}

undo_abort () {
    kube enable rabbit-01 &&
    kube enable rabbit-02 &&
    no_workflows &&
    undrain_all
}

# Set $id to a job in the epilog whose storage DWS does nothing about.
job_stuck () {
    id=$(job_in running) &&
    dws_pause &&
    job_end "$id" &&
    wait_event "$id" epilog-start
}

test_expect_success 'the plugin refuses an unknown key, and says which' '
    test_must_fail plugin_load_with epilog_timeout=5 2>err &&
    grep "unknown key epilog_timeout" err
'
test_expect_success 'the plugin refuses an epilog-timeout that is not a number of seconds' '
    test_must_fail plugin_load_with epilog-timeout=soon 2>err &&
    grep "epilog-timeout .*\"soon\"" err &&
    test_must_fail plugin_load_with epilog-timeout=-1 2>err &&
    grep "epilog-timeout .*-1" err &&
    test_must_fail plugin_load_with epilog-timeout=0 2>err &&
    grep "epilog-timeout .*0" err
'
test_expect_success 'a plugin that needs a newer Flux is refused, and says which' '
    found=$(flux getattr version) &&
    found=${found%%-*} &&
    next=${found%.*}.$((${found##*.} + 1)) &&
    for needed in 99.0.0 $next; do
        plugin_build newer.so \
            "-UDWS_OLDEST_FLUX -DDWS_OLDEST_FLUX=\\\"$needed\\\"" &&
        test_must_fail flux jobtap load "$PWD/newer.so" 2>err &&
        grep "dws-jobtap.so needs flux-core $needed or newer, this is $found" err ||
            return 1
    done
'
test_expect_success 'a plugin with a wrong configuration is not loaded' '
    test_must_fail plugin_remove
'
test_expect_success 'the module is loaded without the plugin, and waits for it' '
    module_load &&
    flux module stats dws &&
    eventually log_says "dws-jobtap.so is not loaded"
'
test_expect_success 'without the plugin a #DW job fails, and its tasks never run' '
    id=$(job_submit touch ran) &&
    wait_event $id clean &&
    ! has_event $id dependency-add &&
    test_must_fail flux job attach $id 2>err &&
    grep "no storage: .* dws-jobtap.so is not loaded" err &&
    test ! -e ran
'
test_expect_success 'a job that waits for resources when the plugin is loaded fails' '
    id=$(job_submit --urgency=hold true) &&
    wait_event $id priority &&
    plugin_load_with epilog-timeout=60 &&
    job_go $id &&
    wait_event $id clean &&
    ! has_event $id start &&
    job_exception $id dws "submitted while dws-jobtap was not loaded"
'
test_expect_success 'the plugin and the module have found each other' '
    eventually log_says "hello from the dws module" &&
    id=$(job_submit true) &&
    job_succeeds $id
'
for method in resource-update prolog-remove epilog-remove hello; do
    test_expect_success "a guest who calls job-manager.dws.$method gets EPERM" '
        test_must_fail as_guest rpc job-manager.dws.$method 2>err &&
        grep EPERM err
    '
done
for method in resource-update prolog-remove epilog-remove; do
    test_expect_success "job-manager.dws.$method with a malformed payload gets EPROTO" '
        test_must_fail rpc job-manager.dws.$method 2>err &&
        grep EPROTO err &&
        test_must_fail rpc job-manager.dws.$method "{\"id\": \"x\"}" 2>err &&
        grep EPROTO err
    '
    test_expect_success "job-manager.dws.$method for a job that does not exist gets ENOENT" '
        test_must_fail rpc job-manager.dws.$method \
            "{\"id\": 42, \"resources\": [], \"exclude\": null, \"variables\": {}}" \
            2>err &&
        grep ENOENT err
    '
done
test_expect_success 'hello lists the jobs that have storage, with their phase' '
    id=$(job_in running) &&
    rpc job-manager.dws.hello >hello &&
    grep "\"id\": $(flux job id --to=dec $id)," hello &&
    grep "\"phase\": \"running\"" hello
'
test_expect_success 'a repeated prolog-remove changes nothing' '
    dec=$(flux job id --to=dec $id) &&
    { rpc job-manager.dws.prolog-remove \
        "{\"id\": $dec, \"variables\": {\"DW_X\": \"1\"}}" || true; } &&
    job_end $id &&
    job_succeeds $id &&
    ! flux job eventlog $id | grep DW_X
'
test_expect_success 'epilog-timeout: the plugin is loaded with half a second' '
    plugin_remove &&
    plugin_load_with epilog-timeout=0.5
'
test_expect_success 'a job whose storage is not released in time ends all the same' '
    job_stuck &&
    wait_event $id clean &&
    job_exception $id dws-epilog-timeout "epilog-timeout of 0.5 seconds" &&
    in_order "$(events $id)" epilog-start:dws-epilog exception \
        epilog-finish:dws-epilog free clean
'
test_expect_success 'a job whose storage is not released in time keeps its exit status' '
    event_context $id finish | grep "\"status\": 0"
'
test_expect_success 'the node on which storage is still mounted is drained' '
    node=$(flux jobs -no "{nodelist}" $id) &&
    eventually is_drained $node "$(flux job id --to=f58plain $id).*epilog-timeout"
'
test_expect_success 'the Rabbit that still has the storage is disabled, with a reason' '
    rabbit=$(memos $id rabbits) &&
    eventually is_disabled $rabbit &&
    kube get storages $rabbit >storage &&
    grep "disable-reason.*$(flux job id --to=f58plain $id)" storage
'
test_expect_success 'the Workflow is in Teardown, in a hurry' '
    kube wait $(workflow $id) Teardown &&
    kube get workflows $(workflow $id) | grep "\"hurry\": true"
'
test_expect_success 'the Workflow goes when DWS works and an administrator enables the Rabbit' '
    dws_resume &&
    kube enable $rabbit &&
    no_workflows
'
test_expect_success 'the node and the Rabbit of an aborted job can be used again' '
    undrain_all &&
    plugin_remove &&
    plugin_load_with epilog-timeout=60 &&
    id=$(job_submit -N2 true) &&
    job_succeeds $id
'
test_expect_success 'the timeout goes on where it was when the plugin is reloaded' '
    plugin_remove &&
    plugin_load_with epilog-timeout=1 &&
    job_stuck &&
    plugin_remove &&
    plugin_load_with epilog-timeout=1 &&
    wait_event $id clean &&
    job_exception $id dws-epilog-timeout "epilog-timeout of 1 seconds"
'
test_expect_success 'the epilog timeout ends a job without the module' '
    dws_resume &&
    undo_abort &&
    id=$(job_in running) &&
    flux module remove dws &&
    job_end $id &&
    wait_event $id clean &&
    job_exception $id dws-epilog-timeout &&
    flux job eventlog $id | grep "exception.*severity=1.*the dws module is not loaded; storage may still be mounted on $(flux jobs -no "{nodelist}" $id), and allocated (Workflow $(workflow $id))" &&
    eventually log_says "dws.abort is sent again when the dws module is there"
'
test_expect_success 'a module that comes back takes the storage of an aborted job down' '
    module_load &&
    eventually is_disabled $(memos $id rabbits) &&
    undo_abort
'
test_done
