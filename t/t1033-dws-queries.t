#!/bin/sh
test_description='What users may ask the dws module, also by commands, and what they may not'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
[exec.testexec]
allow-guests = true
END
instance_start 2

# usage: field PATH...: of the JSON on stdin
field () {
    python -c '
import json, sys
value = json.load(sys.stdin)
for word in sys.argv[1:]:
    value = value[int(word) if isinstance(value, list) else word]
print(value)' "$@"
}

# usage: show JOBID: the details of a job
show () {
    rpc dws.job-show "{\"id\": $(flux job id --to=dec "$1")}"
}

# usage: ask_held JOBID FILE [SERIAL]: ask for a change of the job since then, or for its
# end, in the background
ask_held () {
    ask_held_payload="{\"id\": $(flux job id --to=dec "$1"), \"seen\": ${3:-9000000000000000}}"
    rpc dws.job-show "$ask_held_payload" >"$2" 2>&1 &
    asker=$!
}

held () {
    test "$(rpc dws.metrics | field queries held)" -eq "$1"
}

# ---- who may ask what -------------------------------------------------------

test_expect_success 'without the module a command is one line' '
    command_fails dws "the dws module is not loaded" flux dws list
'
test_expect_success 'the owner sees all jobs, a guest the own ones' '
    module_start scheduler=none &&
    gate_shut PreRun &&
    mine=$(guest_submit --setattr=system.dw="$DW") &&
    others=$(job_submit true) &&
    kube wait-each $(workflow $mine)=PreRun $(workflow $others)=PreRun &&
    rpc dws.job-list >all &&
    test "$(field jobs 0 userid <all)" = $GUEST &&
    test "$(field jobs 1 userid <all)" = "$(id -u)" &&
    guest rpc dws.job-list >own &&
    test "$(field jobs 0 id <own)" = "$(flux job id --to=dec $mine)" &&
    test_must_fail field jobs 1 <own &&
    test "$(field totals jobs <own)" -eq 2 &&
    guest flux dws list -A -n 2>err >out &&
    test $(wc -l <out) -eq 1 &&
    grep "all: 2 jobs, 2 PreRun" err
'
test_expect_success 'a job of somebody else is not shown to a guest' '
    guest show $mine | field directives 0 | grep -x "$DW" &&
    test_must_fail guest show $others 2>err &&
    grep "EPERM: job .* is not yours" err &&
    command_fails dws "job $others is not yours" guest flux dws show $others
'
test_expect_success 'a guest who sends a request of the instance owner gets EPERM' '
    for method in create setup post_run teardown abort hello stats-get config-reload \
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
test_expect_success 'a memo of a thousand levels keeps nobody from the list of jobs' '
    rpc job-manager.memo "$(python_stdin "
import sys
levels = 1500
print(\"{\\\"id\\\": %s, \\\"memo\\\": {\\\"x\\\": %s}}\"
      % (sys.argv[1], levels * \"[\" + levels * \"]\"))" $(flux job id --to=dec $mine))" &&
    flux dws check "$DW" &&
    flux dws list -a &&
    flux dws show $mine
'
test_expect_success 'bash completes job IDs and Rabbits' '
    cat >complete.sh <<-"END" &&
	. "$1"; shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_flux_with_dws flux "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	printf "%s\n" "${COMPREPLY[@]}"
	END
    completes () {
        bash complete.sh "$PREFIX/etc/flux/completions/flux-dws" flux dws "$@"
    } &&
    completes show f | grep -x "$(flux job id --to=f58plain $others)" &&
    test "$(completes disable rabbit-)" = "rabbit-01
rabbit-02"
'

# ---- queries that are held --------------------------------------------------

test_expect_success 'a disconnect is of its own sender only' '
    ask_held $others answer &&
    eventually held 1 &&
    guest flux python -c "
import flux
from flux.constants import FLUX_RPC_NORESPONSE
handle = flux.Flux()
handle.rpc(\"dws.disconnect\", flags=FLUX_RPC_NORESPONSE)
handle.rpc(\"dws.rules\", {}).get()
" &&
    held 1
'
test_expect_success 'a query that nobody waits for is not held' '
    guest flux python -c "
import sys
import flux
from flux.constants import FLUX_RPC_NORESPONSE
handle = flux.Flux()
for _ in range(5):
    payload = {\"id\": int(sys.argv[1]), \"seen\": 2**62}
    handle.rpc(\"dws.job-show\", payload, flags=FLUX_RPC_NORESPONSE)
handle.rpc(\"dws.rules\", {}).get()
" $(flux job id --to=dec $mine) &&
    held 1
'
test_expect_success 'a query is held until its job changes, or ends' '
    end_asker=$asker &&
    ask_held $mine changed $(show $mine | field serial) &&
    eventually held 2 &&
    rm gates/PreRun &&
    { wait $asker || grep ENOENT changed; } &&
    job_succeeds $others &&
    { wait $end_asker || grep ENOENT answer; } &&
    eventually held 0
'

# ---- what guests do to their own jobs ---------------------------------------

test_expect_success 'a guest who gives up an epilog takes nothing out of service' '
    id=$(guest_submit --setattr=system.dw="$DW") &&
    gate_shut PostRun $id &&
    kube wait $(workflow $id) PostRun &&
    wait_event $id release &&
    guest flux job raise --severity=0 --type=dws-epilog-timeout $id &&
    wait_event $id clean &&
    ! log_says "disabling rabbit" &&
    only_drained
'
test_expect_success 'a URI in the memo of their job has nobody else run a program' '
    id=$(guest_submit --setattr=system.dw="$DW" \
        --setattr=system.exec.test.run_duration=60s) &&
    wait_event $id start &&
    guest flux job memo $id "uri=ssh://-oProxyCommand=touch followed;/x" &&
    test_must_fail flux dws job-object --steps $id &&
    test ! -e followed &&
    job_cancel $id &&
    wait_event $id clean
'

# ---- too much of it ---------------------------------------------------------

test_expect_success 'guests who ask too often, or too much, are told so' '
    guest flux python -c "
import errno, time, flux
handle = flux.Flux()
def error_of(future):
    try:
        future.get()
    except OSError as error:
        return error.errno
errors = set()
while len(errors) < 2:  # until one is refused
    errors |= set(map(error_of, [handle.rpc(\"dws.rules\", {}) for _ in range(200)]))
assert errors == {None, errno.EAGAIN}, errors
large = errno.EAGAIN
while large == errno.EAGAIN:
    time.sleep(0.1)
    large = error_of(handle.rpc(\"dws.job-list\", {\"rabbit\": 64 * 2**20 * \"x\"}))
assert large == errno.EMSGSIZE, large
"
'
test_expect_success 'requests are known by their whole route' '
    flux python -c "
from flux.core.inner import lib
from flux.message import Message
from flux_k8s.broker import relay as module

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

relay = module.Relay(Module())
relay.add(request(b\"dws.setup\", b\"job-manager\"))
relay.add(request(b\"dws.job-show\", b\"job-manager\", b\"guest\"))
assert len(relay) == relay.count(1000) == 2
relay.drop(request(b\"dws.disconnect\", b\"job-manager\", b\"guest\"))
assert len(relay) == relay.count(1000) == 1
relay.fail(113, \"\")
assert Module.failed == [\"dws.setup\"], Module.failed
assert relay.count(1000) == 0
module.route_of = None  # no time goes into the disconnect of one without a request
assert not relay.drop(request(b\"dws.disconnect\", b\"guest\"))
"
'
test_expect_success 'no disconnect of a guest keeps a request out' '
    module_trace &&
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
    eventually grep stats-get asked &&
    service_kill CONT &&
    wait $stats &&
    flux module stats dws >stats &&
    ! flux dmesg | grep "does not take the requests"
'

# ---- commands, while others fail --------------------------------------------

# usage: follow JOBID: two commands that follow the job, in the background
follow () {
    command flux dws wait "$1" >wait.out 2>wait.err &
    wait_pid=$!
    command flux dws show --follow "$1" >show.out 2>show.err &
    show_pid=$!
}

# Both show this state, and nothing has failed.
both_show () {
    grep "$1" wait.out && grep "$1" show.out && ! grep ERROR wait.err show.err
}

test_expect_success 'jobs are followed while the module is loaded again' '
    gate_shut PreRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    follow $id &&
    eventually held 2 &&
    flux module reload dws scheduler=none &&
    eventually held 2 &&
    both_show PreRun &&
    grep "the dws module is away: waiting for it" wait.err &&
    test $(wc -l <wait.err) -eq 1
'
# The service may be ready again before the query comes.
died_and_said_so () {
    eventually service_is_ready &&
    service_kill &&
    test_must_fail guest rpc dws.job-list 2>err &&
    grep "EAGAIN: the dws service has died and is being started again" err
}

test_expect_success 'while the service is killed, and others are told so' '
    eventually died_and_said_so &&
    eventually held 2 &&
    both_show PreRun
'
test_expect_success 'while the plugin and the modules of Flux are loaded again' '
    plugin_remove &&
    plugin_load &&
    flux module reload job-list &&
    flux module reload job-info &&
    flux module reload kvs-watch &&
    eventually held 2 &&
    both_show PreRun
'
test_expect_success 'commands that wait go on to the end of the job' '
    rm gates/PreRun &&
    wait $wait_pid && wait $show_pid &&
    tail -n 1 wait.out | grep "storage is gone" &&
    tail -n 1 show.out | grep "storage is gone" &&
    eventually held 0 &&
    job_succeeds $id
'
test_expect_success 'a client that is killed, or whose terminal is closed, leaves no query' '
    gate_shut PreRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    follow $id &&
    eventually held 2 &&
    kill -KILL $wait_pid &&
    kill -HUP $show_pid &&
    eventually held 0 &&
    rm gates/PreRun &&
    job_succeeds $id
'
test_done
