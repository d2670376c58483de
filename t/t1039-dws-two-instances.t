#!/bin/sh
test_description='Two Flux instances on one cluster: neither touches the storage of the other'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 2

# usage: label JOBID: the instance that the job's Workflow names
label () {
    kube get workflows "$(workflow "$1")" |
        sed -n 's/.*"flux-framework.readthedocs.io\/instance": "\(.*\)".*/\1/p'
}

is_in () {
    kube get workflows "$(workflow "$1")" | grep "\"desiredState\": \"$2\""
}

# usage: other_instance LINE [OPTION...]: run other.sh in an instance of one broker,
# compute-08, whose table [rabbit] has this line, too. "flux start" gets the options.
other_instance () {
    rm -rf other &&
    cp -r conf other &&
    echo "$1" >>other/rabbit.toml &&
    shift &&
    sed -i "s/compute-\[.*\]/compute-08/" other/resource.toml &&
    flux start --test-size=1 --test-hosts=compute-08 --config-path="$TRASH/other" \
        -Sbroker.rc1_path="$TESTDIR/rc.sh rc1" -Sbroker.rc3_path="$TESTDIR/rc.sh rc3" \
        "$@" sh -e "$TRASH/other.sh"
}

# usage: instance_renamed SCRIPT: sed changes the name in the configuration, with which
# the module is loaded again
instance_renamed () {
    sed -i "$1" conf/rabbit.toml &&
    flux config reload &&
    flux module remove dws &&
    module_load
}

cat >"$TRASH/other.sh" <<'END'
flux module load dws scheduler=none
id=$(flux submit -N1 --setattr=system.dw="$DW" true)
flux job attach "$id"
flux job wait-event -t 60 "$id" clean
flux module stats dws
flux module remove dws
END
export DW

test_expect_success 'a job is running, with storage' '
    module_load &&
    id=$(job_in running)
'
test_expect_success 'another instance on the same cluster gives its job storage' '
    other_instance ""
'
test_expect_success 'the Workflow of the first job is untouched' '
    is_in $id PreRun
'
test_expect_success 'so it is when the other instance has a name' '
    other_instance "instance = \"other\"" &&
    is_in $id PreRun
'
test_expect_success 'the Workflow names the instance, by an identity that Flux keeps' '
    test "\"$(label $id)\"" = "$(flux kvs get dws.instance)"
'
test_expect_success 'a module that is loaded again has the same identity' '
    flux module remove dws &&
    module_load &&
    other=$(job_in running) &&
    test "$(label $other)" = "$(label $id)"
'
test_expect_success 'both jobs end well' '
    job_end $id &&
    job_end $other &&
    job_succeeds $id &&
    job_succeeds $other
'
test_expect_success 'with a name, it is what the Workflows of new jobs have' '
    id=$(job_in running) &&
    echo "instance = \"el-cap.1\"" >>conf/rabbit.toml &&
    flux config reload &&
    eventually log_says "rabbit.instance: as before until the module is loaded again" &&
    flux module remove dws &&
    module_load &&
    other=$(job_in running) &&
    test "$(label $other)" = el-cap.1
'
test_expect_success 'a job from before it had a name ends well' '
    job_end $id &&
    job_end $other &&
    job_succeeds $id &&
    job_succeeds $other
'
test_expect_success 'a job ends well although the name is another one meanwhile' '
    id=$(job_in running) &&
    instance_renamed "s/el-cap.1/el-cap.2/" &&
    job_end $id &&
    job_succeeds $id &&
    no_workflows
'
test_expect_success 'so it does when the name is removed' '
    id=$(job_in running) &&
    instance_renamed "/^instance/d" &&
    job_end $id &&
    job_succeeds $id &&
    no_workflows
'
test_expect_success 'an instance that crashes knows its identity when it starts again' '
    cat >"$TRASH/other.sh" <<-"END" &&
	flux module load dws scheduler=none
	flux module stats dws >/dev/null
	flux kvs get dws.instance >>identities
	kill -9 $(flux getattr broker.pid)
	END
    mkdir state &&
    ! other_instance "" -Sstatedir="$TRASH/state" &&
    ! other_instance "" -Sstatedir="$TRASH/state" &&
    test $(wc -l <identities) -eq 2 &&
    test $(sort -u identities | wc -l) -eq 1
'
test_expect_success 'a name that Kubernetes would refuse is refused, and says why' '
    cp conf/rabbit.toml rabbit.toml &&
    echo "instance = \"el cap\"" >>conf/rabbit.toml &&
    test_must_fail flux config reload 2>err &&
    grep "rabbit.instance: is \"el cap\", expected a name of up to 63 letters" err &&
    cp rabbit.toml conf/rabbit.toml &&
    flux config reload
'
test_done
