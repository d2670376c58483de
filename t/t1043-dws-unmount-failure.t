#!/bin/sh
test_description='One node that does not unmount is one bad node, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# A node that was seen not to be drained yet is asked for again a minute later: the job
# is not to give up before.
PATIENCE=120

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start --fault 'PostRun:mount:compute-02'
brokers_return "compute-[01-08]"
# usage: with_fence COMMAND...: with what the site has in the [rabbit] table
with_fence () {
    "$@" 'unmount_failure = "keep"' "fence_command = [ \"$TRASH/is-fenced\", \"--quiet\" ]"
}

with_fence rabbit_conf
instance_conf job-manager.toml <<END
[job-manager]
plugins = [ { load = "$JOBTAP", conf = { epilog-timeout = 300.0 } } ]
END

# usage: program: what is read is the program that knows which nodes are fenced
program () {
    cat >"$TRASH/new" &&
    chmod +x "$TRASH/new" &&
    mv "$TRASH/new" "$TRASH/is-fenced"
}

test -n "$FLUX_DWS_INSIDE" || {
    echo true | program
    fluxion_conf 8
}
instance_start 8 --test-exit-mode=leader

# Print the ID of a job on all nodes, of which all but the bad one unmount in time.
late_job () {
    with_fence config_reload &&
    late_job_id=$(saving_job 100 "" -N8) &&
    kube wait "$(workflow "$late_job_id")" PostRun &&
    eventually are_late "$late_job_id" compute-02 &&
    with_fence config_reload 'postrun_timeout = 1' &&
    echo "$late_job_id"
}

# usage: is_gone PID
is_gone () {
    ! kill -0 "$1" 2>/dev/null
}

# usage: is_kept JOBID: the job has ended, and its storage waits for the bad node
is_kept () {
    wait_event "$1" clean &&
    kube wait "$(workflow "$1")" PostRun &&
    flux dws show "$1" | grep "compute-02 to unmount, or to be off"
}

test_expect_success 'a node that the site has fenced keeps no storage' '
    program <<-END &&
	#!/bin/sh
	test -z "\$PYTHONPATH" || exit 1  # it may be of any Python
	sleep 100 &
	kill \$!
	wait
	echo "\$@" >"$TRASH/asked"
	echo compute-02
	END
    module_start &&
    fenced=$(late_job) &&
    wait_event $fenced clean &&
    no_workflows &&
    eventually job_kvs $fenced rabbit_data_out &&
    job_kvs $fenced rabbit_data_out | grep "compute-02 has not unmounted" &&
    test "$(cat asked)" = "--quiet compute-02" &&
    log_says "compute-02 cannot write any more, by rabbit.fence_command" &&
    is_drained compute-02 "could not be unmounted"
'
test_expect_success 'until somebody has it serve again' '
    program <<-END &&
	#!/bin/sh
	sleep 1000 &
	echo \$\$ \$! >"$TRASH/running"
	wait
	END
    flux resource undrain compute-02 &&
    eventually log_says "compute-02 is not fenced any more" &&
    kube wait-node compute-02 Enabled
'
test_expect_success 'no program is left when the module is removed' '
    first=$(late_job) &&
    eventually test -s running &&
    kill -0 $(cat running) &&
    program <<-END &&
	#!/bin/sh
	echo \$PPID \$\$ >"$TRASH/killed"
	exec sleep 1000
	END
    flux module remove dws &&
    for pid in $(cat running); do
        eventually is_gone $pid || return 1
    done
'
test_expect_success 'no program is left when the service is killed' '
    flux module load dws &&
    eventually test -s killed &&
    read -r service pid <killed &&
    printf "#!/bin/sh\nexit 1\n" | program &&
    kill -KILL $service &&
    eventually is_gone $pid
'
test_expect_success 'a job ends although one of its nodes has not unmounted' '
    is_kept $first &&
    flux job status $first &&
    log_says "rabbit.fence_command: it ended with status 1; no node is taken for" &&
    event_context $first exception >exceptions &&
    test $(wc -l <exceptions) -eq 1 &&
    grep "dws-node-failure.*compute-02: PostRun took more.*the storage is kept" exceptions &&
    flux job info $first rabbit_kept_for | grep "\"nodes\": \"compute-02\""
'
test_expect_success 'that node is drained by name, and no other, and not Disabled' '
    is_drained compute-02 "could not be unmounted" &&
    only_drained compute-02 &&
    node_is Enabled compute-02
'
test_expect_success 'its storage is kept, and other storage of its Rabbits is given out' '
    ssds_down 8 8 &&
    with_fence config_reload &&
    second=$(flux submit -N7 -S dw="#DW jobdw type=xfs capacity=10GiB name=p1" true) &&
    job_succeeds $second
'
test_expect_success 'a broker that is gone is not enough' '
    broker_dies 1 &&
    eventually are_offline compute-02 &&
    is_kept $first &&
    node_is Enabled compute-02
'
test_expect_success 'once its link is Offline as well, the data of the others goes out' '
    kube link compute-02 Offline &&
    kube wait-node compute-02 Disabled &&
    no_workflows &&
    eventually job_kvs $first rabbit_data_out &&
    job_kvs $first rabbit_data_out | grep "compute-02 has not unmounted: what it had not written" &&
    log_says "its data is not out: compute-02 has not unmounted" &&
    ssds_down 0 0
'
test_done
