#!/bin/sh
test_description='sched-rabbit: storage is scheduled without Fluxion'
. "$(dirname "$0")/tap.sh"

SCHEDULER=sched-rabbit

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
instance_conf housekeeping.toml <<END
[job-manager.housekeeping]
command = [ "sh", "-c", "cd '$TRASH' || exit; test -e clean || rank=\$(flux getattr rank); until test -e clean || test -e clean.\$rank; do sleep 0.1; done" ]
release-after = "0s"
END
instance_conf resource.toml <<END
[resource]
noverify = true
[[resource.config]]
hosts = "compute-[01-08]"
cores = "0-3"
[[resource.config]]
hosts = "compute-[03-04]"
properties = ["fast"]
[[resource.config]]
hosts = "compute-07"
gpus = "0-3"
[[resource.config]]
hosts = "compute-08"
gpus = "0-1"
END
fluxion_start 8
touch "$TRASH/clean"

SPIN='until test -e "$TRASH/go" || ! test -e "$TRASH"; do sleep 0.1; done'

# usage: sized_job GIB [OPTION...] COMMAND...: with so much storage for each node
sized_job () {
    sized_job_size=$1
    shift
    flux submit -S dw="#DW jobdw type=xfs capacity=${sized_job_size}GiB name=p1" "$@"
}

# usage: listed STATE NODES: flux resource list has so many nodes in this state
listed () {
    test "$(flux resource list -s "$1" -no "{nnodes}")" -eq "$2"
}

# Nodes that a job has had are free a moment after its end.
all_free () {
    eventually listed allocated 0
}

# usage: denied JOBID TEXT: the scheduler has denied it, and says why
denied () {
    wait_event "$1" clean &&
    job_exception "$1" alloc "$2"
}

# usage: raw_job PYTHON: submit one_node.json as the statement changes it
raw_job () {
    python_stdin "
import json, sys
def nest(levels, inner, around):
    for _ in range(levels):
        inner = around(inner)
    return inner
job = json.load(open(\"one_node.json\"))
system = job[\"attributes\"][\"system\"]
$1
sys.setrecursionlimit(9000)
print(json.dumps(job))" >job.json &&
    flux job submit job.json
}

test_expect_success 'it checks what is feasible' '
    flux submit --dry-run -N1 true >one_node.json &&
    rpc feasibility.check "{\"jobspec\": $(cat one_node.json)}" &&
    sed "s/\"count\": *1/\"count\": 9/" one_node.json >nine_nodes.json &&
    test_must_fail rpc feasibility.check "{\"jobspec\": $(cat nine_nodes.json)}" 2>err &&
    grep "room for 8" err
'
test_expect_success 'the module finds out that it is the scheduler' '
    module_start &&
    eventually stats_say "\"module\": \"sched-rabbit\"" &&
    stats_say "\"loaded\": true" &&
    stats_say "\"unknown_nodes\": 0" &&
    ssds_down 0 0
'
test_expect_success 'a job has as many tasks as it asks for, with storage and without' '
    test $(flux run -N2 -n6 -S dw="$DW" hostname | wc -l) -eq 6
'
test_expect_success 'and for a range of nodes one on each, as R has their number' '
    all_free &&
    id=$(raw_job "job[\"resources\"][0][\"count\"] = {\"min\": 2, \"max\": 5}
system[\"dw\"] = \"$DW\"") &&
    job_succeeds $id &&
    test "$(nodes_of $id)" = "compute-[01-03,05-06]" &&
    flux job info $id R | grep "\"nslots\": *5"
'
test_expect_success 'a job that can never run is denied with the reason' '
    denied $(job_submit -N3 --requires=fast true) "unsatisfiable: it needs 3 times a whole node with 1 core and 11 GiB of storage below one Rabbit, and there is room for 2"
'
test_expect_success 'a job gets storage below the Rabbits of its nodes' '
    all_free &&
    id=$(sized_job 100 -N3 sh -c "test -d \$DW_JOB_p1") &&
    job_succeeds $id &&
    test "$(nodes_of $id)" = "compute-[01-02,05]" &&
    ssds_of $id >ssds && cat ssds &&
    test "$(cat ssds)" = "chassis0/ssd5 chassis0/ssd6 chassis0/ssd7" &&
    test "$(memos $id rabbits)" = rabbit-01
'
test_expect_success 'while Rabbits are full jobs wait, though nodes are free, or are cancelled' '
    first=$(sized_job 900 -N2 --requires=host:compute-[01,03] sh -c "$LOOP") &&
    wait_event $first start &&
    second=$(sized_job 100 -N1 true) &&
    cancelled=$(sized_job 100 -N1 true) &&
    waits $second $cancelled &&
    listed free 6 &&
    job_cancel $cancelled &&
    wait_event $cancelled clean &&
    rpc sched-rabbit.stats-get "{}" | grep "\"pending_jobs\": *1" &&
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $second
'
test_expect_success 'a job whose priority is raised while it waits starts first' '
    rm -f go &&
    first=$(flux submit -N8 --exclusive sh -c "$SPIN") &&
    wait_event $first start &&
    other=$(flux submit --urgency=10 -N8 true) &&
    changed=$(flux submit --urgency=5 -N8 --exclusive true) &&
    waits $other $changed &&
    flux job urgency $changed 30 &&
    touch go &&
    flux job status $other $changed &&
    flux jobs -ano "{t_run} {id}" $other $changed | sort -n | sed "s/.* //" >order &&
    printf "%s\n" $changed $other >expected &&
    diff expected order
'
test_expect_success 'a drained node gets no job, nor do those that wait for it hold back others' '
    flux resource drain compute-02 for a test &&
    eventually listed down 1 &&
    id=$(flux submit -N8 true) &&
    picky=$(flux submit -N1 --requires=host:compute-02 true) &&
    waits $id $picky &&
    flux job urgency $picky 20 &&
    other=$(flux submit -N7 true) &&
    flux job status $other &&
    test "$(nodes_of $other)" = "compute-[01,03-08]" &&
    undrain_all &&
    flux job status $id $picky &&
    listed down 0
'
test_expect_success 'a Rabbit out of service has its jobs wait, and no others' '
    kube disable rabbit-01 &&
    kube disable rabbit-02 &&
    ssds_down 16 16 &&
    id=$(job_submit -N1 true) &&
    waits $id &&
    flux run -N8 true &&
    kube enable rabbit-02 &&
    job_succeeds $id &&
    test "$(memos $id rabbits)" = rabbit-02 &&
    kube enable rabbit-01 &&
    ssds_down 0 0
'
test_expect_success 'jobs keep their nodes and storage when it is loaded again' '
    first=$(sized_job 900 -N2 --requires=host:compute-[01,03] sh -c "$LOOP") &&
    wait_event $first start &&
    waiting=$(sized_job 100 -N1 true) &&
    scheduler_reload &&
    waits $waiting &&
    listed allocated 2 &&
    test "$(ssds_of $first | wc -w)" -eq 16 &&
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $waiting
'
test_expect_success 'nodes that are clean are given to others while some are not' '
    rm -f clean clean.* &&
    first=$(flux submit -N8 --exclusive true) &&
    wait_event $first clean &&
    second=$(flux submit -N1 --exclusive true) &&
    waits $second &&
    touch clean.3 &&
    flux job status $second &&
    test "$(nodes_of $second)" = compute-04
'
test_expect_success 'what a job has given back stays so when it is loaded again' '
    scheduler_reload &&
    third=$(flux submit -N1 --requires=host:compute-04 true) &&
    flux job status $third &&
    fourth=$(flux submit -N1 --requires=host:compute-05 true) &&
    waits $fourth &&
    touch clean &&
    flux job status $fourth
'
test_expect_success 'a job whose time limit is extended is reckoned with' '
    rm -f go &&
    first=$(flux submit -N8 -t 1m sh -c "$SPIN") &&
    wait_event $first start &&
    flux update $first duration=+1h &&
    touch go &&
    flux job status $first
'
test_expect_success 'a batch job has an instance of its own on its nodes' '
    cat >inside <<-"END" &&
	#!/bin/sh
	flux resource list -s free -no "{nnodes}"
	test -d "$DW_JOB_p1" && flux run -N2 hostname
	END
    chmod +x inside &&
    flux alloc -N2 -S dw="$DW" --conf=resource.noverify=true ./inside >out 2>err &&
    cat out err &&
    test "$(head -n 1 out)" = 2 &&
    test "$(wc -l <out)" -eq 3
'
test_expect_success 'hostile jobspecs are denied, or run, and it goes on' '
    denied $(raw_job "job[\"resources\"][0][\"type\"] = \"%s%n\u202e\n\"") type &&
    denied $(raw_job "system[\"constraints\"] = nest(900, {}, lambda x: {\"not\": [x]})") levels &&
    deep=$(raw_job "system[\"x\"] = nest(1900, [], lambda x: [x])") &&
    wait_event $deep clean &&
    rpc sched-rabbit.stats-get "{}" &&
    flux run -n1 true
'
test_expect_success 'a guest is refused all that is for the module and the instance' '
    for topic in sched-rabbit.find sched-rabbit.set_property sched-rabbit.set_status \
        sched-rabbit.remove_property sched-rabbit.stats-get feasibility.check \
        sched.alloc sched.free sched.cancel sched.prioritize sched.expiration \
        sched.resource-status; do
        test_must_fail as_guest rpc $topic "{}" 2>err &&
        grep EPERM err || return 1
    done
'
test_expect_success 'it does not load with a wrong argument, and says why' '
    flux module remove dws &&
    flux module remove sched-rabbit &&
    for arg in chunks=0 foo=1 pool-class=flux.resource.ResourcePool:ResourcePool; do
        flux dmesg -C &&
        test_must_fail flux module load sched-rabbit $arg &&
        eventually log_says "${arg%=*}" || return 1
    done &&
    mv mapping.json hidden.json &&
    test_must_fail flux module load sched-rabbit &&
    eventually log_says "mapping.json: No such file or directory" &&
    mv hidden.json mapping.json
'
test_expect_success 'without a [rabbit] table it knows no Rabbits' '
    mv conf/rabbit.toml . &&
    flux config reload &&
    flux module load sched-rabbit &&
    eventually log_says "8 nodes, 0 Rabbits" &&
    id=$(flux submit -N8 true) &&
    flux job status $id &&
    ! flux job info $id R | grep scheduling
'
test_done
