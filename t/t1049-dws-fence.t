#!/bin/sh
test_description='The program that knows which nodes are fenced, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# A node that was seen not to be drained yet is asked for again a minute later: the job
# is not to give up before.
PATIENCE=120

# Eight nodes are on two Rabbits. One of them does not unmount.
cluster_start --fault 'PostRun:mount:compute-02'
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
postrun_timeout = 1
unmount_failure = "keep"
fence_command = [ "$TRASH/is-fenced" ]
END
instance_conf job-manager.toml <<END
[job-manager]
plugins = [ { load = "$JOBTAP", conf = { epilog-timeout = 300.0 } } ]
END
test -n "$FLUX_DWS_INSIDE" || fluxion_conf 8
instance_start 8

# usage: program: the program is what is read
program () {
    cat >"$TRASH/new" &&
    chmod +x "$TRASH/new" &&
    mv "$TRASH/new" "$TRASH/is-fenced"
}

# usage: is_gone PID
is_gone () {
    ! kill -0 "$1" 2>/dev/null
}

test_expect_success 'a program may end what it has started, and may be of any Python' '
    program <<-END &&
	#!/bin/sh
	test -z "\$PYTHONPATH" || exit 1
	sleep 100 &
	kill \$!
	wait
	echo compute-02
	END
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    jobid=$(flux submit -N8 -S dw="$DW" true) &&
    wait_event $jobid clean &&
    no_workflows &&
    log_says "compute-02 cannot write any more, by rabbit.fence_command" &&
    flux resource undrain compute-02
'
test_expect_success 'no program is left when the service is killed' '
    program <<-END &&
	#!/bin/sh
	echo \$PPID \$\$ >"$TRASH/killed"
	exec sleep 1000
	END
    jobid=$(flux submit -N8 -S dw="$DW" true) &&
    eventually test -s "$TRASH/killed" &&
    read -r service pid <"$TRASH/killed" &&
    program <<-END &&
	#!/bin/sh
	echo compute-02
	END
    kill -KILL $service &&
    eventually is_gone $pid &&
    wait_event $jobid clean &&
    no_workflows &&
    flux resource undrain compute-02
'
test_expect_success 'no program is left when the module is removed' '
    program <<-END &&
	#!/bin/sh
	sleep 1000 &
	echo \$\$ \$! >"$TRASH/running"
	wait
	END
    jobid=$(flux submit -N8 -S dw="$DW" true) &&
    eventually test -s "$TRASH/running" &&
    kill -0 $(cat "$TRASH/running") &&
    flux module remove dws &&
    for pid in $(cat "$TRASH/running"); do
        eventually is_gone $pid || return 1
    done
'
test_expect_success 'the storage is kept, and goes when the program says so' '
    program <<-END &&
	#!/bin/sh
	echo compute-02
	END
    flux module load dws &&
    wait_event $jobid clean &&
    no_workflows
'
test_done
