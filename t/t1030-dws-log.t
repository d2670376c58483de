#!/bin/sh
test_description='What others write is logged as it is, and nothing but logged'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 1 -Sbroker.module-nopanic=0

# Every kind of conversion that printf knows.
CONVERSIONS='%s%n%p%d%*s%.*s%hhn%1$n%99999d%c%f%ls%m%%'

# The processes are those that they were, and serve.
nothing_happened () {
    test "$(module_pid)" = "$module" &&
    test "$(service_pid)" = "$service" &&
    flux module stats dws
}

# A conversion that was carried out shows words of the stack, or stands for nothing.
no_stack_words () {
    ! flux dmesg | grep -E "0x[0-9a-f]{6,}|\(nil\)"
}

no_control_characters () {
    flux dmesg | LC_ALL=C tr -d "\n[:print:]\200-\377" >control &&
    ! test -s control
}

# usage: rabbit_line LINE
rabbit_line () {
    sed -i "/^kubeconfig/,\$!d" conf/rabbit.toml &&
    sed -i "1i [rabbit]" conf/rabbit.toml &&
    printf '%s\n' "$1" >>conf/rabbit.toml
}

# flux_k8s.broker.log.log
log_line () {
    flux python -c '
import sys, flux
from flux_k8s.broker.log import log
log(flux.Flux(), 3, sys.argv[1])' "$1"
}

test_expect_success 'a line of the log is its text' '
    log_line "a $CONVERSIONS z" &&
    eventually log_says "a $CONVERSIONS z"
'
test_expect_success 'a value that the KVS cannot have spares what is written with it' '
    flux python -c "
from flux_k8s.broker.writer import Writer
writer = Writer(\"dws\")
ends = []
for key, value in (\"one\", \"1\"), (\"bad\", \"\\udcff\"), (\"two\", \"2\"):
    writer.commit([(\"t1030.\" + key, value)], ends.append)
writer.commit([(\"t1030.worse\", \"\\udcff\")])
writer.commit([(\"t1030.three\", \"3\")])
writer.close(10)
print(*(error is None for error in ends))" >ends &&
    test "$(cat ends)" = "True False True" &&
    test "$(flux kvs get t1030.one t1030.two t1030.three | tr -d "\n")" = 123 &&
    eventually log_says "cannot write t1030.worse: "
'
test_expect_success 'nor does it keep back what other jobs have in the same commit' '
    flux python -c "
from flux_k8s.broker.writer import Writer
writer = Writer(\"dws\")
writer.commit([(\"t1030.worst\", \"\\udcff\"), (\"t1030.spared\", \"spared\")])
writer.close(10)" &&
    test "$(flux kvs get t1030.spared)" = spared &&
    eventually log_says "cannot write t1030.worst: "
'
test_expect_success 'a commit that fails is logged with what it was to write, if anything' '
    flux python -c "
import errno
import flux.kvs
from flux_k8s.broker.adapter import BrokerFlux
def commit(self):
    raise OSError(errno.ENOSYS, \"t1030\")
flux.kvs.KVSTxn.commit = commit
port = BrokerFlux(flux.Flux(), None, \"dws\")
port._callbacks = type(\"Queue\", (), {\"put\": print})
port.kvs_commit(1, \"awaited\", \"1\", print)
port.kvs_put(1, \"lost\", \"1\")
port.close(10)" &&
    eventually log_says "lost: [Errno 38] t1030" &&
    ! log_says "cannot write :"
'
test_expect_success 'what many jobs wait for at a time shares commits' '
    flux python -c "
import threading
import flux.kvs
from flux_k8s.broker import writer as module
module.INTERVAL = 1.0
commit, commits = flux.kvs.KVSTxn.commit, []
def counted(self):
    commits.append(self)
    commit(self)
flux.kvs.KVSTxn.commit = counted
writer, written = module.Writer(\"dws\"), threading.Semaphore(0)
def put(key):
    writer.commit([(\"t1030.\" + key, key)], lambda error: written.release())
put(\"alone\")
written.acquire()
for key in \"four\", \"five\", \"six\":
    put(key)
for _ in range(3):
    written.acquire()
writer.close(10)
print(len(commits))" >count &&
    test "$(cat count)" = 2 &&
    test "$(flux kvs get t1030.four t1030.five t1030.six | tr -d "\n")" = fourfivesix
'
test_expect_success 'what nobody waits for does not wait either, and goes with the rest' '
    flux python -c "
import threading
import flux.kvs
from flux_k8s.broker import writer as module
module.INTERVAL = 60.0
writer, written = module.Writer(\"dws\"), threading.Event()
writer.put([(\"t1030.before\", \"before\")])
writer.commit([(\"t1030.waited\", \"waited\")], lambda error: written.set())
written.wait()
writer.commit([(\"t1030.after\", \"after\")])
writer.close(10)" &&
    test "$(flux kvs get t1030.before t1030.after | tr -d "\n")" = beforeafter
'
test_expect_success 'a long line of the log is cut, but not within a character' '
    log_line "$(printf "%0900d" 0)$(printf "\303\244%.0s" $(seq 900))" &&
    eventually log_says "ää..."
'
test_expect_success 'characters of the log that are not printable are escaped' '
    log_line "$(printf "a\033[2J\r\nb\302\205c\342\200\256d")" &&
    eventually log_says "a\\x1b[2J\\r\\nb\\x85c\\u202ed" &&
    no_control_characters
'
test_expect_success 'a module argument that is wrong is in the log' '
    test_must_fail flux module load dws "$CONVERSIONS=$CONVERSIONS" &&
    log_says "dws.err[0]: $CONVERSIONS=$CONVERSIONS: unknown module argument"
'
test_expect_success 'a key of the table that is wrong is in the log' '
    cp conf/rabbit.toml good.toml &&
    echo "\"$CONVERSIONS\" = 1" >>conf/rabbit.toml &&
    flux config reload &&
    test_must_fail module_load &&
    log_says "dws.err[0]: rabbit.$CONVERSIONS: unknown key" &&
    cp good.toml conf/rabbit.toml &&
    flux config reload
'
test_expect_success 'an argument with which the service cannot start is in the log' '
    sed -i "s,^mapping.*,mapping = \"/$CONVERSIONS\"," conf/rabbit.toml &&
    flux config reload &&
    test_must_fail module_load &&
    log_says "dws.err[0]: rabbit.mapping: /$CONVERSIONS: No such file" &&
    cp good.toml conf/rabbit.toml &&
    flux config reload
'
test_expect_success 'the module is loaded' '
    module_load &&
    module=$(module_pid) &&
    service=$(service_pid)
'
test_expect_success 'flux config reload shows what is wrong, and the log does' '
    echo "\"$CONVERSIONS\" = 2" >>conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep -F -e "rabbit.$CONVERSIONS: unknown key" err &&
    log_says "configuration kept as it was: rabbit.$CONVERSIONS" &&
    cp good.toml conf/rabbit.toml &&
    flux config reload &&
    nothing_happened
'
test_expect_success 'a request that is malformed is logged' '
    test_must_fail rpc dws.create "{\"jobid\": \"$CONVERSIONS\"}" &&
    eventually log_says "jobid is \"$CONVERSIONS\"" &&
    nothing_happened
'
for name in "%p.%p" "%s%n" "$CONVERSIONS"; do
    test_expect_success "a directive with name=$name harms nobody" '
        flux submit --setattr=system.dw="#DW jobdw type=xfs capacity=10GiB name=$name" \
            true >ids &&
        flux submit --setattr=system.dw="#DW persistentdw name=$name" true >>ids &&
        flux submit --setattr=system.dw="#DW jobdw type=$name capacity=10GiB name=p1" \
            true >>ids &&
        flux submit --setattr=system.dw="#DW $name" true >>ids &&
        for id in $(cat ids); do
            wait_event $id clean || return 1
        done &&
        nothing_happened
    '
done
test_expect_success 'a directive with control characters harms nobody' '
    id=$(flux submit --setattr=system.dw="$(printf "#DW jobdw type=\033[2Jx\177 capacity=10GiB name=p1")" true) &&
    wait_event $id clean &&
    nothing_happened
'
test_expect_success 'the log has no word of the stack' no_stack_words
test_expect_success 'the log has no control character' no_control_characters
test_expect_success 'jobs run after bad requests and directives' '
    id=$(job_submit true) &&
    job_succeeds $id &&
    nothing_happened
'
test_done
