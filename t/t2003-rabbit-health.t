#!/bin/sh
test_description='Rabbits and connections that break, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
instance_conf resource.toml <<END
[resource]
noverify = true
[[resource.config]]
hosts = "compute-[01-08]"
cores = "0-3"
[[resource.config]]
hosts = "compute-[01-04]"
properties = ["batch"]
[queues.batch]
requires = ["batch"]
[queues.all]
END
fluxion_start 8

# usage: marked: the nodes with the property, as Fluxion has it
marked () {
    flux python -c '
import sys
import flux
request = {"criteria": "property=badrabbit", "format": "jgf"}
found = flux.Flux().rpc(sys.argv[1] + ".find", request).get()["R"]
vertices = [v["metadata"] for v in found["graph"]["nodes"]] if found else []
print(*sorted(v["name"] for v in vertices if v["type"] == "node"))' "$SCHEDULER"
}

# usage: are_marked [HOST...]
are_marked () {
    test "$(marked)" = "$*"
}

# usage: all_on RABBIT NODES: a job with storage on so many nodes is on this Rabbit's
all_on () {
    all_on_id=$(job_submit -q all -N"$2" hostname) &&
    wait_event "$all_on_id" clean &&
    flux jobs -no "{nodelist}" "$all_on_id" >nodes &&
    flux python -c '
import json, sys
from flux.hostlist import Hostlist
rabbits = json.load(open(sys.argv[1]))["computes"]
hosts = Hostlist(open("nodes").read().strip())
found = {rabbits[host] for host in hosts}
if found != {sys.argv[2]}:
    sys.exit(f"{hosts} on {found}")' "$TRASH/mapping.json" "$1"
}

# usage: rabbit_keys LINE...: the module gets another [rabbit] table
rabbit_keys () {
    {
        printf '[rabbit]\nkubeconfig = "%s"\nmapping = "%s"\n' \
            "$TRASH/kubeconfig" "$TRASH/mapping.json" &&
        printf '%s\n' "$@"
    } >"$TRASH/conf/rabbit.toml" &&
    flux config reload
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    flux queue start --all &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    eventually are_marked
'
test_expect_success 'when a Rabbit goes down its ssd go down in Fluxion' '
    kube disable rabbit-01 &&
    ssds_down 8 8 &&
    are_marked
'
test_expect_success 'jobs with storage avoid a Rabbit that is down' '
    all_on rabbit-02 2
'
test_expect_success 'jobs without storage use the nodes of a Rabbit that is down' '
    flux run -q all -N8 hostname
'
test_expect_success 'a job that needs a Rabbit that is down waits for it' '
    large=$(job_submit -q all -N8 hostname) &&
    wait_event $large depend &&
    ! flux job wait-event -q -t 2 $large exception &&
    flux jobs -no "{state}" $large | grep SCHED
'
test_expect_success 'a reloaded Fluxion gets the state of Rabbits and ssd again' '
    job_cancel $large && wait_event $large clean &&
    scheduler_reload &&
    flux queue start --all &&
    ssds_down 8 8
'
test_expect_success 'a Rabbit that is enabled again is used again' '
    id=$(job_submit -q all -N8 hostname) &&
    wait_event $id depend &&
    kube enable rabbit-01 &&
    wait_event $id clean &&
    flux job status $id &&
    ssds_down 0 0 &&
    id=$(job_submit -q all -N8 hostname) &&
    wait_event $id clean &&
    flux job status $id
'
test_expect_success 'a node that loses its connection is drained, and back after' '
    kube link compute-01 Offline &&
    eventually is_drained compute-01 "dws: PCIe connection to Rabbit rabbit-01 is Offline" &&
    kube link compute-01 Ready &&
    eventually only_drained
'
test_expect_success 'a node that an administrator drained stays drained' '
    flux resource drain compute-01 "broken fan" &&
    kube link compute-01 Offline &&
    kube link compute-02 Offline &&
    eventually is_drained compute-02 "PCIe" &&
    kube link compute-01 Ready &&
    kube link compute-02 Ready &&
    eventually eval "! is_drained compute-02 PCIe" &&
    is_drained compute-01 "broken fan" &&
    flux resource undrain compute-01
'
test_expect_success 'with soft_drain only jobs with storage avoid the node' '
    rabbit_keys "drain_compute_nodes = false" &&
    kube link compute-01 Offline &&
    eventually are_marked compute-01 &&
    only_drained
'
test_expect_success 'without drain and soft_drain a lost connection changes nothing' '
    rabbit_keys "drain_compute_nodes = false" "soft_drain = false" &&
    eventually are_marked &&
    only_drained
'
test_expect_success 'changes while the module is away are sent when it is loaded again' '
    rabbit_keys "drain_compute_nodes = false" &&
    eventually are_marked compute-01 &&
    flux module remove dws &&
    are_marked compute-01 &&
    kube link compute-01 Ready &&
    flux module load dws &&
    eventually are_marked
'
test_expect_success 'only the nodes of the queues that the module sees to' '
    rabbit_keys &&
    flux module reload dws queues=batch &&
    kube link compute-01 Offline &&
    kube link compute-05 Offline &&
    eventually is_drained compute-01 PCIe &&
    ! is_drained compute-05 PCIe &&
    kube link compute-01 Ready &&
    kube link compute-05 Ready &&
    eventually only_drained
'
test_expect_success 'a queue that there is not is refused' '
    flux module remove dws &&
    flux dmesg -C &&
    ! flux module load dws queues=batch,nosuch &&
    flux dmesg | grep "queues=nosuch: no such queue, known: all, batch"
'

test_expect_success 'DWS is not to wait for a node that was drained for its mounts' '
    flux module load dws &&
    flux resource drain compute-08 "fABC: Rabbit storage could not be mounted" &&
    kube wait-node compute-08 Disabled &&
    flux resource undrain compute-08 &&
    kube wait-node compute-08 Enabled
'

test_done
