#!/bin/sh
test_description='A job that the service fails or dies of is failed, and no other'
. "$(dirname "$0")/tap.sh"

STEPS=_place  # where services die
test -z "$SOAK" || STEPS="create _plan _place _release_prolog"

cluster_start
instance_start 2

# A service with bugs: for a job whose storage is named after a step, that step raises an
# exception. While there is a file for a step, the service dies in it, of the first job
# that it takes the step for, each time, and is started again at once. While there is a
# file users.fail the user database fails.
faulty_package () {
    package_copy faulty <<-END &&
	import errno, os, signal
	def faulty(name, function):
	    path = "$TRASH/deadly." + name
	    def call(self, info, *args):
	        request, storage = info.request, name.replace("_", "")
	        if request and request.directives[0].text.endswith(f"name={storage}"):
	            raise RuntimeError("it broke\nin " + name)
	        if os.path.exists(path):
	            with open(path, "r+") as file:
	                guilty = file.read()
	                if not guilty:
	                    file.write(str(info.jobid))
	            if guilty in ("", str(info.jobid)):
	                os.kill(os.getpid(), signal.SIGKILL)
	        return function(self, info, *args)
	    return call
	from flux_k8s.jobs.workflowrequests import WorkflowRequests
	WorkflowRequests.create = faulty("create", WorkflowRequests.create)
	for name in ("_plan", "_place", "_release_prolog", "_release_epilog"):
	    setattr(Steps, name, faulty(name, getattr(Steps, name)))
	from flux_k8s.broker import users
	def look_up(userid, function=users.primary_group):
	    if os.path.exists("$TRASH/users.fail"):
	        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
	    return function(userid)
	users.primary_group = look_up
	END
    set_constant faulty/flux_k8s/broker/supervisor.py FIRST_PAUSE 0.1 &&
    set_constant faulty/flux_k8s/broker/supervisor.py LONGEST_PAUSE 0.2
}

# usage: job_with_fault STEP
job_with_fault () {
    flux submit --setattr=system.dw="#DW jobdw type=xfs capacity=10GiB name=$(echo "$1" | tr -d _)" true
}

# usage: log_of JOBID TEXT
log_of () {
    flux dmesg | grep -F "dws.crit[0]: $(flux job id --to=f58plain "$1"): $2"
}

# usage: deaths_of JOBID [WHAT]: the log has counted five of them
deaths_of () {
    deaths_of_what="died while working on ${2:+$2 }the job's storage"
    deaths_of_line="$(flux job id --to=f58plain "$1"): the dws service $deaths_of_what"
    for count in "1 of 5" "2 of 5" "3 of 5" "4 of 5"; do
        flux dmesg | grep -F "$deaths_of_line, $count times" || return 1
    done &&
    flux dmesg | grep -F "$deaths_of_line 5 times: that is not tried again" &&
    test "$(flux dmesg | grep -c "the dws service $deaths_of_what")" -eq 5
}

test_expect_success 'a service with bugs is loaded' '
    faulty_package &&
    flux module load "$TRASH/faulty/dws.py" scheduler=none &&
    module=$(module_pid) &&
    eventually service_pid &&
    pid=$(service_pid) &&
    running=$(job_in running)
'

# ---- exceptions that nobody expected ----------------------------------------

test_expect_success 'a job whose step fails has an exception with a note' '
    flux dmesg -C &&
    id=$(job_with_fault _plan) &&
    wait_event $id clean &&
    job_exception $id dws "internal error, the log has more: RuntimeError: it broke in _plan" &&
    ! has_event $id start &&
    log_of $id "internal error: RuntimeError: it broke in _plan (service.py:" &&
    test "$(flux dmesg | grep -c "dws.crit")" -eq 1
'
test_expect_success 'a job whose storage cannot be released ends, and says what is left' '
    id=$(job_with_fault _release_epilog) &&
    wait_event $id clean &&
    has_event $id start &&
    flux job eventlog $id | grep "exception.*severity=1.*$(workflow $id)" &&
    log_of $id "storage may be left behind: Workflow $(workflow $id)"
'
test_expect_success 'while the user database fails a job waits, and the log says why' '
    touch users.fail &&
    id=$(job_submit true) &&
    eventually log_says "dws.warning[0]: the user database fails: user $(id -u): Connection refused; asking it again in 1 s" &&
    eventually log_says "asking it again in 2 s" &&
    ! has_event $id exception &&
    rm users.fail &&
    job_succeeds $id
'
test_expect_success 'the service has gone on' '
    test "$(service_pid)" = "$pid" && flux module stats dws && broker_lives
'

# ---- deaths -----------------------------------------------------------------

for step in $STEPS; do
    test_expect_success "a job that five services die of in $step is failed, with a note" '
        flux dmesg -C &&
        touch deadly.$step &&
        id=$(job_submit true) &&
        eventually test -s deadly.$step &&
        other=$(job_submit true) &&
        wait_event $id clean &&
        test "$(cat deadly.$step)" = "$(flux job id --to=dec $id)" &&
        job_exception $id dws "the dws service has died each time it worked on the storage" &&
        ! has_event $id start &&
        deaths_of $id
    '
    test_expect_success 'the jobs that services do not die of go on' '
        job_succeeds $other &&
        test "$(module_pid)" = "$module" && broker_lives &&
        rm deadly.$step
    '
done
test_expect_in_soak 'a job whose release five services die of ends, and says what is left' '
    flux dmesg -C &&
    touch deadly._release_epilog &&
    id=$(job_submit true) &&
    wait_event $id clean &&
    has_event $id start &&
    flux job eventlog $id | grep "exception.*severity=1.*$(workflow $id).*each time it released the storage" &&
    deaths_of $id releasing
'
test_expect_success 'the rest of the storage goes with a service without bugs' '
    job_end $running &&
    job_succeeds $running &&
    flux module remove dws &&
    module_load &&
    no_workflows
'
test_done
