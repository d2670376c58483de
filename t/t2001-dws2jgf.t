#!/bin/sh
test_description='flux dws2jgf: a resource graph with nodes of many kinds, in a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB, compute-09 is on none, and the last
# broker is that of the first Rabbit.
cluster_start
instance_hosts () {
    echo "compute-[01-09],rabbit-01"
}
instance_conf resource.toml <<END
[resource]
noverify = true
[[resource.config]]
hosts = "compute-[01-09],rabbit-01"
cores = "0-3"
[[resource.config]]
hosts = "compute-[04-06]"
gpus = "0-1"
properties = ["fast"]
END
fluxion_start 10 --cluster-name=hetchy

# usage: computes_of JOBID: the nodes that DWS mounts the storage of a job on
computes_of () {
    kube get computes "$(workflow "$1")" >computes &&
    grep -o "compute-[0-9]*\|rabbit-[0-9]*" computes | sort -u | tr "\n" " "
}

test_expect_success 'Fluxion has loaded the graph: all vertices are there' '
    echo "flux-dws2jgf: WARNING: without a Rabbit, outside of all chassis:" \
        "compute-09" >expected &&
    diff expected warnings &&
    flux ion-resource stats >stats &&
    grep "Num. of Vertices: *$((1 + 2 + 2 * 8 + 10 * 5 + 3 * 2))\$" stats &&
    ! flux dmesg | grep "sched-fluxion.*\.err\["
'
test_expect_success 'R is made from the configuration as Flux makes it' '
    flux dws2jgf --no-validate --from-config conf/resource.toml mapping.json >R.ours &&
    flux R parse-config conf/resource.toml | flux R decode >expected &&
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
test_expect_success 'jobs without storage run on all nodes, by their properties and GPUs' '
    all=$(flux submit -N9 true) &&
    fast=$(flux submit -N3 -g2 -n3 --requires=fast true) &&
    flux job status $all $fast &&
    test "$(nodes_of $all)" = "compute-[01-09]" &&
    test "$(nodes_of $fast)" = "compute-[04-06]"
'
test_expect_success 'jobs with storage have it on the Rabbits of their nodes' '
    flux module load dws &&
    both=$(job_submit -N8 -n8 -t 1m true) &&
    job_succeeds $both &&
    test "$(nodes_of $both)" = "compute-[01-08]" &&
    test "$(flux getrabbit -j $both)" = "rabbit-[01-02]"
'
test_expect_success 'a node that is on no Rabbit runs no job with storage' '
    id=$(job_submit -N1 --requires=host:compute-09 true) &&
    wait_event $id clean &&
    ! has_event $id alloc &&
    job_exception $id alloc unsatisfiable
'

# ---- Rabbits that are nodes of Flux themselves

test_expect_success 'a job without storage gets cores of a Rabbit' '
    id=$(flux submit -n40 true) &&
    wait_event $id clean &&
    test "$(nodes_of $id)" = "compute-[01-09],rabbit-01"
'
test_expect_success 'one with storage gets those of nodes, and waits for them' '
    job_succeeds $(flux submit -N1 --setattr=system.dw="#DW create_persistent type=lustre \
        capacity=1GiB name=keep" true) &&
    other=$(flux submit -N1 --requires=host:compute-09 sleep inf) &&
    wait_event $other start &&
    holder=$(flux submit -n32 --setattr=system.dw="#DW persistentdw name=keep" sh -c "$LOOP") &&
    wait_event $holder start &&
    test "$(nodes_of $holder)" = "compute-[01-08]" &&
    id=$(flux submit -n4 --setattr=system.dw="#DW persistentdw name=keep" true) &&
    wait_event $id priority &&
    ! has_event $id alloc &&
    job_end $holder &&
    job_succeeds $id &&
    job_cancel $other &&
    nodes_of $id | grep -x "compute-0[1-8]"
'
test_expect_success 'a jobspec may ask for the node of a Rabbit beside a node' '
    flux submit --dry-run -N1 --setattr=system.dw="$DW" sh -c "$LOOP" >node.json &&
    python_stdin "
import json, sys
spec = json.load(open(\"node.json\"))
rabbit = {\"type\": \"storage_node\", \"count\": 1, \"exclusive\": True}
below = [*spec[\"resources\"], rabbit]
spec[\"resources\"] = [{\"type\": \"chassis\", \"count\": 1, \"with\": below}]
spec[\"version\"] = 9999  # version 1 has no chassis
json.dump(spec, sys.stdout)" >chassis.json &&
    id=$(flux job submit chassis.json) &&
    wait_event $id start &&
    nodes_of $id | grep "^compute-0[1256],rabbit-01$" &&
    test "$(computes_of $id)" = "$(nodes_of $id | cut -d, -f1) " &&
    job_end $id &&
    job_succeeds $id &&
    job_succeeds $(flux submit -N1 --setattr=system.dw="#DW destroy_persistent name=keep" true)
'
test_done
