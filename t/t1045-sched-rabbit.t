#!/bin/sh
test_description='sched-rabbit: storage is scheduled without Fluxion'
. "$(dirname "$0")/tap.sh"

SCHEDULER=sched-rabbit

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
instance_conf housekeeping.toml <<END
[job-manager.housekeeping]
command = [ "sh", "-c", "test -e $TRASH/clean || rank=\$(flux getattr rank); until test -e $TRASH/clean || test -e $TRASH/clean.\$rank; do sleep 0.1; done" ]
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

# It has not ended, and waits for no restart.
scheduler_lives () {
    rpc sched-rabbit.stats-get "{}" >stats &&
    flux run -n1 true
}

SPIN='until test -e "$TRASH/go" || ! test -e "$TRASH"; do sleep 0.1; done'

# usage: sized_job GIB [OPTION...] COMMAND...: with so much storage for each node
sized_job () {
    sized_job_size=$1
    shift
    flux submit -S dw="#DW jobdw type=xfs capacity=${sized_job_size}GiB name=p1" "$@"
}

# usage: waits JOBID...: for nodes or storage
waits () {
    for waits_id; do
        wait_event "$waits_id" priority &&
        ! flux job wait-event -q -t 1 "$waits_id" alloc || return 1
    done
}

# usage: nodes JOBID
nodes () {
    flux jobs -ano "{nodelist}" "$1"
}

# usage: ssds_of JOBID: those that it has, each as CHASSIS/SSD
ssds_of () {
    flux job info "$1" R | python_stdin '
import json, sys
vertices = json.load(sys.stdin)["scheduling"]["graph"]["nodes"]
paths = [v["metadata"]["paths"]["containment"] for v in vertices]
print(*sorted(path.split("/", 2)[2] for path in paths if "/ssd" in path))'
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

# usage: raw_job PYTHON: submit the jobspec that the expression changes
raw_job () {
    flux submit --dry-run -N1 true | python_stdin "
import json, sys
def nest(levels, inner, around):
    for _ in range(levels):
        inner = around(inner)
    return inner
job = json.load(sys.stdin)
system = job[\"attributes\"][\"system\"]
$1
sys.setrecursionlimit(9000)
print(json.dumps(job))" >job.json &&
    flux job submit job.json
}

test_expect_success 'it serves a scheduler and a check of what is feasible' '
    flux module list >modules && cat modules &&
    grep "sched-rabbit.*feasibi" modules
'
test_expect_success 'the module finds out that it is the scheduler' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    eventually stats_say "\"module\": \"sched-rabbit\"" &&
    stats_say "\"loaded\": true" &&
    stats_say "\"unknown_nodes\": 0" &&
    ssds_down 0 0
'
test_expect_success 'jobs without storage run, on nodes, in slots and on all of them' '
    test $(flux run -N8 hostname | wc -l) -eq 8 &&
    test $(flux run -n32 hostname | wc -l) -eq 32 &&
    test $(flux run -N2 --tasks-per-node=3 hostname | wc -l) -eq 6 &&
    flux run -N8 --exclusive true &&
    all_free &&
    id=$(flux submit -N2 -c2 true) &&
    flux job status $id &&
    test "$(nodes $id)" = "compute-[01-02]"
'
test_expect_in_soak 'a range of nodes gets as many as there are' '
    all_free &&
    id=$(raw_job "job[\"resources\"][0][\"count\"] = {\"min\": 2, \"max\": 5}") &&
    flux job status $id &&
    test "$(nodes $id)" = "compute-[01-05]"
'
test_expect_success 'a job with storage has as many tasks as it asks for' '
    all_free &&
    test $(flux run -N2 -n6 -S dw="$DW" hostname | wc -l) -eq 6 &&
    test $(flux run -N3 -S dw="$DW" hostname | wc -l) -eq 3
'
test_expect_success 'and for a range of nodes one on each, as R has their number' '
    all_free &&
    id=$(raw_job "job[\"resources\"][0][\"count\"] = {\"min\": 2, \"max\": 5}
system[\"dw\"] = \"$DW\"") &&
    job_succeeds $id &&
    test "$(nodes $id)" = "compute-[01-03,05-06]" &&
    flux job info $id R | grep "\"nslots\": *5"
'
test_expect_success 'of two groups of nodes the smaller one leaves the larger node' '
    all_free &&
    id=$(raw_job "def group(gpus):
    inside = [{\"type\": \"core\", \"count\": 1}, {\"type\": \"gpu\", \"count\": gpus}]
    slot = {\"type\": \"slot\", \"count\": 1, \"label\": \"task\", \"with\": inside}
    return {\"type\": \"node\", \"count\": 1, \"with\": [slot]}
job[\"resources\"] = [group(2), group(4)]") &&
    flux job status $id &&
    test "$(nodes $id)" = "compute-[07-08]"
'
test_expect_success 'an exclusive chassis comes with all that is below it' '
    all_free &&
    id=$(raw_job "job[\"resources\"] = [{\"type\": \"chassis\", \"count\": 1,
    \"exclusive\": True, \"with\": job[\"resources\"]}]") &&
    flux job status $id &&
    test "$(nodes $id)" = "compute-[01-02,05-06]" &&
    test "$(ssds_of $id | wc -w)" -eq 8
'
test_expect_success 'nodes are shared by jobs that do not need all of their cores' '
    rm -f go &&
    all_free &&
    one=$(flux submit -n1 -c2 sh -c "$SPIN") &&
    two=$(flux submit -n1 -c2 sh -c "$SPIN") &&
    three=$(flux submit -n1 -c2 sh -c "$SPIN") &&
    for id in $one $two $three; do wait_event $id start || return 1; done &&
    test "$(nodes $one) $(nodes $two) $(nodes $three)" \
        = "compute-01 compute-01 compute-02" &&
    listed allocated 2 &&
    touch go &&
    flux job status $one $two $three &&
    all_free
'
test_expect_success 'jobs get the nodes that their constraints allow' '
    id=$(flux submit -N2 --requires=fast true) &&
    flux job status $id &&
    test "$(nodes $id)" = "compute-[03-04]" &&
    id=$(flux submit -N1 --requires=host:compute-07 true) &&
    flux job status $id &&
    test "$(nodes $id)" = compute-07 &&
    id=$(flux submit -N1 --requires="not fast and -host:compute-[01-02]" true) &&
    flux job status $id &&
    test "$(nodes $id)" = compute-05
'
test_expect_success 'a job that can never run is denied with the reason' '
    denied $(flux submit -N9 true) "unsatisfiable: it needs 9 times a whole node with 1 core, and there is room for 8" &&
    denied $(flux submit -N3 --requires=fast true) "room for 2 on the 2 nodes that its constraints allow" &&
    denied $(flux submit -n1 -c5 true) "needs 1 times a slot with 5 cores" &&
    denied $(job_submit -N3 --requires=fast true) "unsatisfiable: it needs 3 times a whole node with 1 core and 11 GiB of storage below one Rabbit, and there is room for 2"
'
test_expect_success 'feasibility.check says so before a job is submitted' '
    flux submit --dry-run -N9 true >job.json &&
    test_must_fail rpc feasibility.check "{\"jobspec\": $(cat job.json)}" 2>err &&
    cat err &&
    grep "room for 8" err &&
    flux submit --dry-run -N8 true >job.json &&
    rpc feasibility.check "{\"jobspec\": $(cat job.json)}"
'
test_expect_success 'a job gets storage below the Rabbits of its nodes' '
    all_free &&
    id=$(sized_job 100 -N3 sh -c "test -d \$DW_JOB_p1") &&
    job_succeeds $id &&
    test "$(nodes $id)" = "compute-[01-02,05]" &&
    ssds_of $id >ssds && cat ssds &&
    test "$(cat ssds)" = "chassis0/ssd5 chassis0/ssd6 chassis0/ssd7" &&
    test "$(memos $id rabbits)" = rabbit-01
'
test_expect_in_soak 'a job that fits on no single Rabbit has nodes below both' '
    all_free &&
    id=$(sized_job 200 -N6 true) &&
    job_succeeds $id &&
    test "$(nodes $id)" = "compute-[01-06]" &&
    test "$(memos $id rabbits)" = "rabbit-[01-02]"
'
test_expect_success 'a Rabbit that is full has a job wait, though nodes are free' '
    first=$(sized_job 900 -N2 --requires=host:compute-[01,03] sh -c "$LOOP") &&
    wait_event $first start &&
    second=$(sized_job 100 -N1 true) &&
    waits $second &&
    listed free 6 &&
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $second
'
test_expect_success 'a job that is cancelled while it waits is gone' '
    first=$(sized_job 900 -N2 --requires=host:compute-[01,03] sh -c "$LOOP") &&
    wait_event $first start &&
    second=$(sized_job 100 -N1 true) &&
    waits $second &&
    job_cancel $second &&
    wait_event $second clean &&
    rpc sched-rabbit.stats-get "{}" | grep "\"pending_jobs\": *0" &&
    job_end $first &&
    job_succeeds $first
'
test_expect_success 'of jobs that wait, the one of the highest priority starts first' '
    rm -f go &&
    first=$(flux submit -N8 --exclusive sh -c "$SPIN") &&
    wait_event $first start &&
    low=$(flux submit --urgency=10 -N8 true) &&
    high=$(flux submit --urgency=20 -N8 --exclusive true) &&
    changed=$(flux submit --urgency=5 -N8 --exclusive true) &&
    waits $low $high $changed &&
    flux job urgency $changed 30 &&
    touch go &&
    for id in $low $high $changed; do flux job status $id || return 1; done &&
    flux jobs -ano "{t_run} {id}" $low $high $changed | sort -n | sed "s/.* //" >order &&
    printf "%s\n" $changed $high $low >expected &&
    diff expected order
'
test_expect_success 'a drained node gets no job, and one that is undrained does' '
    flux resource drain compute-02 for a test &&
    eventually listed down 1 &&
    id=$(flux submit -N8 true) &&
    waits $id &&
    small=$(flux submit -N7 true) &&
    flux job status $small &&
    test "$(nodes $small)" = "compute-[01,03-08]" &&
    undrain_all &&
    flux job status $id &&
    listed down 0
'
test_expect_success 'nor do thirty jobs that wait for it hold back another' '
    flux resource drain compute-02 for a test &&
    eventually listed down 1 &&
    flux submit --cc=1-30 -N1 --requires=host:compute-02 true >ids &&
    waits $(tail -n 1 ids) &&
    flux run -N7 true &&
    cancelled=$(head -n 15 ids) &&
    job_cancel $cancelled &&
    flux job urgency $(tail -n 1 ids) 20 &&
    flux run -N7 true &&
    undrain_all &&
    flux job status $(tail -n 15 ids) &&
    for id in $cancelled; do wait_event $id clean || return 1; done
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
test_expect_success 'jobs go past one that waits, if they end before it can start' '
    rm -f go &&
    busy=$(sized_job 900 -N1 -t 10m sh -c "$SPIN") &&
    other=$(sized_job 900 -N1 -t 20m sh -c "$SPIN") &&
    wait_event $busy start && wait_event $other start &&
    first=$(sized_job 900 -N2 -t 1m true) &&
    waits $first &&
    short=$(flux submit -N1 -t 1m true) &&
    flux job status $short &&
    touch go &&
    for id in $busy $other $first; do job_succeeds $id || return 1; done
'
test_expect_in_soak 'and so do jobs on other nodes, however long they take' '
    rm -f go &&
    busy=$(flux submit -N1 --requires=host:compute-02 sh -c "$SPIN") &&
    wait_event $busy start &&
    first=$(flux submit -N1 --exclusive --requires=host:compute-02 true) &&
    waits $first &&
    flux job status $(flux submit -N7 -t 60m true) $(flux submit -N1 true) &&
    touch go &&
    flux job status $busy $first
'
test_expect_success 'but not on nodes where one waits, unless they end in time' '
    rm -f go &&
    busy=$(flux submit -N1 -t 10m sh -c "$SPIN") &&
    wait_event $busy start &&
    first=$(flux submit -N8 -t 1m true) &&
    waits $first &&
    long=$(flux submit -N1 -t 60m true) &&
    endless=$(flux submit -N1 true) &&
    waits $long $endless &&
    flux job status $(flux submit -N1 -t 1m true) &&
    touch go &&
    flux job status $busy $first $long $endless
'
test_expect_in_soak 'a job that can start earlier now is not held up by others' '
    rm -f go &&
    long=$(flux submit -N4 -t 60m sh -c "$SPIN") &&
    other=$(flux submit -N4 -t 10m sh -c "$SPIN") &&
    wait_event $long start && wait_event $other start &&
    first=$(flux submit -N8 -t 1m true) &&
    waits $first &&
    job_cancel $long &&
    wait_event $long clean &&
    behind=$(flux submit -N4 -t 30m true) &&
    waits $behind &&
    short=$(flux submit -N4 -t 5m true) &&
    flux job status $short &&
    touch go &&
    flux job status $other $first $behind
'
test_expect_success 'jobs keep their nodes and storage when it is loaded again' '
    DW="#DW jobdw type=xfs capacity=900GiB name=p1" &&
    first=$(job_submit -N2 --requires=host:compute-[01,03] sh -c "$LOOP") &&
    wait_event $first start &&
    waiting=$(sized_job 100 -N1 true) &&
    waits $waiting &&
    scheduler_reload &&
    waits $waiting &&
    listed allocated 2 &&
    test "$(ssds_of $first | wc -w)" -eq 16 &&
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $waiting
'
test_expect_in_soak 'storage that is out of service is so after that, too' '
    kube disable rabbit-01 &&
    ssds_down 8 8 &&
    scheduler_reload &&
    ssds_down 8 8 &&
    id=$(job_submit -N1 true) &&
    job_succeeds $id &&
    test "$(memos $id rabbits)" = rabbit-02 &&
    kube enable rabbit-01 &&
    ssds_down 0 0
'
test_expect_success 'nodes that are clean are given to others while some are not' '
    rm -f clean clean.* &&
    first=$(flux submit -N8 --exclusive true) &&
    wait_event $first clean &&
    second=$(flux submit -N1 --exclusive true) &&
    waits $second &&
    touch clean.3 &&
    flux job status $second &&
    test "$(nodes $second)" = compute-04
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
    denied $(raw_job "job[\"resources\"] = [{\"type\": \"memory\", \"count\": 1}]") "resources" &&
    denied $(raw_job "job[\"resources\"] = [{\"type\": \"ssd\", \"count\": 1}]") "a core or a node" &&
    denied $(raw_job "job[\"resources\"] = nest(400, job[\"resources\"], lambda x: [{\"type\": \"slot\", \"count\": 1, \"label\": \"task\", \"with\": x}])") "" &&
    denied $(raw_job "job[\"resources\"][0][\"count\"] = 10**18") "unsatisfiable" &&
    id=$(raw_job "job[\"resources\"][0][\"count\"] = {\"min\": 2, \"operator\": \"^\", \"operand\": 10**18}") &&
    wait_event $id clean &&
    denied $(raw_job "system[\"constraints\"] = {\"properties\": [\"%s%n%d{0}\"]}") "unsatisfiable" &&
    denied $(raw_job "system[\"constraints\"] = {\"%s%s%n\": []}") "constraints" &&
    denied $(raw_job "system[\"constraints\"] = nest(900, {}, lambda x: {\"not\": [x]})") "levels" &&
    denied $(raw_job "system[\"constraints\"] = {\"hostlist\": [\"a[0-9999999999]\"]}") "hostlist" &&
    denied $(raw_job "job[\"resources\"][0][\"type\"] = \"%s%n\\u202e\\n\"") "type" &&
    scheduler_lives
'
test_expect_success 'neither do thousands of levels end it' '
    for levels in 900 1500 1900; do
        raw_job "system[\"x\"] = nest($levels, [], lambda x: [x])" >id &&
        wait_event "$(cat id)" clean || return 1
    done &&
    scheduler_lives
'
test_expect_success 'a request of the module that is malformed is refused' '
    test_must_fail rpc sched-rabbit.find "{}" 2>err && cat err &&
    test_must_fail rpc sched-rabbit.find "{\"criteria\": \"%s%n\"}" 2>err && cat err &&
    test_must_fail rpc sched-rabbit.set_status "{\"resource_path\": \"/x\", \"status\": \"up\"}" &&
    test_must_fail rpc sched-rabbit.set_property "{\"sp_resource_path\": [3], \"sp_keyval\": \"a=b\"}" &&
    scheduler_lives
'
test_expect_success 'a guest is refused all that is for the module and the instance' '
    for topic in sched-rabbit.find sched-rabbit.set_property sched-rabbit.set_status \
        sched-rabbit.remove_property sched-rabbit.stats-get feasibility.check \
        sched.alloc sched.free sched.cancel sched.prioritize sched.expiration \
        sched.resource-status; do
        test_must_fail as_guest rpc $topic "{}" 2>err &&
        grep EPERM err || return 1
    done &&
    scheduler_lives
'
test_expect_success 'it does not load with a wrong argument, and says why' '
    flux module remove dws &&
    flux module remove sched-rabbit &&
    for arg in chunks=0 chunks=x foo=1 queue-depth=0 \
        pool-class=flux.resource.ResourcePool:ResourcePool; do
        flux dmesg -C &&
        test_must_fail flux module load sched-rabbit $arg &&
        eventually log_says "${arg%=*}" || return 1
    done
'
test_expect_success 'nor does it without the mapping that is configured' '
    mv mapping.json hidden.json &&
    flux dmesg -C &&
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
    flux job info $id R >R.json &&
    ! grep scheduling R.json &&
    mv rabbit.toml conf &&
    flux config reload &&
    scheduler_reload &&
    eventually log_says "8 nodes, 2 Rabbits with 16 ssd"
'
test_done
