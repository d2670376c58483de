#!/bin/sh
test_description='What a site installs besides: modprobe, prolog, epilog'
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
	PATH="$TRASH/bin:$PATH" RUNTIME_DIRECTORY="$TRASH/run" "$SITE/system/$name.d/dws"
	END
    done
    cat >"$TRASH/bin/systemctl" <<-END
	#!/bin/sh
	rank=\$(flux getattr rank)
	starts="$TRASH/run/\$rank.\$2"
	case \$1 in
	reset-failed) rm -f "\$starts"; exit ;;
	start) echo >>"\$starts"; test "\$(wc -l <"\$starts")" -le 5 || exit ;;
	esac
	echo "\$FLUX_JOB_ID \$rank \$*" >>"$TRASH/systemctl.log"
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
rabbit_conf 'tc_timeout = 0.5' "daemons.copy-offload.unit = 'offload@a\x2db.service'" \
    '[modules]' 'dws.args = [ "scheduler=none" ]'
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

# usage: told JOBID: what systemctl was told for the job, on any node
told () {
    sed -n "s/^$(flux job id --to=f58 "$1") [0-9]* //p" "$TRASH/systemctl.log"
}

# usage: is_told JOBID TEXT
is_told () {
    told "$1" | grep -F "$2"
}

# usage: ends_stopped JOBID: nnf-clientmount was started, and stopped at last. The
# job may end before: Flux does not wait for an epilog after a failed prolog.
ends_stopped () {
    told "$1" | tail -n 1 | grep "stop nnf-clientmount"
}

# ---- flux-modprobe

test_expect_success 'flux-modprobe loads the module as it is configured, and before the end of the job manager removes it' '
    flux module list | grep -w dws &&
    flux modprobe show dws | grep "scheduler=none" &&
    flux modprobe rc3 --dry-run >rc3 &&
    in_order "$(tr -cs "[:alnum:]-" " " <rc3)" dws job-manager &&
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'the module is not on rank 1, and cannot be' '
    flux exec -r 1 flux module list >modules &&
    ! grep -w dws modules &&
    test_must_fail flux exec -r 1 flux module load dws &&
    flux exec -r 1 flux dmesg | grep "dws.err.*is for rank 0, where the job manager is" &&
    broker_lives
'
# The configuration is the example as it is, where the module finds no mapping at first.
test_expect_success 'an instance starts although the module cannot, which is loaded by hand then' '
    mkdir example &&
    sed -e "s,\"dws-jobtap.so\",\"$JOBTAP\"," -e "s,/etc/flux/frob,$SITE/frob," \
        -e "s,/etc/flux/system/kubeconfig,$TRASH/kubeconfig," \
        -e "s,/etc/flux/system/rabbitmapping,$TRASH/none," \
        "$TOP/etc/examples/rabbit.toml" >example/rabbit.toml &&
    cat >inside <<-END &&
	. "$TESTDIR/flux.sh"
	flux module list >modules
	cp example/rabbit.toml right
	flux modprobe rc1 --dry-run >with
	rm example/rabbit.toml
	flux config reload && flux modprobe rc1 --dry-run >without
	sed "s,$TRASH/none,$TRASH/mapping," right >example/rabbit.toml
	flux config reload && flux modprobe load dws && flux module list >then &&
	flux run true
	END
    FLUX_CLI_PLUGINPATH_OVERRIDE=$SITE/cli/plugins \
        flux start --config-path="$TRASH/example" -Sbroker.boot-method=single \
        sh inside 2>start.err &&
    cat start.err &&
    grep -w job-manager modules &&
    ! grep -w dws modules &&
    grep -w dws then
'
test_expect_success 'it says once why, and nothing else of us' '
    grep -i -e dws -e Traceback start.err >said &&
    grep "dws: Invalid argument: not loaded, jobs with #DW directives wait" said &&
    grep "rabbit.mapping.*/none" said &&
    grep -F "broker.err[0]: dws: Invalid argument" said &&
    test $(wc -l <said) -eq 3
'
test_expect_success 'without a [rabbit] table flux-modprobe does not load the module' '
    grep "load dws" with &&
    grep run-all-rc1 without &&
    ! grep dws without
'
# ---- prolog and epilog

test_expect_success 'a job without directives has nothing to do with nnf-clientmount, whatever its memos say' '
    id=$(flux submit --urgency=hold true) &&
    flux job memo $id name=dependency-add \
        context="{\"description\":\"dws-create\"}" &&
    job_go $id &&
    wait_event $id clean &&
    flux job status $id &&
    test -z "$(told $id)"
'
test_expect_success 'the prolog keeps nnf-clientmount running while storage is being mounted' '
    id=$(flux submit --urgency=hold --setattr=system.dw="$DW requires=copy-offload" \
        sh -c "$LOOP") &&
    flux job memo $id rabbit_units="[\"evil.service\"]" &&
    job_send $id prerun &&
    job_arrives $id prerun &&
    eventually is_told $id start &&
    test "$(told $id)" = "start nnf-clientmount"
'
test_expect_success 'the epilog has it run until the storage is gone; units of daemons run in between, and a memo of the user changes nothing' '
    gates_open $id &&
    job_arrives $id running &&
    is_told $id "start offload" &&
    flux job memo $id rabbit_units="[]" &&
    wait_event $id memo -m rabbit_units=[] &&
    job_end $id &&
    job_succeeds $id &&
    told $id >log &&
    cat >expected <<-"END" &&
	start nnf-clientmount
	stop nnf-clientmount
	start offload@a\x2db.service
	stop offload@a\x2db.service
	start nnf-clientmount
	stop nnf-clientmount
	END
    diff expected log &&
    in_order "$(events $id)" epilog-finish:dws-epilog \
        epilog-finish:job-manager.epilog
'
test_expect_success 'a job that is cancelled in its prolog ends, and stops nnf-clientmount' '
    id=$(job_in prerun) &&
    eventually is_told $id start &&
    job_cancel $id &&
    gates_open $id &&
    wait_event $id clean &&
    eventually ends_stopped $id &&
    undrain_all
'
test_expect_success 'a prolog that waits too long for a mount fails with a line that says so' '
    late="storage is not mounted after 2s (rabbit.prolog_timeout)" &&
    sed -i "s/^tc_timeout.*/&\nprolog_timeout = \"2s\"/" conf/rabbit.toml &&
    flux config reload &&
    id=$(job_in prerun) &&
    wait_event $id exception -m type=prolog &&
    log_says "$(flux job id --to=f58 $id): $late" &&
    gates_open $id &&
    wait_event $id clean &&
    eventually ends_stopped $id &&
    undrain_all
'
test_expect_success 'a copy_in that takes too long fails its job, and no node is drained' '
    mkdir -p scratch/lustre &&
    echo carrots >scratch/lustre/input &&
    dw="$DW
#DW copy_in source=/lustre/input destination=\$DW_JOB_p1/\"state\":\"PreRun\"" &&
    id=$(flux submit -N2 --setattr=system.dw="$dw" --urgency=hold true) &&
    job_send $id datain &&
    wait_event $id clean &&
    job_exception $id dws "$late" &&
    sed -i /^prolog_timeout/d conf/rabbit.toml &&
    flux config reload &&
    gates_open $id &&
    no_workflows &&
    eventually ends_stopped $id &&
    only_drained
'
test_expect_success 'a prolog whose service does not start says so, and the nodes wait for the end of the storage' '
    touch nnf-clientmount.fails &&
    id=$(job_submit --urgency=hold true) &&
    gate_shut Teardown $id &&
    job_go $id &&
    wait_event $id epilog-finish -m description=job-manager.epilog &&
    rm nnf-clientmount.fails &&
    log_says "$(flux job id --to=f58 $id): cannot start nnf-clientmount" &&
    ! has_event $id free &&
    gates_open $id &&
    wait_event $id clean &&
    in_order "$(events $id)" epilog-finish:job-manager.epilog \
        epilog-finish:dws-epilog free &&
    undrain_all
'
# ---- an instance within a job

test_expect_success 'an instance that is a job drains its nodes without storage, and no others' '
    cat >inside <<-END &&
	. "$TESTDIR/flux.sh"
	flux resource drain -no "{nodelist} {reason}" >drained
	flux resource list -s free -no "{nodelist}" >>drained
	END
    id=$(job_submit -N2 --requires=host:compute-0[2-3] --urgency=hold \
        --setattr=system.dw_failure_tolerance=1 flux start \
        "-Sbroker.rc1_path=$TESTDIR/rc.sh rc1" -Sbroker.rc3_path= \
        --conf=resource.noverify=true sh inside) &&
    flux job memo $id "note=a line separator: $(printf "\342\200\250")" &&
    job_go $id &&
    wait_event $id clean &&
    cat drained &&
    grep "^compute-03 job $(flux job id --to=f58 $id) has no Rabbit storage" drained &&
    grep -x compute-02 drained &&
    undrain_all
'
test_done
