#!/bin/sh
test_description='What flux jobs, flux run and flux job attach show of Rabbit storage'
. "$(dirname "$0")/tap.sh"

export XDG_CONFIG_DIRS="$PREFIX/etc/xdg"

cluster_start
instance_start 2

# usage: shows JOBID TEXT: the line of the job in flux jobs -o rabbit
shows () {
    flux jobs -n -o rabbit "$1" | tee line | grep "^ *$1 .*$2" || ! cat line
}

test_expect_success 'flux jobs has a format named rabbit' '
    flux jobs -o help >help &&
    grep "^ *rabbit .*Rabbit storage" help
'
test_expect_success 'it says why a job waits' '
    id=$(job_submit true) &&
    eventually shows $id "depends:dws-create .*the dws module is not loaded"
'
test_expect_success 'it says how far a job is, on which nodes and Rabbits' '
    gate_shut PreRun &&
    module_load &&
    eventually shows $id "R  *1 .* compute-0[12] .*rabbit-01 .*PreRun [01]/1 mounted"
'
test_expect_success 'it shows jobs without storage as flux jobs does' '
    plain=$(flux submit -N1 true) &&
    wait_event $plain clean &&
    shows $plain "CD  *1 .* compute-0[12]" &&
    flux jobs -o rabbit $plain >lines &&
    ! grep RABBIT lines
'
test_expect_success 'the columns without a value of any job are left out' '
    flux jobs -o rabbit >lines &&
    head -n 1 lines | grep "INFO  *USER.RABBITS  *USER.RABBIT_PROGRESS *$"
'
test_expect_success 'it shows why a job has failed' '
    flux cancel --message="no need" $id &&
    wait_event $id clean &&
    shows $id "CA .*no need" &&
    rm gates/PreRun
'
test_done
