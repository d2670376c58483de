#!/bin/sh
test_description='The configuration of Fluxion that the example has'
. "$(dirname "$0")/tap.sh"

need_fluxion
cluster_start

# compute-06 is the last node of the first Rabbit. For it, Fluxion 0.54 has denied jobs.
instance_hosts () {
    echo "compute-[01-06]"
}
test -n "$FLUX_DWS_INSIDE" || sed -n '/^#\[sched-fluxion-resource\]/,/^$/s/^#//p' \
    "$TOP/etc/examples/rabbit.toml" >"$TRASH/example.toml"
instance_conf fluxion.toml <<END
[resource]
scheduling = "$TRASH/scheduling.json"
$(test -n "$FLUX_DWS_INSIDE" || cat "$TRASH/example.toml")
END
fluxion_start 6 --no-validate

# usage: waits_for_storage JOBID: until the job that has it ends
waits_for_storage () {
    wait_event "$1" depend &&
    wait_event "$1" priority &&
    flux dws list -n -o "{id} {waits}" | grep "^$1 nodes" &&
    ! has_event "$1" alloc &&
    job_end "$holder" &&
    job_succeeds "$holder" &&
    job_succeeds "$1"
}

# usage: holds_storage: a job with most of the storage of the first Rabbit
holds_storage () {
    holder=$(flux submit -N1 -t10m --requires=host:compute-01 \
        --setattr=system.dw="#DW jobdw type=xfs capacity=700GiB name=p1" sh -c "$LOOP") &&
    wait_event "$holder" start
}

test_expect_success 'the example has tables for Fluxion' '
    flux config get sched-fluxion-resource.prune-filters &&
    flux config get sched-fluxion-qmanager.queue-policy
'
test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'a job that wants a certain node waits for the storage of its Rabbit' '
    holds_storage &&
    id=$(flux submit -N1 -t10m --requires=host:compute-06 \
        --setattr=system.dw="#DW jobdw type=xfs capacity=500GiB name=p1" true) &&
    waits_for_storage $id
'
test_expect_success 'so does one that uses persistent storage, which is on that Rabbit' '
    keep=$(flux submit -N1 --requires=host:compute-01 \
        --setattr=system.dw="#DW create_persistent type=xfs capacity=1GiB name=keep" true) &&
    job_succeeds $keep &&
    holds_storage &&
    id=$(flux submit -N1 -t10m --setattr=system.dw="#DW persistentdw name=keep
        #DW jobdw type=xfs capacity=500GiB name=p1" true) &&
    waits_for_storage $id
'
test_expect_success 'destroy the persistent storage' '
    job_succeeds $(flux submit -N1 --setattr=system.dw="#DW destroy_persistent name=keep" true)
'
test_done
