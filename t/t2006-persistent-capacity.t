#!/bin/sh
test_description='Storage that no job holds takes room of a Rabbit, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB; rabbit-01 is chassis0.
cluster_start
# The tables for Fluxion are those of the example.
test -n "$FLUX_DWS_INSIDE" || sed -n '/^#\[sched-fluxion-resource\]/,/^$/s/^#//p' \
    "$TOP/etc/examples/rabbit.toml" >"$TRASH/example.toml"
instance_conf fluxion.toml <<END
[resource]
scheduling = "$TRASH/scheduling.json"
$(test -n "$FLUX_DWS_INSIDE" || cat "$TRASH/example.toml")
END
fluxion_start 8

# usage: storage_job GIB [COMMAND...]: submit a job on one node, which runs until
# job_end, or this command
storage_job () {
    storage_job_size=$1
    shift
    test $# -gt 0 || set -- sh -c "$LOOP"
    flux submit -N1 \
        -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1" "$@"
}

# usage: persistent GIB: have the owner make a persistent file system
persistent () {
    persistent_id=$(flux submit -N1 \
        -S dw="#DW create_persistent type=xfs capacity=${1}GiB name=keep" true) &&
    job_succeeds "$persistent_id"
}

# Before jobs that wait for what it gives back.
destroy () {
    destroy_id=$(flux submit -N1 --urgency=expedite \
        -S dw="#DW destroy_persistent name=keep" true) &&
    job_succeeds "$destroy_id"
}

# usage: foreign_servers NAME GIB: others than Flux have storage on rabbit-01
foreign_servers () {
    kube create servers <<-END
	{"apiVersion": "dataworkflowservices.github.io/v1alpha7", "kind": "Servers",
	 "metadata": {"name": "$1"},
	 "spec": {"allocationSets": [
	   {"label": "xfs", "allocationSize": $(($2 << 30)),
	    "storage": [{"name": "rabbit-01", "allocationCount": 1}]}]}}
	END
}

# usage: are_down SSD...
are_down () {
    ssds_down >down &&
    test "$(cat down)" = "$*"
}

# usage: has_ssds JOBID SSD...
has_ssds () {
    wait_event "$1" start &&
    test "$(ssds_of "$1")" = "$(shift && echo "$*")"
}

# usage: rabbit_fits NODES GIB: flux dws check says for how many nodes with so much
# storage each there is room on rabbit-01. It may answer as it did a second ago.
rabbit_fits () {
    flux dws check --json "#DW jobdw type=xfs capacity=${2}GiB name=p1" >check.json &&
    test "$(python_stdin '
import json, sys
print(json.load(sys.stdin)["fits_now"].get("rabbit-01", 0))' <check.json)" -eq "$1"
}

ends () {
    for ends_id; do
        job_end "$ends_id" && job_succeeds "$ends_id" || return 1
    done
}

test_expect_success 'load the module, and have all jobs on one Rabbit' '
    flux config get sched-fluxion-resource.prune-filters &&
    flux config get sched-fluxion-qmanager.queue-policy &&
    module_start &&
    are_down &&
    filler=$(flux submit -N4 --requires=host:compute-[03-04,07-08] sleep inf) &&
    wait_event $filler start
'
test_expect_success 'a persistent file system takes as many ssd as hold it' '
    persistent 200 &&
    eventually are_down chassis0/ssd0 chassis0/ssd1 &&
    eventually rabbit_fits 0 768 &&
    rabbit_fits 1 767
'
# compute-06 is the last node of the Rabbit. For it, Fluxion 0.54 has denied jobs.
test_expect_success 'jobs that want a certain node, or the persistent file system, wait for storage of its Rabbit' '
    holder=$(storage_job 700) &&
    has_ssds $holder chassis0/ssd2 chassis0/ssd3 chassis0/ssd4 \
        chassis0/ssd5 chassis0/ssd6 chassis0/ssd7 &&
    node=$(flux submit -N1 -t10m --requires=host:compute-06 \
        -S dw="#DW jobdw type=xfs capacity=300GiB name=p1" true) &&
    both=$(flux submit -N1 -t10m -S dw="#DW persistentdw name=keep
        #DW jobdw type=xfs capacity=300GiB name=p1" true) &&
    waits $both &&
    waits $node &&
    flux dws list -n -o "{id} {waits}" | grep "^$node nodes" &&
    ends $holder &&
    job_succeeds $node &&
    job_succeeds $both
'
# usage: check_agrees NODES DIRECTIVE...: flux dws check says that it fits now if and only
# if a job gets the nodes and the storage
check_agrees () {
    check_agrees_nodes=$1
    shift
    flux dws check -N$check_agrees_nodes "$@" | tee page &&
    check_agrees_id=$(flux submit -N$check_agrees_nodes --urgency=expedite \
        -S dw="$(printf "%s\n" "$@")" true) &&
    case $(sed -n "s/^Fits now: *//p" page) in
    yes*) job_succeeds $check_agrees_id ;;
    *) waits $check_agrees_id && job_cancel $check_agrees_id &&
        wait_event $check_agrees_id clean ;;
    esac
}

test_expect_success 'flux dws check says what becomes of jobs while nodes are drained' '
    xfs="#DW jobdw type=xfs capacity=10GiB name=p1" &&
    rpc resource.drain "{\"targets\": \"compute-[01-02]\", \"reason\": \"test\"}" &&
    check_agrees 3 "$xfs" &&
    grep "^Nodes: *3 of .*, 2 of which are free now" page &&
    grep "^Fits now: *no: 2 nodes on rabbit-01" page &&
    grep "^Avoids: *compute-\[01-02\]: down, drained" page &&
    check_agrees 2 "$xfs" "#DW jobdw type=lustre capacity=100GiB name=p2" &&
    grep "^Fits now: *yes" page &&
    undrain_all
'
test_expect_success 'a job that waits for storage starts when the persistent file system is destroyed' '
    large=$(storage_job 800 true) &&
    waits $large &&
    destroy &&
    job_succeeds $large &&
    eventually are_down
'
test_expect_success 'Fluxion gives the last ssd first' '
    first=$(storage_job 480) &&
    has_ssds $first chassis0/ssd4 chassis0/ssd5 chassis0/ssd6 chassis0/ssd7 &&
    second=$(storage_job 300) &&
    has_ssds $second chassis0/ssd1 chassis0/ssd2 chassis0/ssd3
'
test_expect_success 'ssd of jobs do not count for the persistent file system' '
    ends $first &&
    persistent 200 &&
    eventually are_down chassis0/ssd0 chassis0/ssd4
'
# No job waits that a Fluxion without the module could start.
test_expect_success 'a module and a Fluxion that are loaded again change nothing' '
    flux module remove dws &&
    are_down chassis0/ssd0 chassis0/ssd4 &&
    scheduler_reload &&
    flux module load dws &&
    eventually stats_say "\"ssd_down\": 2" &&
    ssds_down 2 2
'
test_expect_success 'no more storage is given out than there is' '
    first=$(storage_job 300) &&
    wait_event $first start &&
    third=$(storage_job 100) &&
    waits $third &&
    eventually rabbit_fits 0 1
'
test_expect_success 'where jobs have too many ssd, no more are given out until one has given some back' '
    foreign_servers foreign 100 &&
    eventually are_down chassis0/ssd0 chassis0/ssd1 chassis0/ssd2 chassis0/ssd3 \
        chassis0/ssd4 chassis0/ssd5 chassis0/ssd6 chassis0/ssd7 &&
    ends $second &&
    wait_event $third start &&
    ssds_down 3 3
'
test_expect_success 'ssd that jobs give back while the module is away are given out' '
    large=$(storage_job 600 true) &&
    waits $large &&
    flux module remove dws &&
    kube delete servers foreign &&
    flux module load dws &&
    destroy &&
    ends $first &&
    job_succeeds $large &&
    ends $third &&
    eventually are_down &&
    job_cancel $filler
'
test_done
