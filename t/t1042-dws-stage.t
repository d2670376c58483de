#!/bin/sh
test_description='Data is copied in before a job has nodes, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
rabbit_conf 'stage_limit = 100' 'stage_user_limit = 100'
fluxion_start 8

IN='#DW copy_in source=/lustre/input destination=$DW_JOB_p1/'

# usage: storage_job GIB [OPTION...] COMMAND...: submit a job that copies a file in, with
# so much storage for each node
storage_job () {
    storage_job_size=$1
    shift
    flux submit -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1
	$IN" "$@"
}

AHEAD='-S dw_stage=ahead'  # before it has nodes

# usage: is_staged JOBID: its data is there, and it waits for nodes
is_staged () {
    kube wait-ready "$(workflow "$1")" DataIn &&
    wait_event "$1" priority
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    mkdir -p scratch/lustre &&
    echo data >scratch/lustre/input &&
    module_start &&
    ssds_down 0 0
'
test_expect_success 'the data of a job is copied in while others have all nodes' '
    first=$(storage_job 100 -N8 sh -c "$LOOP") &&
    wait_event $first start &&
    second=$(storage_job 100 $AHEAD -N8 sh -c "test -e \$DW_JOB_p1/input") &&
    is_staged $second &&
    ssds_down 8 8
'
test_expect_success 'the other storage is not given to a third job' '
    third=$(storage_job 100 -N8 true) &&
    waits $third
'
test_expect_success 'the nodes go to it, and it finds its data; the third one comes last' '
    job_end $first &&
    job_succeeds $first &&
    job_succeeds $second &&
    job_succeeds $third &&
    no_workflows &&
    ssds_down 0 0
'
test_expect_success 'a job gets its nodes below the Rabbit where its storage is' '
    small=$(storage_job 100 $AHEAD -N3 true) &&
    job_succeeds $small &&
    nodes=$(nodes_of $small) &&
    echo "$nodes" | grep -E "^compute-\[0[1256][-0-9,]*\]$|^compute-\[0[3478][-0-9,]*\]$" &&
    case $nodes in *02-05*|*06-07*) false ;; esac
'
test_expect_success 'data waits while a module is killed, and Fluxion loaded again' '
    first=$(flux submit -N8 sh -c "until test -e \"$TRASH/end\"; do sleep 0.1; done") &&
    wait_event $first start &&
    second=$(storage_job 200 $AHEAD -N8 true) &&
    is_staged $second &&
    ssds_down 14 14 &&
    module_kill &&
    third=$(storage_job 200 -N4 true) &&
    module_start &&
    ssds_down 14 14 &&
    scheduler_reload &&
    ssds_down 14 14 &&
    waits $third &&
    touch end &&
    job_succeeds $second &&
    job_succeeds $third &&
    no_workflows
'
test_done
