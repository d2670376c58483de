#!/bin/sh
test_description='What a job gets whose directives are wrong'
. "$(dirname "$0")/tap.sh"

cluster_start
rabbit_conf 'tc_timeout = 0.5'
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

# usage: refuses_directive DW TEXT: the job has one fatal exception, whose note has the
# text, and never runs
refuses_directive () {
    id=$(with_dw "$1") &&
    wait_event "$id" clean &&
    ! has_event "$id" alloc &&
    job_exception "$id" dws "$2"
}

test_expect_success 'load the module' '
    module_start scheduler=none &&
    version=$(kube version)
'
# All of them have no job manager of a real Flux in test_jobtap and test_submission.
test_expect_success 'attributes of a wrong type or size are refused at submission' '
    refuses_submission "attributes.system.dw is 7, expected a string" with_dw 7 &&
    refuses_submission "attributes.system.dw has 70004 bytes, at most 65536 are accepted$" \
        with_dw "#DW $(printf %070000d 0)" &&
    flux submit --dry-run --setattr=system.dw="$DW" true | python_stdin "
import json, sys
spec = json.load(sys.stdin)
spec[\"resources\"][0][\"with\"][0][\"label\"] = \"x\" * 100000
json.dump(spec, sys.stdout)" >large.json &&
    refuses_submission "resources of a job with #DW directives has more than 65536 bytes" \
        flux job submit large.json
'
test_expect_success 'without a directive a job runs without storage' '
    for id in $(with_dw "\"\"") $(with_dw "[]"); do
        wait_event $id clean &&
        ! has_event $id prolog-start &&
        flux job status $id || return 1
    done
'
test_expect_success 'a directive with quotes, newlines and Unicode: an exception names it' '
    refuses_directive "$DW
        #DW jobdw type=\"ƒ\\\" name=é	x" "is not one of"
'
test_expect_success 'of a preset that is unknown so does the log, and nothing was created in Kubernetes' '
    refuses_directive scratch "scratch: unknown preset" &&
    eventually log_says "$(flux job id --to=f58plain $id): refused: " &&
    ! has_memo $id rabbit_workflow &&
    test "$(kube version)" = "$version"
'
test_expect_success 'an error that only DWS finds: an exception has its words' '
    refuses_directive "#DW persistentdw name=nothing" "nothing" &&
    no_workflows
'
test_expect_success 'what a site accepts at submission is its own to say' '
    large="$DW$(printf %9000s "")" &&
    refuses_submission "dw has 90.* bytes, at most 8192 are accepted (rabbit.directives_limit)" \
        with_dw "$large" &&
    config_reload "directives_limit = 65536" &&
    id=$(with_dw "$large") &&
    job_succeeds $id
'
test_done
