#!/bin/sh
test_description='Kubernetes is not there for a while, and jobs lose nothing but time

With outages and pauses as long as in real life (make soak):
    SOAK=1 OUTAGE=60 PAUSE=1 MANY=25 ./t1008-dws-outage.t'
. "$(dirname "$0")/tap.sh"

OUTAGE=${OUTAGE:-3}  # seconds that Kubernetes is away
PAUSE=${PAUSE:-0.1}  # seconds between two cancels
MANY=${MANY:-4}      # jobs at once, and as many others that are cancelled

# Start what is between the module and Kubernetes, where connections can be cut.
proxy_start () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    "$PYTHON" "$TESTDIR/proxy.py" "$TRASH/kubeconfig" "$TRASH/kubeconfig.proxy" \
        "$TRASH/proxy.state" >"$TRASH/proxy.log" 2>&1 &
    PROXY_PID=$!
    export PROXY_PID
    wait_for_line "$TRASH/proxy.state" "open"
    instance_conf rabbit.toml <<-END
	[rabbit]
	kubeconfig = "$TRASH/kubeconfig.proxy"
	mapping = "$TRASH/mapping.json"
	END
    trap 'kill $PROXY_PID; cluster_stop' EXIT
}

cluster_start
proxy_start
# An epilog-timeout that is shorter than an outage would do what it is for.
instance_conf job-manager.toml <<END
[[job-manager.plugins]]
load = "$JOBTAP"
conf = { epilog-timeout = 3600.0 }
END
instance_start 2

# usage: outage_begin KIND: Kubernetes "hangs", or "refuses" connections
outage_begin () {
    flux dmesg -C &&
    case $1 in
    hangs) process_stop "$KUBE_PID" ;;
    refuses) kill -USR1 "$PROXY_PID" && wait_for_line proxy.state "cut" ;;
    esac
}

outage_end () {
    kill -CONT "$KUBE_PID" &&
    kill -USR2 "$PROXY_PID" &&
    wait_for_line proxy.state "open"
}

# usage: outage_shows KIND: a server that only hangs may be a slow one; after
# 10 s it is said to be away
outage_shows () {
    test "$1" = refuses || test "$OUTAGE" -ge 20
}

# usage: log_count TEXT NUMBER
log_count () {
    test "$(flux dmesg | grep -c -F -e "$1")" -eq "$2"
}

# usage: submit_mixed NUMBER: submit so many jobs at once that run until they are
# cancelled, to the file endless, and as many others, to the file short
submit_mixed () {
    job_submit --cc="1-$1" sleep inf >endless &
    job_submit --cc="1-$1" true >short &&
    wait $! &&
    test "$(wc -l <endless)" -eq "$1" &&
    test "$(wc -l <short)" -eq "$1"
}

# usage: cancel_each FILE: one after the other, while the others go on
cancel_each () {
    while read -r id; do
        job_cancel "$id" && sleep "$PAUSE" || return 1
    done <"$1"
}

# The endless ones were cancelled, the others ended well, nothing is left.
all_end_well () {
    queue_idle 60 &&
    eventually all_are endless "INACTIVE CANCELED cancel" &&
    eventually all_are short "INACTIVE COMPLETED" &&
    no_workflows
}

# usage: all_are FILE "STATE RESULT EXCEPTION": the jobs in the file
all_are () {
    xargs flux jobs -no "{state} {result} {exception.type}" <"$1" >"$1.now" &&
    test "$(wc -l <"$1.now")" -eq "$(wc -l <"$1")" &&
    test "$(sort -u "$1.now" | sed 's/ *$//')" = "$2" ||
    ! sort "$1.now" | uniq -c
}

for kind in hangs refuses; do
    test_expect_success "the module is loaded while Kubernetes $kind" '
        outage_begin $kind &&
        module_load &&
        id=$(job_submit true) &&
        eventually stats_say "\"jobs\": 1" &&
        { test $kind = hangs || eventually has_memo $id rabbit_waits_for "Kubernetes: "; } &&
        ! has_event $id depend
    '
    test_expect_success "a job goes on when Kubernetes $kind no more" '
        outage_end &&
        job_succeeds $id &&
        ! has_memo $id rabbit_waits_for
    '
    test $kind = refuses || flux module remove dws
done
for kind in ${SOAK:+hangs} refuses; do
    test_expect_success "Kubernetes $kind while there are jobs in all phases" '
        jobs_in_all_phases &&
        outage_begin $kind &&
        let_go &&
        id=$(job_submit true)
    '
    test_expect_success 'no job makes progress during the outage' '
        sleep $OUTAGE &&
        for phase in $PHASES; do
            ! has_event $(job_of $phase) clean || return 1
        done &&
        ! has_event $id depend &&
        eventually stats_say "\"jobs\": 10"
    '
    if outage_shows $kind; then
        test_expect_success 'jobs say why they wait, and the log says it once' '
            eventually has_memo $id rabbit_waits_for "Kubernetes: " &&
            eventually has_memo $running rabbit_waits_for "Kubernetes: " &&
            log_count "; jobs wait" 1
        '
    fi
    test_expect_success 'jobs go on after the outage' '
        outage_end &&
        job_succeeds $id &&
        ! has_memo $id rabbit_waits_for
    '
    expect_each_to_succeed 'after it'
    if outage_shows $kind; then
        test_expect_success 'the log says that it is there again, once' '
            eventually log_count "Kubernetes answers again" 1 &&
            log_count "; jobs wait" 1
        '
    fi
done
test_expect_success 'many jobs and cancels while connections are cut again and again' '
    submit_mixed "$MANY" &&
    split -l 2 endless part. &&
    for part in part.*; do
        outage_begin refuses && cancel_each $part && outage_end && sleep 0.3 ||
        return 1
    done &&
    all_end_well
'
outage_end
test_done
