#!/bin/sh
test_description='Loading, configuring and asking the dws module'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf job-manager.toml <<END
[[job-manager.plugins]]
load = "$JOBTAP"
conf = { epilog-timeout = 60.0 }
END
instance_start 1

# usage: rabbit_table LINE...: a [rabbit] table that has these lines too
rabbit_table () {
    {
        echo "[rabbit]"
        printf '%s\n' "kubeconfig = \"$TRASH/kubeconfig\"" \
            "mapping = \"$TRASH/mapping.json\"" "$@"
    } >"$TRASH/conf/rabbit.toml" &&
    flux config reload
}

# usage: kubeconfig_is FILE
kubeconfig_is () {
    rabbit_table &&
    sed -i "s,^kubeconfig = .*,kubeconfig = \"$1\"," "$TRASH/conf/rabbit.toml" &&
    flux config reload
}

# usage: mapping_is FILE
mapping_is () {
    rabbit_table &&
    sed -i "s,^mapping = .*,mapping = \"$1\"," "$TRASH/conf/rabbit.toml" &&
    flux config reload
}

# usage: refuses TEXT [ARG...]: the module is not loaded, and one line of the
# log, which the broker shows as well, has the text
refuses () {
    refuses_text=$1
    shift
    flux dmesg -C &&
    : >"$TRASH/stderr" &&
    test_must_fail flux module load dws "$@" &&
    ! flux module list | grep -w dws &&
    flux dmesg | grep " dws\.err" >"$TRASH/lines"
    cat "$TRASH/lines" &&
    test "$(wc -l <"$TRASH/lines")" -eq 1 &&
    grep -F -e "$refuses_text" "$TRASH/lines" &&
    eventually grep -F -e "$refuses_text" "$TRASH/stderr" &&
    ! grep Traceback "$TRASH/stderr"
}

# usage: warns TEXT
warns () {
    flux dmesg | grep "dws.warning.*$1"
}

# usage: keeps LINE TEXT: a [rabbit] table with the line is refused with the text,
# also in the log, and the module goes on
keeps () {
    flux dmesg -C &&
    test_must_fail rabbit_table "$1" 2>err &&
    grep -F -e "$2" err &&
    flux dmesg | grep -F -e "$2" | grep "dws.err.*configuration kept" &&
    flux module stats dws
}

test_expect_success 'an unknown argument is refused' '
    refuses "foo=1: unknown module argument, known: scheduler=none, queues=NAME,..., watchdog=SECONDS" foo=1
'
test_expect_success 'a value that scheduler= cannot have is refused' '
    refuses "scheduler=sometimes: expected scheduler=none" scheduler=sometimes
'
test_expect_success 'a misspelt key is refused, with the one that is meant' '
    rabbit_table "setup_timout = 5" &&
    refuses "rabbit.setup_timout: unknown key, did you mean '\''setup_timeout'\''?"
'
test_expect_success 'a negative time is refused' '
    rabbit_table "setup_timeout = -5" &&
    refuses "rabbit.setup_timeout: is -5, expected a duration like \"30m\", or a number of seconds, 0 or more"
'
test_expect_success 'a value of the wrong type is refused' '
    rabbit_table "soft_drain = \"maybe\"" &&
    refuses "rabbit.soft_drain: is \"maybe\", expected true or false"
'
test_expect_success 'a preset that is no directive is refused' '
    rabbit_table "presets.scratch = \"#DW\"" &&
    refuses "rabbit.presets.scratch: #DW: missing command"
'
test_expect_success 'a [rabbit] that is no table is refused' '
    echo "rabbit = 1" >conf/rabbit.toml &&
    flux config reload &&
    refuses "rabbit: is 1, expected a table"
'
test_expect_success 'without a [rabbit] table the log says what it needs' '
    rm conf/rabbit.toml &&
    flux config reload &&
    refuses "rabbit: there is no such table in the configuration, expected one with" &&
    grep "mapping .*kubeconfig" lines
'
test_expect_success 'a [rabit] that is to be [rabbit] is named, with the rest in its place or not' '
    rabbit_table && sed -i "s/rabbit\]/rabit]/" conf/rabbit.toml &&
    flux config reload &&
    refuses "there is one named \"rabit\": did you mean that?" &&
    printf "[rabbit.policy]\n" >>conf/rabbit.toml &&
    flux config reload &&
    refuses "is not set in this table; there is one named \"rabit\": did you mean that?"
'
test_expect_success 'a table without a kubeconfig is refused where no other is' '
    printf "[rabbit]\nmapping = \"$TRASH/mapping.json\"\n" >conf/rabbit.toml &&
    flux config reload &&
    refuses "rabbit.kubeconfig: none is given, none is at "
'
test_expect_success 'a table without a mapping is refused' '
    printf "[rabbit]\nkubeconfig = \"$TRASH/kubeconfig\"\n" >conf/rabbit.toml &&
    flux config reload &&
    refuses "rabbit.mapping: is not set"
'
test_expect_success 'a kubeconfig that is missing is refused' '
    kubeconfig_is /nonexistent &&
    refuses "rabbit.kubeconfig: /nonexistent: No such file or directory"
'
test_expect_success 'a kubeconfig that is not YAML is refused' '
    printf "a: [\n" >bad &&
    kubeconfig_is $TRASH/bad &&
    refuses "rabbit.kubeconfig: $TRASH/bad: is not YAML"
'
test_expect_success 'a kubeconfig that is something else is refused' '
    echo "a: b" >bad &&
    kubeconfig_is $TRASH/bad &&
    refuses "rabbit.kubeconfig: $TRASH/bad: is not a kubeconfig"
'
test_expect_success 'the contents of a kubeconfig are never shown' '
    sed "s/current-context: .*/current-context: nowhere/" kubeconfig >bad &&
    kubeconfig_is $TRASH/bad &&
    refuses "rabbit.kubeconfig: $TRASH/bad" &&
    token=$(sed -n "s/^ *token: //p" kubeconfig) &&
    test -n "$token" &&
    ! grep -F -e "$token" lines stderr
'
# The end of the service may be seen together with its refusal.
test_expect_success 'a service that refuses to start is not started again' '
    timeout 30 flux python -c "
import sys, time
import flux
from flux_k8s.broker.channel import Channel
from flux_k8s.broker.supervisor import Supervisor
receive, lines = Channel.receive, []
def receive_late(self):
    time.sleep(1.0)
    receive(self)
Channel.receive = receive_late
Supervisor._log = lambda self, level, text, reason: lines.append(text)
supervisor = Supervisor(flux.Flux(), \"dws\", (), 120.0)
rabbit = {\"mapping\": sys.argv[1], \"kubeconfig\": sys.argv[2]}
try:
    supervisor.start({\"rabbit\": rabbit, \"queues\": None})
except OSError as error:
    print(error)
    assert not lines, lines
else:
    sys.exit(\"it was not refused\")
" $TRASH/mapping.json $TRASH/bad
'
test_expect_success 'a mapping that is missing is refused' '
    mapping_is /nonexistent &&
    refuses "rabbit.mapping: /nonexistent: No such file or directory"
'
test_expect_success 'a mapping that is not JSON is refused' '
    echo "computes:" >bad &&
    mapping_is $TRASH/bad &&
    refuses "rabbit.mapping: $TRASH/bad: is not JSON"
'
test_expect_success 'an empty mapping leaves no module, and the log says what to do' '
    : >bad &&
    mapping_is $TRASH/bad &&
    refuses "$TRASH/bad: is empty, expected what flux rabbitmapping writes; not loaded" &&
    log_says "not loaded: mend that, then flux module load dws"
'
test_expect_success 'a mapping that is something else is refused' '
    echo "{\"computes\": 3}" >bad &&
    mapping_is $TRASH/bad &&
    refuses "$TRASH/bad: computes is 3, expected an object"
'
test_expect_success 'a module with right arguments and a right table is loaded' '
    rabbit_table &&
    module_load
'
test_expect_success 'a loaded module is not loaded a second time' '
    test_must_fail module_load 2>err &&
    grep -i exists err
'
test_expect_success 'flux config reload with a misspelt key keeps the configuration' '
    keeps "tc_timout = 5" "rabbit.tc_timout: unknown key"
'
test_expect_success 'flux config reload with a negative time keeps the configuration' '
    keeps "prerun_timeout = -1" "rabbit.prerun_timeout: is -1, expected"
'
test_expect_success 'flux config reload with a wrong preset keeps the configuration' '
    keeps "presets.scratch = \"jobdw\"" "rabbit.presets.scratch"
'
test_expect_success 'flux config reload with missing or wrong files keeps the configuration' '
    test_must_fail mapping_is /nonexistent 2>err &&
    grep -F "rabbit.mapping: /nonexistent: No such file or directory" err &&
    echo "[]" >bad &&
    test_must_fail mapping_is $TRASH/bad 2>err &&
    grep -F "$TRASH/bad" err &&
    test_must_fail kubeconfig_is /nonexistent 2>err &&
    grep -F "rabbit.kubeconfig: /nonexistent: No such file or directory" err &&
    printf "[rabbit]\n" >conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep -F "rabbit.mapping: is not set" err &&
    flux module stats dws
'
test_expect_success 'flux config reload with a good table puts it in force' '
    flux dmesg -C &&
    rabbit_table "presets.scratch = \"$DW\"" &&
    ! flux dmesg | grep "dws.err" &&
    id=$(flux submit --setattr=system.dw=scratch true) &&
    job_succeeds $id
'
test_expect_success 'a bad table after a good one keeps the good one in force' '
    keeps "presets.other = 7" "rabbit.presets.other" &&
    id=$(flux submit --setattr=system.dw=scratch true) &&
    job_succeeds $id
'
test_expect_success 'flux config reload names the keys that wait for a reload of the module' '
    flux dmesg -C &&
    cp mapping.json other.json &&
    mapping_is $TRASH/other.json &&
    eventually warns "rabbit.mapping: as before until" &&
    flux dmesg -C &&
    rabbit_table &&
    ! flux dmesg | grep "dws.warning"
'
test_expect_success 'flux module stats dws counts jobs by the state of their Workflow' '
    rabbit_table &&
    id=$(job_in running) &&
    flux module stats dws >stats &&
    grep "\"jobs\": 1" stats &&
    grep "\"PreRun\": 1" stats &&
    job_end $id &&
    job_succeeds $id &&
    eventually stats_say "\"jobs\": 0"
'
test_expect_success 'flux module stats dws answers while Kubernetes hangs' '
    kill -STOP $KUBE_PID &&
    id=$(job_submit true) &&
    wait_event $id dependency-add &&
    eventually stats_say "\"jobs\": 1"
'
test_expect_success 'a job goes on when Kubernetes answers again' '
    kill -CONT $KUBE_PID &&
    job_succeeds $id
'
for method in create setup post_run teardown abort hello stats-get config-reload; do
    test_expect_success "a guest who calls dws.$method gets EPERM" '
        test_must_fail as_guest rpc dws.$method 2>err &&
        grep EPERM err
    '
done
for method in create setup post_run teardown abort; do
    test_expect_success "dws.$method with a malformed payload gets EPROTO" '
        test_must_fail rpc dws.$method 2>err &&
        grep "EPROTO: dws.$method: jobid" err &&
        test_must_fail rpc dws.$method "{\"jobid\": \"x\"}" 2>err &&
        grep "EPROTO: dws.$method: jobid is \"x\"" err &&
        test_must_fail rpc dws.$method "[1]" 2>err &&
        grep EPROTO err &&
        flux module stats dws
    '
done
test_expect_success 'a configuration that is no object gets EPROTO, and the module goes on' '
    for payload in "[1]" 7 null; do
        test_must_fail rpc dws.config-reload "$payload" 2>err &&
        grep "EPROTO: dws.config-reload: expected an object" err || return 1
    done &&
    test_must_fail rpc dws.config-reload "{\"rabbit\": 7}" 2>err &&
    grep "EINVAL: rabbit: is 7, expected a table" err &&
    flux module stats dws
'
test_expect_success 'the log names the job of a malformed request' '
    job_is_named () {
        flux dmesg | grep "dws.err.*$(flux job id --to=f58plain 1234)"
    } &&
    test_must_fail rpc dws.setup "{\"jobid\": 1234, \"R\": 1}" &&
    eventually job_is_named
'
test_expect_success 'jobs run after malformed requests' '
    id=$(job_submit true) &&
    job_succeeds $id
'
for signal in TERM INT; do
    test_expect_success "the module ends cleanly at SIG$signal" '
        flux dmesg -C &&
        kill -$signal $(module_pid) &&
        eventually module_is_gone &&
        ! flux dmesg | grep -iE "panic|failure|killed" &&
        module_load
    '
done
test_expect_success 'flux module remove dws removes it' '
    flux module remove dws &&
    module_is_gone
'
for value in true false; do
    test_expect_success "module_nopanic = $value is accepted, and has no effect" '
        flux setattr broker.module-nopanic 0 &&
        rabbit_table "module_nopanic = $value" &&
        module_load &&
        test "$(flux getattr broker.module-nopanic)" = 0 &&
        flux module remove dws
    '
done
test_expect_success 'a timer of the service fires before one that was set earlier' '
    timeout 30 flux python -c "
import flux
from flux_k8s.broker.adapter import BrokerFlux
from flux_k8s.eventloop.callbackqueue import CallbackQueue
handle = flux.Flux()
port = BrokerFlux(handle, CallbackQueue(), \"test\")
def begin():
    port.call_later(3600.0, handle.reactor_stop)
    port.call_later(0.01, handle.reactor_stop)
port.call_later(0.0, begin)
handle.reactor_run()
"
'
test_expect_success 'nothing is left of a request to Flux that was answered' '
    timeout 30 flux python -c "
import gc, weakref
import flux
from flux_k8s.broker.adapter import BrokerFlux
from flux_k8s.eventloop.callbackqueue import CallbackQueue
handle = flux.Flux()
port = BrokerFlux(handle, CallbackQueue(), \"test\")
class Waiting:
    def done(self, answer):
        answers.append(answer)
        if len(answers) == 2:
            port.call_later(0.0, handle.reactor_stop)
answers, waiting = [], []
def ask(topic):
    one = Waiting()
    waiting.append(weakref.ref(one))
    port.rpc(topic, {}, one.done)
gc.disable()  # the service collects garbage rarely
ask(\"kvs.ping\")
ask(\"no.such\")
handle.reactor_run()
print(answers)
assert not any(one() for one in waiting)
"
'
test_done
