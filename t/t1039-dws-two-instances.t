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

# usage: other_instance SCRIPT: run it in an instance of one broker, compute-08, which has
# the same state each time
other_instance () {
    flux start --test-size=1 --test-hosts=compute-08 --config-path="$TRASH/other" \
        -Sbroker.rc1_path="$TESTDIR/rc.sh rc1" -Sbroker.rc3_path="$TESTDIR/rc.sh rc3" \
        -Sstatedir="$TRASH/state" sh -e "$1"
}

mkdir "$TRASH/state"
cp -r "$TRASH/conf" "$TRASH/other"
sed -i "s/compute-\[.*\]/compute-08/" "$TRASH/other/resource.toml"
cat >"$TRASH/crash.sh" <<'END'
flux module load dws scheduler=none
id=$(flux submit -N1 --setattr=system.dw="$DW" true)
flux job attach "$id"
flux job wait-event -t 60 "$id" clean
flux kvs get dws.instance >>identities
kill -9 $(flux getattr broker.pid)
END
cat >"$TRASH/again.sh" <<'END'
flux module load dws scheduler=none
flux module stats dws
flux kvs get dws.instance >>identities
flux module remove dws
END
export DW

test_expect_success 'a job is running, whose Workflow names the instance by its identity' '
    module_load &&
    id=$(job_in running) &&
    test "\"$(label $id)\"" = "$(flux kvs get dws.instance)"
'
test_expect_success 'another instance on the same cluster gives its job storage, and crashes' '
    ! other_instance crash.sh &&
    test $(wc -l <identities) -eq 1
'
test_expect_success 'it knows its identity when it starts again' '
    other_instance again.sh &&
    test $(wc -l <identities) -eq 2 &&
    test $(sort -u identities | wc -l) -eq 1 &&
    ! grep -x "$(flux kvs get dws.instance)" identities
'
test_expect_success 'the Workflow of the first job is untouched' '
    kube get workflows "$(workflow $id)" | grep "\"desiredState\": \"PreRun\"" &&
    job_end $id &&
    job_succeeds $id
'
test_done
