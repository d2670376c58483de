# tap.sh: what t/*.t source
# shellcheck shell=sh source-path=SCRIPTDIR disable=SC2013,SC2016,SC2034
#
# A test file is a shell script:
#
#     #!/bin/sh
#     test_description='...'
#     . "$(dirname "$0")/tap.sh"
#     cluster_start
#     instance_start 4
#     test_expect_success 'a sentence' 'command && command'
#     test_done
#
# It runs in a folder of its own, $TRASH, with a Kubernetes and a DWS of its own
# (rabbitsim, on loopback) and in a Flux instance of its own: instance_start
# runs the file a second time as the instance's initial program. FLUX_DWS_PREFIX
# says where flux-dws is installed, by default in .venv of the checkout; FLUX_DWS_SOAK
# has it try more.

TESTDIR=$(cd "$(dirname "$0")" && pwd)
TOP=$(cd "$TESTDIR/.." && pwd)
NAME=$(basename "$0")
PREFIX=${FLUX_DWS_PREFIX:-$TOP/.venv}
PYTHON=$PREFIX/bin/python
JOBTAP=$PREFIX/lib/flux/job-manager/plugins/dws-jobtap.so
DW='#DW jobdw type=xfs capacity=10GiB name=p1'
SOAK=$FLUX_DWS_SOAK
PATIENCE=60
test -z "$SOAK" || PATIENCE=180
SCHEDULER=${FLUX_DWS_SCHEDULER:-sched-fluxion-resource}
export LC_ALL=C.UTF-8 TZ=UTC0
# Without the plugin that an installed flux-dws has in Flux's confdir. A test that wants
# it names the folder of PREFIX.
export FLUX_CLI_PLUGINPATH_OVERRIDE=
APART=
test_count=0
test_failed=0

die () {
    echo "# $NAME: $*"
    test -z "$FLUX_DWS_INSIDE" || instance_kill
    exit 1
}

. "$TESTDIR/flux.sh"

# usage: python ARG...: as $PYTHON
python () {
    if test -n "$FLUX_DWS_FORK"; then
        "$FLUX_DWS_FORK/client" "$FLUX_DWS_FORK/standin" "$@"
    else
        "$PYTHON" "$@"
    fi
}

# usage: ask NAME ARG...: run t/NAME.py, which needs only the standard library
ask () {
    if test -n "$FLUX_DWS_FORK"; then
        "$FLUX_DWS_FORK/client" "$FLUX_DWS_FORK/flux" -m "$@"
    else
        ask_name=$1
        shift
        "$PYTHON" -I -S "$TESTDIR/$ask_name.py" "$@"
    fi
}

# usage: standin NAME ARG...: run a program of the stand-in, -m MODULE or a file, instead
# of this shell; the ID of the process is in NAME.pid
standin () {
    standin_pid=$TRASH/$1.pid
    shift
    if test -n "$FLUX_DWS_FORK"; then
        exec "$FLUX_DWS_FORK/client" "$FLUX_DWS_FORK/standin" -p "$standin_pid" "$@"
    else
        exec sh -c 'echo $$ >"$0"; exec "$@"' "$standin_pid" "$PYTHON" "$@"
    fi
}

# usage: skip_all REASON: nothing of this file is run
skip_all () {
    echo "1..0 # SKIP $1"
    exit 0
}

# ---- what is around the instance: Kubernetes and DWS ------------------------

# The folder of the test. When that ends it goes, with what cluster_start started.
trash_make () {
    TRASH=$(mktemp -d "${TMPDIR:-/tmp}/$NAME.XXXXXX") || die "mktemp failed"
    export TRASH
    trap cluster_stop EXIT
    trap 'exit 1' INT TERM HUP PIPE
}

# usage: cluster_start [OPTION...]: start the stand-in Kubernetes and DWS, which
# gets the options, with compute-01 to compute-08 on two Rabbits. They are one process,
# or two in a test that sets APART=yes, to stop one of them.
cluster_start () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    trash_make
    CLUSTER=$TRASH/kubeconfig
    export CLUSTER
    cat >"$TRASH/mapping.json" <<-'END'
	{"computes": {"compute-01": "rabbit-01", "compute-02": "rabbit-01",
	  "compute-03": "rabbit-02", "compute-04": "rabbit-02",
	  "compute-05": "rabbit-01", "compute-06": "rabbit-01",
	  "compute-07": "rabbit-02", "compute-08": "rabbit-02"},
	 "rabbits": {
	  "rabbit-01": {"capacity": 1099511627776,
	                "hostlist": "compute-[01-02,05-06]"},
	  "rabbit-02": {"capacity": 1099511627776,
	                "hostlist": "compute-[03-04,07-08]"}}}
	END
    mkdir "$TRASH/gates"
    set -- "$TESTDIR/gates.py" --kubeconfig "$CLUSTER" --mapping "$TRASH/mapping.json" \
        --scratch "$TRASH/scratch" --gates "$TRASH/gates" "$@"
    if test -n "$APART"; then
        standin kube -m rabbitsim kube --kubeconfig "$CLUSTER" >"$TRASH/kube.log" 2>&1 &
        wait_for_line "$TRASH/kube.log" "API at"
        KUBE_PID=$(cat "$TRASH/kube.pid")
        set -- "$@" --apart
    fi
    standin dws "$@" >"$TRASH/dws.log" 2>&1 &
    wait_for_line "$TRASH/dws.log" "driving Workflows"
    DWS_PID=$(cat "$TRASH/dws.pid")
    export KUBE_PID DWS_PID
}

cluster_stop () {
    # shellcheck disable=SC2086
    kill -CONT $KUBE_PID $DWS_PID 2>/dev/null
    # shellcheck disable=SC2086
    kill $KUBE_PID $DWS_PID 2>/dev/null
    wait
    rm -rf "$TRASH"
}

# While DWS is paused nothing gets on, not even from one state to the next.
dws_pause () {
    process_stop "$DWS_PID"
}

dws_resume () {
    test -z "$DWS_PID" || kill -CONT "$DWS_PID"
}

# usage: process_stop PID: when this returns it does nothing any more
process_stop () {
    kill -STOP "$1" &&
    eventually grep -q "^State:[[:space:]]*T" "/proc/$1/status"
}

# usage: gate_shut STATE [JOBID]: DWS does not let the job's Workflow, or any,
# get past this state
gate_shut () {
    touch "$TRASH/gates/${2:+$(workflow "$2").}$1"
}

# usage: gates_open JOBID
gates_open () {
    rm -f "$TRASH/gates/Proposal" "$TRASH/gates/$(workflow "$1")".*
}

# usage: kube COMMAND...: see kube.py
kube () {
    ask kube "$CLUSTER" "$PATIENCE" "$@"
}

# usage: workflow JOBID: the name of a job's Workflow
workflow () {
    echo "fluxjob-$(flux job id --to=dec "$1")"
}

# Within PATIENCE there is no Workflow.
no_workflows () {
    kube wait-none workflows
}

# usage: wait_for_line FILE TEXT: within 30 s
wait_for_line () {
    for _ in $(seq 600); do
        grep -q "$2" "$1" 2>/dev/null && return 0
        sleep 0.05
    done
    sed 's/^/# /' "$1"
    die "$1: no line with '$2'"
}

# ---- the instance -----------------------------------------------------------

# usage: instance_conf FILE.toml <TEXT: instead of what write_config would write
instance_conf () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    mkdir -p "$TRASH/conf"
    cat >"$TRASH/conf/$1"
}

# usage: default_conf FILE.toml <TEXT: unless the test has written the file
default_conf () {
    test -e "$TRASH/conf/$1" || cat >"$TRASH/conf/$1"
}

# usage: rabbit_conf [LINE...]: with these lines more in the [rabbit] table
rabbit_conf () {
    test -n "$FLUX_DWS_INSIDE" || rabbit_table "$@" | instance_conf rabbit.toml
}

# usage: rabbit_table [LINE...]: print it
rabbit_table () {
    printf '%s\n' "[rabbit]" "kubeconfig = \"$CLUSTER\"" \
        "mapping = \"$TRASH/mapping.json\"" "$@"
}

# usage: config_reload [LINE...]: with another [rabbit] table, of these lines more
config_reload () {
    rabbit_table "$@" >"$TRASH/conf/rabbit.toml" && flux config reload
}

# A broker that was started again is let in only with addresses and keys that stay.
# usage: brokers_return HOSTS
brokers_return () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    flux keygen "$TRASH/cert"
    instance_conf bootstrap.toml <<-END
	[bootstrap]
	curve_cert = "$TRASH/cert"
	default_bind = "ipc://$TRASH/tbon-%h"
	default_connect = "ipc://$TRASH/tbon-%h"
	hosts = [ { host = "$1" } ]
	END
}

write_config () {
    mkdir -p "$TRASH/conf"
    rabbit_table | default_conf rabbit.toml
    default_conf job-manager.toml <<-END
	[job-manager]
	plugins = [ { load = "$JOBTAP", conf = { epilog-timeout = 60.0 } } ]
	END
    # Flux's own validator of jobspecs is a Python process that is started again and
    # again. A test that wants it writes this file.
    default_conf ingest.toml <<-END
	[ingest.validator]
	disable = true
	END
    default_conf resource.toml <<-END
	[resource]
	noverify = true
	[[resource.config]]
	hosts = "$(instance_hosts "$1")"
	cores = "0-3"
	END
}

# Fluxion without a graph of Rabbits would give each Rabbit to one job at a time.
use_sched_simple () {
    default_conf modules.toml <<-END
	[modules]
	alternatives.sched = "sched-simple"
	END
}

# usage: instance_hosts N: what its brokers are called. A test whose cluster has other
# nodes defines this before instance_start.
instance_hosts () {
    echo "compute-[01-$(printf %02d "$1")]"
}

# usage: instance_start N [OPTION...]: run the rest of the test in a Flux instance of
# N brokers that are called as the compute nodes of the cluster are. "flux start" gets
# the options.
instance_start () {
    if test -n "$FLUX_DWS_INSIDE"; then
        BROKER_PID=$(flux getattr broker.pid)
        # A Flux that has flux-dws installed loads it at its start. Only a test that
        # says so wants that.
        test -n "$FLUX_MODPROBE_PATH" || flux module remove --force dws
        return 0
    fi
    instance_start_size=$1
    shift
    write_config "$instance_start_size"
    test -e "$TRASH/conf/fluxion.toml" || use_sched_simple
    export FLUX_DWS_INSIDE=1
    export FLUX_MODULE_PATH_PREPEND="$PREFIX/lib/flux/modules"
    export FLUX_EXEC_PATH_PREPEND="$PREFIX/libexec/flux/cmd"
    site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    export FLUX_PYTHONPATH_PREPEND="$site"
    shellpath=$(flux config builtin shell_pluginpath)
    # A test ends when no job is active, so that its instance has none to cancel. An
    # instance that a job starts has none either, where its script waits for them.
    export FLUX_DISABLE_JOB_CLEANUP=1
    flux start --test-size="$instance_start_size" \
        --test-hosts="$(instance_hosts "$instance_start_size")" \
        --config-path="$TRASH/conf" \
        -Sconf.shell_pluginpath="$shellpath:$PREFIX/lib/flux/shell/plugins" \
        -Sbroker.rc1_path="'$TESTDIR/rc.sh' rc1" -Sbroker.rc3_path="'$TESTDIR/rc.sh' rc3" \
        "$@" "'$TESTDIR/$NAME'" 2>>"$TRASH/stderr"
    status=$?
    test "$status" -eq 0 || tail -n 50 "$TRASH/stderr" | sed 's/^/# stderr: /'
    exit "$status"
}

# ---- an instance with Fluxion -----------------------------------------------

# Or nothing of this file is run. A file that sets FLUX_DWS_SCHEDULER=sched-rabbit runs
# the tests of another one with that instead of Fluxion.
need_fluxion () {
    test "$SCHEDULER" = sched-rabbit || has_fluxion ||
        skip_all "flux-sched is not installed"
}

has_fluxion () {
    test -e "$(flux config builtin exec_path)/flux-ion-resource.py"
}

# usage: fluxion_start N [OPTION...]: as instance_start, with Fluxion, which schedules
# by a graph from "flux dws2jgf" with these options. Each of the two Rabbits has eight
# ssd of 128 GiB in it.
fluxion_start () {
    test -n "$FLUX_DWS_INSIDE" || fluxion_conf "$@"
    instance_start "$1"
}

fluxion_conf () {
    write_config "$1"
    if test "$SCHEDULER" = sched-rabbit; then
        default_conf modules.toml <<-END
	[modules]
	alternatives.sched = "sched-rabbit"
	END
        return
    fi
    shift
    default_conf fluxion.toml <<-END
	[resource]
	scheduling = "$TRASH/scheduling.json"
	[sched-fluxion-resource]
	match-policy = "firstnodex"
	match-format = "rv1"
	prune-filters = "ALL:core,ALL:ssd"
	END
    python "$PREFIX/libexec/flux/cmd/flux-dws2jgf.py" --only-sched -c8 "$@" \
        --from-config "$TRASH/conf/resource.toml" \
        "$TRASH/mapping.json" >"$TRASH/scheduling.json" 2>"$TRASH/warnings" ||
        die "no graph: $(cat "$TRASH/warnings")"
}

# usage: scheduler_reload: have Fluxion, or sched-rabbit, loaded again
scheduler_reload () {
    case $SCHEDULER in
    sched-rabbit) flux module reload sched-rabbit chunks=8 ;;
    *)
        flux module remove sched-fluxion-qmanager &&
        flux module remove -f sched-fluxion-feasibility &&
        flux module reload sched-fluxion-resource &&
        flux module load sched-fluxion-qmanager &&
        flux module load sched-fluxion-feasibility
        ;;
    esac
}

# usage: ssds_down [LEAST [MOST]]: the ssd that Fluxion has out of service, each as
# CHASSIS/SSD; within 30 s so many
ssds_down () {
    flux python -c '
import sys, time
import flux
request = {"criteria": "status=down", "format": "jgf"}
topic = sys.argv[1] + ".find"
wanted = [int(word) for word in sys.argv[2:]]
least, most = wanted + [0, 10**9][len(wanted) :]
end = time.monotonic() + 30
while True:
    found = flux.Flux().rpc(topic, request).get()["R"]
    vertices = [v["metadata"] for v in found["graph"]["nodes"]] if found else []
    paths = [v["paths"]["containment"] for v in vertices if v["type"] == "ssd"]
    if least <= len(paths) <= most:
        break
    if time.monotonic() > end:
        sys.exit(f"expected {least} to {most} ssd, found {len(paths)}")
    time.sleep(0.1)
print(*sorted("/".join(path.split("/")[-2:]) for path in paths))' "$SCHEDULER" "$@"
}

# ---- the module --------------------------------------------------------------

# The module, and the process of its service, which it starts.
module_load () {
    flux module load dws scheduler=none "$@" &&
    eventually service_pid
}

# usage: module_start [ARG...]: it is loaded, and has heard of Kubernetes
module_start () {
    flux module load dws "$@" &&
    eventually stats_say '"kubernetes": "ok"'
}

# usage: stats_say TEXT
stats_say () {
    flux module stats dws | grep -F "$1"
}

# usage: package_copy NAME <TEXT: $TRASH/NAME/dws.py, which runs a copy of flux_k8s
# with the text added to its service.py
package_copy () {
    mkdir -p "$1" &&
    {
        echo "import sys; sys.path.insert(0, \"$TRASH/$1\")" &&
        sed "s/^from __future__.*//" "$PREFIX/lib/flux/modules/dws.py"
    } >"$1/dws.py" &&
    # With their times, so that Python need not compile them again.
    cp -rp "$(python -c "import flux_k8s; print(*flux_k8s.__path__)")" "$1/flux_k8s" &&
    cat >>"$1/flux_k8s/jobs/service.py"
}

# usage: set_constant FILE NAME VALUE: in a copy of the package, which has it
set_constant () {
    grep "^$2 = " "$1" && sed -i "s/^$2 = .*/$2 = $3/" "$1"
}

# usage: jobtap_load FILE [JSON]: with this object as its configuration
jobtap_load () {
    rpc job-manager.jobtap "{\"load\": \"$1\", \"conf\": ${2:-"{}"}}"
}

# usage: jobtap_remove NAME
jobtap_remove () {
    rpc job-manager.jobtap "{\"remove\": \"$1\"}"
}

# usage: plugin_load [SECONDS]: with this epilog-timeout
plugin_load () {
    jobtap_load "$JOBTAP" "{\"epilog-timeout\": ${1:-60}}"
}

plugin_remove () {
    jobtap_remove dws-jobtap.so
}

module_is_gone () {
    ! flux module list | grep -w dws
}

# The module dies, and nobody loads it again. A broker would panic.
module_kill () {
    flux setattr broker.module-nopanic 1 &&
    kill -KILL "$(module_pid)" &&
    eventually module_is_gone
}

# The service dies, and the module starts it again.
service_kill () {
    kill "-${1:-KILL}" "$(service_pid)"
}

service_is_ready () {
    stats_say "\"jobs\":"
}

# What the module is asked from now on is in $TRASH/asked.
module_trace () {
    command flux module trace dws >"$TRASH/asked" 2>&1 &
    eventually is_traced
}

is_traced () {
    rpc dws.ping
    grep dws.ping "$TRASH/asked"
}

# usage: log_says TEXT: the broker's log has it. What the module logs comes after the answer
# that a test waits for: eventually log_says.
log_says () {
    flux dmesg | grep -F -e "$1"
}

# usage: log_count TEXT NUMBER
log_count () {
    test "$(flux dmesg | grep -c -F -e "$1")" -eq "$2"
}

broker_lives () {
    flux getattr rank && flux module stats job-manager
}

# The process of the module, which is a child of the broker's.
module_pid () {
    child_of "$BROKER_PID" "/dws\.py"
}

# The process of the service, which is a child of the module's.
service_pid () {
    child_of "$(module_pid)" "flux_k8s/broker"
}

# usage: child_of PID TEXT: the child that has a word with this text in its command line.
# (pgrep would look at all processes of the machine.)
child_of () {
    child_of_found=1
    for child_of_pid in $(cat "/proc/$1/task"/*/children 2>/dev/null); do
        grep -aqs -e "$2" "/proc/$child_of_pid/cmdline" &&
        echo "$child_of_pid" && child_of_found=0
    done
    return "$child_of_found"
}

# ---- nodes ------------------------------------------------------------------

# usage: drained: the drained nodes, each as "HOST REASON", where rank 0 is compute-01
drained () {
    rpc resource.status | "$PYTHON" -I -S -c '
import json, sys
for ranks, drain in json.load(sys.stdin)["drain"].items():
    for word in ranks.split(","):
        first, _, last = word.partition("-")
        for rank in range(int(first), int(last or first) + 1):
            print(f"compute-{rank + 1:02}", drain["reason"])'
}

# usage: is_drained HOST [TEXT]: for a reason that matches the text
is_drained () {
    drained | grep "^$1 .*${2:-}"
}

# usage: only_drained [HOST...]: these nodes are drained, and no others
only_drained () {
    only_drained_lines=$(drained) &&
    test "$(echo "$only_drained_lines" | cut -d" " -f1 | xargs)" = "$*"
}

undrain_all () {
    undrain_all_lines=$(drained) &&
    for undrain_all_host in $(echo "$undrain_all_lines" | cut -d" " -f1); do
        rpc resource.undrain "{\"targets\": \"$undrain_all_host\"}" || return 1
    done
}

# usage: node_is STATUS HOST: in the SystemStatus of DWS
node_is () {
    test "$(kube node "$2")" = "$1"
}

# usage: broker kill|run|wait RANK: have "flux start --test-exit-mode=leader" do it
broker () {
    flux python -c '
import os, signal, sys
import flux
method, rank = sys.argv[1:]
payload = {"rank": int(rank), "signum": signal.SIGKILL}
flux.Flux(os.environ["FLUX_START_URI"]).rpc(f"start.{method}", payload).get()' "$@"
}

# usage: broker_dies RANK: as when its node is switched off, but for its link
broker_dies () {
    broker kill "$1" &&
    broker wait "$1"
}

# usage: are_offline [HOSTLIST]: these brokers and no others
are_offline () {
    test "$(flux resource status -s offline -no "{nodelist}")" = "$*"
}

# ---- jobs -------------------------------------------------------------------

# usage: job_submit [OPTION...] COMMAND...: a job with #DW directives; its ID
job_submit () {
    flux submit --setattr=system.dw="$DW" "$@"
}

# usage: job_cancel JOBID...: flux cancel sends the same request, and takes ten times as
# long to start
job_cancel () {
    flux job raise "$@"
}

# A command that runs until job_end; or to the end of the test, if the broker that it
# is under was killed.
LOOP='until test -e "$TRASH/$DW_WORKFLOW_NAME.end" || ! test -e "$TRASH"; do sleep 0.1; done'

# usage: job_end JOBID
job_end () {
    touch "$TRASH/$(workflow "$1").end"
}

# usage: wait_event JOBID EVENT [OPTION...]: within PATIENCE
wait_event () {
    wait_event_id=$1
    wait_event_name=$2
    shift 2
    flux job wait-event -t "$PATIENCE" "$@" "$wait_event_id" "$wait_event_name"
}

# usage: waits JOBID...: each, for nodes or storage
waits () {
    for waits_id; do
        wait_event "$waits_id" priority &&
        ! flux job wait-event -q -t 1 "$waits_id" alloc &&
        ! has_event "$waits_id" exception || return 1
    done
}

# usage: depends JOBID...: each waits for what it depends on, also after a later event
depends () {
    for depends_id; do
        wait_event "$depends_id" dependency-add &&
        flux job memo "$depends_id" asked=yes &&
        wait_event "$depends_id" memo &&
        ! has_event "$depends_id" dependency-remove &&
        ! has_event "$depends_id" exception || return 1
    done
}

# usage: saving_job GIB FOLDER [OPTION...]: a job of a moment, with so much storage for
# each node, of which a file "x" is copied out to the folder; its ID
saving_job () {
    saving_job_dw="#DW jobdw type=xfs capacity=${1}GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/$2"
    shift 2
    flux submit -S dw="$saving_job_dw" "$@" sh -c 'echo saved >$DW_JOB_p1/x'
}

# usage: are_late JOBID [HOST...]: these of its nodes, and no others, are still to mount or
# to unmount its storage
are_late () {
    are_late_workflow=$(workflow "$1")
    shift
    test "$(kube get clientmounts | python_stdin '
import json, sys
for item in json.load(sys.stdin)["items"]:
    ready = {"state": item["spec"]["desiredState"], "ready": True}
    mounts = item.get("status", {}).get("mounts", [None])
    if sys.argv[1] + "-" in item["metadata"]["name"] and mounts != [ready]:
        print(item["metadata"]["namespace"])' "$are_late_workflow" | sort | xargs)" = "$*"
}

# usage: nodes_of JOBID
nodes_of () {
    flux jobs -ano "{nodelist}" "$1"
}

# usage: ssds_of JOBID: those that it has, each as CHASSIS/SSD
ssds_of () {
    flux job info "$1" R | python_stdin '
import json, sys
vertices = json.load(sys.stdin)["scheduling"]["graph"]["nodes"]
paths = [v["metadata"]["paths"]["containment"] for v in vertices]
print(*sorted(path.split("/", 2)[2] for path in paths if "/ssd" in path))'
}

# usage: job_kvs JOBID KEY: what the KVS of the job has there
job_kvs () {
    flux kvs get "$(flux job id --to=kvs "$1").$2"
}

# The phases of a job's life, in order. In "sched" it waits for nodes, in
# "running" it has tasks, in the others it waits for DWS in one state.
PHASES="depend sched setup datain prerun running postrun dataout teardown"

# usage: state_of PHASE: the state that DWS is in then; none in sched and running
state_of () {
    case $1 in
    depend) echo Proposal ;;
    setup) echo Setup ;;
    datain) echo DataIn ;;
    prerun) echo PreRun ;;
    postrun) echo PostRun ;;
    dataout) echo DataOut ;;
    teardown) echo Teardown ;;
    esac
}

# usage: job_in PHASE: bring a new job to this phase and print its ID. It stays
# there until job_let_go.
job_in () {
    case $1 in
    depend)
        gate_shut Proposal &&
        job_in_id=$(job_submit sh -c "$LOOP")
        ;;
    *)
        job_in_id=$(job_submit --urgency=hold sh -c "$LOOP") &&
        job_send "$job_in_id" "$1"
        ;;
    esac &&
    job_arrives "$job_in_id" "$1" >&2 &&
    echo "$job_in_id"
}

# usage: job_send JOBID PHASE: let a job that was submitted with --urgency=hold
# go as far as this phase
job_send () {
    case $2 in
    sched) return 0 ;;
    running) ;;
    *) gate_shut "$(state_of "$2")" "$1" ;;
    esac &&
    case $2 in
    postrun | dataout | teardown) job_end "$1" ;;
    esac &&
    job_go "$1"
}

# usage: job_arrives JOBID PHASE: in "running" when its tasks are there. The event start
# comes before that, and a task that is killed as it starts is an exception more.
job_arrives () {
    case $2 in
    sched) wait_event "$1" depend ;;
    running) wait_event "$1" shell.start -p exec ;;
    *) kube wait "$(workflow "$1")" "$(state_of "$2")" ;;
    esac
}

# usage: job_go JOBID: let a job that was submitted with --urgency=hold run
job_go () {
    flux job urgency "$1" default
}

# usage: job_let_go JOBID PHASE: let a job from job_in PHASE go on to its end
job_let_go () {
    gates_open "$1" &&
    case $2 in
    sched) job_go "$1" ;;
    esac &&
    job_end "$1"
}

# usage: jobs_arrive PHASE...: the job of each phase does
jobs_arrive () {
    jobs_arrive_states=
    for phase; do
        case $phase in
        sched | running) job_arrives "$(job_of "$phase")" "$phase" || return 1 ;;
        *)
            jobs_arrive_name=$(workflow "$(job_of "$phase")")
            jobs_arrive_states="$jobs_arrive_states $jobs_arrive_name=$(state_of "$phase")"
            ;;
        esac
    done
    # shellcheck disable=SC2086
    kube wait-each $jobs_arrive_states
}

# Make a job for each phase, and set $depend, $sched, ...
jobs_in_all_phases () {
    # shellcheck disable=SC2046,SC2086
    set -- $(job_submit --cc=1-8 --urgency=hold sh -c "$LOOP") &&
    for phase in ${PHASES#depend }; do
        eval "$phase=$1" &&
        job_send "$1" "$phase" &&
        shift || return 1
    done &&
    jobs_arrive ${PHASES#depend } &&
    depend=$(job_in depend)
}

# usage: job_of PHASE
job_of () {
    eval "echo \$$1"
}

# Let the jobs in all phases go on to their end.
let_go () {
    for phase in $PHASES; do
        job_let_go "$(job_of "$phase")" "$phase" || return 1
    done
}

# usage: expect_each_to_succeed WHAT [test_expect_in_soak]
expect_each_to_succeed () {
    for phase in $PHASES; do
        "${2:-test_expect_success}" "$1 a job in $phase goes on as if nothing had been" '
            job_succeeds $(job_of $phase)
        '
    done
    "${2:-test_expect_success}" "$1 their Workflows are gone" no_workflows
}

# usage: events JOBID: the names of the job's events, on one line; those of an
# action with its description
events () {
    flux job eventlog "$1" | event_names
}

event_names () {
    sed -n \
        -e 's/^[0-9.]* \([^ ]*\) description="\([^"]*\)".*/\1:\2/p' -e t \
        -e 's/^[0-9.]* \([^ ]*\).*/\1/p' | tr '\n' ' '
}

# usage: event_context JOBID EVENT: the contexts of these events, one JSON
# object on a line
event_context () {
    flux job eventlog --format=json "$1" | ask eventlog context "$2"
}

# usage: memos JOBID [KEY]: the memos in force, or the value of one of them
memos () {
    flux job eventlog --format=json "$1" | ask eventlog memos ${2:+"$2"}
}

# usage: has_memo JOBID KEY [TEXT]: the memo is there, and has the text
has_memo () {
    memos "$1" "$2" | grep -q "${3:-.}"
}

# usage: has_event JOBID EVENT
has_event () {
    case " $(events "$1") " in
    *" $2 "* | *" $2:"*) ;;
    *) return 1 ;;
    esac
}

# usage: in_order "TEXT" WORD...: the words come in this order in the text
in_order () {
    in_order_rest=" $1 "
    shift
    for word; do
        case $in_order_rest in
        *" $word "*) in_order_rest=" ${in_order_rest#*" $word "}" ;;
        *) echo "missing, or out of order: $word in:$in_order_rest" && return 1 ;;
        esac
    done
}

# usage: job_exception JOBID TYPE [TEXT]: the job has one fatal exception, of
# this type, and its note has the text
job_exception () {
    flux job eventlog --format=json "$1" | ask eventlog exception "$2" "${3:-}"
}

# usage: job_succeeds JOBID: it ends, without an exception or anything missing
# in its life, with exit status 0
job_succeeds () {
    wait_event "$1" clean >/dev/null &&
    job_succeeds_log=$(flux job eventlog "$1") &&
    echo "$job_succeeds_log" | grep " finish status=0$" &&
    job_succeeds_events=$(echo "$job_succeeds_log" | event_names) &&
    in_order "$job_succeeds_events" \
        dependency-add:dws-create dependency-remove:dws-create depend alloc \
        prolog-start:dws-setup dws_environment prolog-finish:dws-setup \
        start finish epilog-start:dws-epilog epilog-finish:dws-epilog \
        free clean &&
    test "$(echo "$job_succeeds_events" | tr ' ' '\n' \
        | grep -c -e :dws- -e exception)" -eq 6
}

# usage: as_guest COMMAND...: as a user who is not the instance owner
as_guest () {
    FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=$(($(id -u) + 1)) "$@"
}

# A user whom the user database knows. An instance that has access.allow-guest-user takes
# the jobs of guests, and with exec.testexec.allow-guests it runs them.
GUEST=1

# usage: guest COMMAND...: as that user
guest () {
    FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=$GUEST "$@"
}

# usage: guest_submit [OPTION...]: a job of the guest, signed by nobody; its ID
guest_submit () {
    flux submit --dry-run --setattr=system.exec.test.run_duration=0.1s "$@" true |
        FLUX_HANDLE_USERID=$GUEST flux python -c '
import base64, sys
import flux
header = f"version\0i1\0userid\0i{sys.argv[1]}\0mechanism\0snone\0".encode()
parts = [base64.b64encode(part).decode() for part in (header, sys.stdin.buffer.read())]
payload = {"J": ".".join([*parts, "none"]), "urgency": 16, "flags": 0}
try:
    print(flux.Flux().rpc("job-ingest.submit", payload).get()["id"])
except OSError as error:
    sys.exit("submit: " + error.strerror)' $GUEST
}

# usage: rpc TOPIC [JSON [SECONDS]]: the answer, or an error as NAME: text
rpc () {
    ask rpc "$@"
}

# usage: queue_idle SECONDS: within this time no job is active
queue_idle () {
    rpc job-manager.drain "{}" "$1"
}

# ---- tests ------------------------------------------------------------------

# usage: test_expect_success 'what is true' 'command && command'
#
# The commands run in this shell, in $TRASH. What they print is shown if they
# fail. A chain of && with a gap is refused: what fails there would not be seen.
test_expect_success () {
    test_count=$((test_count + 1))
    test_run "(exit 117) && $2" >/dev/null 2>&1
    test $? -eq 117 || die "$1: && is missing somewhere"
    if test_run "$2" >"$TRASH/output" 2>&1; then
        echo "ok $test_count - $1"
    else
        test_failed=$((test_failed + 1))
        echo "not ok $test_count - $1"
        printf '%s\n' "$2" | sed 's/^/#   /'
        sed 's/^/# /' "$TRASH/output"
        # What follows often fails too, and may take longer than a file has.
        test "$test_failed" -gt 1 || test_diagnose
    fi
}

# usage: test_expect_in_soak 'what is true' 'command && command'
#
# A test that takes long, of a rule that has one without a Flux in t/python, and often
# another one here. "make soak-phases" runs it.
test_expect_in_soak () {
    if test -n "$SOAK"; then
        test_expect_success "$@"
    else
        test_count=$((test_count + 1))
        echo "ok $test_count - $1 # SKIP only in soak"
    fi
}

# A function, so that the commands can return from a loop.
test_run () {
    cd "$TRASH" && eval "$1
"
}

# The last test of each file, then the plan. A test that makes an error of its own
# says "it broke".
test_done () {
    dws_resume
    test_expect_success 'nothing is left: no active job, no Workflow' '
        queue_idle $PATIENCE &&
        no_workflows
    '
    test_expect_success 'no traceback and no internal error was shown' '
        flux dmesg >dmesg &&
        ! grep -E "Traceback|internal error" dmesg stderr |
            grep -v "RuntimeError: it broke" | head -n 20 | grep .
    '
    test "$test_failed" -eq 0 || queue_idle 1 || {
        echo "1..$test_count"
        instance_kill
    }
    echo "1..$test_count"
    test "$test_failed" -eq 0
    exit $?
}

# What to know about the first test that failed.
test_diagnose () {
    flux dmesg | grep -v "\.debug\[" | tail -n 50 | sed 's/^/# dmesg: /'
    test -z "$DWS_PID" || tail -n 20 "$TRASH/dws.log" | sed 's/^/# dws: /'
    PATIENCE=5 kube summary | sed "s/^/# kubernetes: /"
    timeout 5 flux module stats dws | sed "s/^/# stats: /"
    for test_diagnose_id in $(flux jobs -no "{id.f58plain}"); do
        flux job eventlog "$test_diagnose_id" \
            | cut -c1-200 | sed "s/^/# $test_diagnose_id: /"
        # How far its shells are: shell.init comes after our shell plugin.
        timeout 5 flux job eventlog -p exec "$test_diagnose_id" 2>/dev/null \
            | cut -c1-200 | sed "s/^/# $test_diagnose_id: exec: /"
    done
    # The shells of all instances on this machine, with what they wait for.
    # shellcheck disable=SC2009
    ps -eo pid,ppid,stat,wchan:20,etimes,args --forest |
        grep -A 2 "[f]lux-shell " | cut -c1-160 | sed "s/^/# shells: /"
    timeout 5 flux exec flux module stats kvs-watch | sed "s/^/# kvs-watch: /"
}

# An instance that ends would wait for ever for a job that hangs.
instance_kill () {
    kill -KILL "$BROKER_PID"
}

# usage: terminal COMMAND...: run it in a terminal; what that shows
terminal () {
    "$PYTHON" -c "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)" "$@"
}

# usage: python_stdin SCRIPT [ARG...]
python_stdin () {
    python -c "$@"
}

test_must_be_empty () {
    test ! -s "$1" || ! cat "$1"
}

# usage: test_must_fail COMMAND...: it fails, and not by a signal
test_must_fail () {
    "$@"
    test_must_fail_status=$?
    test $test_must_fail_status -ne 0 && test $test_must_fail_status -lt 126
}

# usage: test_expect_code STATUS COMMAND...
test_expect_code () {
    test_expect_code_wanted=$1
    shift
    "$@"
    test $? -eq "$test_expect_code_wanted"
}

# usage: command_fails NAME TEXT COMMAND...: flux NAME writes one line, an error that
# begins with this text
command_fails () {
    command_fails_line="flux-$1: ERROR: $2"
    shift 2
    test_expect_code 1 "$@" >out 2>err &&
    grep -F "$command_fails_line" err &&
    test "$(wc -l <err)" -eq 1 &&
    test_must_be_empty out
}

# usage: eventually COMMAND...: within 30 s
eventually () {
    for _ in $(seq 150); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    "$@"
}
