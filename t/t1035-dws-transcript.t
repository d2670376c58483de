#!/bin/sh
test_description='flux dws shows on a real Flux what it shows on the stand-in'
. "$(dirname "$0")/tap.sh"

# t/python/test_transcript.py brings the same jobs to the same states on the stand-in.
cluster_start --copy-rate=2097152
rabbit_conf 'save_datamovements = 10' \
    'presets.scratch = "#DW jobdw type=xfs capacity=100GiB name=scratch"'
instance_start 8

TRANSCRIPT=$TESTDIR/data/dws/transcript.txt
COPY_IN='#DW copy_in source=/lustre/input destination=$DW_JOB_p1/'
COPY_OUT='#DW copy_out source=$DW_JOB_p1/input destination=/lustre/output/'

# usage: submit_on HOST [DIRECTIVE]: a job on this node; its ID
submit_on () {
    flux submit -N1 -n1 --cwd=/ --rlimit="-*" --requires=host:"$1" \
        --setattr=system.dw="$DW
$2" true
}

# usage: id_of JOBID
id_of () {
    flux job id --to=dec "$1"
}

# usage: page_shows JOBID TEXT
page_shows () {
    flux dws show "$1" | grep "$2"
}

percent_is_known () {
    rpc dws.job-list | grep "\"percent\": *[0-9]"
}

test_expect_success 'a job ends, and one whose data is not there' '
    mkdir -p scratch/lustre/output &&
    echo 1 >scratch/lustre/input &&
    module_start scheduler=none &&
    complete=$(submit_on compute-01 "$COPY_IN
$COPY_OUT") &&
    wait_event $complete clean &&
    failed=$(submit_on compute-01 "#DW copy_in source=/lustre/none destination=\$DW_JOB_p1/") &&
    wait_event $failed clean
'
test_expect_success 'a job is cancelled before it has storage' '
    gate_shut Proposal &&
    cancelled=$(submit_on compute-01) &&
    kube wait $(workflow $cancelled) Proposal &&
    job_cancel $cancelled &&
    wait_event $cancelled clean &&
    rm gates/Proposal
'
test_expect_success 'one mounts, one copies, and one waits for its Workflow' '
    gate_shut PreRun &&
    mounting=$(submit_on compute-01) &&
    kube wait $(workflow $mounting) PreRun &&
    truncate -s 512M scratch/lustre/input &&
    copying=$(submit_on compute-02 "$COPY_IN
$COPY_OUT") &&
    kube wait $(workflow $copying) DataIn &&
    gate_shut Proposal &&
    waiting=$(submit_on compute-02) &&
    kube wait $(workflow $waiting) Proposal &&
    # The module asks for data movements and mounts of states that take long.
    eventually percent_is_known &&
    eventually page_shows $copying "secs left" &&
    eventually page_shows $mounting "^Mounts:"
'
test_expect_success 'all subcommands show the jobs as in the transcript' '
    cd "$TESTDIR/data" &&
    "$PYTHON" "$TESTDIR/transcript.py" "$TRANSCRIPT" "$(id -un)" \
        complete=$(id_of $complete) failed=$(id_of $failed) \
        cancelled=$(id_of $cancelled) mounting=$(id_of $mounting) \
        copying=$(id_of $copying) waiting=$(id_of $waiting) >"$TRASH/shown" &&
    diff "$TRANSCRIPT" "$TRASH/shown"
'
test_expect_success 'all jobs end' '
    job_cancel $copying &&
    rm gates/Proposal gates/PreRun &&
    wait_event $mounting clean
'
test_done
