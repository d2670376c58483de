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
instance_start 1

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

# What else there is to a dependency is tried in test_jobtap_dataout.

test_expect_success 'a job waits until the module says that the data is out' '
    target &&
    other=$(after $id) &&
    depends $other &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    runs $other $id &&
    ends $id
'
test_expect_success 'jobs fail when the data is lost after the end of its job, with the reason' '
    moving_target &&
    other=$(after $id) &&
    depends $other &&
    record $id "{\"success\": false, \"errstr\": \"copy_out: %s%n disk full\"}" &&
    by_hand data-out $id "\"errstr\": \"copy_out: %s%n disk full\"" &&
    later=$(after $id) &&
    for job in $other $later; do
        fails $job $id "the data is not out: copy_out: %s%n disk full" || return 1
    done
'
test_expect_success 'a dependency on what is no job with storage is refused' '
    refused "this user has no such job, or it was purged" dws-out:1234 &&
    plain=$(flux submit true) &&
    wait_event $plain clean &&
    refused "the job has no #DW storage" dws-out:$plain
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
    depends $other &&
    by_hand data-out $id "\"errstr\": \"gone\"" &&
    fails $other $id "the data is not out: gone"
'
test_expect_success 'nobody waits for the data of somebody else' '
    target &&
    test_must_fail guest_submit --dependency=dws-out:$id 2>err &&
    grep "this user has no such job, or it was purged" err &&
    record $id "{\"success\": true}" &&
    ends $id &&
    test_must_fail guest_submit --dependency=dws-out:$id 2>err &&
    grep "this user has no such job, or it was purged" err
'
test_expect_success 'a job that waits for the data of a purged job is refused' '
    flux job purge -f $id &&
    refused "this user has no such job, or it was purged" dws-out:$id
'

# ---- the plugin or the job manager goes away --------------------------------

test_expect_success 'what the plugin was not told because it was away it finds out' '
    moving_target &&
    other=$(after $id) &&
    depends $other &&
    moved=$id &&
    target &&
    lost=$(after $id) &&
    depends $lost &&
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
    depends $other &&
    by_hand data-out $gone &&
    wait_event $both dependency-remove &&
    record $gone "{\"success\": false}" &&
    flux module reload job-manager &&
    flux module reload sched-simple &&
    flux module reload job-exec &&
    depends $other &&
    record $id "{\"success\": true}" &&
    by_hand data-out $id &&
    runs $other $id
'
test_expect_success 'nor can a job say so after a restart' '
    other=$(after $forged) &&
    depends $other &&
    by_hand data-out $forged "\"errstr\": \"gone\"" &&
    fails $other $forged "the data is not out: gone"
'
test_expect_success 'a dependency that was over before the restart stays so' '
    runs $both $gone &&
    runs $both $id &&
    test "$(events $both | tr " " "\n" | grep -c "dependency-")" -eq 4
'
test_done
