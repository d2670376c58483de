#!/bin/sh
test_description='Flux restarts while storage has no job or no nodes, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB. One of them does not unmount.
cluster_start --fault 'PostRun:mount:compute-02'
# usage: with_limits COMMAND...: with what the site has in the [rabbit] table
with_limits () {
    "$@" 'stage_limit = 100' 'stage_user_limit = 100' 'unmount_failure = "keep"' \
        'keep_failed = "1h"' 'keep_failed_limit = 100' \
        "fence_command = [ \"$TRASH/is-fenced\" ]"
}

with_limits rabbit_conf
cat >"$TRASH/is-fenced" <<END
#!/bin/sh
cat "$TRASH/fenced"
END
chmod +x "$TRASH/is-fenced"

# The file runs in two instances, one after the other, with the same state; with SOAK in
# three, one of which crashes. Each goes on with the count of tests, and the IDs of jobs.
test -n "$FLUX_DWS_INSIDE" || {
    fluxion_conf 8
    mkdir "$TRASH/state"
    echo test_count=0 >"$TRASH/known"
    touch "$TRASH/fenced"
    for PART in before ${SOAK:+crashing} after; do
        export PART
        (instance_start 8 -Sstatedir="$TRASH/state")
        status=$?
    done
    exit "$status"
}
BROKER_PID=$(flux getattr broker.pid)
. "$TRASH/known"

# usage: remember NAME...: the values of these variables, for the next instance
remember () {
    for remember_name; do
        eval "echo $remember_name=\$$remember_name" >>"$TRASH/known"
    done
}

# A job of a moment, for which a file is copied in; its ID
staged_job () {
    flux submit -N1 -S dw_stage=ahead -S dw="#DW jobdw type=xfs capacity=100GiB name=p1
	#DW copy_in source=/lustre/input destination=\$DW_JOB_p1/" true
}

# usage: after JOBID: a job that waits for its data
after () {
    flux submit --dependency=dws-out:"$1" true
}

# The Workflows, and where they are
workflows () {
    kube summary | sed 's/ message=.*//' | sort
}

expect_all_as_before () {
    test_expect_success "$1 the Workflows are as they were, and so is their storage" '
        module_start &&
        ssds_down 5 5 >down &&
        test "$(cat down)" = "$(cat down.before)" &&
        workflows >now &&
        diff workflows.before now
    '
    test_expect_success "$1 jobs that depend on the data wait" '
        depends $after_kept $after_failed $after_moving $after_staged
    '
    test_expect_success "$1 flux dws shows what each waits for" '
        flux dws show $kept | grep "compute-02 to unmount, or to be off" &&
        flux dws show $failed | grep "flux dws rescue" &&
        flux dws show $staged | grep "stage_timeout in [0-9]" &&
        flux dws list -n -o "{id.f58plain} {state}" >list &&
        grep "$(flux job id --to=f58plain $moving) DataOut" list
    '
}

case $PART in
before)
    test_expect_success 'storage is kept for a node that has not unmounted' '
        mkdir -p scratch/lustre &&
        echo data >scratch/lustre/input &&
        echo >scratch/lustre/results &&
        module_start &&
        kept=$(saving_job 100 kept/ -N1 --requires=host:compute-02) &&
        kube wait $(workflow $kept) PostRun &&
        with_limits config_reload "postrun_timeout = 1" &&
        wait_event $kept clean &&
        with_limits config_reload
    '
    test_expect_success 'storage is kept whose data could not be copied out' '
        failed=$(saving_job 100 results/ -N1 --requires=host:compute-01) &&
        wait_event $failed clean &&
        kube wait $(workflow $failed) DataOut
    '
    test_expect_success 'data goes out of a job that has ended' '
        gate_shut DataOut &&
        moving=$(saving_job 100 moving/ -N1 --requires=host:compute-03 \
            -S dw_release=unmounted) &&
        wait_event $moving clean &&
        kube wait $(workflow $moving) DataOut
    '
    test_expect_success 'data was copied in for a job that waits for nodes' '
        flux queue stop &&
        staged=$(staged_job) &&
        kube wait-ready $(workflow $staged) DataIn &&
        wait_event $staged priority
    '
    test_expect_success 'data is copied in for a job in DEPEND' '
        gate_shut DataIn &&
        staging=$(staged_job) &&
        kube wait $(workflow $staging) DataIn
    '
    test_expect_success 'other jobs depend on their data' '
        after_kept=$(after $kept) &&
        after_failed=$(after $failed) &&
        after_moving=$(after $moving) &&
        after_staged=$(after $staged) &&
        ssds_down 5 5 >down.before &&
        workflows >workflows.before &&
        flux module remove dws
    '
    remember kept failed moving staged staging \
        after_kept after_failed after_moving after_staged test_count test_failed
    exit 0
    ;;
crashing)
    expect_all_as_before 'before a crash'
    remember test_count test_failed
    instance_kill
    sleep 10
    ;;
after)
    expect_all_as_before 'after a restart'
    test_expect_success 'the jobs that were staged get nodes, and end well' '
        rm gates/* &&
        flux queue start &&
        job_succeeds $staged &&
        job_succeeds $staging &&
        wait_event $after_staged clean &&
        flux job status $after_staged
    '
    test_expect_success 'the data of the job that has ended is out' '
        wait_event $after_moving clean &&
        flux job status $after_moving &&
        grep saved scratch/lustre/moving/x
    '
    test_expect_success 'the data that could not be copied out is rescued' '
        rm scratch/lustre/results &&
        flux dws rescue $failed &&
        wait_event $after_failed clean &&
        flux job status $after_failed &&
        grep saved scratch/lustre/results/x
    '
    test_expect_success 'the storage of the node goes when the node is fenced' '
        echo compute-02 >fenced &&
        flux module reload dws &&
        wait_event $after_kept clean &&
        job_exception $after_kept dependency "compute-02 has not unmounted" &&
        no_workflows &&
        ssds_down 0 0
    '
    test_done
    ;;
esac
