#!/bin/sh
test_description='Which Rabbits a job may have, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB; all storage needs the label.
cluster_start --label tier=fast
fluxion_start 8

KEEP='#DW persistentdw name=keep'

# usage: on_first JOBID: its nodes are those of rabbit-01
on_first () {
    wait_event "$1" alloc &&
    flux jobs -ano "{nodelist}" "$1" | grep -x "compute-\(0[1256]\|\[[01256,-]*\]\)"
}

on_second () {
    wait_event "$1" alloc &&
    flux jobs -ano "{nodelist}" "$1" | grep -x "compute-\(0[3478]\|\[[03478,-]*\]\)"
}

# usage: keeps_waiting JOBID EVENT: it has not come so far, and is not over
keeps_waiting () {
    ! flux job wait-event -q -t 2 "$1" "$2" &&
    ! has_event "$1" exception
}

# usage: set_prolog_timeout FSD
set_prolog_timeout () {
    sed -i "/^prolog_timeout/d" "$TRASH/conf/rabbit.toml" &&
    echo "prolog_timeout = \"$1\"" >>"$TRASH/conf/rabbit.toml" &&
    flux config reload
}

# usage: labels_move_while_waiting JOBID: the labels that it needs are on rabbit-01
# only when it is planned, and on rabbit-02 only when it gets its nodes
labels_move_while_waiting () {
    wait_event "$1" depend &&
    kube label rabbit-01 tier=slow &&
    kube label rabbit-02 tier=fast &&
    flux module reload dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    job_go "$1"
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    kube label rabbit-01 tier=slow &&
    kube label rabbit-02 tier=slow &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'labels that no Rabbit has are refused before nodes are given' '
    id=$(job_submit -N1 hostname) &&
    wait_event $id clean &&
    job_exception $id dws "no Rabbit carries all of: " &&
    ! has_event $id alloc
'
test_expect_success 'a job is placed on the only Rabbit that has its labels' '
    kube label rabbit-02 tier=fast &&
    for n in 1 3 4; do
        id=$(job_submit -N$n hostname) &&
        job_succeeds $id &&
        on_second $id || return 1
    done
'
test_expect_success 'a job that needs more nodes than its labels allow gets an exception' '
    id=$(job_submit -N5 hostname) &&
    wait_event $id clean &&
    job_exception $id dws "the job asks for 5 nodes, but only compute-[03-04,07-08] (4)"
'
test_expect_success 'when labels move to another Rabbit, jobs get that Rabbit' '
    kube label rabbit-01 tier=fast &&
    kube label rabbit-02 tier=slow &&
    id=$(job_submit -N1 hostname) &&
    job_succeeds $id &&
    on_first $id
'
test_expect_in_soak 'the exception of a job whose labels move names the missing label' '
    id=$(job_submit -N1 --urgency=hold hostname) &&
    labels_move_while_waiting $id &&
    wait_event $id clean &&
    on_first $id &&
    job_exception $id dws "rabbit-01" &&
    job_exception $id dws "tier=fast"
'
test_expect_in_soak 'network storage goes to the Rabbit that has its labels now' '
    kube label rabbit-01 tier=fast &&
    kube label rabbit-02 tier=slow &&
    id=$(DW="#DW jobdw type=lustre capacity=20GiB name=p1" \
        job_submit -N1 --urgency=hold hostname) &&
    labels_move_while_waiting $id &&
    job_succeeds $id &&
    on_first $id &&
    has_memo $id rabbits "^rabbit-02$"
'
test_expect_in_soak 'labels that move when the storage is made are of no concern' '
    kube label rabbit-01 tier=fast &&
    kube label rabbit-02 tier=slow &&
    id=$(job_submit -N1 sh -c "$LOOP") &&
    wait_event $id start &&
    kube label rabbit-01 tier=slow &&
    kube label rabbit-02 tier=fast &&
    job_end $id &&
    job_succeeds $id &&
    on_first $id &&
    kube label rabbit-01 tier=fast &&
    kube label rabbit-02 tier=slow
'
test_expect_success 'a job waits while the only Rabbit with its labels is broken' '
    kube disable rabbit-01 &&
    ssds_down 8 8 &&
    id=$(job_submit -N1 hostname) &&
    keeps_waiting $id depend &&
    has_memo $id rabbit_waits_for "rabbit-01 is Disabled" &&
    kube enable rabbit-01 &&
    job_succeeds $id &&
    on_first $id
'
test_expect_success 'make persistent storage on rabbit-01' '
    id=$(flux submit -N1 \
        -S dw="#DW create_persistent type=xfs capacity=10GiB name=keep" true) &&
    job_succeeds $id &&
    on_first $id &&
    kube label rabbit-02 tier=fast
'
test_expect_success 'a job that uses persistent storage asks for no ssd' '
    id=$(flux submit -N1 -S dw="$KEEP" hostname) &&
    job_succeeds $id &&
    on_first $id
'
test_expect_success 'a job waits while the Rabbit of its persistent storage is broken' '
    kube disable rabbit-01 &&
    ssds_down 8 8 &&
    id=$(flux submit -N1 -S dw="$KEEP" hostname) &&
    keeps_waiting $id depend &&
    has_memo $id rabbit_waits_for "rabbit-01 is Disabled"
'
test_expect_success 'a job waits for its broken Rabbit when Fluxion or the module is loaded again' '
    flux module reload dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    keeps_waiting $id depend
'
test_expect_success 'a waiting job runs when its Rabbit is back' '
    kube enable rabbit-01 &&
    job_succeeds $id &&
    on_first $id
'
test_expect_success 'a job that got nodes below a just broken Rabbit waits in its prolog' '
    id=$(flux submit -N1 --urgency=hold -S dw="$KEEP" hostname) &&
    wait_event $id depend &&
    kube disable rabbit-01 &&
    ssds_down 8 &&
    job_go $id &&
    wait_event $id prolog-start &&
    eventually has_memo $id rabbit_waits_for "rabbit-01 is Disabled" &&
    keeps_waiting $id start &&
    kube enable rabbit-01 &&
    job_succeeds $id
'
test_expect_success 'a job waits in its prolog no longer than the site says, with a reason' '
    set_prolog_timeout 6s &&
    id=$(flux submit -N1 --urgency=hold -S dw="$KEEP" hostname) &&
    wait_event $id depend &&
    kube disable rabbit-01 &&
    ssds_down 8 &&
    job_go $id &&
    wait_event $id clean &&
    job_exception $id dws "rabbit-01 is Disabled" &&
    job_exception $id dws "for 3s, half of prolog_timeout" &&
    set_prolog_timeout 30m &&
    kube enable rabbit-01 &&
    ssds_down 1 1
'
test_expect_success 'storage on both Rabbits: jobs have the nodes of the one that serves' '
    id=$(flux submit -N5 --requires=host:compute-[01-02,05-06,08] \
        -S dw="#DW create_persistent type=xfs capacity=10GiB name=both" true) &&
    job_succeeds $id &&
    kube disable rabbit-02 &&
    ssds_down 8 &&
    id=$(flux submit -N4 -S dw="#DW persistentdw name=both" hostname) &&
    job_succeeds $id &&
    on_first $id &&
    kube enable rabbit-02
'
test_expect_success 'a job waits for nodes with an allocation of persistent storage' '
    ssds_down 0 4 &&
    id=$(flux submit -N5 -S dw="#DW persistentdw name=both" hostname) &&
    job_succeeds $id &&
    kube disable rabbit-01 &&
    ssds_down 8 &&
    id=$(flux submit -N2 -S dw="#DW persistentdw name=both" hostname) &&
    keeps_waiting $id depend &&
    has_memo $id rabbit_waits_for "rabbit-01 is Disabled" &&
    one=$(flux submit -N1 -S dw="#DW persistentdw name=both" hostname) &&
    job_succeeds $one &&
    on_second $one &&
    kube enable rabbit-01 &&
    job_succeeds $id &&
    on_first $id
'
test_expect_success 'more nodes than persistent storage has allocations for are refused' '
    id=$(flux submit -N6 -S dw="#DW persistentdw name=both" hostname) &&
    wait_event $id clean &&
    job_exception $id dws "asks for 6 nodes, but only compute-[01-03,05-06] (5)" &&
    id=$(flux submit -N1 -S dw="#DW destroy_persistent name=both" true) &&
    job_succeeds $id
'
test_expect_success 'destroy the other one' '
    id=$(flux submit -N1 -S dw="#DW destroy_persistent name=keep" true) &&
    job_succeeds $id &&
    ssds_down 0 0
'
test_expect_success 'nothing is left out of service' '
    ssds_down 0 0
'
test_done
