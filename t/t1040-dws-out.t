#!/bin/sh
test_description='--dependency=dws-out:JOBID: a job waits for the data of another one'
. "$(dirname "$0")/tap.sh"

# Nobody moves data here. What the module would send for a job is sent by hand.
cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
END
instance_conf job-manager.toml <<END
[job-manager]
inactive-age-limit = "30m"
plugins = [ { load = "$JOBTAP", conf = { epilog-timeout = 60.0 } } ]
END
instance_start 2

GUEST=1

# usage: by_hand METHOD JOBID [MEMBERS]
by_hand () {
    rpc "job-manager.dws.$1" "{\"id\": $(flux job id --to=dec "$2")${3:+, $3}}"
}

# usage: admit JOBID: the job goes on to be scheduled, with the resources that it has
admit () {
    admit_resources=$(flux job info "$1" jobspec | python_stdin "
import json, sys
print(json.dumps(json.load(sys.stdin)[\"resources\"]))") &&
    by_hand resource-update "$1" "\"resources\": $admit_resources, \"exclude\": null"
}

# usage: target [COMMAND...]: set $id to a #DW job that is in its epilog
target () {
    id=$(job_submit "${@:-true}") &&
    wait_event "$id" memo &&
    admit "$id" &&
    wait_event "$id" prolog-start &&
    by_hand prolog-remove "$id" "\"variables\": {}" &&
    wait_event "$id" epilog-start
}

# usage: record JOBID JSON [KEY]
record () {
    flux kvs put "$(flux job id --to=kvs "$1").${3:-rabbit_data_out}=$2"
}

# usage: ends JOBID [MEMBERS]: the epilog does, and the job with it
ends () {
    by_hand epilog-remove "$@" &&
    wait_event "$1" clean
}

# The data of a target goes out after its epilog.
moving_target () {
    target &&
    record "$id" 7.000 rabbit_nodes_released &&
    ends "$id" "\"data\": \"moving\""
}

# usage: after JOBID [OPTION...]: submit a job that waits for the data; its ID
after () {
    after_id=$1
    shift
    flux submit --dependency=dws-out:"$after_id" "$@" true
}

description () {
    echo "dws-out=$(flux job id --to=f58plain "$1")"
}

# usage: waits JOBID TARGET: it does, and a moment later still does
waits () {
    wait_event "$1" dependency-add &&
    has_event "$1" dependency-add:"$(description "$2")" &&
    sleep 0.3 &&
    ! has_event "$1" dependency-remove &&
    ! has_event "$1" exception
}

# usage: runs JOBID TARGET: it waited, and does not any more
runs () {
    wait_event "$1" clean &&
    in_order "$(events "$1")" dependency-add:"$(description "$2")" \
        dependency-remove:"$(description "$2")" depend start finish
}

# usage: fails JOBID TARGET TEXT
fails () {
    wait_event "$1" clean &&
    fails_note="dws-out: $(flux job id --to=f58 "$2"): $3" &&
    job_exception "$1" dependency "$fails_note" &&
    ! has_event "$1" start &&
    ! has_event "$1" dependency-remove
}

# usage: refused TEXT DEPENDENCY [OPTION...]
refused () {
    refused_text=$1
    shift
    test_must_fail flux submit --dependency="$@" true 2>err &&
    grep -F "$refused_text" err
}

plugin_reload () {
    plugin_remove &&
    plugin_load
}

# usage: guest_submit JOBID: a job of the guest that waits for the data; its ID
guest_submit () {
    flux submit --dry-run --dependency=dws-out:"$1" true >spec.json &&
    FLUX_HANDLE_USERID=$GUEST flux python -c '
import base64, sys
import flux
header = f"version\0i1\0userid\0i{sys.argv[1]}\0mechanism\0snone\0".encode()
spec = open("spec.json", "rb").read()
parts = [base64.b64encode(part).decode() for part in (header, spec)]
payload = {"J": ".".join([*parts, "none"]), "urgency": 16, "flags": 0}
print(flux.Flux().rpc("job-ingest.submit", payload).get()["id"])' $GUEST
}

# ---- the target is active ---------------------------------------------------

test_expect_success 'a job waits until the module says that the data is out' '
    target &&
    other=$(after $id) &&
    waits $other $id &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    runs $other $id &&
    ends $id
'
test_expect_success 'the eventlog of a job whose data is out in time has no dws_released' '
    ! has_event $id dws_released
'
test_expect_success 'a job whose target waits for its storage waits, and fails if that never runs' '
    id=$(job_submit true) &&
    other=$(after $id) &&
    waits $other $id &&
    job_cancel $id &&
    fails $other $id "the job ended without a record of its data"
'
test_expect_success 'a job that waits when its target ends finds the record, if nobody tells' '
    target &&
    good=$(after $id) &&
    waits $good $id &&
    record $id "{\"success\": true}" &&
    ends $id &&
    runs $good $id
'
test_expect_success 'the data of a job that has not ended may be out' '
    target &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    other=$(after $id) &&
    runs $other $id &&
    ends $id
'

# ---- the data goes out later ------------------------------------------------

test_expect_success 'an epilog that ends before the data is out leaves dws_released' '
    moving_target &&
    in_order "$(events $id)" epilog-start:dws-epilog dws_released \
        epilog-finish:dws-epilog free clean &&
    flux job eventlog $id | grep " dws_released$"
'
test_expect_success 'a job waits for data that goes out after its job' '
    other=$(after $id) &&
    waits $other $id
'
test_expect_success 'several jobs wait for the same data, and run when it is out' '
    more=$(after $id --cc=1-8) &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    runs $other $id &&
    for one in $more; do
        runs $one $id || return 1
    done
'
test_expect_success 'data-out may be sent again' '
    by_hand data-out $id &&
    by_hand data-out $id "\"errstr\": \"oops\"" &&
    rpc job-manager.dws.data-out "{\"id\": 42}"
'
test_expect_success 'a job that is submitted when the data is out runs' '
    for form in dec hex dothex f58 f58plain kvs words; do
        other=$(after "$(flux job id --to=$form $id)") &&
        runs $other $id || return 1
    done
'
test_expect_success 'a job fails when the data is lost, with the reason' '
    moving_target &&
    other=$(after $id) &&
    waits $other $id &&
    record $id "{\"success\": false, \"errstr\": \"copy_out: %s%n disk full\"}" &&
    by_hand data-out $id "\"errstr\": \"copy_out: %s%n disk full\"" &&
    fails $other $id "the data is not out: copy_out: %s%n disk full"
'
test_expect_success 'a job that is submitted when the data is lost fails' '
    other=$(after $id) &&
    fails $other $id "the data is not out: copy_out: %s%n disk full"
'
test_expect_success 'one that is cancelled while it waits ends, and nothing is left of it' '
    moving_target &&
    other=$(after $id) &&
    waits $other $id &&
    job_cancel $other &&
    wait_event $other clean &&
    by_hand data-out $id &&
    ! has_event $other dependency-remove
'
test_expect_success 'a job with storage waits for the data of another one' '
    moving_target &&
    other=$(job_submit --dependency=dws-out:$id true) &&
    waits $other $id &&
    admit $other &&
    wait_event $other dependency-remove &&
    by_hand data-out $id &&
    wait_event $other prolog-start &&
    by_hand prolog-remove $other "\"variables\": {}" &&
    wait_event $other epilog-start &&
    by_hand epilog-remove $other &&
    job_succeeds_otherwise=$(events $other) &&
    wait_event $other clean
'
test_expect_success 'a job waits for two others, whichever is out first' '
    moving_target &&
    first=$id &&
    moving_target &&
    other=$(after $first --dependency=dws-out:$id \
        --dependency=dws-out:$(flux job id --to=dec $id)) &&
    waits $other $first &&
    test "$(events $other | tr " " "\n" | grep -c "dependency-add:dws-out=")" -eq 2 &&
    by_hand data-out $id &&
    wait_event $other dependency-remove &&
    ! has_event $other depend &&
    record $first "{\"success\": true}" &&
    by_hand data-out $first &&
    runs $other $first &&
    runs $other $id
'

# ---- there is no such data --------------------------------------------------

test_expect_success 'a dependency on what is no job ID is refused' '
    refused "dws-out: '"'bar'"': not a job ID" dws-out:bar &&
    refused "not a job ID" dws-out:18446744073709551615 &&
    refused "not a job ID" dws-out:99999999999999999999999 &&
    refused "not a job ID" dws-out:-1 &&
    refused "not a job ID" dws-out:1.2.3 &&
    refused "" dws-out: &&
    refused "" dws-out
'
test_expect_success 'more than 64 of these dependencies of one job are refused' '
    set -- dws-out:1 &&
    for n in $(seq 2 65); do
        set -- "$@" --dependency=dws-out:$n
    done &&
    refused "dws-out: a job may wait for the data of at most 64 others" "$@"
'
test_expect_success 'a job that waits for the data of an unknown job is refused' '
    refused "this user has no such job, or it was purged" dws-out:1234
'
test_expect_success 'a job that waits for a job without storage is refused' '
    id=$(flux submit --urgency=hold true) &&
    refused "the job has no #DW storage" dws-out:$id &&
    job_cancel $id &&
    wait_event $id clean &&
    refused "the job has no #DW storage" dws-out:$id
'
test_expect_success 'a job that waits for a job that left no record fails' '
    target &&
    ends $id &&
    other=$(after $id) &&
    fails $other $id "the job ended without a record of its data"
'
test_expect_success 'a job cannot say itself that its data is out' '
    cat >forge <<-"END" &&
	flux kvs put rabbit_data_out="{\"success\": true}" rabbit_nodes_released=7.000
	END
    target sh ./forge &&
    forged=$id &&
    entry="
{\"timestamp\": 1.0, \"name\": \"dws_released\"}
" &&
    flux job memo $id dws_released="$entry" name=dws_released &&
    flux job raise --severity=7 --type=dws_released $id "$entry" &&
    ends $id &&
    flux kvs get "$(flux job id --to=kvs $id).guest.rabbit_data_out" &&
    other=$(after $id) &&
    fails $other $id "the job ended without a record of its data"
'
test_expect_success 'a record that cannot be read fails who waits for it' '
    moving_target &&
    record $id nonsense &&
    other=$(after $id) &&
    fails $other $id "the data is not out: its record cannot be read"
'
test_expect_success 'nobody waits for the data of somebody else' '
    target &&
    test_must_fail guest_submit $id 2>err &&
    grep "this user has no such job, or it was purged" err &&
    record $id "{\"success\": true}" &&
    ends $id &&
    test_must_fail guest_submit $id 2>err &&
    grep "this user has no such job, or it was purged" err
'
test_expect_success 'a job that waits for the data of a purged job is refused' '
    flux job purge -f $id &&
    refused "this user has no such job, or it was purged" dws-out:$id
'

# ---- the plugin or the job manager goes away --------------------------------

test_expect_success 'who waits still does so after a reload of the plugin' '
    moving_target &&
    other=$(after $id) &&
    waits $other $id &&
    plugin_reload &&
    waits $other $id &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    runs $other $id
'
test_expect_success 'what the plugin was not told because it was away it finds out' '
    moving_target &&
    other=$(after $id) &&
    waits $other $id &&
    moved=$id &&
    target &&
    lost=$(after $id) &&
    waits $lost $id &&
    plugin_remove &&
    record $moved "{\"success\": true}" &&
    record $id "{\"success\": false, \"errstr\": \"gone\"}" &&
    plugin_load &&
    runs $other $moved &&
    fails $lost $id "the data is not out: gone" &&
    ends $id
'
test_expect_success 'who waits still does so after a restart of the job manager' '
    moving_target &&
    gone=$id &&
    moving_target &&
    other=$(after $id) &&
    both=$(after $gone --dependency=dws-out:$id) &&
    waits $other $id &&
    by_hand data-out $gone &&
    wait_event $both dependency-remove &&
    record $gone "{\"success\": false}" &&
    flux module reload job-manager &&
    flux module reload sched-simple &&
    flux module reload job-exec &&
    sleep 0.5 &&
    ! has_event $other dependency-remove &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    runs $other $id
'
test_expect_success 'nor can a job after a restart' '
    other=$(after $forged) &&
    fails $other $forged "the job ended without a record of its data"
'
test_expect_success 'a dependency that was over before the restart stays so' '
    runs $both $gone &&
    runs $both $id &&
    test "$(events $both | tr " " "\n" | grep -c "dependency-")" -eq 4
'
test_expect_success 'what job-info cannot say now it says later' '
    flux module remove job-info &&
    other=$(after $id) &&
    sleep 0.3 &&
    flux module load job-info &&
    runs $other $id
'

# ---- who may say so ---------------------------------------------------------

test_expect_success 'a guest who calls job-manager.dws.data-out gets EPERM' '
    test_must_fail as_guest rpc job-manager.dws.data-out "{\"id\": 42}" 2>err &&
    grep EPERM err
'
test_expect_success 'job-manager.dws.data-out with a malformed payload gets EPROTO' '
    test_must_fail rpc job-manager.dws.data-out 2>err &&
    grep EPROTO err &&
    test_must_fail rpc job-manager.dws.data-out "{\"id\": 1, \"errstr\": 2}" 2>err &&
    grep EPROTO err
'
test_expect_success 'job-manager.dws.epilog-remove knows only data that is moving' '
    test_must_fail rpc job-manager.dws.epilog-remove \
        "{\"id\": 42, \"data\": \"out\"}" 2>err &&
    grep EPROTO err
'
test_done
