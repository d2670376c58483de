#!/bin/sh
test_description='The stand-in Flux posts the events that a real Flux does'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

# What the eventlog on stdin has: events, those of actions with their description, then
# exceptions without the ID of the job, then statuses. A memo may come at any time between
# two others, and job-exec releases the nodes beside the epilog.
digest () {
    python_stdin '
import json, re, sys
events = [(e["name"], e.get("context") or {}) for e in map(json.loads, sys.stdin)]
for name, context in events:
    if name not in ("memo", "annotations", "release"):
        print(name, context.get("description", ""))
for name, context in events:
    if name == "exception":
        note = re.sub("flux dws show f\\w*", "flux dws show JOBID", context["note"])
        print(context["type"], context["severity"], note)
for name, context in events:
    if "status" in context:
        print(name, context["status"])'
}

# usage: compare SCRIPT [OPTION...]: it ends with the same events, exceptions and status on
# both; what the real one has is left in real. Its flux batch gets the options.
compare () {
    compare_script=$1
    shift
    rm -f real sim &&
    python -m rabbitsim run --flux=sim --kube=sim --nodes 4 --rabbits 2 \
        --eventlog sim.json "$compare_script" >sim.out 2>&1
    cat sim.out &&
    id=$(flux batch --output=real.out "$@" "$compare_script") &&
    wait_event "$id" clean &&
    flux job eventlog --format=json "$id" >real.json &&
    digest <real.json >real &&
    digest <sim.json >sim &&
    diff real sim
}

# An instance that starts no job needs no modules.
BARE="--broker-opts=-Sbroker.rc1_path= --broker-opts=-Sbroker.rc3_path="

# usage: script DW COMMAND...: make a batch script, script.sh
script () {
    {
        echo "#!/bin/sh"
        echo "#FLUX: -N1 -n1"
        test -z "$1" || echo "#FLUX: -S dw=\"\"\"
#FLUX: $1
#FLUX: \"\"\""
        shift
        echo "$*"
    } >script.sh
}

test_expect_success 'load the module' '
    module_load &&
    cp -r "$TOP/t/data/lustre/." scratch/lustre/
'
test_expect_success 'a job that copies data in and out' '
    compare "$TOP/t/data/copy-in-out.sh" &&
    grep "^dws_environment" real
'
test_expect_success 'the stand-in gives the variables of the same names' '
    variables () {
        python_stdin "
import json, sys
for event in map(json.loads, sys.stdin):
    if event[\"name\"] == \"dws_environment\":
        print(*event[\"context\"][\"variables\"], sep=\"\\n\")"
    } &&
    variables <real.json >real.variables &&
    variables <sim.json >sim.variables &&
    grep DW_JOB_poem real.variables &&
    diff real.variables sim.variables
'
test_expect_success 'a job that fails' '
    script "$DW" "exit 3" &&
    compare script.sh $BARE &&
    grep "finish 768" real
'
test_expect_success 'a directive that DWS refuses' '
    script "$DW profile=none" true &&
    compare script.sh &&
    grep "NnfStorageProfile: none" real
'
test_expect_success 'a copy_in without a source' '
    script "$DW
#FLUX: #DW copy_in source=/lustre/missing destination=\$DW_JOB_p1/" true &&
    compare script.sh &&
    grep "DataIn" real
'
test_done
