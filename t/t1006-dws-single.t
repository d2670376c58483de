#!/bin/sh
test_description='An instance of one broker, with the scheduler of flux-core'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf modules.toml <<END
[modules]
alternatives.sched = "sched-simple"
END
instance_start 1

test_expect_success 'the instance has one broker and sched-simple' '
    test $(flux getattr size) -eq 1 &&
    flux module list | grep sched-simple
'
test_expect_success 'a #DW job runs' '
    module_load &&
    id=$(job_submit sh -c "test -d \$DW_JOB_p1 && env | grep ^DW_") &&
    job_succeeds $id
'
test_expect_success 'a #DW job of many tasks runs in one shell' '
    id=$(job_submit -n4 sh -c "echo \$FLUX_TASK_RANK >\$DW_JOB_p1/\$FLUX_TASK_RANK") &&
    job_succeeds $id
'
test_expect_success 'flux run shows what its tasks see' '
    flux run -n2 --label-io --setattr=system.dw="$DW" printenv DW_JOB_p1 >out &&
    grep "^0: /" out &&
    grep "^1: /" out
'
test_expect_success 'a job that fails keeps its exit status' '
    id=$(job_submit sh -c "exit 7") &&
    wait_event $id clean &&
    test_expect_code 7 flux job status $id &&
    ! has_event $id exception
'
test_expect_success 'the storage of a failed job is unmounted and its data copied out' '
    flux job info $id rabbit_postrun_timing &&
    flux job info $id rabbit_dataout_timing
'
for type in xfs gfs2 raw lustre; do
    test_expect_success "a job gets a file system of type $type" '
        id=$(flux submit --setattr=system.dw="#DW jobdw type=$type capacity=1GiB name=p1" \
            sh -c "test -e \$DW_JOB_p1") &&
        job_succeeds $id
    '
done
test_expect_success 'persistent storage outlives the job that makes it' '
    id=$(flux submit \
        --setattr=system.dw="#DW create_persistent type=lustre capacity=1GiB name=keep" \
        true) &&
    job_succeeds $id &&
    kube get persistentstorageinstances keep | grep "\"state\": \"Active\""
'
test_expect_success 'jobs find the files of earlier jobs in persistent storage' '
    dw="#DW persistentdw name=keep" &&
    id=$(flux submit --setattr=system.dw="$dw" \
        sh -c "echo here >\$DW_PERSISTENT_keep/file") &&
    job_succeeds $id &&
    id=$(flux submit --setattr=system.dw="$dw" \
        sh -c "grep here \$DW_PERSISTENT_keep/file") &&
    job_succeeds $id
'
test_expect_success 'a job destroys persistent storage' '
    id=$(flux submit --setattr=system.dw="#DW destroy_persistent name=keep" true) &&
    job_succeeds $id &&
    kube wait-none persistentstorageinstances
'
test_expect_success 'jobs without #DW run beside jobs with storage' '
    flux submit --quiet --cc=1-10 true &&
    id=$(job_submit true) &&
    job_succeeds $id &&
    queue_idle $PATIENCE
'
test_done
