#!/bin/sh
test_description='The life of a job with #DW directives'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

test_expect_success 'the job-manager table loads the plugin, flux module load dws the module' '
    flux jobtap list | grep dws-jobtap &&
    module_load &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    stats_say "\"jobs\": 0"
'
test_expect_success 'a job with a #DW directive runs, on nodes of both Rabbits' '
    id=$(job_submit -N4 -n8 --label-io env) &&
    wait_event $id clean &&
    flux job status $id
'
test_expect_success 'the eventlog of a job with storage has each event, in order' '
    in_order "$(events $id)" \
        submit validate dependency-add:dws-create \
        jobspec-update dependency-remove:dws-create depend priority \
        alloc prolog-start:dws-setup dws_environment prolog-finish:dws-setup \
        start finish epilog-start:dws-epilog epilog-finish:dws-epilog free clean
'
test_expect_success 'each event of a job with storage comes once' '
    events $id | tr " " "\n" | grep -E "dws|jobspec-update" | sort | uniq -d >twice &&
    test_must_be_empty twice
'
test_expect_success 'the prolog and the epilog ended with status 0' '
    event_context $id prolog-finish | grep "\"status\": 0" &&
    event_context $id epilog-finish | grep "\"status\": 0"
'
test_expect_success 'flux job eventlog shows the dws_environment event' '
    flux job eventlog $id | grep "dws_environment variables={.*\"DW_JOB_p1\":"
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
test_expect_success 'the variables name the storage as DWS does' '
    sed -n "s/^0: //p" env.out >task0 &&
    grep "^DW_WORKFLOW_NAME=$(workflow $id)\$" task0 &&
    grep "^DW_WORKFLOW_NAMESPACE=default\$" task0 &&
    path=$(sed -n "s/^DW_JOB_p1=//p" task0) &&
    grep "^DW_JOBS=p1:$path\$" task0
'
test_expect_success 'the storage was there for as long as the job' '
    test -n "$path" && ! test -e "$path"
'
test_expect_success 'memos name the Workflow and the Rabbits' '
    test "$(memos $id rabbit_workflow)" = "$(workflow $id)" &&
    test "$(memos $id rabbits)" = "rabbit-[01-02]"
'
test_expect_success 'the job KVS has the seconds that each state took' '
    for state in proposal setup datain prerun postrun dataout teardown; do
        flux job info $id rabbit_${state}_timing >seconds || return 1
        grep -xE "[0-9]+(\.[0-9]{1,6})?" seconds || return 1
    done
'
test_expect_success 'the job KVS has the last Workflow, with the user, the job and the directive' '
    flux job info $id rabbit_workflow >workflow.json &&
    grep "\"name\": \"$(workflow $id)\"" workflow.json &&
    grep "\"desiredState\": \"Teardown\"" workflow.json &&
    grep "\"userID\": $(id -u)" workflow.json &&
    grep "\"groupID\": $(id -g)" workflow.json &&
    grep "\"jobID\": \"f" workflow.json &&
    grep "\"wlmID\": \"flux\"" workflow.json &&
    grep -F "$DW" workflow.json
'
test_expect_success 'the Workflow is gone afterwards' '
    no_workflows &&
    eventually stats_say "\"jobs\": 0"
'
test_expect_success 'the job avoids nodes with the property badrabbit' '
    event_context $id jobspec-update | grep "\^badrabbit"
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
test_expect_success 'copy_in and copy_out copied' '
    test "$(tr -d " " <scratch/lustre/output/count.txt)" = 3
'
test_expect_success 'the sum of the data that a job moved is in its KVS, without each movement' '
    flux job info $id rabbit_moved >moved.json &&
    python_stdin "import json, sys
into, out = json.load(sys.stdin)
assert (into[\"phase\"], into[\"movements\"]) == (\"DataIn\", 2)
assert (out[\"phase\"], out[\"movements\"]) == (\"DataOut\", 2)
assert into[\"begun\"] <= into[\"ended\"] <= out[\"begun\"]" <moved.json &&
    ! flux job info $id rabbit_datamovements
'
test_expect_success 'with save_datamovements as many data movements are in the KVS of the job' '
    echo "save_datamovements = 1" >>conf/rabbit.toml &&
    flux config reload &&
    moved=$(job_submit --requires=host:compute-04 --setattr=system.dw="$DW
        #DW copy_in source=/lustre/input/words.txt destination=\$DW_JOB_p1/
        #DW copy_out source=\$DW_JOB_p1/words.txt destination=/lustre/copied" true) &&
    job_succeeds $moved &&
    flux job info $moved rabbit_datamovements >movements.json &&
    python_stdin "import json, sys
(movement,) = json.load(sys.stdin)
assert movement[\"kind\"] == \"NnfDataMovement\"
assert movement[\"status\"][\"status\"] == \"Success\"" <movements.json &&
    grep "/lustre/input/words.txt" movements.json
'
test_expect_success 'the script and the jobs in it saw the variables' '
    path=$(event_context $id dws_environment \
        | sed -n "s/.*\"DW_JOB_words\": \"\([^\"]*\)\".*/\1/p") &&
    test -n "$path" &&
    grep "in the script: $path\$" batch.out &&
    grep "in a job of the script: $path\$" batch.out
'
test_expect_success 'the constraints of the user stay' '
    event_context $moved jobspec-update | grep badrabbit | grep compute-04 &&
    flux jobs -no "{nodelist}" $moved | grep compute-04
'
test_expect_success 'two directives in a list of a JSON jobspec give two file systems' '
    flux submit --dry-run env | python_stdin "
import json, sys
jobspec = json.load(sys.stdin)
jobspec[\"attributes\"][\"system\"][\"dw\"] = [
    \"$DW\", \"#DW jobdw type=xfs capacity=1GiB name=p2\"]
json.dump(jobspec, sys.stdout)" >jobspec.json &&
    id=$(flux job submit jobspec.json) &&
    job_succeeds $id &&
    flux job attach $id >env.out &&
    grep "^DW_JOB_p1=" env.out &&
    grep "^DW_JOB_p2=" env.out
'
test_expect_success 'a job gets file systems of all types' '
    id=$(flux submit --setattr=system.dw="#DW jobdw type=xfs capacity=1GiB name=p1
        #DW jobdw type=gfs2 capacity=1GiB name=p2
        #DW jobdw type=raw capacity=1GiB name=p3
        #DW jobdw type=lustre capacity=1GiB name=p4" \
        sh -c "test -e \$DW_JOB_p1 && test -e \$DW_JOB_p2 && test -e \$DW_JOB_p3 &&
            test -e \$DW_JOB_p4") &&
    job_succeeds $id
'
test_expect_success 'a job that fails keeps its exit status, and its data is copied out' '
    id=$(job_submit sh -c "exit 7") &&
    wait_event $id clean &&
    test_expect_code 7 flux job status $id &&
    ! has_event $id exception &&
    flux job info $id rabbit_dataout_timing
'
test_expect_success 'persistent storage outlives the job that makes it, until one destroys it' '
    id=$(flux submit \
        --setattr=system.dw="#DW create_persistent type=lustre capacity=1GiB name=keep" \
        true) &&
    job_succeeds $id &&
    kube get persistentstorageinstances keep | grep "\"state\": \"Active\"" &&
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
