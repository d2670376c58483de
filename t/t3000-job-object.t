#!/bin/sh
test_description='flux dws job-object and submit-object: jobs as job objects'
. "$(dirname "$0")/tap.sh"

export TESTDIR
cluster_start
rabbit_conf 'save_datamovements = 10' "presets.fast = [ \"$DW\",
    \"#DW copy_in source=/lustre/data destination=\$DW_JOB_p1/data\" ]"
instance_start 4

# usage: tell FILE <LINES: each has a path, " = " and what its elements say, with "|"
# between them. (One program, for all of them.)
tell () {
    python_stdin '
import sys
import xml.etree.ElementTree as ElementTree
root = ElementTree.parse(sys.argv[1])
for line in sys.stdin.read().splitlines():
    place, expected = map(str.strip, line.split(" =", 1))
    found = "|".join(e.text or "" for e in root.findall(place))
    found == expected or sys.exit(f"{place}: expected {expected}, found {found}")' "$@"
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

# usage: time_of JOBID EVENT: when it was, UNIX time
time_of () {
    flux job eventlog --time-format=raw "$1" \
        | sed -n "s/^\([0-9.]*\) $2\( .*\)\{0,1\}\$/\1/p"
}

# usage: in_turn TIME...: each is not before the one before it
in_turn () {
    printf '%s\n' "$@" | sort -c -n
}

# usage: submit_object [OPTION...] <OBJECT: without a warning; the IDs
submit_object () {
    flux dws submit-object "$@" - 2>err &&
    test_must_be_empty err
}

# usage: submit_job [ELEMENT...]: of a Job with these
submit_job () {
    submit_object <<-END
	<Job><Id>one</Id>$*</Job>
	END
}

# ---- flux dws job-object

# Each of its elements is tried in test_jobobject_*.

test_expect_success 'the object of a job without storage has its request, and what it got' '
    id=$(flux submit -n4 -N2 -t 90s --job-name="a & b" --taskmap=cyclic \
        --env="-*" --env=GREETING="hello world" --rlimit="-*" --rlimit=core=4096 \
        --requires="host:compute-[01-03] and not host:compute-02" sh -c "exit 3") &&
    wait_event $id clean &&
    object job.xml --environment $id &&
    tell job.xml <<-END
	Id = $(id_of $id)
	Name = a & b
	State = Completed
	User = $(id -un)
	Environment/Variable[@name="GREETING"] = hello world
	ResourceLimit[@name="CoreFileSize"] = 4096
	Requested/NodeCount = 2
	Requested/Processors = 4
	Requested/Duration = 90
	Requested/Node[@op="NE"] = compute-02
	TaskGroup/TaskDistribution[@type="Rule"] = RoundRobin
	Extension =
	Delivered/Node[@aggregation="Range"] = compute-[01,03]
	Delivered/Processors = 4
	ExitCode = 3
	StartTime = $(time_of $id start | cut -d. -f1)
	EndTime = $(time_of $id finish | cut -d. -f1)
	END
'
test_expect_success 'the object of a job with storage has the storage, its preset as directives, and what moved' '
    module_load &&
    mkdir -p scratch/lustre &&
    head -c 3145728 /dev/zero >scratch/lustre/data &&
    stored=$(flux submit --setattr=system.dw=fast -N1 -t 10m \
        --requires=host:compute-03,compute-04 sh -c "test -e \$DW_JOB_p1/data") &&
    job_succeeds $stored &&
    object job.xml --environment $stored &&
    tell job.xml <<-END
	Requested/Resource[@name="Storage"][@type="xfs"] = 10
	Requested/Feature =
	Requested/NodeCount = 1
	Extension[@name="rabbits"] = rabbit-02
	Extension[@name="attributes.system.dw"] = ["$DW", "#DW copy_in source=/lustre/data destination=\$DW_JOB_p1/data"]
	Delivered/Resource[@name="WorkflowState"][@type="DataIn"] = $(flux job info $stored rabbit_datain_timing | sed "s/\.0\$//")
	Delivered/Resource[@name="DataMovement"][@type="copy_in"] = 3145728
	END
'
test_expect_success 'the object of a batch job has its steps while it runs' '
    cat >steps.sh <<-\END &&
	#!/bin/sh
	#FLUX: -N2 -n2 --job-name=steps --dump=steps.tgz
	. "$TESTDIR/flux.sh"
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
    sed -n "s,.*<Id>\($job.*\)</Id>,\1,p" steps.xml >ids &&
    grep -c "^$job/f" ids | grep -x 2 &&
    tell steps.xml <<-END
	Id = $job
	Name = steps
	State = Active
	Job/Name = steps|first|second
	Job/State = Running|Completed|Completed
	Job/ExitCode = 2|0
	Job/Dependency[@condition="OnFailure"] = $(sed -n 3p ids)
	END
'
test_expect_success 'a batch job that has ended has no steps in its object, but in its dump' '
    touch steps.end &&
    wait_event $batch clean &&
    command_fails dws "job $job has ended: its steps are known only while it runs" \
        flux dws job-object --steps $batch &&
    mkdir dump &&
    tar -xzf steps.tgz -C dump &&
    flux dws job-object --from=dump --group=$job >dump.xml 2>err &&
    test_must_be_empty err &&
    others_read dump.xml &&
    tell dump.xml <<-END &&
	Job/Name = first|second
	Job/ExitCode = 2|0
	END
    sed -n "s,^.*/\(f.*\)\$,<Id>\1</Id>,p" ids >wanted &&
    grep -o "<Id>f.*</Id>" dump.xml | tail -n 2 | diff wanted -
'
test_expect_success 'what is no job or the job of somebody else is an error' '
    command_fails dws "job f2 not found" flux dws job-object f2 &&
    command_fails dws "job $(id_of $id) is not yours" as_guest flux dws job-object $id
'
test_expect_success 'several jobs are a group, and refer to each other' '
    held=$(flux submit --urgency=hold -t 1m true) &&
    flux update $held duration=2m &&
    after=$(flux submit --dependency=afterok:$held true) &&
    object group.xml $held $after $held &&
    tell group.xml <<-END &&
	Id = group-$(id_of $held)
	Job/Id = $(id_of $held)|$(id_of $after)
	Job/Hold = User
	Job/Requested/Duration = 120
	Job/Dependency[@condition="OnSuccess"] = $(id_of $held)
	END
    job_cancel $held &&
    wait_event $after clean
'

# ---- flux dws submit-object

test_expect_success 'a job has the nodes, limits, files, folder and environment that the object says' '
    mkdir dir &&
    id=$(cd dir && export HERE=hidden && submit_job "<Executable>sh</Executable>
        <Arguments>-c &quot;ulimit -n; cat; echo \$GREETING \$HERE &gt;&amp;2&quot;</Arguments>
        <Environment><Variable name=\"GREETING\">a &amp; b</Variable></Environment>
        <ResourceLimit name=\"OpenFiles\">123</ResourceLimit>
        <InputFile redirectList=\"Close\"/>
        <ErrorFile>errors</ErrorFile>
        <Requested><NodeCount>2</NodeCount>
        <Node aggregation=\"Range\">compute-[01-03]</Node>
        <Node op=\"NE\">compute-02</Node></Requested>
        <TaskGroup><TaskCount>3</TaskCount></TaskGroup>") &&
    wait_event $id clean &&
    flux job status $id &&
    test "$(flux jobs -no "{nodelist}" $id)" = "compute-[01,03]" &&
    test $(flux job attach $id | grep -cx 123) -eq 3 &&
    test $(grep -cx "a & b" dir/errors) -eq 3
'
test_expect_success 'jobs of a group wait for each other, as they say, and until all are submitted' '
    cat >group.xml <<-\END &&
	<JobGroup><Id>group</Id>
	<JobDefaults><Environment><Variable name="PATH">/bin:/usr/bin</Variable>
	</Environment></JobDefaults>
	<Job><Id>last</Id><Executable>true</Executable>
	<Dependency designator="JobName">mended</Dependency></Job>
	<Job><Id>broken</Id><Executable>false</Executable></Job>
	<Job><Id>mender</Id><Name>mended</Name><Executable>true</Executable>
	<Dependency condition="OnFailure">broken</Dependency></Job>
	</JobGroup>
	END
    submit_object <group.xml >ids &&
    test $(wc -l <ids) -eq 3 &&
    { read -r last && read -r broken && read -r mender; } <ids &&
    wait_event $last clean &&
    flux job status $last $mender &&
    test_must_fail flux job status $broken &&
    in_turn $(time_of $last submit) $(time_of $broken start) $(time_of $broken finish) \
        $(time_of $mender start) $(time_of $mender finish) $(time_of $last start)
'
test_expect_success 'a job waits for one that was there before, which is held' '
    before=$(submit_job "<Executable>true</Executable><Hold>User</Hold>") &&
    id=$(submit_job "<Executable>true</Executable>
        <Dependency condition=\"OnExit\">$before</Dependency>") &&
    wait_event $id dependency-add &&
    event_context $id dependency-add | grep after-finish &&
    job_go $before &&
    wait_event $id clean &&
    flux job status $id
'
test_expect_success 'when one is refused, those before it are cancelled' '
    sed "s:<Executable>true</Executable>:&<Queue>none</Queue>:" group.xml >queue.xml &&
    test_expect_code 1 flux dws submit-object queue.xml >out 2>err &&
    test_must_be_empty out &&
    test $(wc -l <err) -eq 2 &&
    grep "ERROR: line [0-9]*: /JobGroup/Job\[3\]: .*queue" err &&
    id=$(sed -n "s/.*ERROR: cancelled: //p" err) &&
    wait_event $id clean &&
    job_exception $id cancel "the rest of its job object cannot be submitted" &&
    ! has_event $id start &&
    one="<Executable>true</Executable><Queue>none</Queue>" &&
    test_expect_code 1 submit_job "$one" >out &&
    test_must_be_empty out &&
    grep "ERROR: line 1: /Job: .*queue" err
'
test_expect_success 'a job with storage that ran can be submitted again' '
    again=$(submit_object <job.xml) &&
    job_succeeds $again &&
    test "$(memos $again rabbits)" = rabbit-02
'
test_done
