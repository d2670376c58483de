#!/bin/sh
test_description='Rabbits that are nodes of Flux themselves, in a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion
cluster_start

# The last broker is that of the first Rabbit. All have four cores.
instance_hosts () {
    echo "compute-[01-02],rabbit-01"
}
fluxion_start 3 --no-validate

# usage: nodes_of JOBID
nodes_of () {
    flux jobs -n -o "{nodelist}" "$1"
}

# usage: computes_of JOBID: the nodes that DWS mounts the storage of a job on
computes_of () {
    kube get computes "$(workflow "$1")" >computes &&
    grep -o "compute-[0-9]*\|rabbit-[0-9]*" computes | sort -u | tr "\n" " "
}

test_expect_success 'load the module, make persistent storage that all nodes can use' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    job_succeeds $(flux submit -N1 --setattr=system.dw="#DW create_persistent type=lustre \
        capacity=1GiB name=keep" true)
'
test_expect_success 'a job without storage gets cores of a Rabbit' '
    id=$(flux submit -n9 true) &&
    wait_event $id clean &&
    nodes_of $id | grep rabbit-01
'
test_expect_success 'one with storage gets those of nodes, and waits for them' '
    holder=$(flux submit -n8 --setattr=system.dw="#DW persistentdw name=keep" sh -c "$LOOP") &&
    wait_event $holder start &&
    nodes_of $holder | grep -x "compute-\[01-02\]" &&
    id=$(flux submit -n4 --setattr=system.dw="#DW persistentdw name=keep" true) &&
    wait_event $id priority &&
    ! has_event $id alloc &&
    job_end $holder &&
    job_succeeds $holder &&
    job_succeeds $id &&
    nodes_of $id | grep -x "compute-0[12]"
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
    nodes_of $id | grep "^compute-0[12],rabbit-01$" &&
    test "$(computes_of $id)" = "$(nodes_of $id | cut -d, -f1) " &&
    job_end $id &&
    job_succeeds $id
'
test_expect_success 'destroy the persistent storage' '
    job_succeeds $(flux submit -N1 --setattr=system.dw="#DW destroy_persistent name=keep" true)
'
test_done
