#!/bin/sh
test_description='Nodes do not wait for data, with the DWS and the NNF of a real cluster'
. "$(dirname "$0")/tap.sh"
. "$(dirname "$0")/real.sh"

# The test says when data has moved, and when it cannot: nnf.py stands in for the data
# movers. The cluster is to have none of its own (nnf-dm).

need_fluxion

# usage: nnf COMMAND...: see nnf.py
nnf () {
    "$PYTHON" "$TESTDIR/nnf.py" "$CLUSTER" "$@"
}

# usage: copies wait|succeed|fail [INDEX=WORD...]: what becomes of those that run, and
# that begin; another word for those of a directive
copies () {
    echo "$*" >"$TRASH/copies.new" &&
    mv "$TRASH/copies.new" "$TRASH/copies"
}

movers_start () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    copies succeed
    # Not by the function, whose shell would be what is killed.
    "$PYTHON" "$TESTDIR/nnf.py" "$CLUSTER" movers "$TRASH/copies" \
        >"$TRASH/movers.log" 2>&1 &
    MOVERS_PID=$!
    eventually grep -q ready "$TRASH/movers.log" ||
        skip_all "no data movers: $(cat "$TRASH/movers.log")"
}

# In place of that of tap.sh.
cluster_stop () {
    test -z "$MOVERS_PID" || {
        kill "$MOVERS_PID"
        nnf restore
    } 2>/dev/null
    wait
    rm -rf "$TRASH"
}

# Of two jobs with so much storage on all nodes the second one waits for the first one's.
# In GiB for each node.
much_storage () {
    python_stdin '
import json, sys
mapping = json.load(open(sys.argv[1]))
rabbits = [mapping["computes"][node] for node in sys.argv[2].split(",")]
print(min(
    mapping["rabbits"][rabbit]["capacity"] * 5 // 8 // rabbits.count(rabbit)
    for rabbit in set(rabbits)) >> 30)' "$TRASH/mapping.json" "$NODES"
}

# ---- jobs -------------------------------------------------------------------

# usage: storage_job GIB [OPTION...] COMMAND...: submit a job on all nodes, with so much
# storage on each, of which a file is copied out
storage_job () {
    storage_job_size=$1
    shift
    flux submit -N"$SIZE" -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/" "$@"
}

# usage: staged_job TYPE COMMAND...: a job on all nodes that gets a file before it has nodes
staged_job () {
    staged_job_type=$1
    shift
    flux submit -N"$SIZE" -S dw_stage=ahead \
        -S dw="#DW jobdw type=$staged_job_type capacity=10GiB name=p1
	#DW copy_in source=/lustre/input destination=\$DW_JOB_p1/" "$@"
}

# usage: in_dataout JOBID: the job has ended, and its data goes out
in_dataout () {
    wait_event "$1" clean &&
    kube wait "$(workflow "$1")" DataOut
}

data_is_out () {
    test "$(job_kvs "$1" rabbit_data_out)" = "{\"success\": true}"
}

# usage: computes JOBID: the nodes that DWS knows of, in order, with commas
computes () {
    kube get computes "$(workflow "$1")" | python_stdin '
import json, sys
nodes = json.load(sys.stdin).get("data") or []
print(*sorted(node["name"] for node in nodes), sep=",")'
}

# usage: shows JOBID TEXT: flux dws show does, in $TRASH/shown
shows () {
    flux dws show "$1" >"$TRASH/shown" &&
    grep "$2" "$TRASH/shown"
}

# usage: may_be_rescued JOBID: the job has ended, and its data is kept
may_be_rescued () {
    wait_event "$1" clean &&
    eventually shows "$1" \
        "^Waits for: *flux dws rescue .*: its data is not out, and is kept until"
}

# usage: storage_is_kept JOBID: the job has ended, and its storage waits for the bad node
storage_is_kept () {
    wait_event "$1" clean &&
    kube wait "$(workflow "$1")" PostRun &&
    eventually shows "$1" "$BAD to unmount, or to be off"
}

# usage: waits_for JOBID TEXT: by its memo
waits_for () {
    flux jobs -no "{user.rabbit_waits_for}" "$1" | grep "$2"
}

# usage: drained_nodes: with commas
drained_nodes () {
    flux resource drain -no "{nodelist}" | paste -sd ,
}

# ---- the tests --------------------------------------------------------------

cluster_real
movers_start
real_conf 'postrun_timeout = 30' 'unmount_failure = "keep"' 'keep_failed = "1h"' \
    'keep_failed_limit = 100'
brokers_return "$NODES"
test -n "$FLUX_DWS_INSIDE" || fluxion_conf "$SIZE" --no-validate
instance_start "$SIZE" --test-exit-mode=leader

BAD=$(echo "$NODES" | cut -d, -f2)
KEPT=flux-dws-test-$$
MUCH=$(much_storage)

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    module_start &&
    ssds_down 0 0
'
test_expect_success 'a job ends when its nodes have unmounted' '
    copies wait &&
    first=$(storage_job $MUCH -S dw_release=unmounted true) &&
    in_dataout $first &&
    events=$(events $first) &&
    in_order "$events" finish epilog-start:dws-epilog dws_released \
        epilog-finish:dws-epilog clean &&
    case $events in *exception*) false ;; esac
'
test_expect_success 'its nodes run other jobs at once' '
    flux run -N$SIZE true
'
test_expect_success 'its storage is there, and is kept from other jobs' '
    test -n "$(nnf allocations $(workflow $first))" &&
    ssds_down 1 1000 &&
    second=$(storage_job $MUCH true) &&
    waits $second
'
test_expect_success 'a job that depends on its data waits, too' '
    after=$(flux submit --dependency=dws-out:$first true) &&
    ! flux job wait-event -q -t 1 $after depend
'
test_expect_success 'a module that was killed goes on with the data' '
    module_kill &&
    module_start &&
    in_dataout $first &&
    waits $second
'
test_expect_success 'when the data is out, the next job gets the storage' '
    copies succeed &&
    wait_event $after clean &&
    has_event $after start &&
    data_is_out $first &&
    job_succeeds $second
'
test_expect_success 'nothing is left of it on the Rabbits' '
    no_workflows &&
    test -z "$(nnf allocations $(workflow $first))" &&
    eventually ssds_down 0 0
'
for type in xfs gfs2 lustre; do
    test_expect_success "$type: the data of a job is copied in while others have all nodes" '
        copies wait &&
        rm -f go &&
        first=$(flux submit -N$SIZE sh -c "until test -e \"$TRASH/go\"; do sleep 0.1; done") &&
        wait_event $first start &&
        second=$(staged_job $type sh -c "$LOOP") &&
        kube wait $(workflow $second) DataIn &&
        ! flux job wait-event -q -t 1 $second depend &&
        copies succeed &&
        kube wait-ready $(workflow $second) DataIn &&
        wait_event $second priority
    '
    test_expect_success "$type: DWS does not know the nodes yet" '
        test -z "$(computes $second)" &&
        test -n "$(nnf allocations $(workflow $second))" &&
        ssds_down 1 1000
    '
    test_expect_success "$type: they mount it when they are its, and it runs on all of them" '
        touch go &&
        wait_event $second start &&
        test "$(computes $second)" = "$NODES" &&
        kube wait-ready $(workflow $second) PreRun &&
        job_end $second &&
        job_succeeds $second
    '
    test_expect_success "$type: nothing is left of it" '
        no_workflows &&
        eventually ssds_down 0 0
    '
done
test_expect_success 'data that cannot be copied out is kept, and the job has an exception' '
    copies fail &&
    first=$(storage_job $MUCH true) &&
    may_be_rescued $first &&
    event_context $first exception >exceptions &&
    test $(wc -l <exceptions) -eq 1 &&
    grep "DWS failed in DataOut: .*No space left on device.*; not copied: " exceptions &&
    grep "its storage is kept until .*Z: flux dws rescue f.* copies again" exceptions &&
    test_must_fail job_kvs $first rabbit_data_out
'
test_expect_success 'its nodes run other jobs, and its storage goes to none' '
    flux run -N$SIZE true &&
    ssds_down 1 1000 &&
    second=$(storage_job $MUCH true) &&
    waits $second
'
test_expect_success 'a copy that fails again leaves it' '
    until=$(flux dws show --json $first | grep -o "\"kept_until\": [0-9.]*") &&
    flux dws rescue $first >rescued &&
    grep "copies are started again. flux dws wait" rescued &&
    may_be_rescued $first &&
    ! flux dws show --json $first | grep -F "$until"
'
test_expect_success 'the data is rescued, once it can be copied' '
    copies wait &&
    flux dws rescue $first &&
    ! flux job wait-event -q -t 1 $second alloc &&
    test_must_fail job_kvs $first rabbit_data_out &&
    copies succeed &&
    flux dws wait $first &&
    data_is_out $first &&
    job_succeeds $second
'
expect_nothing_left
test_expect_success 'data that is given up is lost, and its storage goes at once' '
    copies fail &&
    third=$(storage_job 10 -S dw_release=unmounted true) &&
    may_be_rescued $third &&
    flux dws rescue --give-up $third &&
    test_expect_code 1 flux dws wait $third &&
    job_kvs $third rabbit_data_out | grep "No space left on device" &&
    no_workflows &&
    eventually ssds_down 0 0
'
test_expect_success 'a copy that fails does not end another one' '
    copies wait 1=fail &&
    fourth=$(flux submit -N$SIZE -S dw="#DW jobdw type=xfs capacity=10GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/x
	#DW copy_out source=\$DW_JOB_p1/y destination=/lustre/y" true) &&
    eventually shows $fourth "Waits for: *copies that go on: another one of the job" &&
    ! flux job wait-event -q -t 1 $fourth exception &&
    copies succeed &&
    may_be_rescued $fourth &&
    event_context $fourth exception >exceptions &&
    grep "not copied: .DW_JOB_p1/x to /lustre/x; its storage is kept" exceptions &&
    flux dws rescue $fourth &&
    flux dws wait $fourth &&
    data_is_out $fourth &&
    no_workflows
'
test_expect_success 'a job ends although one of its nodes has not unmounted' '
    copies succeed &&
    job_succeeds $(flux submit -N$SIZE \
        -S dw="#DW create_persistent type=xfs capacity=10GiB name=$KEPT" true) &&
    first=$(flux submit -N$SIZE -S dw="#DW jobdw type=xfs capacity=10GiB name=p1
	#DW persistentdw name=$KEPT
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/" sh -c "$LOOP") &&
    wait_event $first start &&
    nnf silence $BAD &&
    job_end $first &&
    storage_is_kept $first &&
    flux job status $first &&
    event_context $first exception >exceptions &&
    test $(wc -l <exceptions) -eq 1 &&
    grep "dws-node-failure.*$BAD: PostRun took more.*the storage is kept" exceptions
'
test_expect_success 'that node is drained, and no other, and not Disabled' '
    test "$(drained_nodes)" = "$BAD" &&
    test "$(kube node $BAD)" = Enabled
'
test_expect_success 'the others return to service' '
    flux run -N$((SIZE - 1)) true
'
test_expect_success 'a module that was killed keeps its storage' '
    module_kill &&
    module_start &&
    storage_is_kept $first &&
    ssds_down 1 1000
'
test_expect_success 'persistent storage that the node has mounted is not mounted again' '
    other=$(flux submit -N1 -S dw="#DW persistentdw name=$KEPT" true) &&
    eventually waits_for $other "$BAD has not unmounted the persistent storage $KEPT"
'
test_expect_success 'a broker that is gone is not enough' '
    broker_dies 1 &&
    eventually are_offline $BAD &&
    storage_is_kept $first &&
    test "$(kube node $BAD)" = Enabled
'
test_expect_success 'once its link is Offline as well, the data of the others goes out' '
    nnf link $BAD Offline &&
    kube wait-node $BAD Disabled &&
    no_workflows &&
    eventually job_kvs $first rabbit_data_out &&
    job_kvs $first rabbit_data_out | grep "$BAD has not unmounted: what it had not written" &&
    job_succeeds $other
'
test_expect_success 'and the persistent storage can be destroyed' '
    job_succeeds $(flux submit -N1 -S dw="#DW destroy_persistent name=$KEPT" true) &&
    no_workflows &&
    eventually ssds_down 0 0
'
expect_nothing_forbidden
flux cancel --all --quiet
test_done
