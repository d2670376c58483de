#!/bin/sh
test_description='Loading, configuring and asking the dws module, and what it writes'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 1 -Sbroker.module-nopanic=0

# Every kind of conversion that printf knows.
CONVERSIONS='%s%n%p%d%*s%.*s%hhn%1$n%99999d%c%f%ls%m%%'

# usage: file_is KEY FILE: a [rabbit] table with this file for the key
file_is () {
    rabbit_table | sed "s,^$1 = .*,$1 = \"$2\"," >conf/rabbit.toml &&
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
    flux dmesg | grep " dws\.err" >"$TRASH/lines" &&
    cat "$TRASH/lines" &&
    test "$(wc -l <"$TRASH/lines")" -eq 1 &&
    grep -F -e "$refuses_text" "$TRASH/lines" &&
    eventually grep -F -e "$refuses_text" "$TRASH/stderr" &&
    ! grep Traceback "$TRASH/stderr"
}

# usage: keeps TEXT COMMAND...: a reload of the configuration is refused with the text,
# also in the log, and the module goes on
keeps () {
    keeps_text=$1
    shift
    flux dmesg -C &&
    test_must_fail "$@" 2>err &&
    grep -F -e "$keeps_text" err &&
    flux dmesg | grep -F -e "dws.err[0]: configuration kept as it was: $keeps_text" &&
    flux module stats dws
}

# The processes are those that they were, and serve.
nothing_happened () {
    test "$(module_pid)" = "$module" &&
    test "$(service_pid)" = "$service" &&
    flux module stats dws
}

# ---- a module that is not loaded --------------------------------------------

test_expect_success 'an unknown argument is refused' '
    refuses "dws.err[0]: $CONVERSIONS=1: unknown module argument, known: scheduler=none, queues=NAME,..., watchdog=SECONDS" "$CONVERSIONS=1"
'
test_expect_success 'a wrong configuration is refused, and so is one without a [rabbit] table' '
    config_reload "setup_timout = 5" &&
    refuses "rabbit.setup_timout: unknown key, did you mean" &&
    rabbit_table | sed "s/rabbit\]/rabit]/" >conf/rabbit.toml &&
    flux config reload &&
    refuses "rabbit: there is no such table in the configuration"
'
test_expect_success 'a file that cannot be used is refused, and the log says what to do' '
    file_is mapping "/$CONVERSIONS" &&
    refuses "rabbit.mapping: /$CONVERSIONS: No such file or directory; not loaded: mend that, then flux module load dws"
'
test_expect_success 'the contents of a kubeconfig are never shown' '
    sed "s/current-context: .*/current-context: nowhere/" kubeconfig >bad &&
    file_is kubeconfig "$TRASH/bad" &&
    refuses "rabbit.kubeconfig: $TRASH/bad" &&
    token=$(sed -n "s/^ *token: //p" kubeconfig) &&
    test -n "$token" &&
    ! grep -F -e "$token" lines stderr
'
# The end of the service may be seen together with its refusal.
test_expect_success 'a service that refuses to start is not started again' '
    flux dmesg -C &&
    timeout 30 flux python -c "
import sys, time
import flux
from flux_k8s.broker.channel import Channel
from flux_k8s.broker.supervisor import FIRST_PAUSE, Supervisor
receive = Channel.receive
def receive_late(self):
    time.sleep(1.0)
    receive(self)
Channel.receive = receive_late
handle = flux.Flux()
supervisor = Supervisor(handle, \"dws\", (), 120.0)
rabbit = {\"mapping\": sys.argv[1], \"kubeconfig\": sys.argv[2]}
try:
    supervisor.start({\"rabbit\": rabbit, \"queues\": None})
except OSError as error:
    print(error)
else:
    sys.exit(\"it was not refused\")
# The time of the reactor stands still until it runs.
end = handle.timer_watcher_create(FIRST_PAUSE + 1.0, lambda *_: handle.reactor_stop())
handle.timer_watcher_create(0.0, lambda *_: end.start()).start()
handle.reactor_run()
assert supervisor.stats()[\"starts\"] == 1, supervisor.stats()
" "$TRASH/mapping.json" "$TRASH/bad" &&
    ! flux dmesg | grep "\.err\["
'

# ---- its configuration ------------------------------------------------------

test_expect_success 'a module with right arguments and a right table is loaded, once' '
    config_reload "module_nopanic = true" &&
    module_load &&
    module=$(module_pid) &&
    service=$(service_pid) &&
    test "$(flux getattr broker.module-nopanic)" = 0 &&
    test_must_fail flux module load dws 2>err &&
    grep -i exists err
'
test_expect_success 'flux config reload with a good table puts it in force' '
    flux dmesg -C &&
    config_reload "presets.scratch = \"$DW\"" &&
    ! flux dmesg | grep -E "dws.(err|warning)"
'
test_expect_success 'one with a wrong table, or a missing file, keeps that' '
    keeps "rabbit.$CONVERSIONS: unknown key" config_reload "\"$CONVERSIONS\" = 1" &&
    keeps "rabbit.kubeconfig: /nonexistent: No such" file_is kubeconfig /nonexistent &&
    nothing_happened &&
    id=$(flux submit --setattr=system.dw=scratch true) &&
    job_succeeds $id
'
test_expect_success 'one names the keys that wait for a reload of the module' '
    flux dmesg -C &&
    cp mapping.json other.json &&
    file_is mapping "$TRASH/other.json" &&
    eventually log_says "dws.warning[0]: rabbit.mapping: as before until" &&
    config_reload
'

# ---- what others send and write ---------------------------------------------

test_expect_success 'a request with a malformed payload gets EPROTO, and is logged' '
    for method in create setup post_run teardown abort; do
        test_must_fail rpc dws.$method "{\"jobid\": \"$CONVERSIONS\"}" 2>err &&
        grep -F "EPROTO: dws.$method: jobid is \"$CONVERSIONS\"" err || return 1
    done &&
    eventually log_says "jobid is \"$CONVERSIONS\"" &&
    test_must_fail rpc dws.setup "{\"jobid\": 1234, \"R\": 1}" &&
    eventually log_says "$(flux job id --to=f58plain 1234)"
'
test_expect_success 'a configuration that is no object gets EPROTO' '
    test_must_fail rpc dws.config-reload null 2>err &&
    grep "EPROTO: dws.config-reload: expected an object" err &&
    test_must_fail rpc dws.config-reload "{\"rabbit\": 7}" 2>err &&
    grep "EINVAL: rabbit: is 7, expected a table" err
'
test_expect_success 'a line of the log is its text, printable, and not too long' '
    flux python -c "
import sys, flux
from flux_k8s.broker.log import log
for text in sys.argv[1:]:
    log(flux.Flux(), 3, text)" "a $CONVERSIONS z" \
        "$(printf "%0900d" 0)$(printf "\303\244%.0s" $(seq 900))" \
        "$(printf "a\033[2J\r\nb\302\205c\342\200\256d")" &&
    eventually log_says "a $CONVERSIONS z" &&
    eventually log_says "ää..." &&
    eventually log_says "a\\x1b[2J\\r\\nb\\x85c\\u202ed"
'
# A conversion that was carried out shows words of the stack, or stands for nothing.
test_expect_success 'the log has no word of the stack, and no control character' '
    ! flux dmesg | grep -E "0x[0-9a-f]{6,}|\(nil\)" &&
    flux dmesg | LC_ALL=C tr -d "\n[:print:]\200-\377" >control &&
    test_must_be_empty control
'

# ---- what it writes to the KVS ----------------------------------------------

test_expect_success 'a value that the KVS cannot have spares what is written with it' '
    flux python -c "
from flux_k8s.broker.writer import Writer
writer = Writer(\"dws\")
ends = []
for key, value in (\"one\", \"1\"), (\"bad\", \"\\udcff\"), (\"two\", \"2\"):
    writer.put(\"t1001.with-\" + key, key)
    writer.put(\"t1001.\" + key, value, ends.append)
    writer.commit(awaited=True)
writer.put(\"t1001.worse\", \"\\udcff\")
writer.put(\"t1001.three\", \"3\")
writer.close(10)
print(*(error is None for error in ends))" >ends &&
    test "$(cat ends)" = "True False True" &&
    test "$(flux kvs get t1001.one t1001.two t1001.three t1001.with-two | xargs)" = "1 2 3 two" &&
    eventually log_says "cannot write t1001.worse: "
'
test_expect_success 'a commit that fails is logged with what it was to write, if anything' '
    flux python -c "
import errno
import flux.kvs
from flux_k8s.broker.adapter import BrokerFlux
def commit(self):
    raise OSError(errno.ENOSYS, \"t1001\")
flux.kvs.KVSTxn.commit = commit
port = BrokerFlux(flux.Flux(), type(\"Queue\", (), {\"put\": print}), \"dws\")
port.kvs_commit(1, \"awaited\", \"1\", print)
port.kvs_put(1, \"lost\", \"1\")
port.close(10)" &&
    eventually log_says "lost: [Errno 38] t1001" &&
    ! log_says "cannot write :"
'

# ---- its port to Flux -------------------------------------------------------

# usage: with_port PYTHON
with_port () {
    timeout 30 flux python -c "
import gc, weakref
import flux
from flux_k8s.broker.adapter import BrokerFlux
from flux_k8s.eventloop import CallbackQueue
handle = flux.Flux()
port = BrokerFlux(handle, CallbackQueue(), 'test')
$1"
}

test_expect_success 'a timer of the service fires before one that was set earlier' '
    with_port "
def begin():
    port.call_later(3600.0, handle.reactor_stop)
    port.call_later(0.01, handle.reactor_stop)
port.call_later(0.0, begin)
handle.reactor_run()"
'
test_expect_success 'nothing is left of a request to Flux that was answered' '
    with_port "
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
assert not any(one() for one in waiting)"
'
test_expect_success 'the module ends cleanly at SIGINT' '
    flux dmesg -C &&
    kill -INT $module &&
    eventually module_is_gone &&
    ! flux dmesg | grep -iE "panic|failure|killed"
'
test_done
