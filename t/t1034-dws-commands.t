#!/bin/sh
test_description='flux dws: what users and administrators see of storage'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
END
instance_start 2

# usage: page FILE LABEL: the value of a line on the page of flux dws show
page () {
    sed -n "s/^$2: *//p" "$1"
}

# usage: digits JOBID: its F58 without the first letter, which depends on the locale
digits () {
    flux job id --to=f58plain "$1" | cut -c2-
}

# usage: fails TEXT COMMAND...: with status 1 and one line, which has the text
fails () {
    fails_text=$1
    shift
    test_expect_code 1 "$@" >out 2>err &&
    grep "^flux-dws: ERROR: .*$fails_text" err &&
    test $(wc -l <err) -eq 1 &&
    test_must_be_empty out
}

# usage: follow JOBID: wait for its storage, in the background
follow () {
    flux dws wait "$1" >changes 2>problems &
    waiting=$!
}

test_expect_success 'without the module each subcommand is one line' '
    fails "the dws module is not loaded" flux dws list &&
    fails "the dws module is not loaded" flux dws rabbits &&
    fails "job .2 not found" flux dws show f2 &&
    fails "not the ID of a job: compute-01" flux dws wait compute-01
'
test_expect_success 'a job that waits is listed with its state' '
    module_load &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    gate_shut PreRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    flux dws list >out 2>err &&
    test_must_be_empty err &&
    test $(wc -l <out) -eq 2 &&
    grep "$(digits $id) .* PreRun " out &&
    test "$(flux dws list -n -o "{id.dec} {state} {types}")" = \
        "$(flux job id --to=dec $id) PreRun xfs" &&
    flux dws list --stats-only | grep "^1 jobs, 1 PreRun"
'
test_expect_success 'a job that waits is shown with its states and directives' '
    flux dws show $id >page &&
    page page State | grep "^PreRun for" &&
    grep -F "  $DW" page &&
    grep "^  Proposal" page &&
    grep "^> PreRun" page &&
    flux dws show --json $id | grep "\"state\": \"PreRun\""
'
test_expect_success 'a filter that fits no job gives a header alone' '
    flux dws list -f Teardown >out &&
    test $(wc -l <out) -eq 1 &&
    test -z "$(flux dws list -n --type=lustre)" &&
    test -z "$(flux dws list -n --rabbit=rabbit-01 --type=lustre)" &&
    fails "no such Rabbit: rabbit-99" flux dws list --rabbit=rabbit-99
'
test_expect_success 'a guest sees neither the job nor its page, but the totals' '
    as_guest flux dws list -A -n >out 2>err &&
    test_must_be_empty out &&
    grep "all: 1 jobs, 1 PreRun" err &&
    fails "job .* is not yours" as_guest flux dws show $id
'
test_expect_success 'the Rabbits are listed with their nodes' '
    test "$(flux dws rabbits -n -o "{name} {nodelist}")" = \
"rabbit-01 compute-[01-02,05-06]
rabbit-02 compute-[03-04,07-08]" &&
    fails "no such Rabbit: rabbit-03" flux dws rabbits rabbit-03
'
WRONG='#DW jobdw type=xfs capacity=10Gib name=p1'

# usage: refuses TEXT COMMAND...: check refuses, with these lines
refuses () {
    refuses_text=$1
    shift
    test_expect_code 1 "$@" >out 2>err &&
    test_must_be_empty err &&
    echo "$refuses_text" >expected &&
    diff expected out
}

test_expect_success 'check refuses a directive, and underlines the word' '
    refuses "refused: capacity=10Gib is not a size: did you mean 10GiB?
  #DW jobdw type=xfs capacity=10Gib name=p1
                              ^~~~~" flux dws check "$WRONG"
'
test_expect_success 'check says where a job would have room, to guests too' '
    flux dws check -N2 "$DW" >page &&
    page page Accepted | grep "^1 directive" &&
    page page Nodes | grep -x "2 of compute-\[01-08\], 1 of which are free now" &&
    page page "Fits now" | grep -x "no: 1 node on rabbit-01" &&
    page page Avoids | grep "^compute-\[03-08\]: down, drained or unknown to Flux" &&
    flux dws check "$DW" | grep -x "Fits now: *yes: 1 node on rabbit-01" &&
    as_guest flux dws check -N2 "$DW" >guests &&
    diff page guests &&
    flux dws check --json "$DW" | grep "\"accepted\": true"
'
test_expect_success 'check says that a job with more nodes than Flux has never runs' '
    test_expect_code 1 flux dws check -N3 "$DW" >three &&
    head -n 1 three | grep -x "Never: *the job asks for 3 nodes, and 2 are below Rabbits" &&
    test_expect_code 1 flux dws check -N3 "#DW persistentdw name=keep" >three &&
    head -n 1 three | grep -x "Never: *the job asks for 3 nodes, and Flux has 2"
'
test_expect_success 'check reads a batch script as flux batch does' '
    printf "%s\n" "#!/bin/sh" "#flux: -N2" "#flux: -S dw=\"\"\"" \
        "#flux: $DW" "#flux: \"\"\"" true >script.sh &&
    flux dws check script.sh >out &&
    diff page out &&
    flux dws check -N4 script.sh | grep "^Nodes: *4 of" &&
    flux dws check - <script.sh >out &&
    diff page out &&
    printf "%s\n" "#!/bin/sh" "#flux: -N2" "#flux: -S dw=\"$WRONG\"" >wrong.sh &&
    test_expect_code 1 flux dws check wrong.sh >out &&
    grep -x "  *^~~~~" out &&
    printf "%s\n" "#!/bin/sh" "#flux: -N2" "$DW" >unread.sh &&
    fails "unread.sh: line 3: Flux does not read #DW lines" \
        flux dws check unread.sh &&
    printf "%s\n" "#!/bin/sh" "#flux: --dw=\"$DW\"" >few.sh &&
    test_expect_code 1 flux dws check few.sh >out &&
    grep "Number of slots" out &&
    fails "absent: no such script" flux dws check absent &&
    fails "$TRASH: Is a directory" flux dws check "$TRASH" &&
    echo "$DW" >directives &&
    test_expect_code 1 flux dws check directives >out &&
    grep "^refused: directives is no script: it does not begin with .#!." out
'
test_expect_success 'a Rabbit is taken out of service and put back' '
    reason_is () {
        test "$(flux dws rabbits -n -o "{disabled.reason}" rabbit-02)" = "$1"
    } &&
    flux dws disable rabbit-02 --reason="slow ssd" &&
    eventually reason_is "slow ssd" &&
    test "$(flux dws rabbits -n -o "{disabled.by}" rabbit-02)" = "$(id -un)" &&
    fails "only the instance owner may enable" as_guest flux dws enable rabbit-02 &&
    flux dws enable rabbit-02 &&
    eventually reason_is ""
'
test_expect_success 'bash completes subcommands, job IDs and Rabbits' '
    cat >complete.sh <<-"END" &&
	. "$1"; shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_flux_with_dws flux "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	printf "%s\n" "${COMPREPLY[@]}"
	END
    completes () {
        bash complete.sh "$PREFIX/etc/flux/completions/flux-dws" flux "$@"
    } &&
    test "$(completes dws sh)" = show &&
    plain_id=$(flux job id --to=f58plain $id) &&
    completes dws show f | grep -x "$plain_id" &&
    dec=$(flux job id --to=dec $id) &&
    completes dws wait $(echo $dec | cut -c1-3) | grep -x $dec &&
    test "$(completes dws disable rabbit-)" = "rabbit-01
rabbit-02" &&
    completes dws list --format = lo | grep -x long
'
test_expect_success 'wait writes a line for each change, and ends with the storage' '
    follow $id &&
    eventually grep PreRun changes &&
    rm "$TRASH/gates/PreRun" &&
    wait $waiting &&
    test_must_be_empty problems &&
    tail -n 1 changes | grep "storage is gone" &&
    wait_event $id clean
'
test_expect_success 'a job that ended is shown from its KVS' '
    flux dws show $id >page &&
    page page State | grep "^ended at .* COMPLETED" &&
    grep "^  Teardown " page &&
    flux dws list >out && test $(wc -l <out) -eq 1 &&
    test "$(flux dws list -a -n -o "{state} {result}")" = "ended COMPLETED" &&
    flux dws show --follow $id | grep "storage is gone"
'
test_expect_success 'a job that ended is shown without the module, too' '
    flux module remove dws &&
    test_expect_code 1 flux dws metrics >metrics &&
    grep -x "flux_dws_up 0" metrics &&
    flux dws show $id | grep "^State: *ended" &&
    flux dws list -f ended -n | grep " ended " &&
    test "$(flux dws usage -n -o "{njobs} {nfailed}")" = "1 0" &&
    module_load
'
test_expect_success 'a job without directives has no page' '
    plain=$(flux submit true) &&
    wait_event $plain clean &&
    fails "job .* has no #DW directives" flux dws show $plain
'
test_expect_success 'free says what it does, and does it' '
    gate_shut PreRun &&
    stuck=$(flux submit --setattr=system.dw="$DW
#DW copy_out source=\$DW_JOB_p1/out destination=/lustre/out" true) &&
    kube wait $(workflow $stuck) PreRun &&
    flux dws free $stuck >page &&
    grep "the job is cancelled before it has run" page &&
    flux dws free --yes $stuck >page &&
    wait_event $stuck exception &&
    rm "$TRASH/gates/PreRun" &&
    wait_event $stuck clean &&
    flux dws wait $stuck &&
    fails "job .* has ended" flux dws free $stuck
'
test_expect_success 'free of a job that runs says that its data is copied out, and it is' '
    mkdir -p scratch/lustre/freed &&
    runs=$(flux submit --setattr=system.dw="$DW
#DW copy_out source=\$DW_JOB_p1/out destination=/lustre/freed/" \
        sh -c "echo data >\$DW_JOB_p1/out; touch written; exec sleep inf") &&
    eventually test -e written &&
    flux dws free --yes $runs >page &&
    grep "copied out and deleted as after any job" page &&
    ! grep Lost page &&
    flux dws wait $runs >page &&
    grep "data was copied out" page &&
    grep data scratch/lustre/freed/out
'
test_expect_success 'check says when a job that has the room ends' '
    filler=$(flux submit -N1 --requires=host:compute-01 -t 10m \
        -S dw="#DW jobdw type=xfs capacity=700GiB name=p2" sleep 600) &&
    wait_event $filler start &&
    another="#DW jobdw type=xfs capacity=400GiB name=p3" &&
    two_wait () {
        flux dws check -N2 "$another" >page && page page "Fits by" | grep "(in "
    } &&
    eventually two_wait &&
    page page "Waits for" | grep "the time limit of .$(digits $filler)" &&
    job_cancel $filler &&
    wait_event $filler clean
'
test_expect_success 'a module that is loaded later shows the nodes of a job that runs' '
    running=$(flux submit -N1 --requires=host:compute-02 -S dw="$DW" sleep 600) &&
    wait_event $running start &&
    flux module reload dws scheduler=none &&
    is_listed () {
        test "$(flux dws list -n -o "{state} {nnodes} {nodelist}")" = \
            "PreRun 1 compute-02"
    } &&
    eventually is_listed &&
    flux dws show $running >page &&
    page page Nodes | grep -x "1: compute-02" &&
    job_cancel $running &&
    wait_event $running clean
'
test_expect_success 'a memo of a thousand levels keeps nobody from the list of jobs' '
    gate_shut PreRun &&
    deep=$(job_submit true) &&
    kube wait $(workflow $deep) PreRun &&
    rpc job-manager.memo "$(python_stdin "
import sys
levels = 1500
print(\"{\\\"id\\\": %s, \\\"memo\\\": {\\\"x\\\": %s}}\"
      % (sys.argv[1], levels * \"[\" + levels * \"]\"))" $(flux job id --to=dec $deep))" &&
    flux dws check "$DW" &&
    rm gates/PreRun &&
    job_succeeds $deep &&
    for command in "list -a" "show $deep" usage report timeline; do
        flux dws $command >out || return 1
    done
'
test_expect_success 'metrics are written for node exporter, by the owner only' '
    an_end_is_counted () {
        flux dws metrics >metrics &&
        grep -x "flux_dws_jobs_ended_total [1-9][0-9]*" metrics
    } &&
    eventually an_end_is_counted &&
    grep -x "flux_dws_up 1" metrics &&
    grep "^flux_dws_state_duration_seconds_bucket{state=\"Setup\",le=\"+Inf\"}" metrics &&
    grep -x "flux_dws_rabbit_capacity_bytes{rabbit=\"rabbit-01\"} 1099511627776" metrics &&
    flux dws metrics --output flux-dws.prom &&
    grep "^# TYPE" metrics >expected &&
    grep "^# TYPE" flux-dws.prom | diff expected - &&
    fails "only the instance owner may see metrics" as_guest flux dws metrics
'
test_expect_success 'flux module stats dws has them as well' '
    flux module stats dws >stats &&
    grep "\"requests\": {" stats &&
    grep "\"oldest\": " stats &&
    grep "\"retrying\": 0" stats
'
test_expect_success 'the picture has both jobs' '
    flux dws timeline -o jobs.svg &&
    grep "$(digits $id) Setup: " jobs.svg &&
    grep "$(digits $stuck) Proposal: " jobs.svg
'
test_done
