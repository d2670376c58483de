#!/bin/sh
# FLUX_DWS_HOSTILE says how many jobs are submitted, FLUX_DWS_SEED which.
test_description='A guest who submits what nobody should'
. "$(dirname "$0")/tap.sh"

COUNT=${FLUX_DWS_HOSTILE:-150}
SEED=${FLUX_DWS_SEED:-1}

cluster_start
instance_start 1 -Slog-ring-size=1000000

hostile () {
    flux python "$TESTDIR/hostile.py" "$@"
}

test_expect_success 'load the module' '
    module_start scheduler=none &&
    pid=$(service_pid | grep .)
'
test_expect_success "$COUNT hostile jobs are refused or taken (seed $SEED)" '
    hostile submit $COUNT $SEED ids &&
    cat ids | wc -l
'
test_expect_success 'a job of another user gets its storage among hostile jobs' '
    job_succeeds $(job_submit true)
'
test_expect_success 'hostile jobs end when they are cancelled, if they have not failed' '
    flux cancel --all --quiet &&
    queue_idle $((240 + COUNT / 10))
'
test_expect_success 'the service is the same process' '
    test "$(service_pid)" = "$pid" &&
    eventually stats_say "\"jobs\": 0"
'
test_expect_success 'neither log, nor notes, nor memos show a control character' '
    flux dmesg >log &&
    hostile check ids <log
'
test_expect_success 'the output of the broker shows no control character' '
    hostile check ids <stderr
'
test_done
