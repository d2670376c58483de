#!/bin/sh
test_description='A Rabbit outside of the mapping is never used, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# The cluster has two Rabbits, and the mapping that the module and Fluxion know has one
# of them.
cluster_start
test -n "$FLUX_DWS_INSIDE" || cat >"$TRASH/mapping.json" <<-'END'
	{"computes": {"compute-01": "rabbit-01", "compute-02": "rabbit-01",
	  "compute-05": "rabbit-01", "compute-06": "rabbit-01"},
	 "rabbits": {
	  "rabbit-01": {"capacity": 1099511627776,
	                "hostlist": "compute-[01-02,05-06]"}}}
	END
fluxion_start 8

# usage: storage_is_on RABBIT JOBID: of the two, the job's storage is on this one only
storage_is_on () {
    kube get servers "$(workflow "$2")-0" >servers &&
    test "$(grep -o "rabbit-0[12]" servers | sort -u)" = "$1"
}

# usage: runs_on_first JOBID: with storage
runs_on_first () {
    wait_event "$1" start &&
    storage_is_on rabbit-01 "$1" &&
    job_end "$1" &&
    job_succeeds "$1"
}

test_expect_success 'the module says that the mapping lacks one' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    eventually eval "flux dmesg | grep \"rabbit.mapping lacks rabbit-02: no job gets\""
'
test_expect_success 'nodes of an unmapped Rabbit run jobs without storage' '
    flux run --requires=host:compute-03 -N1 true
'
test_expect_success 'jobs with storage are placed on the mapped Rabbit' '
    for n in 1 2 4; do
        runs_on_first $(job_submit -N$n sh -c "$LOOP") || return 1
    done
'
test_expect_success 'Lustre on the network is placed on the mapped Rabbit as well' '
    DW="#DW jobdw type=lustre capacity=20GiB name=p1" &&
    runs_on_first $(job_submit -N1 sh -c "$LOOP")
'
test_expect_success 'a job that insists on nodes of an unmapped Rabbit is refused' '
    id=$(job_submit -N1 --requires=host:compute-03 hostname) &&
    wait_event $id clean &&
    ! has_event $id alloc &&
    job_exception $id alloc unsatisfiable
'
test_expect_success 'a job that needs more nodes than the mapping has is refused' '
    id=$(job_submit -N5 hostname) &&
    wait_event $id clean &&
    ! has_event $id alloc &&
    job_exception $id dws "asks for 5 nodes, and 4 are below Rabbits"
'
test_expect_success 'jobs wait while the mapped Rabbit is full' '
    first=$(DW="#DW jobdw type=xfs capacity=900GiB name=p1" job_submit -N1 \
        sh -c "$LOOP") &&
    wait_event $first start &&
    second=$(DW="#DW jobdw type=xfs capacity=900GiB name=p1" job_submit -N1 \
        sh -c "$LOOP") &&
    wait_event $second depend &&
    ! flux job wait-event -q -t 2 $second alloc &&
    runs_on_first $first &&
    runs_on_first $second
'
test_done
