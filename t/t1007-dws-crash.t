#!/bin/sh
test_description='The service of the dws module dies, and the module starts it again'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 2 -Sbroker.module-nopanic=0

# usage: service_crash [SIGNAL]: the service dies, and there is another one
service_crash () {
    crashed=$(service_pid) &&
    test -n "$crashed" &&
    flux dmesg -C &&
    service_kill "$1" &&
    eventually service_is_back
}

service_is_back () {
    pid=$(service_pid)
    test -n "$pid" && test "$pid" != "$crashed" && service_is_ready
}

# The processes of the broker and the module are those that they were.
module_lives () {
    test "$(flux getattr broker.pid)" = "$broker" &&
    test "$(module_pid)" = "$module" &&
    test "$(flux getattr broker.module-nopanic)" = 0 &&
    broker_lives
}

# usage: ended PID
ended () {
    ! kill -0 "$1"
}

test_expect_success 'the module is loaded' '
    module_load &&
    broker=$(flux getattr broker.pid) &&
    module=$(module_pid) &&
    module_lives
'

# ---- it is killed -----------------------------------------------------------

test_expect_success 'a service that is killed while there are jobs in all phases comes back' '
    jobs_in_all_phases &&
    service_crash KILL &&
    eventually log_says "the dws service died (killed by SIGKILL): jobs with #DW directives wait, starting it again in 1 s" &&
    eventually log_says "the dws service was started again" &&
    module_lives &&
    let_go
'
expect_each_to_succeed 'after SIGKILL'
test_expect_success 'jobs with requests in flight when it is killed, and later ones, say so and wait' '
    process_stop $(service_pid) &&
    inflight=$(job_submit true) &&
    wait_event $inflight dependency-add &&
    service_kill &&
    wait_event $inflight memo &&
    later=$(job_submit true) &&
    wait_event $later memo &&
    ! has_memo $later dws "not loaded" &&
    eventually log_says "the dws module went away"
'
test_expect_success 'jobs that wait for a service go on with the next one' '
    for id in $inflight $later; do
        job_succeeds $id && ! has_memo $id dws || return 1
    done &&
    module_lives
'
test_expect_success 'a stopped service delays neither the configuration nor its end' '
    stopped=$(service_pid) &&
    process_stop $stopped &&
    sed -i "s/^kubeconfig/tc_timeout = 11\n&/" conf/rabbit.toml &&
    flux config reload &&
    flux module remove dws &&
    ended $stopped &&
    log_count "has not answered" 0
'
test_expect_success 'a service that dies again and again is started later each time' '
    flux dmesg -C &&
    module_load &&
    module=$(module_pid) &&
    service_crash && eventually log_says "starting it again in 1 s" &&
    service_crash SEGV && eventually log_says "starting it again in 2 s" &&
    log_says "died (killed by SIGSEGV)" &&
    service_crash && eventually log_says "starting it again in 4 s" &&
    log_count "the dws service died" 1 &&
    log_count "was started again" 1
'

# ---- it fails by itself -----------------------------------------------------

# It has a bug, which shows once in each function for which there is a file.
make_fragile_package () {
    package_copy fragile <<-END
	def fragile(name, function):
	    import os
	    def call(*args):
	        try:
	            os.unlink("$TRASH/fragile/" + name)
	        except FileNotFoundError:
	            return function(*args)
	        raise RuntimeError("it broke: %s%n%p")
	    return call
	WorkflowWatch.event = fragile("event", WorkflowWatch.event)
	Service.request = fragile("request", Service.request)
	from flux_k8s.broker.writer import Writer
	Writer._commit = fragile("_commit", Writer._commit)
	END
}

# usage: service_fragile FUNCTION: when it is called next, it fails
service_fragile () {
    flux dmesg -C &&
    crashed=$(service_pid) &&
    test -n "$crashed" &&
    touch "fragile/$1"
}

# usage: ended_by_itself: with its error in the log, as it is
ended_by_itself () {
    eventually service_is_back &&
    eventually log_says "dws.crit[0]: the dws service ends: RuntimeError: it broke: %s%n%p" &&
    eventually log_says "dws.crit[0]:   File \"$TRASH/fragile/flux_k8s/jobs/service.py\"" &&
    log_count "the dws service died (exit status 1)" 1 &&
    log_count "was started again" 1 &&
    module_lives
}

test_expect_success 'a service with a bug is loaded' '
    flux module remove --force dws &&
    make_fragile_package &&
    flux module load "$TRASH/fragile/dws.py" scheduler=none &&
    module=$(module_pid)
'
# What the watch of Workflows sees, a thread. (What is done for one job fails that job.)
for callback in event _commit; do
    test_expect_success "a service that fails in $callback ends, and the next takes over" '
        service_fragile $callback &&
        id=$(job_submit true) &&
        ended_by_itself &&
        job_succeeds $id
    '
done
test_expect_success 'a service that fails at a request answers with an error' '
    service_fragile request &&
    test_must_fail flux module stats dws 2>err &&
    grep "internal error, see the log" err &&
    ended_by_itself
'

# ---- it does not start ------------------------------------------------------

test_expect_success 'a service that cannot start is started later each time' '
    flux module remove dws &&
    echo "raise SystemExit(7)" | package_copy broken &&
    flux dmesg -C &&
    flux module load "$TRASH/broken/dws.py" scheduler=none &&
    module=$(module_pid) &&
    eventually log_says "starting it again in 2 s" &&
    log_count "the dws service died (exit status 7)" 2 &&
    flux module stats dws >stats &&
    grep "\"service\": \"the dws service " stats &&
    module_lives
'
test_expect_success 'jobs wait without a service' '
    id=$(job_submit true) &&
    wait_event $id memo &&
    has_memo $id dws "the dws service .* starting\|started again" &&
    ! has_event $id depend
'
test_expect_success 'flux config reload without a service works, and refuses wrong tables' '
    sed -i "s/^tc_timeout/tc_timout/" conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep "rabbit.tc_timout: unknown key" err &&
    sed -i "s/^tc_timout/tc_timeout/" conf/rabbit.toml &&
    flux config reload &&
    flux module remove dws &&
    module_is_gone
'
test_expect_success 'an instance with such a service shuts down' '
    timeout "$PATIENCE" \
        flux start -s1 -Sbroker.module-nopanic=0 --config-path="$TRASH/conf" \
        flux module load "$TRASH/broken/dws.py" scheduler=none
'
test_expect_success 'a module that lacks a package is not loaded, and one line says so' '
    package_copy lacking </dev/null &&
    echo "raise ImportError(\"pycurl: another libcurl\")" >lacking/pycurl.py &&
    flux dmesg -C &&
    : >"$TRASH/stderr" &&
    test_must_fail flux module load "$TRASH/lacking/dws.py" scheduler=none &&
    module_is_gone &&
    log_count " dws.err" 1 &&
    log_says "cannot import a package: pycurl: another libcurl" &&
    eventually grep "pycurl: another libcurl" "$TRASH/stderr" &&
    ! grep Traceback "$TRASH/stderr"
'
test_expect_success 'a file that the next service misses is named, and the start tried again' '
    module_load &&
    module=$(module_pid) &&
    job_succeeds $id &&
    mv mapping.json mapping.old &&
    flux dmesg -C &&
    service_kill &&
    eventually log_says "the dws service cannot start: rabbit.mapping: $TRASH/mapping.json: No such file or directory: jobs with #DW directives wait, starting it again in 2 s" &&
    module_lives &&
    mv mapping.old mapping.json &&
    eventually log_says "the dws service was started again"
'

# ---- it did not die ---------------------------------------------------------

test_expect_success 'a module that gets SIGTERM takes the service with it' '
    service=$(service_pid) &&
    flux dmesg -C &&
    kill -TERM $(module_pid) &&
    eventually module_is_gone &&
    ended $service &&
    log_count "the dws service" 0 &&
    broker_lives
'
# The one death that the broker does not survive by default.
test_expect_success 'a module that is killed takes the service with it, even a stopped one' '
    module_load &&
    service=$(service_pid) &&
    process_stop $service &&
    module_kill &&
    eventually ended $service
'
test_done
