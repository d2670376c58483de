#!/bin/sh
test_description='Kubernetes does not answer for a while, and jobs lose nothing but time'
. "$(dirname "$0")/tap.sh"

OUTAGE=3  # seconds that Kubernetes is away
test -z "$SOAK" || OUTAGE=60

# Connections that are refused or cut, and other errors, are in test_outages_http.
APART=yes
cluster_start
# An epilog-timeout that is shorter than an outage would do what it is for.
instance_conf job-manager.toml <<END
[[job-manager.plugins]]
load = "$JOBTAP"
conf = { epilog-timeout = 3600.0 }
END
instance_start 2

outage_begin () {
    flux dmesg -C &&
    process_stop "$KUBE_PID"
}

outage_end () {
    kill -CONT "$KUBE_PID"
}

test_expect_success 'the module is loaded while Kubernetes does not answer, and a job goes on when it does' '
    outage_begin &&
    module_load &&
    id=$(job_submit true) &&
    eventually stats_say "\"jobs\": 1" &&
    ! has_event $id depend &&
    outage_end &&
    job_succeeds $id
'
test_expect_success 'no job makes progress during an outage while there are jobs in all phases' '
    jobs_in_all_phases &&
    outage_begin &&
    let_go &&
    id=$(job_submit true) &&
    sleep $OUTAGE &&
    for phase in $PHASES; do
        ! has_event $(job_of $phase) clean || return 1
    done &&
    ! has_event $id depend &&
    eventually stats_say "\"jobs\": 10"
'
# A server that hangs may be a slow one.
test_expect_in_soak 'after 10 s jobs say why they wait, and the log says it once' '
    eventually has_memo $id rabbit_waits_for "Kubernetes: " &&
    eventually has_memo $running rabbit_waits_for "Kubernetes: " &&
    log_count "; jobs wait" 1
'
test_expect_success 'jobs go on after the outage' '
    outage_end &&
    job_succeeds $id &&
    ! has_memo $id rabbit_waits_for
'
expect_each_to_succeed 'after it'
test_expect_in_soak 'the log says that it is there again, once' '
    eventually log_count "Kubernetes answers again" 1 &&
    log_count "; jobs wait" 1
'
test_done
