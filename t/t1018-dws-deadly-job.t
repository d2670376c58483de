#!/bin/sh
test_description='A job that the service dies of is failed, and no other

In more steps (make soak):
    SOAK=1 STEPS="create _plan _allocate _release_prolog" ./t1018-dws-deadly-job.t'
. "$(dirname "$0")/tap.sh"

STEPS=${STEPS:-_allocate}  # where services die

cluster_start
instance_start 2

# A service that has answered, and then dies in a step: of the first job that it takes
# the step for once there is a file, each time. It is started again at once.
deadly_package () {
    package_copy deadly <<-END &&
	def deadly(name, function):
	    import os, signal
	    path = "$TRASH/deadly." + name
	    def call(self, info, *args):
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
	WorkflowRequests.create = deadly("create", WorkflowRequests.create)
	for name in ("_plan", "_allocate", "_release_prolog", "_release_epilog"):
	    setattr(Steps, name, deadly(name, getattr(Steps, name)))
	END
    set_constant deadly/flux_k8s/broker/supervisor.py FIRST_PAUSE 0.1 &&
    set_constant deadly/flux_k8s/broker/supervisor.py LONGEST_PAUSE 0.2
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

test_expect_success 'a service that dies of a job is loaded' '
    deadly_package &&
    flux module load "$TRASH/deadly/dws.py" scheduler=none &&
    module=$(module_pid)
'
for step in $STEPS; do
    test_expect_success "a job that five services die of in $step is failed, with a note" '
        flux dmesg -C &&
        running=$(job_in running) &&
        touch deadly.$step &&
        id=$(job_submit true) &&
        eventually test -s deadly.$step &&
        other=$(job_submit true) &&
        wait_event $id clean &&
        test "$(cat deadly.$step)" = "$(flux job id --to=dec $id)" &&
        job_exception $id dws "the dws service has died each time it worked on the storage" &&
        ! has_event $id start
    '
    test_expect_success 'the log has each death of a service, with its job' '
        deaths_of $id
    '
    test_expect_success 'the jobs that services do not die of go on' '
        job_succeeds $other &&
        job_end $running &&
        job_succeeds $running &&
        test "$(module_pid)" = "$module" && broker_lives
    '
    test_expect_success 'nothing is left of the storage of the job that services died of' '
        rm deadly.$step &&
        no_workflows
    '
done
test_expect_in_soak 'a job whose release five services die of ends, and says what is left' '
    flux dmesg -C &&
    running=$(job_in running) &&
    touch deadly._release_epilog &&
    id=$(job_submit true) &&
    wait_event $id clean &&
    has_event $id start &&
    flux job eventlog $id | grep "exception.*severity=1.*$(workflow $id).*each time it released the storage" &&
    job_end $running &&
    job_succeeds $running
'
test_expect_in_soak 'the log has each death' '
    deaths_of $id releasing
'
test_expect_success 'the rest of the storage goes with a service that does not die' '
    flux module remove dws &&
    module_load &&
    no_workflows
'
test_done
