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

# usage: refuses_submission TEXT COMMAND...: in one line
refuses_submission () {
    refuses_submission_text=$1
    shift
    test_must_fail "$@" 2>"$TRASH/err" &&
    cat "$TRASH/err" &&
    grep -e "$refuses_submission_text" "$TRASH/err" &&
    test "$(wc -l <"$TRASH/err")" -eq 1
}

# usage: with_dw VALUE [OPTION...]: submit a job that has these directives; its ID
with_dw () {
    with_dw_value=$1
    shift
    flux submit --setattr=system.dw="$with_dw_value" "$@" true
}

# usage: refuses_directive DW TEXT...: the job has one fatal exception, whose
# note has the texts, and never runs
refuses_directive () {
    refuses_id=$(with_dw "$1") &&
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
# More of them have no job manager of a real Flux in test_jobtap and test_submission.
test_expect_success 'attributes of a wrong type or size are refused at submission' '
    refuses_submission "attributes.system.dw is 7, expected a string" with_dw 7 &&
    refuses_submission "attributes.system.dw is \[ *\"#DW\", *null *\], expected" \
        with_dw "[\"#DW\",null]" &&
    refuses_submission "attributes.system.dw has an empty string" with_dw "[\"$DW\",\"\"]" &&
    refuses_submission "attributes.system.dw has 70004 bytes, at most 65536 are accepted$" \
        with_dw "#DW $(printf %070000d 0)" &&
    refuses_submission "attributes.system.dw_failure_tolerance is -1," \
        with_dw "$DW" --setattr=system.dw_failure_tolerance=-1 &&
    flux submit --dry-run --setattr=system.dw="$DW" true | python_stdin "
import json, sys
spec = json.load(sys.stdin)
spec[\"resources\"][0][\"with\"][0][\"label\"] = \"x\" * 100000
json.dump(spec, sys.stdout)" >large.json &&
    refuses_submission "resources of a job with #DW directives has more than 65536 bytes" \
        flux job submit large.json
'
test_expect_success 'without a directive a job runs without storage' '
    empty="$(with_dw "\"\"") $(with_dw "[]")" &&
    for id in $empty; do
        wait_event $id clean &&
        ! has_event $id prolog-start &&
        flux job status $id || return 1
    done
'
test_expect_success 'of a directive that is refused an exception and the log name what is wrong' '
    refuses_directive "#DW jobwd type=xfs capacity=1GiB name=p1" \
        "#DW jobwd type=xfs capacity=1GiB name=p1: unknown command '\''jobwd'\''" \
        "did you mean jobdw?" &&
    refuses_directive scratch "scratch: unknown preset" &&
    refusal_is_logged () {
        flux dmesg | grep "$(flux job id --to=f58plain $refuses_id): refused: "
    } &&
    eventually refusal_is_logged
'
test_expect_success 'a directive with quotes, newlines and Unicode: an exception names it' '
    refuses_directive "$DW
        #DW jobdw type=\"ƒ\\\" name=é	x" "type=" "is not one of"
'
test_expect_success 'nothing was created in Kubernetes for refused directives' '
    ! has_memo $refuses_id rabbit_workflow &&
    test "$(kube version)" = "$version"
'
test_expect_success 'an error that only DWS finds: an exception has its words' '
    refuses_directive "#DW persistentdw name=nothing" "nothing" &&
    refuses_directive "$DW
        #DW copy_in source=/nowhere/x destination=\$DW_JOB_p1/" /nowhere/x &&
    no_workflows
'
test_expect_success 'a copy_in whose source does not exist fails in DataIn' '
    id=$(with_dw "$DW
        #DW copy_in source=/lustre/missing destination=\$DW_JOB_p1/") &&
    wait_event $id clean &&
    ! has_event $id start &&
    job_exception $id dws "DWS failed in DataIn"
'
test_expect_success 'what a site accepts at submission is its own to say' '
    large="$DW$(printf %9000s "")" &&
    refuses_submission "dw has 90.* bytes, at most 8192 are accepted (rabbit.directives_limit)" \
        with_dw "$large" &&
    echo "directives_limit = 65536" >>conf/rabbit.toml &&
    flux config reload &&
    id=$(with_dw "$large") &&
    job_succeeds $id
'
test_done
