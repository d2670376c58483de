#!/bin/sh
test_description='flux dws job-object: jobs as job objects (seed 003)'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

# usage: tells FILE PATH [TEXT...]: the elements at this path (as in ElementTree) say
# this, in this order
tells () {
    python_stdin '
import sys
import xml.etree.ElementTree as ElementTree

path, place, *expected = sys.argv[1:]
found = [e.text or "" for e in ElementTree.parse(path).findall(place)]
if found != expected:
    sys.exit(f"{place}: expected {expected}, found {found}")' "$@"
}

# usage: others_read FILE: it is a job object that others can read
others_read () {
    python_stdin '
import sys
from sssjob import read
with open(sys.argv[1], encoding="utf-8") as file:
    read(file.read())' "$1"
}

# usage: object FILE [OPTION...] JOBID...: write a job object that others can read,
# without a warning
object () {
    object_file=$1
    shift
    flux dws job-object -o "$object_file" "$@" >out 2>err &&
    test_must_be_empty out &&
    test_must_be_empty err &&
    others_read "$object_file"
}

# usage: id_of JOBID: as job objects have it
id_of () {
    flux job id --to=f58plain "$1"
}

# usage: second JOBID EVENT: when it was, UNIX time without its fraction
second () {
    flux job eventlog --time-format=raw "$1" \
        | sed -n "s/^\([0-9]*\)\.[0-9]* $2\( .*\)\{0,1\}\$/\1/p"
}

test_expect_success 'the object of a job without storage has its request' '
    id=$(flux submit -n4 -N2 -t 90s --job-name="a & b" --output=here.out \
        -o output.mode=append --env="-*" --env=GREETING="hello world" \
        --requires="host:compute-[01-03] and not host:compute-02" \
        sh -c "exit 3") &&
    wait_event $id clean &&
    object job.xml $id &&
    tells job.xml Environment &&
    object job.xml --environment $id &&
    tells job.xml Id "$(id_of $id)" &&
    tells job.xml Name "a & b" &&
    tells job.xml State Completed &&
    tells job.xml User "$(id -un)" &&
    tells job.xml Executable sh &&
    tells job.xml Arguments "-c '\''exit 3'\''" &&
    tells job.xml InitialWorkingDirectory "$(pwd)" &&
    tells job.xml "OutputFile[@redirectList=\"Append\"]" here.out &&
    tells job.xml "Environment/Variable[@name=\"GREETING\"]" "hello world" &&
    tells job.xml Requested/NodeCount 2 &&
    tells job.xml Requested/Processors 4 &&
    tells job.xml Requested/Duration 90 &&
    tells job.xml Requested/Node "compute-[01-03]" compute-02 &&
    tells job.xml "Requested/Node[@op=\"NE\"]" compute-02 &&
    tells job.xml TaskGroup/TaskCount 4 &&
    tells job.xml Extension
'
test_expect_success 'the object of a job has the resources that it got' '
    tells job.xml Delivered/NodeCount 2 &&
    tells job.xml "Delivered/Node[@aggregation=\"Range\"]" "compute-[01,03]" &&
    tells job.xml Delivered/Processors 4 &&
    tells job.xml ExitCode 3 &&
    tells job.xml Priority 16 &&
    tells job.xml SubmitTime "$(second $id submit)" &&
    tells job.xml StartTime "$(second $id start)" &&
    tells job.xml EndTime "$(second $id finish)"
'
test_expect_success 'limits and tasks are elements of the job object' '
    id=$(flux submit -N1 -n2 --rlimit="-*" --rlimit=core=4096 --taskmap=cyclic true) &&
    wait_event $id clean &&
    object job.xml $id &&
    tells job.xml "ResourceLimit[@name=\"CoreFileSize\"]" 4096 &&
    tells job.xml "TaskGroup/TaskDistribution[@type=\"Rule\"]" RoundRobin &&
    tells job.xml Extension
'
test_expect_success 'whole nodes are written as their number alone' '
    id=$(flux submit -N2 true) &&
    wait_event $id clean &&
    object job.xml $id &&
    tells job.xml Requested/NodeCount 2 &&
    tells job.xml Requested/Processors &&
    tells job.xml Delivered/Processors 8 &&
    tells job.xml Extension
'
test_expect_success 'the object of a job with storage has the storage' '
    cat >>conf/rabbit.toml <<-END &&
	save_datamovements = 10
	[rabbit.presets]
	fast = "$DW"
	END
    flux config reload &&
    module_load &&
    mkdir -p scratch/lustre &&
    head -c 3145728 /dev/zero >scratch/lustre/data &&
    moved="$DW
        #DW copy_in source=/lustre/data destination=\$DW_JOB_p1/data" &&
    id=$(flux submit --setattr=system.dw="$moved" -N1 true) &&
    job_succeeds $id &&
    object job.xml $id &&
    tells job.xml "Requested/Resource[@name=\"Storage\"][@type=\"xfs\"]" 10 &&
    tells job.xml "Extension[@name=\"rabbits\"]" "$(memos $id rabbits)" &&
    tells job.xml "Delivered/Resource[@name=\"DataMovement\"][@type=\"copy_in\"]" \
        3145728 &&
    test -n "$(memos $id rabbits)"
'
test_expect_success 'the object of a job with storage has the seconds of each state' '
    for state in Proposal Setup DataIn PreRun PostRun DataOut Teardown; do
        key=rabbit_$(echo $state | tr A-Z a-z)_timing &&
        tells job.xml "Delivered/Resource[@name=\"WorkflowState\"][@type=\"$state\"]" \
            "$(flux job info $id $key | sed "s/\.0\$//")" || return 1
    done
'
test_expect_success 'changes of the module are not in Requested' '
    event_context $id jobspec-update | grep badrabbit &&
    tells job.xml Requested/Feature &&
    tells job.xml Requested/NodeCount 1 &&
    tells job.xml "Extension[@name=\"attributes.system.dw\"]" \
        "[\"$DW\", \"#DW copy_in source=/lustre/data destination=\$DW_JOB_p1/data\"]"
'
test_expect_success 'a preset is written as its directives' '
    id=$(flux submit --setattr=system.dw=fast true) &&
    job_succeeds $id &&
    object job.xml $id &&
    tells job.xml "Requested/Resource[@name=\"Storage\"]" 10 &&
    tells job.xml "Extension[@name=\"attributes.system.dw\"]" "[\"$DW\"]"
'
test_expect_success 'a job that waits in its prolog is running, and has no times' '
    active=$(job_in setup) &&
    object job.xml $active &&
    tells job.xml State Running &&
    tells job.xml StartTime &&
    tells job.xml Delivered/NodeCount 1
'
test_expect_success 'a job that is cancelled in its prolog says why it never ran' '
    flux cancel --message="not needed" $active &&
    job_let_go $active setup &&
    wait_event $active clean &&
    object job.xml $active &&
    tells job.xml State Completed &&
    tells job.xml StatusMessage "cancel: not needed" &&
    tells job.xml StartTime &&
    tells job.xml ExitCode &&
    tells job.xml EndTime "$(second $active clean)"
'
test_expect_success 'a job that is held says so, with the time that it has by now' '
    held=$(flux submit --urgency=hold -t 1m true) &&
    flux update $held duration=2m &&
    object job.xml $held &&
    tells job.xml State Hold &&
    tells job.xml Hold User &&
    tells job.xml Requested/Duration 120
'
test_expect_success 'several jobs are a group, and refer to each other' '
    after=$(flux submit --dependency=afterok:$held true) &&
    object group.xml $held $after $held &&
    tells group.xml Id "group-$(id_of $held)" &&
    tells group.xml State Unstarted &&
    tells group.xml Job/Id "$(id_of $held)" "$(id_of $after)" &&
    tells group.xml "Job/Dependency[@condition=\"OnSuccess\"]" "$(id_of $held)" &&
    job_go $held &&
    wait_event $after clean &&
    object group.xml --group=mine $held $after &&
    tells group.xml Id mine &&
    tells group.xml State Completed
'
test_expect_success 'the object of a batch job has its steps while it runs' '
    cat >steps.sh <<-\END &&
	#!/bin/sh
	#FLUX: -N2 -n2 --job-name=steps --dump=steps.tgz
	first=$(flux submit --job-name=first sh -c "exit 2")
	second=$(flux submit --job-name=second --dependency=afternotok:$first true)
	flux job wait-event $second clean
	touch steps.there
	until test -e steps.end; do sleep 0.05; done
	END
    batch=$(flux batch steps.sh) &&
    eventually test -e steps.there &&
    object steps.xml --steps $batch &&
    job=$(id_of $batch) &&
    tells steps.xml Id $job &&
    tells steps.xml Name steps &&
    tells steps.xml State Active &&
    tells steps.xml Job/Name steps first second &&
    tells steps.xml Job/State Running Completed Completed &&
    tells steps.xml Job/ExitCode 2 0 &&
    sed -n "s,.*<Id>\($job.*\)</Id>,\1,p" steps.xml >ids &&
    grep -c "^$job/f" ids | grep -x 2 &&
    tells steps.xml "Job/Dependency[@condition=\"OnFailure\"]" "$(sed -n 3p ids)"
'
test_expect_success 'a batch job that has ended has no steps in its object' '
    touch steps.end &&
    wait_event $batch clean &&
    command_fails dws \
        "job $(id_of $batch) has ended: its steps are known only while it runs" \
        flux dws job-object --steps $batch
'
test_expect_success 'the dump of a batch job has its steps' '
    mkdir dump &&
    tar -xzf steps.tgz -C dump &&
    flux dws job-object --from=dump --group=$job >dump.xml 2>err &&
    test_must_be_empty err &&
    others_read dump.xml &&
    tells dump.xml Job/Name first second &&
    tells dump.xml Job/ExitCode 2 0 &&
    sed -n "s,^.*/\(f.*\)\$,<Id>\1</Id>,p" ids >wanted &&
    grep -o "<Id>f.*</Id>" dump.xml | tail -n 2 | diff wanted -
'
test_expect_success 'a job that is no instance has no steps' '
    lone=$(flux submit sleep 100) &&
    wait_event $lone start &&
    command_fails dws "job $(id_of $lone) has no steps" \
        flux dws job-object --steps $lone &&
    flux cancel $lone &&
    wait_event $lone clean
'
test_expect_success 'an argument that is no job is an error' '
    command_fails dws "not the ID of a job: compute-01" \
        flux dws job-object compute-01 &&
    command_fails dws "job f2 not found" flux dws job-object f2
'
test_expect_success 'a job of somebody else is not shown' '
    command_fails dws "job $(id_of $id) is not yours" as_guest flux dws job-object $id
'
test_expect_success 'rabbitsim run --save keeps what is needed on another machine' '
    cat >save.sh <<-END &&
	#!/bin/sh
	#FLUX: -N2 -n2
	#FLUX: -S dw="$DW"
	exit 4
	END
    (unset FLUX_URI FLUX_DWS_INSIDE &&
     test_expect_code 4 "$PYTHON" -m rabbitsim run --flux=real --kube=sim \
        --save=saved save.sh) &&
    kept=$(ls saved) &&
    (PATH= "$PYTHON" "$PREFIX/libexec/flux/cmd/flux-dws.py" job-object \
        --from=saved/$kept >job.xml) &&
    others_read job.xml &&
    tells job.xml Id $kept &&
    tells job.xml ExitCode 4 &&
    tells job.xml "Requested/Resource[@name=\"Storage\"]" 10 &&
    tells job.xml Delivered/NodeCount 2
'
test_done
