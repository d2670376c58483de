#!/bin/sh
test_description='flux dws2jgf: a graph that is extended, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB, compute-09 is on none. The graph
# without Rabbits is the one that Fluxion's own "flux ion-R" makes.
fluxion_conf () {
    write_config "$1"
    default_conf fluxion.toml <<-END
	[resource]
	scheduling = "$TRASH/scheduling.json"
	[sched-fluxion-resource]
	match-policy = "firstnodex"
	match-format = "rv1"
	prune-filters = "ALL:core,ALL:ssd"
	END
    flux R parse-config "$TRASH/conf/resource.toml" | flux ion-R encode >"$TRASH/R.json" &&
    python "$PREFIX/libexec/flux/cmd/flux-dws2jgf.py" --only-sched -c8 \
        "$TRASH/mapping.json" <"$TRASH/R.json" >"$TRASH/scheduling.json" \
        2>"$TRASH/warnings" || die "no graph: $(cat "$TRASH/warnings")"
}
cluster_start
fluxion_start 9

# usage: node_count RABBIT JOBID: how many nodes of the job are below the Rabbit
node_count () {
    flux getrabbit "$1" >nodes &&
    flux python -c '
import sys
from flux.hostlist import Hostlist
below, nodes = (set(Hostlist(text)) for text in sys.argv[1:])
print(len(below & nodes))' "$(cat nodes)" "$(flux jobs -ano "{nodelist}" "$2")"
}

test_expect_success 'Fluxion has loaded it: a chassis for each Rabbit, and its ssd' '
    flux ion-resource stats >stats &&
    grep "Num. of Vertices: *$((1 + 2 + 2 * 8 + 9 * 5))\$" stats &&
    ! flux dmesg | grep "sched-fluxion.*\.err\["
'
test_expect_success 'the module finds the Rabbits and their nodes in it' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    stats_say "\"unknown_nodes\": 0"
'
test_expect_success 'jobs without storage run on all nodes' '
    id=$(flux submit -N9 hostname) &&
    flux job status $id &&
    test "$(flux jobs -ano "{nodelist}" $id)" = "compute-[01-09]" &&
    flux run --requires=host:compute-09 true
'
test_expect_success 'jobs with storage get nodes and storage below the same Rabbit' '
    for n in 1 4; do
        id=$(job_submit -N$n sh -c "test -d \$DW_JOB_p1") &&
        job_succeeds $id &&
        rabbit=$(flux getrabbit -j $id) &&
        test "$(node_count $rabbit $id)" -eq $n || return 1
    done
'
test_expect_success 'jobs with storage get nodes below both Rabbits' '
    id=$(job_submit -N8 true) &&
    job_succeeds $id &&
    test "$(flux getrabbit -j $id)" = "rabbit-[01-02]" &&
    id=$(job_submit -N9 true) &&
    wait_event $id clean &&
    job_exception $id dws "asks for 9 nodes, and 8 are below Rabbits"
'
test_expect_success 'a Rabbit that is full has a job wait' '
    DW="#DW jobdw type=xfs capacity=900GiB name=p1" &&
    first=$(job_submit -N1 sh -c "$LOOP") &&
    second=$(job_submit -N1 sh -c "$LOOP") &&
    wait_event $first start &&
    wait_event $second start &&
    third=$(job_submit -N1 true) &&
    wait_event $third depend &&
    ! flux job wait-event -q -t 2 $third alloc &&
    job_end $first &&
    job_succeeds $third &&
    job_end $second &&
    job_succeeds $first &&
    job_succeeds $second
'
test_expect_success 'a Rabbit that is broken has a job wait' '
    DW="#DW jobdw type=xfs capacity=10GiB name=p1" &&
    kube disable rabbit-01 &&
    kube disable rabbit-02 &&
    ssds_down 16 16 &&
    id=$(job_submit -N1 true) &&
    wait_event $id depend &&
    ! flux job wait-event -q -t 2 $id alloc &&
    kube enable rabbit-02 &&
    job_succeeds $id &&
    test "$(flux getrabbit -j $id)" = rabbit-02 &&
    kube enable rabbit-01
'
test_expect_success 'a graph that has Rabbits already is left as it is' '
    python_stdin "
import json
R = json.load(open(\"R.json\"))
R[\"scheduling\"] = json.load(open(\"scheduling.json\"))
print(json.dumps(R))" >extended.json &&
    flux dws2jgf --only-sched -c8 mapping.json <extended.json >again.json &&
    python_stdin "
import json
assert json.load(open(\"again.json\")) == json.load(open(\"scheduling.json\"))"
'
test_done
