#!/bin/sh
test_description='Data is copied in before a job has nodes, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
fluxion_start 8

IN='#DW copy_in source=/lustre/input destination=$DW_JOB_p1/'

# usage: storage_job GIB [OPTION...] COMMAND...: submit a job that copies a file in, with
# so much storage for each node
storage_job () {
    storage_job_size=$1
    shift
    flux submit -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1
	$IN" "$@"
}

# usage: staged_job GIB [OPTION...] COMMAND...: likewise, before it has nodes
staged_job () {
    staged_job_size=$1
    shift
    storage_job "$staged_job_size" -S dw_stage=ahead "$@"
}

# usage: is_staged JOBID: its data is there, and it waits for nodes
is_staged () {
    kube wait-ready "$(workflow "$1")" DataIn &&
    wait_event "$1" priority
}

# usage: waits JOBID: for nodes or storage, as Fluxion sees it
waits () {
    wait_event "$1" priority &&
    ! flux job wait-event -q -t 1 "$1" alloc
}

ssds_are_down () {
    ssds_down >down &&
    test "$(wc -w <down)" -eq "$1"
}

# usage: seconds_between JOBID EVENT JOBID EVENT
seconds_between () {
    {
        flux job eventlog --format=json "$1" | grep "\"name\":\"$2\"" &&
        flux job eventlog --format=json "$3" | grep "\"name\":\"$4\""
    } | sed 's/.*"timestamp":\([0-9.]*\).*/\1/' |
        awk 'NR == 1 { begin = $1 } END { print $1 - begin }'
}

# Log each time at which a Rabbit has more storage of jobs than it can have.
watch_storage () {
    PYTHONPATH=$TESTDIR "$PYTHON" -c '
import sys, time
from collections import Counter
from flux_k8s.dws import storageusage
from kube import Cluster
cluster = Cluster(sys.argv[1], 30.0)
while True:
    taken = Counter()
    for servers in cluster.list("servers")["items"]:
        taken.update(storageusage.parse(servers).unavailable)
    print(max(taken.values(), default=0), flush=True)
    time.sleep(0.05)' "$CLUSTER" >storage.log 2>storage.err &
    WATCHER=$!
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    mkdir -p scratch/lustre &&
    echo data >scratch/lustre/input &&
    echo "stage_limit = 100" >>conf/rabbit.toml &&
    echo "stage_user_limit = 100" >>conf/rabbit.toml &&
    flux config reload &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    ssds_are_down 0 &&
    watch_storage
'
test_expect_success 'the data of a job is copied in while others have all nodes' '
    first=$(storage_job 100 -N8 sh -c "$LOOP") &&
    wait_event $first start &&
    second=$(staged_job 100 -N8 sh -c "test -e \$DW_JOB_p1/input") &&
    is_staged $second &&
    ssds_are_down 8
'
test_expect_success 'the other storage is not given to a third job' '
    third=$(storage_job 100 -N8 true) &&
    waits $third
'
test_expect_success 'the nodes go to it at once, and it finds its data' '
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $second &&
    idle=$(seconds_between $first free $second start) &&
    echo "idle for $idle s" >&2 &&
    test "${idle%.*}" -lt 1
'
test_expect_success 'the third one gets storage when the others are gone' '
    job_succeeds $third &&
    no_workflows &&
    eventually ssds_are_down 0
'
test_expect_success 'a job gets its nodes below the Rabbit where its storage is' '
    small=$(staged_job 100 -N3 true) &&
    job_succeeds $small &&
    nodes=$(flux jobs -n -o "{nodelist}" $small) &&
    echo "$nodes" >&2 &&
    echo "$nodes" | grep -E "^compute-\[0[1256][-0-9,]*\]$|^compute-\[0[3478][-0-9,]*\]$" &&
    case $nodes in *02-05*|*06-07*) false ;; esac
'
test_expect_in_soak 'a job on two Rabbits gets any nodes there, and all of its tasks' '
    busy=$(flux submit -N2 --requires=host:compute-[01,03] \
        sh -c "until test -e \"$TRASH/go\"; do sleep 0.1; done") &&
    wait_event $busy start &&
    spread=$(staged_job 100 -N6 -n12 hostname) &&
    job_succeeds $spread &&
    nodes=$(flux jobs -n -o "{nodelist}" $spread) &&
    test "$nodes" = "compute-[02,04-08]" &&
    test $(flux job attach $spread 2>/dev/null | wc -l) -eq 12 &&
    touch go &&
    wait_event $busy clean
'
# usage: busy_until FILE NODES: a job without storage has these nodes until there is a file
busy_until () {
    flux submit -N4 --requires=host:"$2" -t 1h \
        sh -c "until test -e \"$TRASH/$1\"; do sleep 0.1; done"
}

# The list of jobs that have nodes may be two seconds old.
test_expect_in_soak 'a job is staged where nodes are free, with less room or not' '
    for rabbits in 01,02,05,06:03,04,07,08 03,04,07,08:01,02,05,06; do
        rm -f go &&
        busy=$(busy_until go "compute-[${rabbits%:*}]") &&
        wait_event $busy start &&
        other=$(storage_job 100 -N1 --requires=host:"compute-[${rabbits#*:}]" \
            sh -c "$LOOP") &&
        wait_event $other start &&
        sleep 2 &&
        job_succeeds $(staged_job 100 -N3 true) &&
        ! flux job wait-event -q -t 0.1 $busy finish &&
        job_end $other &&
        touch go &&
        job_succeeds $other &&
        wait_event $busy clean || return 1
    done &&
    no_workflows
'
test_expect_success 'data waits while a module is killed, and Fluxion loaded again' '
    first=$(flux submit -N8 sh -c "until test -e \"$TRASH/end\"; do sleep 0.1; done") &&
    wait_event $first start &&
    second=$(staged_job 200 -N8 true) &&
    is_staged $second &&
    ssds_are_down 14 &&
    module_kill &&
    third=$(storage_job 200 -N4 true) &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    ssds_are_down 14 &&
    scheduler_reload &&
    eventually ssds_are_down 14 &&
    waits $third &&
    touch end &&
    job_succeeds $second &&
    job_succeeds $third &&
    no_workflows
'
test_expect_in_soak 'a job that is cancelled while its data waits gives it back' '
    rm end &&
    first=$(flux submit -N8 sh -c "until test -e \"$TRASH/end\"; do sleep 0.1; done") &&
    wait_event $first start &&
    second=$(staged_job 100 -N8 true) &&
    is_staged $second &&
    job_cancel $second &&
    wait_event $second clean &&
    no_workflows &&
    eventually ssds_are_down 0
'
test_expect_in_soak 'a job that is held, or depends on another, is not staged' '
    second=$(staged_job 100 -N8 --urgency=hold true) &&
    third=$(staged_job 100 -N8 --dependency=afterok:$first true) &&
    kube wait-ready $(workflow $second) Proposal &&
    kube wait-ready $(workflow $third) Proposal &&
    sleep 1 &&
    ssds_are_down 0 &&
    flux job urgency $second default &&
    is_staged $second &&
    touch end &&
    job_succeeds $second &&
    job_succeeds $third
'
test_expect_success 'no storage was given twice' '
    kill $WATCHER &&
    test -s storage.log &&
    test ! -s storage.err &&
    awk "\$1 > 1099511627776 { exit 1 }" storage.log
'
test_expect_success 'a job that gains nothing is refused with the reason' '
    refused=$(flux submit -N1 -S dw_stage=ahead -S dw="$DW" true) &&
    wait_event $refused clean &&
    job_exception $refused dws "there is no copy_in"
'
test_expect_success 'a wrong value is refused' '
    test_must_fail flux submit -N1 -S dw_stage=soon -S dw="$DW" true 2>err &&
    grep "dw_stage is .*soon.*, expected .prolog. or .ahead." err
'
test_done
