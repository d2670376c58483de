#!/bin/sh
test_description='What users may ask the dws module, and what they may not'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
[exec.testexec]
allow-guests = true
END
instance_start 2

GUEST=1

# usage: guest_submit: a #DW job of the guest, signed by nobody; its ID
guest_submit () {
    flux submit --dry-run --setattr=system.dw="$DW" \
        --setattr=system.exec.test.run_duration=0.1s true >spec.json &&
    FLUX_HANDLE_USERID=$GUEST flux python -c '
import base64, sys
import flux
header = f"version\0i1\0userid\0i{sys.argv[1]}\0mechanism\0snone\0".encode()
spec = open("spec.json", "rb").read()
parts = [base64.b64encode(part).decode() for part in (header, spec)]
payload = {"J": ".".join([*parts, "none"]), "urgency": 16, "flags": 0}
print(flux.Flux().rpc("job-ingest.submit", payload).get()["id"])' $GUEST
}

guest () {
    FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=$GUEST "$@"
}

# usage: field PATH...: of the JSON on stdin
field () {
    python -c '
import json, sys
value = json.load(sys.stdin)
for word in sys.argv[1:]:
    value = value[int(word) if isinstance(value, list) else word]
print(value)' "$@"
}

# usage: show JOBID [SEEN]: the details of a job
show () {
    rpc dws.job-show "{\"id\": $(flux job id --to=dec "$1")${2:+, \"seen\": $2}}"
}

# usage: ask_held JOBID FILE [AS]: ask for a change of the job, in the background
ask_held () {
    ask_held_payload="{\"id\": $(flux job id --to=dec "$1"), \"seen\": ${3:-9000000000000000}}"
    ${4:-} rpc dws.job-show "$ask_held_payload" >"$2" 2>&1 &
    asker=$!
}

held_or_answered () {
    held 1 || ! kill -0 $asker
}

# usage: ask_held_from_now JOBID FILE [AS]: ask for a change of the job from now on. If it
# changes before that is asked, the answer comes at once: then ask again.
ask_held_from_now () {
    for _ in 1 2 3 4 5; do
        ask_held_serial=$(show "$1" | field serial) &&
        ask_held "$1" "$2" "$ask_held_serial" "${3:-}" &&
        eventually held_or_answered &&
        held 1 &&
        return 0
    done
    return 1
}

# usage: kill_held: the process of ask_held, and the one that it waits for
kill_held () {
    pkill -KILL -P "$1"
    kill -KILL "$1" 2>/dev/null || true
}

# The query of ask_held_from_now is answered, or the job was over first.
hears_of_a_change () {
    if wait $asker; then
        test "$(field serial <changed)" -gt "$ask_held_serial"
    else
        grep ENOENT changed
    fi
}

# The query of ask_held hears that its job is over.
hears_of_the_end () {
    wait $asker || grep ENOENT "$1"
}

held () {
    test "$(rpc dws.metrics | field queries held)" -eq "$1"
}

test_expect_success 'without the module nobody answers' '
    test_must_fail guest rpc dws.job-list 2>err &&
    grep ENOSYS err
'
test_expect_success 'the owner sees all jobs, a guest the own ones' '
    module_load &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    gate_shut PreRun &&
    mine=$(guest_submit) &&
    others=$(job_submit true) &&
    kube wait $(workflow $mine) PreRun &&
    kube wait $(workflow $others) PreRun &&
    rpc dws.job-list >all &&
    test "$(field totals jobs <all)" -eq 2 &&
    test "$(field jobs 0 id <all)" = "$(flux job id --to=dec $mine)" &&
    test "$(field jobs 0 userid <all)" = $GUEST &&
    test "$(field jobs 1 userid <all)" = "$(id -u)" &&
    guest rpc dws.job-list >own &&
    test "$(field jobs 0 id <own)" = "$(flux job id --to=dec $mine)" &&
    test_must_fail field jobs 1 <own &&
    test "$(field totals jobs <own)" -eq 2
'
test_expect_success 'a job of somebody else is not shown to a guest' '
    guest show $mine >details &&
    test "$(field state <details)" = PreRun &&
    test "$(field directives 0 <details)" = "$DW" &&
    test_must_fail guest show $others 2>err &&
    grep "EPERM: job .* is not yours" err &&
    test_must_fail guest rpc dws.job-list "{\"userid\": $(id -u)}" 2>err &&
    grep EPERM err
'
test_expect_success 'a guest who sends a request of the instance owner gets EPERM' '
    for method in create setup post_run teardown abort hello stats-get \
        metrics rabbit-disable rabbit-enable; do
        test_must_fail guest rpc dws.$method \
            "{\"jobid\": 1, \"rabbits\": [\"rabbit-01\"]}" 2>err &&
        grep EPERM err || return 1
    done
'
test_expect_success 'a long state has a volatile memo, which no eventlog has' '
    has_progress () {
        flux jobs -no "{user.rabbit_progress}" $1 | grep "PreRun [0-9]*/1 mounted"
    } &&
    eventually has_progress $others &&
    flux job eventlog $others >log &&
    ! grep rabbit_progress log
'
test_expect_success 'a query is held until its job changes' '
    ask_held_from_now $mine changed guest &&
    rm gates/PreRun &&
    hears_of_a_change &&
    wait_event $mine clean &&
    job_succeeds $others
'
test_expect_success 'a query is dropped when the sender goes' '
    gate_shut PreRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    ask_held $id answer &&
    eventually held 1 &&
    kill_held $asker &&
    eventually held 0
'
test_expect_success 'guests who ask too often, or too much, are told so' '
    guests=$(guest_submit) &&
    kube wait $(workflow $guests) PreRun &&
    guest flux python -c "
import errno, flux
handle = flux.Flux()
futures = [handle.rpc(\"dws.rules\", {}) for _ in range(200)]
errors = []
for future in futures:
    try:
        future.get()
    except OSError as error:
        errors.append(error.errno)
assert len(errors) > 100 and set(errors) == {errno.EAGAIN}, errors
" &&
    sleep 2 &&
    guest flux python -c "
import errno, flux
try:
    flux.Flux().rpc(\"dws.job-list\", {\"rabbit\": 64 * 2**20 * \"x\"}).get()
except OSError as error:
    assert error.errno == errno.EMSGSIZE, error
else:
    raise SystemExit(\"it was accepted\")
"
'
test_expect_success 'a query that nobody waits for is not held' '
    sleep 1 &&
    guest flux python -c "
import sys, time
import flux
from flux.constants import FLUX_RPC_NORESPONSE
handle = flux.Flux()
for _ in range(5):
    payload = {\"id\": int(sys.argv[1]), \"seen\": 2**62}
    handle.rpc(\"dws.job-show\", payload, flags=FLUX_RPC_NORESPONSE)
time.sleep(0.5)
" $(flux job id --to=dec $guests) &&
    held 0 &&
    flux cancel $guests
'
test_expect_success 'a forged route takes no request of the plugin' '
    sleep 1 &&
    guest flux python -c "
import sys, time
import flux
from flux.core.inner import ffi, lib
handle = flux.Flux()
for tag in range(1, 16):
    raw = lib.flux_request_encode(b\"dws.job-show\", b\"{}\")
    lib.flux_msg_route_enable(raw)
    lib.flux_msg_route_push(raw, b\"job-manager\")
    lib.flux_msg_set_matchtag(raw, tag)
    assert lib.flux_send(handle.handle, raw, 0) == 0
time.sleep(0.5)
" &&
    service_is_ready &&
    rm gates/PreRun &&
    job_succeeds $id
'
test_expect_success 'requests are known by their whole route' '
    flux python -c "
from flux.core.inner import lib
from flux.message import Message
from flux_k8s.broker.relay import Relay

class Module:
    failed = []
    def respond_error(self, message, errnum, text):
        self.failed.append(message.topic)

def request(topic, *hops):
    raw = lib.flux_request_encode(topic, b\"{}\")
    lib.flux_msg_route_enable(raw)
    for hop in hops:
        lib.flux_msg_route_push(raw, hop)
    lib.flux_msg_set_matchtag(raw, 7)
    lib.flux_msg_set_userid(raw, 1000)
    message = Message(handle=raw)
    lib.flux_msg_decref(raw)
    return message

relay = Relay(Module())
relay.add(request(b\"dws.setup\", b\"job-manager\"))
relay.add(request(b\"dws.job-show\", b\"job-manager\", b\"guest\"))
assert len(relay) == relay.count(1000) == 2
relay.drop(request(b\"dws.disconnect\", b\"job-manager\", b\"guest\"))
assert len(relay) == relay.count(1000) == 1
relay.fail(113, \"\")
assert Module.failed == [\"dws.setup\"], Module.failed
assert relay.count(1000) == 0
"
'
test_expect_success 'no time goes into a disconnect of a user without a request' '
    flux python -c "
from flux.core.inner import lib
from flux.message import Message
from flux_k8s.broker import relay

raw = lib.flux_request_encode(b\"dws.disconnect\", b\"{}\")
lib.flux_msg_set_userid(raw, 1000)
message = Message(handle=raw)
relay.route_of = None
assert not relay.Relay(None).drop(message)
"
'
test_expect_success 'a disconnect is of its own sender only' '
    gate_shut PreRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    ask_held $id answer &&
    eventually held 1 &&
    guest flux python -c "
import time
import flux
from flux.constants import FLUX_RPC_NORESPONSE
flux.Flux().rpc(\"dws.disconnect\", flags=FLUX_RPC_NORESPONSE)
time.sleep(0.5)
" &&
    held 1 &&
    rm gates/PreRun &&
    job_succeeds $id &&
    hears_of_the_end answer &&
    held 0
'
test_expect_success 'no disconnect of a guest keeps a request out' '
    process_stop $(service_pid) &&
    guest flux python -c "
import flux
from flux.core.inner import lib
handle = flux.Flux()
for _ in range(300):
    raw = lib.flux_request_encode(b\"dws.disconnect\", 2**20 * b\"x\")
    lib.flux_msg_set_noresponse(raw)
    assert lib.flux_send(handle.handle, raw, 0) == 0
    lib.flux_msg_decref(raw)
" &&
    { flux module stats dws >stats 2>&1 & stats=$!; } &&
    sleep 2 &&
    service_kill CONT &&
    wait $stats &&
    flux module stats dws >stats &&
    ! flux dmesg | grep "does not take the requests"
'
test_expect_success 'a Rabbit stays disabled when the module is loaded again' '
    rpc dws.rabbit-disable \
        "{\"rabbits\": [\"rabbit-01\", \"rabbit-02\"], \"reason\": \"new disks\"}" &&
    disabled () {
        rpc dws.rabbit-list | field rabbits 0 disabled reason | grep "new disks"
    } &&
    eventually disabled &&
    flux module remove dws &&
    module_load &&
    eventually disabled &&
    guest rpc dws.rabbit-list | field rabbits 0 reason | grep "disabled by" &&
    rpc dws.rabbit-enable "{\"rabbits\": [\"rabbit-01\", \"rabbit-02\"]}" &&
    enabled () {
        rpc dws.rabbit-list | field rabbits 1 disabled | grep None
    } &&
    eventually enabled
'
test_expect_success 'the rules of the cluster are there for all' '
    guest rpc dws.rules | field rules 0 command | grep jobdw
'
# The service may be ready again before the query comes.
died_and_said_so () {
    eventually service_is_ready &&
    service_kill &&
    test_must_fail guest rpc dws.job-list 2>err &&
    grep "EAGAIN: the dws service has died and is being started again" err
}

test_expect_success 'while no service is ready users are told so' '
    eventually died_and_said_so &&
    eventually service_is_ready &&
    guest rpc dws.job-list
'
test_done
