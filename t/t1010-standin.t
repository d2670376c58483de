#!/bin/sh
test_description='The stand-in Flux posts the events that a real Flux does'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

# The names of the events in a JSON array of RFC 18 events, those of actions
# with their description. A memo may come at any time between two others, and job-exec
# releases the nodes beside the epilog.
event_names () {
    python_stdin '
import json, sys
for event in map(json.loads, sys.stdin):
    context = event.get("context") or {}
    if event["name"] not in ("memo", "annotations", "release"):
        print(event["name"], context.get("description", ""))'
}

# usage: compare SCRIPT: it ends with the same events, exceptions and status on
# both; what was posted by the real one is left in real.json
compare () {
    rm -f real.* sim.* &&
    "$PYTHON" -m rabbitsim run --flux=sim --kube=sim --nodes 4 --rabbits 2 \
        --eventlog sim.json "$1" >sim.out 2>&1
    cat sim.out &&
    id=$(flux batch --output=real.out "$1") &&
    wait_event "$id" clean &&
    flux job eventlog --format=json "$id" >real.json &&
    event_names <real.json >real.names &&
    event_names <sim.json >sim.names &&
    diff real.names sim.names &&
    exceptions <real.json >real.exceptions &&
    exceptions <sim.json >sim.exceptions &&
    diff real.exceptions sim.exceptions &&
    statuses <real.json >real.statuses &&
    statuses <sim.json >sim.statuses &&
    diff real.statuses sim.statuses
}

# The exceptions, without the ID of the job.
exceptions () {
    python_stdin '
import json, sys
for event in map(json.loads, sys.stdin):
    if event["name"] == "exception":
        context = event["context"]
        print(context["type"], context["severity"], context["note"])' |
        sed "s/flux dws show f[^ ]*/flux dws show JOBID/"
}

statuses () {
    python_stdin '
import json, sys
for event in map(json.loads, sys.stdin):
    if "status" in (event.get("context") or {}):
        print(event["name"], event["context"]["status"])'
}

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
    cp -r $TOP/t/data/lustre/. scratch/lustre/
'
test_expect_success 'a job that copies data in and out' '
    compare $TOP/t/data/copy-in-out.sh &&
    grep "^dws_environment" real.names
'
test_expect_success 'the real one has the events that the manual shows, in order' '
    in_order "$(tr -d " " <real.names | tr "\n" " ")" \
        submit validate dependency-adddws-create jobspec-update \
        dependency-removedws-create depend priority alloc \
        prolog-startdws-setup dws_environment prolog-finishdws-setup \
        start finish epilog-startdws-epilog epilog-finishdws-epilog free clean
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
test_expect_success 'a job without #DW' '
    script "" "true" &&
    compare script.sh
'
test_expect_success 'a job that fails' '
    script "$DW" "exit 3" &&
    compare script.sh &&
    grep "finish 768" real.statuses
'
test_expect_success 'a directive that DWS refuses' '
    script "$DW profile=none" true &&
    compare script.sh &&
    grep "NnfStorageProfile: none" real.exceptions
'
test_expect_success 'a copy_in without a source' '
    script "$DW
#FLUX: #DW copy_in source=/lustre/missing destination=\$DW_JOB_p1/" true &&
    compare script.sh &&
    grep "DataIn" real.exceptions
'
test_done
