#!/bin/sh
test_description='What a job gets whose directives are wrong'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
tc_timeout = 0.5
END
instance_conf ingest.toml </dev/null
instance_start 1

# usage: refuses_attribute VALUE: submission fails, naming attribute and value
refuses_attribute () {
    test_must_fail flux submit --setattr=system.dw="$1" true 2>"$TRASH/err" &&
    cat "$TRASH/err" &&
    tr -d " " <"$TRASH/err" \
        | grep -F -e "attributes.system.dwis$1,expectedastring" &&
    test "$(wc -l <"$TRASH/err")" -eq 1
}

# usage: refuses_directive DW TEXT...: the job has one fatal exception, whose
# note has the texts, and never runs
refuses_directive () {
    refuses_id=$(flux submit --setattr=system.dw="$1" true) &&
    wait_event "$refuses_id" clean &&
    ! has_event "$refuses_id" alloc || return 1
    shift
    for refuses_text; do
        job_exception "$refuses_id" dws "$refuses_text" || return 1
    done
}

test_expect_success 'load the module' '
    module_load &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    version=$(kube version)
'
for value in 7 1.5 true '{}' '[1]' '["#DW",null]' '[[]]'; do
    test_expect_success "dw=$value is refused at submission" "
        refuses_attribute '$value'
    "
done
test_expect_success 'a list with an empty string is refused at submission' '
    test_must_fail flux submit --setattr=system.dw="[\"$DW\",\"\"]" true 2>err &&
    grep "attributes.system.dw has an empty string" err
'
for value in '""' '[]' '" "'; do
    test_expect_success "dw=$value is no directive: the job runs without storage" "
        empty=\$(flux submit --setattr=system.dw='$value' true) &&
        wait_event \$empty clean &&
        ! has_event \$empty prolog-start &&
        flux job status \$empty
    "
done
test_expect_success 'more directives than a job may have are refused at submission' '
    test_must_fail flux submit --setattr=system.dw="$(yes "#DW a" | head -n 65)" true \
        2>err &&
    grep "attributes.system.dw has more than 64 directives for one job" err
'
test_expect_success 'directives of more bytes than allowed are refused at submission' '
    test_must_fail flux submit --setattr=system.dw="#DW $(printf %070000d 0)" true \
        2>err &&
    grep "attributes.system.dw has 70004 bytes, at most 65536 are accepted$" err
'
# usage: spec_with KEY: a jobspec with 100 kB there
spec_with () {
    flux submit --dry-run --setattr=system.dw="$DW" true >spec.json &&
    python -c '
import json, sys
spec = json.load(sys.stdin)
if sys.argv[1] == "resources":
    spec["resources"][0]["with"][0]["label"] = "x" * 100000
else:
    spec["attributes"]["system"]["constraints"] = {"hostlist": ["compute-01"] * 8000}
json.dump(spec, sys.stdout)' "$1" <spec.json
}

for part in resources attributes.system.constraints; do
    test_expect_success "more bytes of $part than allowed are refused at submission" "
        spec_with $part >large.json &&
        test_must_fail flux job submit large.json 2>err &&
        cat err &&
        grep '$part of a job with #DW directives has more than 65536 bytes' err
    "
done
for value in -1 1.5 '"x"' true; do
    test_expect_success "dw_failure_tolerance=$value is refused at submission" "
        test_must_fail flux submit --setattr=system.dw=\"$DW\" \
            --setattr=system.dw_failure_tolerance='$value' true 2>err &&
        grep -F 'attributes.system.dw_failure_tolerance is $value,' err
    "
done
test_expect_success 'a directive without the #DW prefix: an exception names it' '
    refuses_directive "jobdw type=xfs capacity=1GiB name=p1" \
        "jobdw type=xfs capacity=1GiB name=p1: missing '\''#DW'\'' prefix"
'
test_expect_success 'a directive without a command: an exception names it' '
    refuses_directive "#DW" "#DW: missing command, such as jobdw,"
'
test_expect_success 'an unknown command: an exception has the one that is meant' '
    refuses_directive "#DW jobwd type=xfs capacity=1GiB name=p1" \
        "#DW jobwd type=xfs capacity=1GiB name=p1: unknown command '\''jobwd'\''" \
        "did you mean jobdw?"
'
test_expect_success 'a missing argument: an exception names it' '
    refuses_directive "#DW jobdw type=xfs name=p1" \
        "#DW jobdw type=xfs name=p1: missing argument '\''capacity='\''"
'
test_expect_success 'a repeated argument: an exception names it' '
    refuses_directive "#DW jobdw type=xfs type=raw capacity=1GiB name=p1" \
        "#DW jobdw type=xfs type=raw" "argument '\''type='\'' is repeated"
'
test_expect_success 'an argument without a value: an exception names it' '
    refuses_directive "#DW jobdw type=xfs capacity= name=p1" \
        "argument '\''capacity='\'' is not of the form key=value"
'
test_expect_success 'a text that is no capacity: an exception names it' '
    refuses_directive "#DW jobdw type=xfs capacity=lots name=p1" \
        "capacity=lots is not a size"
'
test_expect_success 'an unknown preset: an exception names it' '
    refuses_directive scratch "scratch: unknown preset"
'
test_expect_success 'the log names refused directives, with the job' '
    refusal_is_logged () {
        flux dmesg | grep "$(flux job id --to=f58plain $refuses_id): refused: "
    } &&
    eventually refusal_is_logged
'
test_expect_success 'the second of two directives: it is the one that is named' '
    refuses_directive "$DW
        #DW copy_in source=/lustre/x" \
        "#DW copy_in source=/lustre/x: missing argument '\''destination='\''"
'
test_expect_success 'two directives of one name: an exception names it' '
    refuses_directive "$DW $DW" "name=p1 is used by another directive"
'
test_expect_success 'a directive with quotes, newlines and Unicode: an exception names it' '
    refuses_directive "#DW jobdw type=\"ƒ\\\" name=é	x" "type=" "is not one of"
'
test_expect_success 'nothing was created in Kubernetes for refused directives' '
    ! has_memo $refuses_id rabbit_workflow &&
    test "$(kube version)" = "$version"
'
test_expect_success 'an error that only DWS finds: an exception has its words' '
    refuses_directive "#DW jobdw type=foo capacity=1GiB name=p1" \
        "type=foo is not one of raw, xfs, gfs2, lustre"
'
test_expect_success 'persistent storage that does not exist: an exception names it' '
    refuses_directive "#DW persistentdw name=nothing" "nothing"
'
test_expect_success 'a file system that DWS does not know: an exception names it' '
    refuses_directive "$DW
        #DW copy_in source=/nowhere/x destination=\$DW_JOB_p1/" /nowhere/x
'
test_expect_success 'a profile that does not exist: an exception names it' '
    refuses_directive "$DW profile=nothing" nothing
'
test_expect_success 'no Workflow of a refused job is left' no_workflows
test_expect_success 'a copy_in whose source does not exist fails in DataIn' '
    id=$(flux submit --setattr=system.dw="$DW
        #DW copy_in source=/lustre/missing destination=\$DW_JOB_p1/" true) &&
    wait_event $id clean &&
    ! has_event $id start &&
    job_exception $id dws "DWS failed in DataIn"
'
test_expect_success 'more storage than there is: an exception says so' '
    id=$(flux submit --setattr=system.dw="#DW jobdw type=xfs capacity=99TiB name=p1" \
        true) &&
    wait_event $id clean &&
    ! has_event $id start &&
    job_exception $id dws \
        "has 1024 GiB left, and an allocation needs 101376 GiB"
'
test_expect_success 'good jobs run after refused ones' '
    id=$(job_submit true) &&
    job_succeeds $id
'
test_expect_success 'what a site accepts at submission is its own to say, up to that' '
    large="$DW$(printf %9000s "")" &&
    test_must_fail flux submit --setattr=system.dw="$large" true 2>err &&
    grep "dw has 90.* bytes, at most 8192 are accepted (rabbit.directives_limit)" err &&
    echo "directives_limit = 65536" >>conf/rabbit.toml &&
    flux config reload &&
    id=$(flux submit --setattr=system.dw="$large" true) &&
    sed -i s/65536/65537/ conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep "rabbit.directives_limit: is 65537, expected an integer from 1 to" err &&
    sed -i /directives_limit/d conf/rabbit.toml &&
    flux config reload &&
    job_end $id && job_succeeds $id
'
test_done
