#!/bin/sh
test_description='The mapping is not the one of the resource graph, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# The cluster and Fluxion's graph have two Rabbits. Somebody takes one out of the mapping,
# and adds it again.
cluster_start
fluxion_start 8
cp "$TRASH/mapping.json" "$TRASH/whole.json"
cat >"$TRASH/first.json" <<'END'
{"computes": {"compute-01": "rabbit-01", "compute-02": "rabbit-01",
  "compute-05": "rabbit-01", "compute-06": "rabbit-01"},
 "rabbits": {
  "rabbit-01": {"capacity": 1099511627776,
                "hostlist": "compute-[01-02,05-06]"}}}
END

# usage: use_mapping FILE: the module is loaded with it
use_mapping () {
    cp "$TRASH/$1" "$TRASH/mapping.json" &&
    flux module reload -f dws &&
    eventually stats_say "\"kubernetes\": \"ok\""
}

# usage: logged TEXT
logged () {
    flux dmesg | grep "$1"
}

# usage: waits JOBID: for nodes
waits () {
    wait_event "$1" priority &&
    ! flux job wait-event -q -t 2 "$1" alloc
}

test_expect_success 'one line names the Rabbit that the mapping lacks, and both files' '
    flux module load dws &&
    use_mapping first.json &&
    ssds_down 8 8 >down &&
    grep "chassis1/ssd0" down &&
    flux dmesg | grep "rabbit-02" >line &&
    cat line &&
    test $(wc -l <line) -eq 1 &&
    grep "$TRASH/mapping.json lacks rabbit-02, which the graph of Fluxion" line &&
    grep -F "($TRASH/scheduling.json) has: no job gets storage there" line
'
test_expect_success 'flux dws rabbits and the metrics have it' '
    flux dws rabbits rabbit-02 >rows &&
    cat rows &&
    grep "lacks rabbit-02, which the graph of Fluxion" rows &&
    flux dws metrics | grep -x "flux_dws_rabbit_disagreement{rabbit=\"rabbit-02\"} 1.0"
'
test_expect_success 'its nodes run jobs without storage' '
    flux run --requires=host:compute-03 -N1 true
'
test_expect_success 'jobs with storage run on the other one, and wait for it' '
    first=$(job_submit -N4 sh -c "$LOOP") &&
    second=$(job_submit -N4 sh -c "$LOOP") &&
    wait_event $first start &&
    waits $second &&
    job_end $first &&
    wait_event $second start &&
    test "$(flux jobs -no "{nodelist}" $second)" = "compute-[01-02,05-06]" &&
    job_end $second &&
    job_succeeds $first &&
    job_succeeds $second
'
test_expect_success 'a job that asks for its nodes waits, and runs when it is mapped' '
    id=$(job_submit -N1 --requires=host:compute-03 hostname) &&
    waits $id &&
    use_mapping whole.json &&
    job_succeeds $id &&
    ssds_down 0 0 &&
    flux dws rabbits rabbit-02 >rows &&
    ! grep lacks rows
'
test_expect_success 'a node that the graph has below another Rabbit is named' '
    sed "s/\"compute-03\": \"rabbit-02\"/\"compute-03\": \"rabbit-01\"/
        s/compute-\[01-02,05-06\]/compute-[01-03,05-06]/
        s/compute-\[03-04,07-08\]/compute-[04,07-08]/" "$TRASH/whole.json" >"$TRASH/moved.json" &&
    use_mapping moved.json &&
    ssds_down 8 8 >down &&
    grep "chassis1/ssd0" down &&
    eventually logged "has compute-03 below rabbit-02, and" &&
    job_succeeds $(job_submit -N1 hostname)
'
test_expect_success 'a mapping of other sizes is named' '
    sed "s/1099511627776/2199023255552/" "$TRASH/whole.json" >"$TRASH/large.json" &&
    use_mapping large.json &&
    eventually logged "by $TRASH/mapping.json they have 256 GiB: jobs get" &&
    logged "has 2048 GiB on rabbit-\[01-02\], whose drives have 1024 GiB"
'
test_expect_success 'scheduler=none is refused where there is Fluxion' '
    flux module remove dws &&
    test_must_fail flux module load dws scheduler=none 2>err &&
    flux dmesg | grep "dws.*scheduler=none: Fluxion is loaded" >line &&
    cat err line &&
    test $(wc -l <line) -eq 1 &&
    grep "flux dws2jgf" line
'
test_expect_success 'jobs wait where Fluxion comes after the module' '
    cp "$TRASH/whole.json" "$TRASH/mapping.json" &&
    flux module remove sched-fluxion-qmanager &&
    flux module remove -f sched-fluxion-feasibility &&
    flux module remove sched-fluxion-resource &&
    module_load &&
    flux module load sched-fluxion-resource &&
    flux module load sched-fluxion-qmanager &&
    eventually eval "flux dmesg | grep \"scheduler=none: Fluxion is loaded\"" &&
    id=$(job_submit -N1 hostname) &&
    wait_event $id memo &&
    ! flux job wait-event -q -t 3 $id priority &&
    flux dws show $id | grep "scheduler=none" &&
    flux module load sched-fluxion-feasibility &&
    flux module reload dws &&
    job_succeeds $id
'
test_done
