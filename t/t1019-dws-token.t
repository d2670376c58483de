#!/bin/sh
test_description='The workflow token: the tasks have it, and it is shown nowhere'
. "$(dirname "$0")/tap.sh"

cluster_start
rabbit_conf 'daemons.copy-offload.environment = { OFFLOAD = "1" }'
instance_start 4

OFFLOAD="$DW requires=copy-offload"

# Each task writes its token to a file that is called as its rank.
cat >"$TRASH/tasks" <<END
#!/bin/sh
echo "\$DW_WORKFLOW_TOKEN" >"$TRASH/token.\$FLUX_TASK_RANK"
test "\$1" != loop || $LOOP
END
chmod +x "$TRASH/tasks"

# usage: offload [OPTION...] COMMAND...: a job with a token; its ID
offload () {
    flux submit --setattr=system.dw="$OFFLOAD" "$@"
}

# usage: token_in_kvs JOBID
token_in_kvs () {
    flux job info "$1" dws_token
}

no_token_in_kvs () {
    ! flux kvs get "$(flux job id --to=kvs "$1").dws_token" 2>err &&
    grep "No such file" err
}

# usage: shows_no_token JOBID TOKEN: none of what is kept of the job, or logged
shows_no_token () {
    flux job eventlog --format=json "$1" >shown &&
    flux dmesg >>shown &&
    flux jobs -a -o "{id} {user}" "$1" >>shown &&
    for key in $(flux kvs ls "$(flux job id --to=kvs "$1")"); do
        flux job info "$1" "$key" >>shown 2>&1 || true
    done &&
    test -s shown &&
    ! grep -F -e "$2" shown
}

test_expect_success 'every task of a job on four nodes has the workflow token' '
    module_load &&
    id=$(offload -N4 -n4 ./tasks) &&
    job_succeeds $id &&
    for rank in 0 1 2 3; do
        test "$(wc -c <token.$rank)" -gt 20 &&
        cmp token.0 token.$rank || return 1
    done
'
test_expect_success 'when the job has ended nothing of the token is left' '
    no_token_in_kvs $id &&
    shows_no_token $id "$(cat token.0)"
'
test_expect_success 'while the job runs its user and the instance owner can read it' '
    rm -f token.0 &&
    id=$(offload ./tasks loop) &&
    wait_event $id start &&
    eventually test -s token.0 &&
    token_in_kvs $id >found &&
    cmp token.0 found
'
test_expect_success 'nobody but the user and the owner can read the token' '
    test_must_fail as_guest flux job info $id dws_token 2>err &&
    grep "access is restricted" err &&
    test_must_fail as_guest flux kvs get "$(flux job id --to=kvs $id).dws_token"
'
test_expect_success 'the token is not in the eventlog, the log, the memos' '
    flux job eventlog --format=json $id >shown &&
    flux dmesg >>shown &&
    ! grep -F -f token.0 shown &&
    ! grep DW_WORKFLOW_TOKEN shown
'
test_expect_success 'the token is gone when Teardown begins' '
    gate_shut Teardown $id &&
    job_end $id &&
    kube wait "$(workflow $id)" Teardown &&
    eventually no_token_in_kvs $id &&
    gates_open $id &&
    wait_event $id clean &&
    shows_no_token $id "$(cat token.0)"
'
test_done
