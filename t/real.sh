# real.sh: what t/t4*.t source besides tap.sh
# shellcheck shell=sh disable=SC2034
#
# usage: FLUX_DWS_REAL_KUBECONFIG=FILE [FLUX_DWS_REAL_MODULE_KUBECONFIG=FILE] ./t4000-*.t
#
# The kubeconfig is that of an administrator, for "flux rabbitmapping". The module is
# given the other one, where there is one: with the ServiceAccount of rbac.yaml in it
# the test says whether that may do all it must. No Flux may use the cluster: two would
# tear down the Workflows of each other's jobs.

# Real storage takes its time. It is less than the epilog-timeout below, after which a
# Rabbit would be disabled.
PATIENCE=300

scheduler=scheduler=none
has_fluxion && scheduler=

module_load () {
    flux module load dws $scheduler
}

# The processes of the fork server lack the packages that read such a kubeconfig.
unset FLUX_DWS_FORK

# ---- the cluster ------------------------------------------------------------

# What cluster_start is with a stand-in: its kubeconfig is $CLUSTER, and $NODES are
# up to eight of its compute nodes.
cluster_real () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    no_cluster="FLUX_DWS_REAL_KUBECONFIG names no cluster with DWS"
    test -n "$FLUX_DWS_REAL_KUBECONFIG" || skip_all "$no_cluster"
    CLUSTER=$(realpath "$FLUX_DWS_REAL_KUBECONFIG")
    export CLUSTER NODES
    trash_make
    directive_try "$DW" 2>"$TRASH/err" ||
        skip_all "$no_cluster: $(cat "$TRASH/err")"
    company=$(flux_workflows)
    test -z "$company" ||
        skip_all "another Flux uses the cluster, and would lose $company"
    eventually read_mapping || die "$(head -n 1 "$TRASH/err")"
    eventually enough_nodes ||
        skip_all "of the compute nodes with a Rabbit fewer than four are ready: $NODES"
}

# A DWS that was started a moment ago does not have its Storages yet.
read_mapping () {
    "$PYTHON" "$PREFIX/libexec/flux/cmd/flux-rabbitmapping.py" -k "$CLUSTER" \
        >"$TRASH/mapping.json" 2>"$TRASH/err"
}

instance_hosts () {
    echo "$NODES"
}

# usage: directive_try DIRECTIVE: DWS would take a Workflow with it
directive_try () {
    python_stdin '
import json, os, sys
print(json.dumps({
    "kind": "Workflow",
    "metadata": {"name": "flux-dws-test"},
    "spec": {"desiredState": "Proposal", "wlmID": "test", "jobID": "test",
             "userID": os.getuid(), "groupID": os.getgid(),
             "dwDirectives": sys.argv[1:]}}))' "$@" | kube may-create workflows
}

# The names of the Workflows that a module would take for those of its jobs.
flux_workflows () {
    kube get workflows | python_stdin '
import json, sys
for workflow in json.load(sys.stdin)["items"]:
    if workflow["spec"]["wlmID"] == "flux":
        print(workflow["metadata"]["name"], end=" ")'
}

# Set NODES: as many of one Rabbit as of another, where that is possible.
enough_nodes () {
    NODES=$(kube get storages | python_stdin '
import itertools, json, sys
mapping = json.load(open(sys.argv[1]))["computes"]
rabbits = [
    [node["name"] for node in storage["status"]["access"]["computes"]
     if node["status"] == "Ready" and node["name"] in mapping]
    for storage in json.load(sys.stdin)["items"]
    if storage["spec"]["state"] == "Enabled"
    and storage.get("status", {}).get("status") == "Ready"]
rows = itertools.zip_longest(*rabbits)
print(",".join(sorted([node for row in rows for node in row if node][:8])))
' "$TRASH/mapping.json") &&
    SIZE=$(echo "$NODES" | tr , '\n' | wc -l) &&
    test "$SIZE" -ge 4
}

# In place of that of tap.sh: there is nothing in the cluster of our jobs. What is of
# others is none of our business.
no_workflows () {
    no_workflows_names=$(flux jobs -ano "fluxjob-{id.dec}") &&
    for no_workflows_plural in \
        workflows directivebreakdowns servers computes clientmounts; do
        # shellcheck disable=SC2086
        kube wait-none $no_workflows_plural $no_workflows_names || return 1
    done
}

# A job that hangs has failed its test, and is not to hold up those of other tests.
expect_nothing_left () {
    flux cancel --all --quiet
    test_expect_success 'nothing is left of the Workflows' no_workflows
}

expect_nothing_forbidden () {
    test_expect_success 'the module may do all that it tried to do' '
        flux dmesg >log &&
        ! grep "is forbidden: User" log
    '
}

# usage: real_conf [LINE...]: what the module is to know of the cluster, with these
# lines more in the [rabbit] table
real_conf () {
    instance_conf job-manager.toml <<-END
	[[job-manager.plugins]]
	load = "$JOBTAP"
	conf = { epilog-timeout = 600.0 }
	END
    instance_conf rabbit.toml <<-END
	[rabbit]
	kubeconfig = "${FLUX_DWS_REAL_MODULE_KUBECONFIG:-$CLUSTER}"
	mapping = "$TRASH/mapping.json"
	$(printf '%s\n' "$@")
	END
    export SIZE
}
