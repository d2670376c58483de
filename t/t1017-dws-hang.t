#!/bin/sh
test_description='The service of the dws module hangs, and the module starts another one'
. "$(dirname "$0")/tap.sh"

cluster_start
rabbit_conf 'directives_limit = 32768'
instance_start 2

# usage: replaced PID: the service is another one, and it is ready
replaced () {
    replaced_pid=$(service_pid)
    test -n "$replaced_pid" && test "$replaced_pid" != "$1" && service_is_ready &&
    test "$(module_pid)" = "$module" && broker_lives
}

# usage: module_load_copy NAME SECONDS <TEXT: a module whose watchdog is this, with a
# short queue of requests, and with the text in its service
module_load_copy () {
    flux module remove --force dws &&
    package_copy "$1" &&
    set_constant "$1/flux_k8s/broker/channel.py" QUEUE_SIZE 50_000 &&
    set_constant "$1/flux_k8s/broker/supervisor.py" START_TIMEOUT 1.0 &&
    flux dmesg -C &&
    flux module load "$TRASH/$1/dws.py" scheduler=none watchdog="$2" &&
    module=$(module_pid) &&
    eventually service_pid
}

test_expect_success 'a service that hangs while it starts is replaced' '
    touch loop &&
    module_load_copy slow 10 <<-END &&
	import os, time
	while os.path.exists("$TRASH/loop"):
	    time.sleep(0.1)
	END
    eventually log_says "has not answered for 10 s: killed" &&
    rm loop &&
    eventually service_is_ready
'
test_expect_success 'a service that is stopped for longer than watchdog= is replaced' '
    flux dmesg -C &&
    id=$(job_in running) &&
    crashed=$(service_pid) &&
    process_stop $crashed &&
    job_end $id &&
    eventually replaced $crashed &&
    ! kill -0 $crashed &&
    log_says "dws.err[0]: the dws service has not answered for 10 s: killed" &&
    log_says "the dws service died (killed by SIGKILL)" &&
    job_succeeds $id
'
test_expect_success 'requests beyond its queue are refused, and their jobs say so' '
    module_load_copy impatient 0 </dev/null &&
    eventually service_is_ready &&
    service=$(service_pid) &&
    process_stop $service &&
    long=$(printf "%s%30000s" "$DW" "") &&
    flux submit --cc=1-12 --setattr=system.dw="$long" true >ids &&
    last=$(tail -n 1 ids) &&
    wait_event $last memo &&
    has_memo $last dws "the dws service does not take the requests that wait for it" &&
    log_count "does not take the requests that wait for it: others are refused" 1
'
test_expect_success 'jobs of refused requests go on when the service does' '
    kill -CONT $service &&
    for id in $(cat ids); do
        job_succeeds $id && ! has_memo $id dws || return 1
    done &&
    test "$(service_pid)" = "$service"
'
test_expect_success 'nothing is left open when a channel cannot be made' '
    cat >leak.py <<-END &&
	import os
	from flux_k8s.broker.channel import Channel
	class Flux:
	    def __init__(self, good):
	        self.good = good
	    def fd_watcher_create(self, *args):
	        self.good -= 1
	        if self.good < 0:
	            raise OSError(12, "no memory")
	        return self
	    def start(self):
	        raise OSError(12, "no memory")
	    def stop(self):
	        pass
	    destroy = stop
	before = len(os.listdir("/proc/self/fd"))
	for good in (0, 1, 2):
	    try:
	        Channel(Flux(good), print, print)
	    except OSError:
	        continue
	    raise SystemExit("it was made")
	after = len(os.listdir("/proc/self/fd"))
	assert after == before, (before, after)
	END
    flux python leak.py
'
test_done
