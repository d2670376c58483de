#!/bin/sh
test_description='Site scripts that fail, or hang, around jobs with storage'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf job-manager.toml <<END
[job-manager]
plugins = [
    { load = "$JOBTAP", conf = { epilog-timeout = 60.0 } },
    { load = "perilog.so" },
]
[job-manager.prolog]
command = [ "$TRASH/prolog" ]
timeout = "60s"  # prolog hangs
kill-timeout = 0.5
[job-manager.epilog]
command = [ "$TRASH/epilog" ]
timeout = "60s"  # epilog hangs
kill-timeout = 0.5
[job-manager.housekeeping]
command = [ "$TRASH/housekeeping" ]
END
# Scripts that do what $TRASH/broken says, and do not end at SIGTERM. Housekeeping first
# writes down the Workflows that are left.
test -n "$FLUX_DWS_INSIDE" || for name in prolog epilog housekeeping; do
    cat >"$TRASH/$name" <<-END
	#!/bin/sh
	trap "" TERM
	! grep -qx "$name hangs" "$TRASH/broken" || until test -e "$TRASH/go"; do sleep 0.1; done
	! grep -qx "$name fails" "$TRASH/broken"
	END
    chmod +x "$TRASH/$name"
    : >"$TRASH/broken"
done
test -n "$FLUX_DWS_INSIDE" || sed -i "2r /dev/stdin" "$TRASH/housekeeping" <<END
"$PYTHON" -I -S "$TESTDIR/kube.py" "$CLUSTER" 60 summary >"$TRASH/\$FLUX_JOB_ID" &&
    mv "$TRASH/\$FLUX_JOB_ID" "$TRASH/fluxjob-\$FLUX_JOB_ID.left"
END
instance_start 4

# usage: job_with SCRIPT PROBLEM: run a job of which a script has the problem; only where
# that is to hang has it a short time
job_with () {
    rm -f "$TRASH/go" &&
    echo "$1 $2" >"$TRASH/broken" &&
    sed "/# $1 $2/s/60s/1s/" "$TRASH/patient.toml" >"$TRASH/conf/job-manager.toml" &&
    flux config reload &&
    job=$(job_submit true) &&
    wait_event $job clean &&
    events $job >seen &&
    undrain_all
}

test_expect_success 'load the module' '
    cp conf/job-manager.toml patient.toml &&
    module_start scheduler=none
'
for problem in hangs fails; do
    test_expect_success "a job whose prolog $problem gives its storage and its nodes back" '
        job_with prolog '$problem' &&
        ! grep " start " seen &&
        in_order "$(cat seen)" epilog-finish:dws-epilog free &&
        eventually no_workflows
    '
    test_expect_success "a job whose epilog $problem gives its storage and its nodes back" '
        job_with epilog '$problem' &&
        in_order "$(cat seen)" start epilog-finish:dws-epilog free &&
        eventually no_workflows
    '
    test_expect_success "housekeeping that $problem comes after the storage is gone" '
        job_with housekeeping '$problem' &&
        in_order "$(cat seen)" start epilog-finish:dws-epilog free &&
        left=$(workflow $job).left &&
        eventually test -e $left &&
        ! grep -v " state=Teardown ready=True " $left &&
        no_workflows &&
        touch "$TRASH/go"
    '
done
test_expect_success 'the next job has all nodes and its storage' '
    : >"$TRASH/broken" &&
    job_succeeds $(flux submit -N4 -S dw="$DW" true)
'
test_done
