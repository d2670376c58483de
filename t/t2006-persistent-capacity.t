#!/bin/sh
test_description='Storage that no job holds takes room of a Rabbit, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB; rabbit-01 is chassis0.
cluster_start
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

# usage: allocated_on_first FILE: how many Servers of jobs in it ask for storage on
# rabbit-01
allocated_on_first () {
    python_stdin '
import json, sys
names = [
    servers["metadata"]["name"]
    for servers in json.load(open(sys.argv[1]))["items"]
    for entry in servers["spec"].get("allocationSets", [])
    for storage in entry["storage"]
    if storage["name"] == "rabbit-01"
]
print(sum(name.startswith("fluxjob-") for name in names))' "$1"
}

# usage: ssds_of JOBID: those that it has, each as CHASSIS/SSD
ssds_of () {
    flux job info "$1" R | python_stdin '
import json, sys
vertices = json.load(sys.stdin)["scheduling"]["graph"]["nodes"]
paths = [v["metadata"]["paths"]["containment"] for v in vertices]
print(*sorted(path.split("/", 2)[2] for path in paths if "/ssd" in path))'
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
    test "$(rabbit_room <check.json)" -eq "$1"
}

rabbit_room () {
    python_stdin '
import json, sys
print(json.load(sys.stdin)["fits_now"].get("rabbit-01", 0))'
}

# usage: waits JOBID: for room, as Fluxion sees it
waits () {
    wait_event "$1" depend &&
    ! flux job wait-event -q -t 1 "$1" alloc &&
    waits_events=$(events "$1") &&
    in_order "$waits_events" depend priority &&
    case $waits_events in *exception*) return 1 ;; esac
}

ends () {
    for ends_id; do
        job_end "$ends_id" && job_succeeds "$ends_id" || return 1
    done
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    are_down
'
test_expect_success 'have all jobs on one Rabbit' '
    filler=$(flux submit -N4 --requires=host:compute-[03-04,07-08] sleep inf) &&
    wait_event $filler start
'
test_expect_success 'a persistent file system takes as many ssd as hold it' '
    persistent 200 &&
    eventually are_down chassis0/ssd0 chassis0/ssd1 &&
    eventually rabbit_fits 0 768 &&
    rabbit_fits 1 767
'
test_expect_success 'a job that fits in what is left runs' '
    id=$(storage_job 700) &&
    has_ssds $id chassis0/ssd2 chassis0/ssd3 chassis0/ssd4 \
        chassis0/ssd5 chassis0/ssd6 chassis0/ssd7 &&
    ends $id
'
test_expect_success 'flux dws check counts ssd that go to a node as a whole' '
    id=$(storage_job 10) &&
    wait_event $id start &&
    eventually rabbit_fits 0 640 &&
    rabbit_fits 1 639 &&
    rabbit_fits 2 255 &&
    rabbit_fits 3 1 &&
    ends $id &&
    eventually rabbit_fits 1 767
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
    check_agrees 4 "$xfs" &&
    grep "^Fits now: *yes: 4 nodes on rabbit-01" page &&
    rpc resource.drain "{\"targets\": \"compute-[01-02]\", \"reason\": \"test\"}" &&
    check_agrees 3 "$xfs" &&
    grep "^Nodes: *3 of .*, 2 of which are free now" page &&
    grep "^Fits now: *no: 2 nodes on rabbit-01" page &&
    grep "^Avoids: *compute-\[01-02\]: down, drained" page &&
    check_agrees 2 "$xfs" "#DW jobdw type=lustre capacity=100GiB name=p2" &&
    grep "^Fits now: *yes" page &&
    rpc resource.undrain "{\"targets\": \"compute-[01-02]\"}"
'
test_expect_success 'flux dws check knows nodes of jobs without storage, with a time limit' '
    busy=$(flux submit -N3 -t 10m --requires=host:compute-[01-02,05-06] sleep inf) &&
    wait_event $busy start &&
    check_agrees 2 "$xfs" &&
    grep "^Fits by: .*(in .*): 4 nodes on rabbit-01" page &&
    grep "^Waits for: *the time limit of" page &&
    check_agrees 1 "$xfs" &&
    grep "^Fits now: *yes: 1 node on rabbit-01" page &&
    job_cancel $busy &&
    wait_event $busy clean
'
test_expect_success 'a job that needs more storage than is left waits, and is not refused' '
    large=$(storage_job 800 true) &&
    waits $large
'
test_expect_success 'a waiting job starts when the persistent file system is destroyed' '
    destroy &&
    job_succeeds $large &&
    eventually are_down
'
test_expect_success 'Fluxion gives the last ssd first' '
    first=$(storage_job 480) &&
    has_ssds $first chassis0/ssd4 chassis0/ssd5 chassis0/ssd6 chassis0/ssd7 &&
    second=$(storage_job 480) &&
    has_ssds $second chassis0/ssd0 chassis0/ssd1 chassis0/ssd2 chassis0/ssd3
'
test_expect_success 'ssd of jobs do not count for the persistent file system' '
    ends $first &&
    persistent 200 &&
    eventually are_down chassis0/ssd4 chassis0/ssd5
'
test_expect_success 'no more storage is given out than there is' '
    first=$(storage_job 200) &&
    has_ssds $first chassis0/ssd6 chassis0/ssd7 &&
    third=$(storage_job 100) &&
    waits $third &&
    eventually rabbit_fits 0 1
'
test_expect_success 'no less storage is given out than there is' '
    ends $second &&
    has_ssds $third chassis0/ssd3 &&
    second=$(storage_job 300) &&
    has_ssds $second chassis0/ssd0 chassis0/ssd1 chassis0/ssd2
'
test_expect_success 'a module that is loaded again changes nothing' '
    flux module remove dws &&
    are_down chassis0/ssd4 chassis0/ssd5 &&
    flux module load dws &&
    eventually stats_say "\"ssd_down\": 2" &&
    eventually are_down chassis0/ssd4 chassis0/ssd5 &&
    eventually rabbit_fits 0 1
'
test_expect_success 'where jobs have too many ssd, no more are given out' '
    foreign_servers foreign 100 &&
    eventually are_down chassis0/ssd0 chassis0/ssd1 chassis0/ssd2 chassis0/ssd3 \
        chassis0/ssd4 chassis0/ssd5 chassis0/ssd6 chassis0/ssd7
'
test_expect_success 'ssd are given out when a job has given some back' '
    fourth=$(storage_job 200) &&
    waits $fourth &&
    ends $second &&
    has_ssds $fourth chassis0/ssd4 chassis0/ssd5 &&
    eventually are_down chassis0/ssd0 chassis0/ssd1 chassis0/ssd2
'
test_expect_success 'a reloaded Fluxion gets the state of Rabbits and ssd again' '
    scheduler_reload &&
    eventually are_down chassis0/ssd0 chassis0/ssd1 chassis0/ssd2
'
test_expect_success 'ssd that jobs give back while the module is away are given out' '
    large=$(storage_job 300 true) &&
    waits $large &&
    flux module remove dws &&
    kube delete servers foreign &&
    flux module load dws &&
    destroy &&
    job_succeeds $large &&
    ends $first $third $fourth &&
    eventually are_down
'
test_expect_success 'storage that is there when a job has got its nodes has it wait' '
    first=$(storage_job 480) &&
    wait_event $first start &&
    second=$(storage_job 480 --urgency=hold sh -c "$LOOP") &&
    wait_event $second depend &&
    flux module remove dws &&
    foreign_servers foreign 500 &&
    job_go $second &&
    wait_event $second prolog-start &&
    flux module load dws &&
    eventually has_memo $second rabbit_waits_for \
        "others. storage: .* rabbit-01, .* has 43.707 GiB left"
'
test_expect_success 'no other job gets room where a job waits for its storage' '
    third=$(storage_job 100) &&
    waits $third
'
test_expect_success 'no job has more storage than there is, and none is killed for it' '
    kube get servers >servers &&
    test "$(allocated_on_first servers)" -eq 1 &&
    flux jobs -no "{state}" $first | grep RUN &&
    ends $first &&
    wait_event $second start &&
    kube get servers >servers &&
    test "$(allocated_on_first servers)" -eq 1
'
test_expect_success 'when jobs end, all storage is given out again' '
    kube delete servers foreign &&
    ends $second $third &&
    eventually are_down &&
    job_cancel $filler
'
test_done
