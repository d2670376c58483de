#!/bin/sh
test_description='The life of a job with #DW directives'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

test_expect_success 'the job-manager table loads the plugin, flux module load dws the module' '
    flux jobtap list | grep dws-jobtap &&
    module_start scheduler=none &&
    stats_say "\"jobs\": 0"
'
test_expect_success 'a job with a #DW directive runs, on nodes of both Rabbits' '
    id=$(job_submit -N4 -n8 --label-io env) &&
    job_succeeds $id &&
    test "$(memos $id rabbit_workflow)" = "$(workflow $id)" &&
    test "$(memos $id rabbits)" = "rabbit-[01-02]"
'
test_expect_success 'every task has the variables of that event in its environment' '
    event_context $id dws_environment >environment.json &&
    flux job attach --label-io $id >env.out &&
    for task in 0 7; do
        sed -n "s/^$task: //p" env.out | python_stdin "
import json, sys
variables = json.load(open(\"environment.json\"))[\"variables\"]
lines = set(sys.stdin.read().splitlines())
missing = [k for k, v in variables.items() if f\"{k}={v}\" not in lines]
sys.exit(f\"missing: {missing}\" if missing or len(variables) < 4 else 0)" || return 1
    done
'
test_expect_success 'the job KVS has the seconds that each state took, and the last Workflow, with the user' '
    for state in proposal setup datain prerun postrun dataout teardown; do
        flux job info $id rabbit_${state}_timing >seconds || return 1
        grep -xE "[0-9]+(\.[0-9]{1,6})?" seconds || return 1
    done &&
    flux job info $id rabbit_workflow >workflow.json &&
    grep "\"desiredState\": \"Teardown\"" workflow.json &&
    grep "\"userID\": $(id -u)" workflow.json &&
    grep "\"groupID\": $(id -g)" workflow.json
'
test_expect_success 'the storage was there for as long as the job, and the Workflow is gone' '
    path=$(sed -n "s/^0: DW_JOB_p1=//p" env.out) &&
    test -n "$path" && ! test -e "$path" &&
    no_workflows &&
    eventually stats_say "\"jobs\": 0"
'
test_expect_success 'a job without #DW has no events, memos or keys about storage' '
    id=$(flux submit env) &&
    wait_event $id clean &&
    ! events $id | grep -E "dws|prolog|epilog|memo|jobspec-update|dependency" &&
    ! flux job attach $id | grep "^DW_"
'
test_expect_success 'flux batch takes directives from the script' '
    mkdir -p scratch/lustre/input &&
    echo "one two three" >scratch/lustre/input/words.txt &&
    cat >script.sh <<-\END &&
	#!/bin/sh
	#FLUX: -N2 -n2
	#FLUX: --output=batch.out
	#FLUX: -S dw="""
	#FLUX: #DW jobdw type=xfs capacity=10GiB name=words
	#FLUX: #DW copy_in source=/lustre/input/words.txt destination=$DW_JOB_words/
	#FLUX: #DW copy_out source=$DW_JOB_words/count.txt destination=/lustre/output/
	#FLUX: """
	set -e
	test -f "$DW_JOB_words/words.txt"
	echo "in the script: $DW_JOB_words"
	flux run sh -c "echo in a job of the script: \$DW_JOB_words"
	wc -w <"$DW_JOB_words/words.txt" >"$DW_JOB_words/count.txt"
	END
    id=$(flux batch script.sh) &&
    job_succeeds $id
'
test_expect_success 'it copied, and the script and the jobs in it saw the variables' '
    test "$(tr -d " " <scratch/lustre/output/count.txt)" = 3 &&
    flux job info $id rabbit_moved | grep DataOut &&
    path=$(event_context $id dws_environment \
        | sed -n "s/.*\"DW_JOB_words\": \"\([^\"]*\)\".*/\1/p") &&
    test -n "$path" &&
    grep "in the script: $path\$" batch.out &&
    grep "in a job of the script: $path\$" batch.out
'
test_expect_success 'the constraints of the user stay' '
    id=$(job_submit --requires=host:compute-04 true) &&
    job_succeeds $id &&
    event_context $id jobspec-update | grep "\^badrabbit" | grep compute-04 &&
    nodes_of $id | grep -x compute-04
'
test_expect_success 'a job that fails keeps its exit status, and its data is copied out' '
    id=$(job_submit sh -c "exit 7") &&
    wait_event $id clean &&
    test_expect_code 7 flux job status $id &&
    ! has_event $id exception
'
test_expect_success 'persistent storage outlives the job that makes it, until one destroys it' '
    id=$(flux submit \
        --setattr=system.dw="#DW create_persistent type=lustre capacity=1GiB name=keep" \
        true) &&
    job_succeeds $id &&
    dw="#DW persistentdw name=keep" &&
    id=$(flux submit --setattr=system.dw="$dw" \
        sh -c "echo here >\$DW_PERSISTENT_keep/file") &&
    job_succeeds $id &&
    id=$(flux submit --setattr=system.dw="$dw" \
        sh -c "grep here \$DW_PERSISTENT_keep/file") &&
    job_succeeds $id &&
    id=$(flux submit --setattr=system.dw="#DW destroy_persistent name=keep" true) &&
    job_succeeds $id &&
    kube wait-none persistentstorageinstances
'
test_expect_success 'jobs that run at once have storage of their own' '
    flux submit --cc=1-4 --quiet --wait --setattr=system.dw="$DW" \
        sh -c "touch \$DW_JOB_p1/mine && test \$(ls \$DW_JOB_p1) = mine"
'
test_done
