#!/bin/sh
test_description='Which Rabbits jobs get: labels, chassis, what is broken or not mapped, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB; all storage needs the label.
cluster_start --label tier=fast
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
[policy.jobspec.defaults.system]
queue = "all"
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

# usage: on_rabbit 1|2 JOBID: so many of its nodes are below this one
on_rabbit () {
    case $1 in
    1) on_rabbit_nodes="compute-[01-02,05-06]" ;;
    2) on_rabbit_nodes="compute-[03-04,07-08]" ;;
    esac
    flux hostlist -c -i "$(nodes_of "$2")" "$on_rabbit_nodes"
}

# usage: keeps_waiting JOBID EVENT: it has not come so far, and is not over
keeps_waiting () {
    ! flux job wait-event -q -t 2 "$1" "$2" &&
    ! has_event "$1" exception
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    kube label rabbit-01 tier=fast &&
    kube label rabbit-02 tier=fast &&
    flux queue start --all &&
    module_start &&
    eventually are_marked
'

# ---- Rabbits that break

test_expect_success 'when a Rabbit goes down so do its ssd, and jobs with storage avoid it' '
    kube disable rabbit-01 &&
    ssds_down 8 8 &&
    are_marked &&
    id=$(job_submit -N2 hostname) &&
    job_succeeds $id &&
    test $(on_rabbit 2 $id) -eq 2 &&
    flux run -N8 hostname
'
test_expect_success 'a reloaded Fluxion is told of them again' '
    scheduler_reload &&
    flux queue start --all &&
    ssds_down 8 8
'
test_expect_success 'a job that needs a Rabbit that is down waits for it, although the module is loaded again' '
    id=$(job_submit -N8 hostname) &&
    wait_event $id depend &&
    flux module remove dws &&
    module_start &&
    keeps_waiting $id alloc &&
    kube enable rabbit-01 &&
    job_succeeds $id &&
    ssds_down 0 0
'
test_expect_success 'persistent storage asks for no ssd, and for nodes below Rabbits that serve it' '
    make="#DW create_persistent type=xfs capacity=10GiB name=keep" &&
    id=$(flux submit -N5 --requires=host:compute-[01-02,05-06,08] -S dw="$make" true) &&
    job_succeeds $id &&
    kube disable rabbit-01 &&
    ssds_down 8 &&
    id=$(flux submit -N1 -S dw="#DW persistentdw name=keep" true) &&
    job_succeeds $id &&
    test "$(nodes_of $id)" = compute-08 &&
    id=$(flux submit -N2 -S dw="#DW persistentdw name=keep" true) &&
    keeps_waiting $id depend &&
    has_memo $id rabbit_waits_for "rabbit-01 is Disabled" &&
    kube enable rabbit-01 &&
    job_succeeds $id &&
    job_succeeds $(flux submit -N1 -S dw="#DW destroy_persistent name=keep" true) &&
    ssds_down 0 0
'
test_expect_success 'a node that loses its connection is drained, and back after, unless an administrator drained it' '
    rpc resource.drain "{\"targets\": \"compute-01\", \"reason\": \"broken fan\"}" &&
    kube link compute-01 Offline &&
    kube link compute-02 Offline &&
    eventually is_drained compute-02 "dws: PCIe connection to Rabbit rabbit-01 is Offline" &&
    kube link compute-01 Ready &&
    kube link compute-02 Ready &&
    eventually only_drained compute-01 &&
    is_drained compute-01 "broken fan" &&
    undrain_all
'
test_expect_success 'with soft_drain only jobs with storage avoid the node' '
    config_reload "drain_compute_nodes = false" &&
    kube link compute-01 Offline &&
    eventually are_marked compute-01 &&
    only_drained &&
    id=$(job_submit -N3 --requires=host:compute-[01-02,05-06] hostname) &&
    job_succeeds $id &&
    test "$(nodes_of $id)" = "compute-[02,05-06]" &&
    flux run -N8 hostname
'
test_expect_success 'a queue that there is not is refused, and what changed meanwhile is sent when the module is loaded' '
    flux module remove dws &&
    are_marked compute-01 &&
    kube link compute-01 Ready &&
    ! flux module load dws queues=batch,nosuch &&
    flux dmesg | grep "queues=nosuch: no such queue, known: all, batch" &&
    config_reload &&
    module_start queues=batch &&
    eventually are_marked
'

# ---- labels and chassis

test_expect_success 'a job is placed on the only Rabbit that has its labels' '
    kube label rabbit-01 tier=slow &&
    id=$(job_submit -N3 hostname) &&
    job_succeeds $id &&
    test $(on_rabbit 2 $id) -eq 3 &&
    kube label rabbit-01 tier=fast
'
FLUX_CLI_PLUGINPATH_OVERRIDE=$PREFIX/etc/flux/cli/plugins
test_expect_success 'a job has as many nodes on each chassis, and the storage that they need' '
    id=$(job_submit -N4 -n8 --rabbit-chassis=2 hostname) &&
    job_succeeds $id &&
    test $(on_rabbit 1 $id) -eq 2 &&
    test $(on_rabbit 2 $id) -eq 2 &&
    test "$(memos $id rabbits)" = "rabbit-[01-02]" &&
    test $(flux job attach $id | wc -l) -eq 8 &&
    flux job info $id R >R.json &&
    python_stdin "
import json
nodes = json.load(open(\"R.json\"))[\"scheduling\"][\"graph\"][\"nodes\"]
ssds = [n[\"metadata\"][\"paths\"][\"containment\"] for n in nodes
        if n[\"metadata\"][\"type\"] == \"ssd\"]
print(ssds)
assert len(ssds) == 4 and len({path.split(\"/\")[2] for path in ssds}) == 2
"
'
test_expect_success 'on one chassis a job has all of its nodes' '
    id=$(flux submit -N4 --rabbit-chassis=1 true) &&
    wait_event $id clean &&
    on_rabbit 1 $id | grep -x "[04]"
'
test_expect_success 'more chassis than there are cannot be had' '
    test_must_fail flux submit -N3 --rabbit-chassis=3 true 2>err &&
    cat err &&
    grep -i -e "--rabbit-chassis=3: the scheduler: unsatisfiable" err
'
FLUX_CLI_PLUGINPATH_OVERRIDE=

# ---- a mapping that is not the one of the graph

test_expect_success 'one line names the Rabbit that the mapping lacks, and both files' '
    flux module remove dws &&
    cp mapping.json whole.json &&
    python_stdin "
import json
mapping = json.load(open(\"whole.json\"))
del mapping[\"rabbits\"][\"rabbit-02\"]
nodes = {k: v for k, v in mapping[\"computes\"].items() if v != \"rabbit-02\"}
print(json.dumps({**mapping, \"computes\": nodes}))" >mapping.json &&
    flux dmesg -C &&
    module_start &&
    ssds_down 8 8 | grep "chassis1/ssd0" &&
    flux dmesg | grep "rabbit-02" >line &&
    cat line &&
    test $(wc -l <line) -eq 1 &&
    grep "$TRASH/mapping.json lacks rabbit-02, which the graph of Fluxion" line &&
    grep -F "($TRASH/scheduling.json) has: no job gets storage there" line
'
test_expect_success 'jobs with storage wait for the other one, or for the mapping' '
    flux run --requires=host:compute-03 -N1 true &&
    first=$(job_submit -N4 sh -c "$LOOP") &&
    second=$(job_submit -N4 true) &&
    id=$(job_submit -N1 --requires=host:compute-03 true) &&
    wait_event $first start &&
    wait_event $second depend &&
    wait_event $id depend &&
    keeps_waiting $second alloc &&
    job_end $first &&
    job_succeeds $second &&
    test "$(nodes_of $second)" = "compute-[01-02,05-06]" &&
    ! has_event $id alloc &&
    flux module remove dws &&
    cp whole.json mapping.json &&
    module_start &&
    job_succeeds $id &&
    ssds_down 0 0
'
test_expect_success 'a module that has DWS alone keep count of storage is refused where there is Fluxion' '
    flux module remove dws &&
    test_must_fail flux module load dws scheduler=none &&
    flux dmesg | grep "dws.*scheduler=none: Fluxion is loaded" >line &&
    test $(wc -l <line) -eq 1 &&
    grep "flux dws2jgf" line
'
test_done
