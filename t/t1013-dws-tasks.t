#!/bin/sh
test_description='Storage stays as long as tasks run, whichever part of Flux is reloaded'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 2

# A job whose task writes a checkpoint when it is to end: for two seconds, one line
# each tenth of a second, to its storage. What it could not write is a line of "lost".
CHECKPOINT='trap "for i in \$(seq 20); do
        echo \$i >>\$DW_JOB_p1/checkpoint || echo \$i >>\$TRASH/lost
        sleep 0.1
    done
    touch \$TRASH/\$DW_WORKFLOW_NAME.saved
    exit 0" TERM
while test -e "$TRASH"; do sleep 0.05; done'

# Set $id to such a job, which runs.
job_with_checkpoint () {
    rm -f "$TRASH/lost"
    id=$(job_submit sh -c "$CHECKPOINT") &&
    wait_event "$id" start &&
    sleep 0.5
}

# usage: ends_after_checkpoint JOBID: its storage was there for all of it
ends_after_checkpoint () {
    wait_event "$1" clean &&
    test -e "$TRASH/$(workflow "$1").saved" &&
    ! test -e "$TRASH/lost" &&
    kube wait-gone "$(workflow "$1")"
}

plugin_reload () {
    plugin_remove &&
    plugin_load
}

# What answers to the job manager does not hear of a new one by itself. job-exec is
# left alone, as tasks would end with it.
job_manager_reload () {
    flux module reload job-manager
}

plugin_is_loaded () {
    flux jobtap list | grep dws-jobtap
}

test_expect_success 'the module is loaded' '
    module_load
'
test_expect_success 'a job that is cancelled writes its checkpoint' '
    job_with_checkpoint &&
    job_cancel $id &&
    ends_after_checkpoint $id &&
    in_order "$(events $id)" exception finish epilog-finish:dws-epilog
'
test_expect_success 'a job that is cancelled twice writes its checkpoint' '
    job_with_checkpoint &&
    job_cancel $id &&
    wait_event $id exception &&
    job_cancel $id &&
    ends_after_checkpoint $id
'
test_expect_success 'a cancelled job writes its checkpoint when the plugin is reloaded meanwhile' '
    job_with_checkpoint &&
    job_cancel $id &&
    wait_event $id exception &&
    plugin_reload &&
    ends_after_checkpoint $id
'
test_expect_success 'a cancelled job writes its checkpoint when the plugin was reloaded before' '
    job_with_checkpoint &&
    plugin_reload &&
    job_cancel $id &&
    ends_after_checkpoint $id
'
test_expect_success 'a cancelled job writes its checkpoint when the module is reloaded meanwhile' '
    job_with_checkpoint &&
    job_cancel $id &&
    wait_event $id exception &&
    flux module reload dws scheduler=none &&
    ends_after_checkpoint $id
'
test_expect_success 'a job whose job-exec is reloaded ends without a finish event' '
    id=$(job_in running) &&
    flux module reload job-exec &&
    wait_event $id clean &&
    job_exception $id exec &&
    ! has_event $id finish &&
    in_order "$(events $id)" exception release epilog-finish:dws-epilog &&
    kube wait-gone "$(workflow $id)"
'
test_expect_success 'a job cancelled before a reload of job-exec ends without a finish event' '
    job_with_checkpoint &&
    job_cancel $id &&
    wait_event $id exception &&
    flux module reload job-exec &&
    wait_event $id clean &&
    ! has_event $id finish && ! has_event $id release &&
    flux dmesg | grep "job-exec does not have the job" &&
    kube wait-gone "$(workflow $id)"
'
test_expect_success 'a job that is cancelled in its prolog does not wait for job-exec' '
    id=$(job_in prerun) &&
    flux dmesg -C &&
    job_cancel $id &&
    wait_event $id clean &&
    ! flux dmesg | grep "job-exec does not have the job"
'
# The last ones: the scheduler ends with the job manager that it answers to.
test_expect_success 'tasks run on when the job manager is reloaded' '
    job_with_checkpoint &&
    job_manager_reload &&
    eventually plugin_is_loaded
'
test_expect_success 'a cancel after a reload leaves tasks their storage for the checkpoint' '
    job_cancel $id &&
    ends_after_checkpoint $id
'
test_done
