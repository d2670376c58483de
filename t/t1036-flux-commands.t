#!/bin/sh
test_description='What flux jobs, flux run and flux job attach show of Rabbit storage'
. "$(dirname "$0")/tap.sh"

FLUX_CLI_PLUGINPATH_OVERRIDE=$PREFIX/etc/flux/cli/plugins
export XDG_CONFIG_DIRS="$PREFIX/etc/xdg"

COPY="#DW copy_out source=\$DW_JOB_p1/out destination=/lustre/output/"

cluster_start
rabbit_conf 'save_datamovements = 1' 'daemons.copy-offload = {}' \
    "presets.copy = [ \"$DW requires=copy-offload\", \"$COPY\" ]"
instance_start 2

MAKE="echo data >\$DW_JOB_p1/out"
COPIES="copy_out copies \$DW_JOB_p1/out to /lustre/output/: flux dws wait"
WAITS="the job starts when its storage is ready: flux dws list shows how far it is"

# usage: shows JOBID TEXT: the line of the job in flux jobs -o rabbit
shows () {
    flux jobs -n -o rabbit "$1" | tee line | grep "^ *$1 .*$2" || ! cat line
}

test_expect_success 'flux jobs -o rabbit says why a job waits, and how far it is, where' '
    flux jobs -o help | grep "^ *rabbit .*Rabbit storage" &&
    id=$(job_submit true) &&
    eventually shows $id "depends:dws-create .*the dws module is not loaded" &&
    gate_shut PreRun &&
    module_load &&
    eventually shows $id "R  *1 .* compute-0[12] .*rabbit-01 .*PreRun [01]/1 mounted"
'
test_expect_success 'flux jobs -o rabbit leaves out columns without a value' '
    plain=$(flux submit -N1 true) &&
    wait_event $plain clean &&
    flux jobs -o rabbit $plain >lines &&
    grep "^ *$plain .*CD  *1 .* compute-0[12]" lines &&
    ! grep RABBIT lines
'
test_expect_success 'flux jobs -o rabbit shows why a job has failed' '
    flux cancel --message="no need" $id &&
    wait_event $id clean &&
    shows $id "CA .*no need" &&
    rm gates/PreRun
'

# What we say: the nodes of a test have cores that the machine does not have.
ours () {
    grep -v cpu-affinity || true
}

test_expect_success 'flux run says that data is copied only now' '
    gate_shut DataOut &&
    { command flux run -N1 --dw=copy sh -c "$MAKE" >out 2>err & } &&
    run=$! &&
    eventually grep -F "$COPIES" err &&
    id=$(sed -n "s/.*flux dws wait \([^ ]*\) waits for that$/\1/p" err) &&
    kube wait $(workflow $id) DataOut &&
    kill -0 $run &&
    job_kvs $id dws_token &&
    rm gates/DataOut &&
    wait $run &&
    grep data scratch/lustre/output/out &&
    flux job info $id rabbit_datamovements &&
    test_must_be_empty out &&
    ours <err >lines &&
    test $(wc -l <lines) -eq 1
'
test_expect_success 'flux job attach says so, too, and is quiet if it is to be' '
    flux job attach $id 2>err &&
    grep -F "$COPIES $id waits for that" err &&
    flux job attach --quiet $id 2>err &&
    ours <err >lines &&
    test_must_be_empty lines
'
test_expect_success 'data of a job that was cancelled is copied, and flux job attach says so' '
    rm scratch/lustre/output/out &&
    id=$(flux submit -N1 --dw=copy sh -c "$MAKE; touch made; exec sleep inf") &&
    eventually test -e made &&
    flux cancel $id &&
    ! flux job attach $id 2>err &&
    grep "job.exception.*type=cancel" err &&
    grep -F "now, after the tasks, $COPIES $id waits for that" err &&
    flux dws wait $id &&
    grep data scratch/lustre/output/out
'
test_expect_success 'in a terminal flux run says what the job waits for' '
    terminal flux run -N1 --dw=copy sh -c "$MAKE" >shown &&
    grep "^flux-run: $WAITS" shown &&
    grep -F "now, after the tasks, $COPIES" shown
'
test_expect_success 'only there, and only of jobs with storage' '
    terminal flux run -N1 true >shown &&
    terminal flux submit -N1 --dw="$DW" true >>shown &&
    terminal env FLUX_ATTACH_NONINTERACTIVE=1 flux run -N1 --dw="$DW" true >>shown &&
    ! grep "storage is ready" shown
'
test_expect_success 'flux alloc in a terminal says what is copied before it begins' '
    terminal flux alloc -N1 --dw=copy \
        sh -c "echo it begins; $MAKE" >shown &&
    grep "^flux-alloc: $WAITS" shown &&
    grep -F "after the job, $COPIES" shown &&
    in_order "$(tr "\r\n" "  " <shown)" "after" "job," "copy_out" "it" "begins"
'
test_expect_success 'within a batch job flux --parent dws shows its storage, and no line its copies' '
    cat >inside.sh <<-\END &&
	#!/bin/sh
	echo data >$DW_JOB_p1/out
	flux dws list 2>&1
	flux dws show $FLUX_ENCLOSING_ID 2>&1
	flux --parent dws list -n -o "{id.f58plain} {state}"
	END
    id=$(flux batch -N1 --dw=copy --output=inside.out inside.sh) &&
    job_succeeds $id &&
    flux job attach $id 2>err &&
    ! grep copy_out inside.out err &&
    grep "^flux-dws: ERROR: the dws module is not loaded: .* .flux --parent dws. asks" inside.out &&
    grep "^flux-dws: ERROR: job .* not found: .* .flux --parent dws. asks" inside.out &&
    grep -x "$(flux job id --to=f58plain $id) PreRun" inside.out
'
test_expect_success 'flux batch warns of #DW lines that are not read' '
    printf "#!/bin/sh\n#flux: -N1\n%s\n%s\n" "$DW" "$COPY" >unread.sh &&
    flux batch --dry-run unread.sh >/dev/null 2>err &&
    grep "^flux-batch: WARNING: line 3: Flux does not read #DW lines" err &&
    test $(wc -l <err) -eq 1 &&
    flux batch --dry-run --dw=copy unread.sh 2>err >/dev/null &&
    test_must_be_empty err
'
test_done
