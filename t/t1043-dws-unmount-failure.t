#!/bin/sh
test_description='One node that does not unmount is one bad node, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start --fault 'PostRun:mount:compute-02'
# A broker that was started again is let in only with addresses and keys that stay.
instance_conf bootstrap.toml <<END
[bootstrap]
curve_cert = "$TRASH/cert"
default_bind = "ipc://$TRASH/tbon-%h"
default_connect = "ipc://$TRASH/tbon-%h"
hosts = [ { host = "compute-[01-08]" } ]
END
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
postrun_timeout = 1
unmount_failure = "keep"
fence_command = [ "$TRASH/is-fenced", "--quiet" ]
END
cat >"$TRASH/is-fenced" <<END
#!/bin/sh
echo "\$@" >"$TRASH/asked"
cat "$TRASH/fenced"
END
chmod +x "$TRASH/is-fenced"
test -n "$FLUX_DWS_INSIDE" || {
    flux keygen "$TRASH/cert"
    fluxion_conf 8
}
instance_start 8 --test-exit-mode=leader

# usage: storage_job GIB [OPTION...]: submit a job of a moment on all nodes, with so much
# storage each, of which a file is copied
storage_job () {
    storage_job_size=$1
    shift
    flux submit -N8 -S dw="#DW jobdw type=xfs capacity=${storage_job_size}GiB name=p1
	#DW copy_out source=\$DW_JOB_p1/x destination=/lustre/" \
        "$@" sh -c 'echo saved >$DW_JOB_p1/x'
}

# usage: is_kept JOBID: the job has ended, and its storage waits for the bad node
is_kept () {
    wait_event "$1" clean &&
    kube wait "$(workflow "$1")" PostRun &&
    flux dws show "$1" | grep "compute-02 to unmount, or to be off"
}

# usage: data_out JOBID: the record of what became of its data
data_out () {
    flux kvs get "$(flux job id --to=kvs "$1").rabbit_data_out"
}

# usage: node_is STATUS HOST: in the SystemStatus of DWS
node_is () {
    test "$(kube node "$2")" = "$1"
}

# usage: is_offline HOST: this broker and no other
is_offline () {
    test "$(flux resource status -s offline -no "{nodelist}")" = "$1"
}

# As when a node is switched off, but for its link.
broker_dies () {
    flux python -c '
import os, signal
import flux
start = flux.Flux(os.environ["FLUX_START_URI"])
start.rpc("start.kill", {"rank": 1, "signum": signal.SIGKILL}).get()
start.rpc("start.wait", {"rank": 1}).get()'
}

test_expect_success 'load the module, with a scheduler that knows Rabbits' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'a node that the site has fenced keeps no storage' '
    echo compute-02 >fenced &&
    fenced=$(storage_job 100) &&
    wait_event $fenced clean &&
    no_workflows &&
    eventually data_out $fenced &&
    data_out $fenced | grep "compute-02 has not unmounted" &&
    test "$(cat asked)" = "--quiet compute-02" &&
    log_says "compute-02 cannot write any more, by rabbit.fence_command" &&
    is_drained compute-02 "could not be unmounted"
'
test_expect_success 'until somebody has it serve again' '
    rm fenced &&
    flux resource undrain compute-02 &&
    eventually log_says "compute-02 is not fenced any more" &&
    kube wait-node compute-02 Enabled
'
test_expect_success 'nor does one that somebody else has drained' '
    fenced=$(flux submit -N8 -S dw="$DW" sh -c "$LOOP") &&
    wait_event $fenced start &&
    flux resource drain compute-02 "bad DIMM" &&
    echo compute-02 >fenced &&
    job_end $fenced &&
    wait_event $fenced clean &&
    no_workflows &&
    is_drained compute-02 "bad DIMM; $(flux job id --to=f58plain $fenced): Rabbit storage" &&
    rm fenced &&
    flux resource undrain compute-02 &&
    kube wait-node compute-02 Enabled
'
test_expect_success 'a job ends although one of its nodes has not unmounted' '
    first=$(storage_job 100) &&
    is_kept $first &&
    flux job status $first &&
    log_says "rabbit.fence_command: it ended with status 1; no node is taken for" &&
    event_context $first exception >exceptions &&
    test $(wc -l <exceptions) -eq 1 &&
    grep "dws-node-failure.*compute-02: PostRun took more.*the storage is kept" exceptions
'
test_expect_success 'that node is drained by name, and no other, and not Disabled' '
    is_drained compute-02 "could not be unmounted" &&
    only_drained compute-02 &&
    node_is Enabled compute-02
'
test_expect_success 'the others return to service' '
    flux run -N7 true
'
test_expect_success 'its storage is kept, and other storage of its Rabbits is given out' '
    ssds_down 8 8 &&
    second=$(flux submit -N1 --requires=host:compute-01 \
        -S dw="#DW jobdw type=xfs capacity=100GiB name=p1" true) &&
    job_succeeds $second
'
test_expect_success 'the record of the job says what the storage is kept for' '
    flux job info $first rabbit_kept_for | grep "\"nodes\": \"compute-02\""
'
test_expect_success 'a module that was killed keeps it' '
    module_kill &&
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    is_kept $first &&
    node_is Enabled compute-02
'
test_expect_success 'a broker that is gone is not enough' '
    broker_dies &&
    eventually is_offline compute-02 &&
    is_kept $first &&
    node_is Enabled compute-02
'
test_expect_success 'once its link is Offline as well, the data of the others goes out' '
    kube link compute-02 Offline &&
    kube wait-node compute-02 Disabled &&
    no_workflows &&
    eventually data_out $first &&
    data_out $first | grep "compute-02 has not unmounted: what it had not written" &&
    log_says "its data is not out: compute-02 has not unmounted"
'
test_expect_success 'and its storage is given out again' '
    ssds_down 0 0
'
test_expect_success 'a wrong value is refused' '
    sed "s/\"keep\"/\"maybe\"/" -i conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep "unmount_failure: is .maybe., expected .teardown. or .keep." err
'
test_done
