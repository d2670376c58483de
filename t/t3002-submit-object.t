#!/bin/sh
test_description='flux dws submit-object: the jobs of job objects (seed 003)'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

EXAMPLES=$TESTDIR/data/jobobject

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

# usage: count_jobs: how many there are, active or not
count_jobs () {
    flux jobs -a --no-header -o "{id}" | wc -l
}

# usage: second JOBID EVENT: when it was, UNIX time
second () {
    flux job eventlog --time-format=raw "$1" \
        | sed -n "s/^\([0-9.]*\) $2\( .*\)\{0,1\}\$/\1/p"
}

# usage: comes_before TIME TIME
comes_before () {
    awk "BEGIN { exit !($1 <= $2) }"
}

test_expect_success 'the very simple example of the seed runs, for its user' '
    sed "s/scottmo/$(id -un)/" "$EXAMPLES/very-simple.xml" >simple.xml &&
    id=$(submit_object <simple.xml) &&
    wait_event $id clean &&
    flux job status $id &&
    flux job attach $id >out &&
    test $(grep -c . out) -eq 16
'
test_expect_success 'the number of another user is refused, and nothing is submitted' '
    before=$(count_jobs) &&
    command_fails dws "line 5: /Job/User: is \"scottmo\", but $(id -un) submits the job" \
        flux dws submit-object "$EXAMPLES/very-simple.xml" &&
    test $(count_jobs) -eq $before
'
test_expect_success 'a job runs on all nodes that it names, and no others' '
    id=$(submit_job "<Executable>true</Executable><Requested>
        <NodeCount>2</NodeCount><Node>compute-02</Node><Node>compute-04</Node>
        </Requested>") &&
    wait_event $id clean &&
    flux job status $id &&
    test "$(flux jobs -no "{nodelist}" $id)" = "compute-[02,04]"
'
test_expect_success 'a missing file, and one that is no job object, are errors' '
    command_fails dws "none.xml: No such file or directory" \
        flux dws submit-object none.xml &&
    echo "<Job><Id>1</Job>" >broken.xml &&
    command_fails dws "line 1: " flux dws submit-object broken.xml &&
    echo "<Job><Id>1</Id></Job>" >idle.xml &&
    command_fails dws "line 1: /Job: has no Executable: Flux needs a command to run" \
        flux dws submit-object idle.xml
'
test_expect_success 'a dry run prints the jobspec, and needs no Flux' '
    FLUX_URI=local:///none submit_object --dry-run <simple.xml >jobspec.json &&
    test $(wc -l <jobspec.json) -eq 1 &&
    id=$(flux job submit jobspec.json) &&
    wait_event $id clean &&
    flux job status $id
'
test_expect_success 'a job runs where it is submitted, with the environment it has' '
    mkdir -p dir &&
    id=$(cd dir && export HERE=hidden && submit_job "<OutputFile>out</OutputFile>
        <Executable>sh</Executable>
        <Arguments>-c &apos;echo \$GREETING \$HERE&apos;</Arguments>
        <Environment><Variable name=\"GREETING\">a &amp; b</Variable></Environment>") &&
    wait_event $id clean &&
    test "$(cat dir/out)" = "a & b"
'
test_expect_success 'a job has the exported environment of the command' '
    id=$(export HERE=seen && submit_job "<OutputFile>out</OutputFile>
        <Executable>printenv</Executable><Arguments>HERE</Arguments>
        <Environment export=\"true\"/>") &&
    wait_event $id clean &&
    test "$(cat out)" = seen
'
test_expect_success 'limits, files and where tasks go are what the object says' '
    id=$(submit_job "<Executable>sh</Executable>
        <Arguments>-c &quot;ulimit -n; hostname; cat; echo no &gt;&amp;2&quot;</Arguments>
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
    test $(grep -cx no errors) -eq 3
'
test_expect_success 'a job that is on hold is held' '
    id=$(submit_job "<Executable>true</Executable><Hold>User</Hold>") &&
    test "$(flux jobs -no "{urgency}" $id)" = 0 &&
    job_go $id &&
    wait_event $id clean &&
    flux job status $id
'
test_expect_success 'jobs of a group wait for each other, as they say' '
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
    test "$(flux jobs -no "{name}" $mender)" = mended &&
    comes_before $(second $broken finish) $(second $mender start) &&
    comes_before $(second $mender finish) $(second $last start)
'
test_expect_success 'no job of a group runs before all are submitted' '
    for id in $(cat ids); do
        comes_before $(second $last submit) $(second $id start) || return 1
    done
'
test_expect_success 'a job waits for one that was there before' '
    before=$(flux submit --urgency=hold true) &&
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
    before=$(count_jobs) &&
    test_expect_code 1 flux dws submit-object queue.xml >out 2>err &&
    test_must_be_empty out &&
    test $(wc -l <err) -eq 2 &&
    grep "ERROR: line [0-9]*: /JobGroup/Job\[3\]: .*queue" err &&
    id=$(sed -n "s/.*ERROR: cancelled: //p" err) &&
    wait_event $id clean &&
    job_exception $id cancel "the rest of its job object cannot be submitted" &&
    ! has_event $id start &&
    test $(count_jobs) -eq $((before + 1))
'
test_expect_success 'jobs that wait for each other are not submitted at all' '
    before=$(count_jobs) &&
    sed "s:<Executable>false</Executable>:&<Dependency>last</Dependency>:" \
        group.xml >circle.xml &&
    command_fails dws \
        "line 4: /JobGroup/Job[1]: waits for itself: \"last\" for \"mender\" for \"broken\"" \
        flux dws submit-object circle.xml &&
    test $(count_jobs) -eq $before
'
test_expect_success 'a Resource of the name Storage is storage on Rabbits' '
    module_load &&
    id=$(submit_job "<Executable>sh</Executable>
        <Arguments>-c &quot;test -d \$DW_JOB_storage1&quot;</Arguments>
        <Requested><NodeCount>2</NodeCount>
        <Resource name=\"Storage\" type=\"xfs\" units=\"GB\">10</Resource>
        </Requested>") &&
    job_succeeds $id &&
    flux job info --original $id jobspec >jobspec.json &&
    grep "#DW jobdw type=xfs capacity=10GiB name=storage1" jobspec.json
'
test_expect_success 'a job with storage that ran can be submitted again' '
    first=$(job_submit -N2 -n2 -t 10m --requires=host:compute-03,compute-04 \
        sh -c "test -d \$DW_JOB_p1") &&
    job_succeeds $first &&
    flux dws job-object --environment $first >first.xml &&
    second=$(submit_object <first.xml) &&
    job_succeeds $second &&
    flux dws job-object --environment $second >second.xml &&
    third=$(submit_object <second.xml) &&
    job_succeeds $third &&
    flux job info --original $second jobspec >second.json &&
    flux job info --original $third jobspec >third.json &&
    cmp second.json third.json &&
    test "$(memos $third rabbits)" = "$(memos $first rabbits)"
'
test_expect_success 'a batch job that ran can be submitted again, with its script' '
    printf "#!/bin/sh\n# <&\nhostname >ran\n" >script.sh &&
    id=$(flux batch -n2 -S dw="$DW" script.sh) &&
    job_succeeds $id &&
    rm ran &&
    flux dws job-object --environment $id >batch.xml &&
    id=$(submit_object <batch.xml) &&
    job_succeeds $id &&
    test -s ran
'
test_done
