#!/bin/sh
test_description='An exception that nobody expected fails one job, and no other'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 2

# A service with bugs: for a job whose storage is named after a step, that step
# raises an exception.
make_faulty_package () {
    package_copy faulty <<-'END'
	def faulty(name, function):
	    def call(self, info, *args):
	        request, storage = info.request, name.replace("_", "")
	        if request and request.directives[0].text.endswith(f"name={storage}"):
	            raise RuntimeError("it broke\nin " + name)
	        return function(self, info, *args)
	    return call
	from flux_k8s.jobs.workflowrequests import WorkflowRequests
	WorkflowRequests.create = faulty("create", WorkflowRequests.create)
	for name in ("_plan", "_allocate", "_release_prolog", "_release_epilog"):
	    setattr(Steps, name, faulty(name, getattr(Steps, name)))
	END
}

# usage: job_with_fault STEP
job_with_fault () {
    flux submit --setattr=system.dw="#DW jobdw type=xfs capacity=10GiB name=$(echo "$1" | tr -d _)" true
}

# usage: log_of JOBID TEXT
log_of () {
    flux dmesg | grep -F "dws.crit[0]: $(flux job id --to=f58plain "$1"): $2"
}

# usage: lives PID: the service is the same process
lives () {
    test "$(service_pid)" = "$1" && flux module stats dws && broker_lives
}

test_expect_success 'a service with bugs is loaded' '
    make_faulty_package &&
    flux module load "$TRASH/faulty/dws.py" scheduler=none &&
    eventually service_pid &&
    pid=$(service_pid)
'
for step in create _plan _allocate _release_prolog; do
    test_expect_success "a job whose $step fails has an exception with a note" '
        flux dmesg -C &&
        other=$(job_in running) &&
        id=$(job_with_fault $step) &&
        wait_event $id clean &&
        job_exception $id dws "internal error, the log has more: RuntimeError: it broke in $step" &&
        ! has_event $id start
    '
    test_expect_success 'the log has one line with the trace of an unexpected exception' '
        log_of $id "internal error: RuntimeError: it broke in $step (service.py:" &&
        test "$(flux dmesg | grep -c "dws.crit")" -eq 1
    '
    test_expect_success 'the service goes on with all other jobs' '
        lives $pid &&
        job_end $other &&
        job_succeeds $other
    '
done
test_expect_success 'a job whose storage cannot be released ends, and says what is left' '
    flux dmesg -C &&
    id=$(job_with_fault _release_epilog) &&
    wait_event $id clean &&
    has_event $id start &&
    flux job eventlog $id | grep "exception.*severity=1.*$(workflow $id)" &&
    log_of $id "storage may be left behind: Workflow $(workflow $id)" &&
    lives $pid
'
test_expect_success 'a service without the bugs takes the rest of the storage down' '
    flux module remove dws &&
    module_load &&
    no_workflows
'
test_done
