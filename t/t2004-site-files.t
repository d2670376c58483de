#!/bin/sh
test_description='What a site installs besides: modprobe, prolog, epilog, CLI plugin'
. "$(dirname "$0")/tap.sh"

SITE=$PREFIX/etc/flux
# Without confdir: flux-modprobe ends when it finds dws.toml there as well.
FLUX_MODPROBE_PATH=$(flux config builtin datadir)/modprobe
FLUX_MODPROBE_PATH=$FLUX_MODPROBE_PATH:$(flux config builtin libexecdir)/modprobe
export FLUX_MODPROBE_PATH="$FLUX_MODPROBE_PATH:$SITE/modprobe"

# As flux-run-system-scripts does it, with a systemctl that writes down what it
# is told. Like systemd it starts a unit five times, then not without reset-failed.
fake_system () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    mkdir "$TRASH/bin" "$TRASH/run"
    for name in prolog epilog; do
        cat >"$TRASH/bin/$name" <<-END
	#!/bin/sh
	PATH=$TRASH/bin:$PATH RUNTIME_DIRECTORY=$TRASH/run $SITE/system/$name.d/dws
	END
    done
    cat >"$TRASH/bin/systemctl" <<-END
	#!/bin/sh
	rank=\$(flux getattr rank)
	starts=$TRASH/run/\$rank.\$2
	case \$1 in
	reset-failed) rm -f "\$starts"; exit ;;
	start) echo >>"\$starts"; test "\$(wc -l <"\$starts")" -le 5 || exit ;;
	esac
	echo "\$FLUX_JOB_ID \$rank \$*" >>$TRASH/systemctl.log
	test ! -e "$TRASH/\$2.fails"
	END
    chmod +x "$TRASH/bin"/*
}

# Set $prolog and $epilog, the commands that Flux is to run.
command -v perilog >/dev/null || perilog () {
    prolog="\"$TRASH/bin/prolog\""
    epilog="\"$TRASH/bin/epilog\""
}

cluster_start --fault 'PreRun:mount:compute-03'
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
tc_timeout = 0.5
[rabbit.daemons.copy-offload]
unit = 'offload@a\x2db.service'
[rabbit.daemons.other]
unit = "other.service"
[modules]
dws.args = [ "scheduler=none" ]
END
perilog
instance_conf job-manager.toml <<END
[job-manager]
plugins = [
    { load = "$JOBTAP", conf = { epilog-timeout = 60.0 } },
    { load = "perilog.so" },
]
[job-manager.prolog]
command = [ $prolog ]
per-rank = true
[job-manager.epilog]
command = [ $epilog ]
per-rank = true
END
instance_conf ingest.toml </dev/null
fake_system
instance_start 4

# usage: told JOBID: what systemctl was told for the job, each with its rank
told () {
    sed -n "s/^$(flux job id --to=f58 "$1") //p" "$TRASH/systemctl.log"
}

# usage: is_told JOBID TEXT
is_told () {
    told "$1" | grep "$2"
}

# usage: ends_stopped JOBID: nnf-clientmount was started, and stopped at last. The
# job may end before: Flux does not wait for an epilog after a failed prolog.
ends_stopped () {
    told "$1" | tail -n 1 | grep "stop nnf-clientmount"
}

# usage: on N: the option for a job on the node of that number
on () {
    echo "-N1 --requires=host:compute-0$1"
}

# ---- flux-modprobe

test_expect_success 'flux-modprobe loads the module when the instance starts' '
    flux module list | grep -w dws
'
test_expect_success 'flux-modprobe loads the module with the arguments of the configuration' '
    flux modprobe show dws | tee shown &&
    grep "scheduler=none" shown &&
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'flux-modprobe loads the module on rank 0 only' '
    flux exec -r 1 flux module list >modules &&
    ! grep -w dws modules
'
test_expect_success 'the module refuses any other rank' '
    test_must_fail flux exec -r 1 flux module load dws &&
    flux exec -r 1 flux dmesg | grep "dws.err.*is for rank 0, where the job manager is" &&
    broker_lives
'
test_expect_success 'at shutdown the module is removed before the job manager' '
    flux modprobe rc3 --dry-run >rc3 &&
    cat rc3 &&
    in_order "$(tr -cs "[:alnum:]-" " " <rc3)" dws job-manager
'
test_expect_success 'the module can be removed and loaded by hand' '
    flux modprobe remove dws &&
    ! flux module list | grep -w dws &&
    flux modprobe load dws &&
    flux module list | grep -w dws
'
test_expect_success 'an instance starts although the module cannot' '
    cp -r $TRASH/conf $TRASH/wrong &&
    sed -i "s,^mapping = .*,mapping = \"/nonexistent\"," $TRASH/wrong/rabbit.toml &&
    flux start --config-path=$TRASH/wrong -Sbroker.boot-method=single \
        flux module list >modules 2>start.err &&
    grep -w job-manager modules &&
    ! grep -w dws modules &&
    grep "dws: Invalid argument: not loaded, jobs with #DW directives wait" \
        start.err &&
    grep "rabbit.mapping.*/nonexistent" start.err &&
    ! grep Traceback start.err
'
test_expect_success 'with the example of a configuration as it is an instance starts and ends without a message' '
    mkdir $TRASH/example &&
    sed -e "s,\"dws-jobtap.so\",\"$JOBTAP\"," -e "s,/etc/flux/frob,$SITE/frob," \
        -e "s,/etc/flux/system/kubeconfig,$TRASH/kubeconfig," \
        -e "s,/etc/flux/system/rabbitmapping,$TRASH/mapping," \
        "$TESTDIR/../etc/examples/rabbit.toml" >$TRASH/example/rabbit.toml &&
    FLUX_CLI_PLUGINPATH_OVERRIDE=$SITE/cli/plugins \
        flux start --config-path=$TRASH/example -Sbroker.boot-method=single \
        sh -c "flux module list && flux run true" >modules 2>start.err &&
    grep -w job-manager modules &&
    grep -w dws modules &&
    ! grep -i dws start.err
'
test_expect_success 'without a [rabbit] table it is not loaded' '
    flux start -Sbroker.boot-method=single flux module list >modules &&
    grep -w job-manager modules &&
    ! grep -w dws modules
'
# ---- prolog and epilog

test_expect_success 'a job without directives has nothing to do with nnf-clientmount' '
    id=$(flux submit -N4 true) &&
    wait_event $id clean &&
    flux job status $id &&
    test -z "$(told $id)"
'
test_expect_success 'the prolog keeps nnf-clientmount running while storage is being mounted' '
    : >systemctl.log &&
    id=$(job_in prerun) &&
    eventually grep "start nnf-clientmount" systemctl.log &&
    test "$(told $id)" = "$(flux jobs -no "{ranks}" $id) start nnf-clientmount"
'
test_expect_success 'the prolog stops nnf-clientmount before the job starts' '
    job_let_go $id prerun &&
    job_succeeds $id &&
    told $id >log &&
    cut -d" " -f2- log | head -n 2 >prolog &&
    printf "%s nnf-clientmount\n" start stop | diff - prolog
'
test_expect_success 'the epilog runs nnf-clientmount until the storage is gone' '
    cut -d" " -f2- log | tail -n +3 >epilog &&
    printf "%s nnf-clientmount\n" start stop | diff - epilog &&
    in_order "$(events $id)" epilog-finish:dws-epilog \
        epilog-finish:job-manager.epilog
'
test_expect_success 'the last job on a node that needs nnf-clientmount stops it' '
    id=$(job_submit -N2 --requires=host:compute-0[1-2] true) &&
    job_succeeds $id &&
    told $id | sort | uniq -c &&
    test $(told $id | grep -c " start nnf") -eq 4 &&
    test $(told $id | grep -c " stop nnf") -ge 2 &&
    told $id | tail -n 1 | grep stop
'
test_expect_success 'short jobs do not come to the limit of systemd for starts' '
    for i in 1 2 3 4; do
        id=$(job_submit $(on 1) true) && job_succeeds $id || return 1
    done
'
test_expect_success 'the units of daemons run from the end of the prolog to the epilog' '
    id=$(flux submit $(on 1) --setattr=system.dw="$DW requires=copy-offload" true) &&
    job_succeeds $id &&
    told $id | cut -d" " -f2- >log &&
    cat >expected <<-"END" &&
	start nnf-clientmount
	stop nnf-clientmount
	start offload@a\x2db.service
	stop offload@a\x2db.service
	start nnf-clientmount
	stop nnf-clientmount
	END
    diff expected log
'
test_expect_success 'a user cannot have units started with a memo' '
    id=$(job_submit $(on 1) --urgency=hold true) &&
    memo="[\"evil.service\",\"offload@a\\\\x2db.service\"]" &&
    flux job memo $id rabbit_units="$memo" &&
    eventually has_memo $id rabbit_units offload@a &&
    job_go $id &&
    job_succeeds $id &&
    ! told $id | grep -v nnf-clientmount
'
test_expect_success 'a user cannot have the epilog leave units running with a memo' '
    id=$(flux submit $(on 1) --setattr=system.dw="$DW requires=copy-offload" \
        sh -c "$LOOP") &&
    wait_event $id start &&
    is_told $id "start offload" &&
    flux job memo $id rabbit_units="[]" &&
    eventually has_memo $id rabbit_units "^\[\]" &&
    job_end $id &&
    job_succeeds $id &&
    is_told $id "stop offload"
'
test_expect_success 'a user cannot have a prolog wait for storage with a memo' '
    id=$(flux submit $(on 1) --urgency=hold true) &&
    flux job memo $id name=dependency-add \
        context="{\"description\":\"dws-create\"}" &&
    job_go $id &&
    wait_event $id clean &&
    flux job status $id &&
    test -z "$(told $id)"
'
test_expect_success 'a user cannot hold up prolog and epilog with notes to a job' '
    id=$(job_submit --urgency=hold true) &&
    note=$(head -c 120000 /dev/zero | tr "\\0" f) &&
    flux job raise --severity=7 --type=note $id "$note" &&
    flux job raise --severity=7 --type=note $id "$note" &&
    job_go $id &&
    wait_event $id clean &&
    has_event $id start &&
    only_drained
'
test_expect_success 'a job that is cancelled in its prolog ends, and stops nnf-clientmount' '
    id=$(job_in prerun) &&
    eventually is_told $id start &&
    flux cancel $id &&
    gates_open $id &&
    wait_event $id clean &&
    eventually ends_stopped $id &&
    undrain_all
'
test_expect_success 'a job whose storage fails is over for the prolog as well' '
    id=$(job_submit $(on 3) true) &&
    wait_event $id clean &&
    job_exception $id dws &&
    eventually ends_stopped $id &&
    undrain_all
'
test_expect_success 'a prolog that waits too long fails with a line that says so' '
    sed -i "s/^tc_timeout.*/&\nprolog_timeout = \"2s\"/" conf/rabbit.toml &&
    flux config reload &&
    flux dmesg -C &&
    id=$(job_in prerun) &&
    wait_event $id exception -m type=prolog &&
    flux dmesg | grep -F "$(flux job id --to=f58 $id): storage is not mounted after 2s (rabbit.prolog_timeout)" &&
    sed -i /^prolog_timeout/d conf/rabbit.toml &&
    flux config reload &&
    gates_open $id &&
    wait_event $id clean &&
    eventually ends_stopped $id &&
    undrain_all
'
test_expect_success 'a copy_in that takes too long fails its job, and no node is drained' '
    mkdir -p scratch/lustre &&
    echo carrots >scratch/lustre/input &&
    sed -i "s/^tc_timeout.*/&\nprolog_timeout = \"2s\"/" conf/rabbit.toml &&
    flux config reload &&
    dw="$DW
#DW copy_in source=/lustre/input destination=\$DW_JOB_p1/\"state\":\"PreRun\"" &&
    id=$(flux submit -N2 --setattr=system.dw="$dw" --urgency=hold true) &&
    gate_shut DataIn $id &&
    job_go $id &&
    wait_event $id clean &&
    job_exception $id dws "storage is not mounted after 2s (rabbit.prolog_timeout)" &&
    sed -i /^prolog_timeout/d conf/rabbit.toml &&
    flux config reload &&
    gates_open $id &&
    eventually no_workflows &&
    eventually ends_stopped $id &&
    only_drained
'
test_expect_success 'a prolog whose service does not start fails with a line that says so' '
    touch nnf-clientmount.fails &&
    id=$(job_submit $(on 1) true) &&
    wait_event $id exception -m type=prolog &&
    rm nnf-clientmount.fails &&
    wait_event $id clean &&
    flux dmesg | grep -F "$(flux job id --to=f58 $id): cannot start nnf-clientmount" &&
    undrain_all
'
test_expect_success 'a job whose prolog fails keeps its nodes until its storage is released' '
    id=$(job_submit $(on 1) --urgency=hold true) &&
    gate_shut Teardown $id &&
    touch nnf-clientmount.fails &&
    job_go $id &&
    wait_event $id epilog-finish -m description=job-manager.epilog &&
    rm nnf-clientmount.fails &&
    ! events $id | grep free &&
    gates_open $id &&
    wait_event $id clean &&
    in_order "$(events $id)" epilog-finish:job-manager.epilog \
        epilog-finish:dws-epilog free &&
    undrain_all
'
test_expect_success 'a job that ends without the plugin is held when that is loaded again' '
    id=$(job_in running) &&
    plugin_remove &&
    job_end $id &&
    wait_event $id epilog-start -m description=job-manager.epilog &&
    plugin_load &&
    wait_event $id clean &&
    in_order "$(events $id)" epilog-start:job-manager.epilog \
        epilog-finish:dws-epilog epilog-finish:job-manager.epilog free &&
    no_workflows
'
# ---- an instance within a job

test_expect_success 'an instance that is a job drains nodes without storage' '
    cat >inside <<-"END" &&
	#!/bin/sh
	flux resource drain -no "{nodelist} {reason}" >"$1"
	flux resource list -s free -no "{nodelist}" >>"$1"
	END
    chmod +x inside &&
    RC1="-Sbroker.rc1_path=$TESTDIR/rc.sh rc1" &&
    RC3="-Sbroker.rc3_path=$TESTDIR/rc.sh rc3" &&
    id=$(job_submit -N4 --urgency=hold --setattr=system.dw_failure_tolerance=1 \
        flux start "$RC1" "$RC3" --conf=resource.noverify=true ./inside $TRASH/drained) &&
    flux job memo $id "note=a line separator: $(printf "\342\200\250")" &&
    job_go $id &&
    wait_event $id clean &&
    cat drained &&
    grep "^compute-03 job $(flux job id --to=f58 $id) has no Rabbit storage" drained &&
    grep "^compute-\[01-02,04\]" drained &&
    undrain_all
'
test_expect_success 'an instance that is a job with storage everywhere drains nothing' '
    id=$(job_submit -N2 --requires=host:compute-0[1-2] \
        flux start "$RC1" "$RC3" --conf=resource.noverify=true ./inside $TRASH/drained) &&
    wait_event $id clean &&
    test "$(cat drained)" = "compute-[01-02]"
'
# ---- the CLI plugin

FLUX_CLI_PLUGINPATH_OVERRIDE=$SITE/cli/plugins
for command in alloc batch submit run bulksubmit; do
    test_expect_success "flux $command --help tells of --rabbit-chassis" "
        flux $command --help | grep -A 2 -e '--rabbit-chassis=N' | tee help &&
        grep 'Spread the job' help
    "
done
test_expect_success '--help=rabbit-chassis explains the option' '
    flux alloc --help=rabbit-chassis | grep "two nodes on each of four chassis"
'
test_expect_success 'the nodes of a job with --rabbit-chassis are below its chassis' '
    env -u FLUX_URI flux submit --dry-run -N8 -n16 --rabbit-chassis=4 true >jobspec &&
    python_stdin "
import json
spec = json.load(open(\"jobspec\"))
(chassis,) = spec[\"resources\"]
(node,) = chassis[\"with\"]
assert (chassis[\"type\"], chassis[\"count\"]) == (\"chassis\", 4), chassis
assert (node[\"type\"], node[\"count\"]) == (\"node\", 2), node
"
'
# usage: refuses TEXT OPTION...: in one line
refuses () {
    refuses_text=$1
    shift
    test_must_fail flux submit --dry-run "$@" true 2>err &&
    cat err &&
    test "$(wc -l <err)" -eq 1 &&
    grep -F -e "$refuses_text" err
}
for value in 0 -1 x 1.5 1000000000 ""; do
    test_expect_success "--rabbit-chassis=$value is refused" "
        refuses '--rabbit-chassis=$value: must be a number from 1' \
            -N4 --rabbit-chassis=$value
    "
done
test_expect_success 'nodes that chassis cannot share evenly are refused' '
    refuses "-N must be a multiple of 3" -N4 --rabbit-chassis=3
'
test_expect_success '--rabbit-chassis without nodes is refused' '
    refuses "needs a number of nodes (-N, --nodes)" -n4 --rabbit-chassis=2
'
test_expect_success '--rabbit-chassis is refused where the scheduler knows no chassis' '
    refuses "needs Fluxion, with a graph from flux dws2jgf, or sched-rabbit; the scheduler here is sched-simple" \
        -N4 --rabbit-chassis=2
'
test_expect_success 'wrong directives are refused at submission' '
    test_must_fail flux submit -S dw="#DW jobdw type=xfs name=p1" true 2>err &&
    grep -F "missing argument '\''capacity='\''" err &&
    grep -F -x -A 1 "  #DW jobdw type=xfs name=p1" err | tail -n 1 \
        | grep -x " *^~~~~" &&
    test_must_fail flux submit -S dw=scratch true 2>err &&
    grep -F "unknown preset" err
'
test_done
