#!/bin/sh
test_description='flux dws2jgf: a resource graph for Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB, compute-09 is on none, and
# compute-08 is not to be scheduled.
cluster_start
instance_conf resource.toml <<END
[resource]
noverify = true
exclude = "compute-08"
[[resource.config]]
hosts = "compute-[01-09]"
cores = "0-3"
[[resource.config]]
hosts = "compute-[04-06]"
gpus = "0-1"
properties = ["fast"]
END
fluxion_start 9 --cluster-name=hetchy

# usage: jobspec NODES SSD >FILE: exclusive nodes, with SSD GiB beside each
jobspec () {
    cat <<END
{"version": 9999,
 "resources": [{"type": "slot", "count": $1, "label": "rabbit", "with": [
   {"type": "node", "count": 1, "exclusive": true, "with": [
     {"type": "slot", "count": 1, "label": "task",
      "with": [{"type": "core", "count": 1}]}]},
   {"type": "ssd", "count": $2, "exclusive": true}]}],
 "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
 "attributes": {"system": {"duration": 60}}}
END
}

# usage: match NODES SSD: what each Rabbit gives to such a job
match () {
    jobspec "$1" "$2" >job.json &&
    flux ion-resource match allocate_with_satisfiability job.json >R.txt 2>&1 &&
    grep "^{" R.txt >R.json &&
    python_stdin '
import json, sys
from flux_k8s.dws.allocatedssd import ssd_per_rabbit
from flux_k8s.dws import mapping
from flux_k8s.rfc import rset
system = mapping.parse(json.load(open(sys.argv[1])))
R = rset.parse(json.load(open(sys.argv[2])))
nodes = [system.rabbit_of(host) for host in R.hosts]
for rabbit, gib in ssd_per_rabbit(R, system).items():
    print(rabbit, nodes.count(rabbit), gib)' mapping.json R.json
}

free_all () {
    sed -n "s/^\([0-9]*\)  *ALLOCATED.*/\1/p" "$@" | sort -u |
    while read -r matched; do
        flux ion-resource cancel "$matched" || return 1
    done
}

# usage: finds_no TEXT PATH: what Fluxion says when asked for a property "none"
finds_no () {
    test_must_fail flux ion-resource get-property "$2" none >answer 2>&1 &&
    grep "$1" answer
}

test_expect_success 'nodes without a Rabbit were named' '
    echo "flux-dws2jgf: WARNING: without a Rabbit, outside of all chassis:" \
        "compute-09" >expected &&
    diff expected warnings
'
test_expect_success 'Fluxion has loaded the graph: all vertices are there' '
    flux ion-resource stats >stats &&
    grep "Num. of Vertices: *$((1 + 2 + 2 * 8 + 8 * 5 + 3 * 2))\$" stats &&
    grep "Num. of Edges: *$((2 + 2 * 8 + 8 * 5 + 3 * 2))\$" stats &&
    ! flux dmesg | grep "sched-fluxion.*\.err\["
'
test_expect_success 'a job gets nodes and storage on the same chassis' '
    match 2 100 >given && cp R.txt first &&
    grep -x "rabbit-0[12] 2 256" given &&
    test $(wc -l <given) -eq 1
'
test_expect_success 'an ssd vertex goes to one job as a whole' '
    match 1 129 >given && cp R.txt second &&
    grep -x "rabbit-0[12] 1 256" given
'
test_expect_success 'an ssd vertex that was given back can be had again' '
    free_all first second &&
    match 7 129 >given && cp R.txt third &&
    grep -x "rabbit-01 4 1024" given &&
    grep -x "rabbit-02 3 768" given &&
    free_all third
'
test_expect_success 'more storage than a Rabbit has is refused as infeasible' '
    test_must_fail match 1 1025 &&
    grep "No such device" R.txt
'
test_expect_success 'more nodes with storage than there are is refused as infeasible' '
    test_must_fail match 8 1 &&
    grep "No such device" R.txt
'
test_expect_success 'a node without a Rabbit runs jobs' '
    test $(flux run --requires=host:compute-09 flux getattr rank) -eq 8
'
test_expect_success 'a node that is excluded is not in the graph' '
    finds_no "Property .none. was not found" /hetchy/chassis1/compute-07 &&
    finds_no "Couldn.t find ./hetchy/chassis1/compute-08." /hetchy/chassis1/compute-08
'
test_expect_success 'properties and GPUs of R are there' '
    id=$(flux submit -N3 -g2 -n3 --requires=fast true) &&
    flux job status $id &&
    test "$(flux jobs -no {nodelist} $id)" = "compute-[04-06]"
'
test_expect_success 'R is made from the configuration as Flux makes it' '
    flux dws2jgf --from-config conf/resource.toml mapping.json >R.ours &&
    flux R parse-config conf/resource.toml >R.theirs &&
    flux R decode <R.theirs >expected &&
    python_stdin "
import json, sys
R = json.load(sys.stdin)
del R[\"scheduling\"]
print(json.dumps(R))" <R.ours | flux R decode >found &&
    diff expected found
'
test_expect_success 'R of the instance can be given, too' '
    flux kvs get resource.R | flux dws2jgf -c8 mapping.json >R.ours &&
    flux R decode --short <R.ours
'
# usage: lacking HOST: the log says that Fluxion lacks it, and no other
lacking () {
    flux dmesg | sed -n "s/.*Fluxion: \(.*\) of the rabbit mapping not found.*/\1/p" \
        | tee lacking &&
    test "$(cat lacking)" = "$1"
}

test_expect_success 'the module tells of a node that is not there, if it should be' '
    cp mapping.json whole.json &&
    sed -e "s/\"compute-02\"/\"ghost\"/" -e "s/compute-.01-02/ghost,compute-[01/" \
        whole.json >mapping.json &&
    flux module load dws &&
    eventually lacking ghost &&
    flux module remove dws &&
    mv whole.json mapping.json
'
test_expect_success '#DW jobs have their storage on the Rabbits of their nodes' '
    flux module load dws &&
    id=$(job_submit -N3 sh -c "test -d \$DW_JOB_p1") &&
    job_succeeds $id &&
    flux getrabbit -c $(flux jobs -no {nodelist} $id) >expected &&
    flux getrabbit -j $id >found &&
    diff expected found
'

# usage: large_submit GIB COMMAND...: one node, with so much storage
large_submit () {
    large_submit_gib=$1 && shift &&
    flux submit -N1 --setattr=system.dw="#DW jobdw type=xfs capacity=${large_submit_gib}GiB name=p1" "$@"
}
test_expect_success 'a job that is larger than what a Rabbit has left waits' '
    first=$(large_submit 700 sh -c "$LOOP") &&
    second=$(large_submit 700 sh -c "$LOOP") &&
    wait_event $first start &&
    wait_event $second start &&
    flux getrabbit -j $first $second >found &&
    echo "rabbit-[01-02]" >expected &&
    diff expected found &&
    third=$(large_submit 700 true) &&
    wait_event $third depend &&
    ! flux job wait-event -q -t 2 $third exception &&
    flux jobs -no "{state}" $third | grep SCHED
'
test_expect_success 'a job that waits for storage starts when the storage is free' '
    rabbit=$(flux getrabbit -j $second) &&
    job_end $second &&
    job_succeeds $third &&
    test "$(flux getrabbit -j $third)" = "$rabbit" &&
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $second
'
test_expect_success 'a job that asks for more than any Rabbit has is refused with both sizes' '
    id=$(large_submit 2000 true) &&
    wait_event $id clean &&
    ! has_event $id alloc &&
    wait_event $id exception | tee exception &&
    grep "each node needs 2001 GiB on its Rabbit, but the largest Rabbit has" exception
'
test_done
