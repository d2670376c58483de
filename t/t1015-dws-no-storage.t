#!/bin/sh
test_description='A job with #DW directives never runs without storage'
. "$(dirname "$0")/tap.sh"

# On a machine that is busy an instance within this one is there late.
PATIENCE=180

FROBNICATOR=$PREFIX/etc/flux/frobnicator/dws.py

cluster_start
instance_conf job-manager.toml </dev/null
instance_conf ingest.toml <<END
[ingest.frobnicator]
plugins = [ "defaults", "constraints", "$FROBNICATOR" ]
END
instance_start 2
# The instances of jobs end as Flux's do.
unset FLUX_DISABLE_JOB_CLEANUP

# usage: nested COMMAND...: flux batch or flux alloc, with our shell plugin, which is
# found where flux-dws is installed with Flux
nested () {
    nested_command=$1
    shift
    flux "$nested_command" -N1 \
        --broker-opts=-Sconf.shell_pluginpath="$(flux getattr conf.shell_pluginpath)" \
        "$@"
}

# usage: refuses COMMAND...: the command fails, and says that there is no storage
refuses () {
    test_must_fail "$@" 2>err &&
    grep "no storage: .* dws-jobtap.so is not loaded" err &&
    test ! -e ran
}

cat >"$TRASH/inner" <<END
#!/bin/sh
flux run --setattr=system.dw="$DW" touch "$TRASH/ran" 2>"$TRASH/inner.err"
echo \$? >"$TRASH/inner.status"
flux run --setattr=system.dw= touch "$TRASH/empty"
END
chmod +x "$TRASH/inner"

test_expect_success 'without the plugin the frobnicator has #DW jobs refused' '
    test_must_fail job_submit true 2>err &&
    grep "dependency scheme \"rabbit-storage\" not supported" err
'
test_expect_success 'jobs without directives run' '
    flux run --setattr="system.dw=[]" true
'
test_expect_success 'with the plugin #DW jobs run' '
    plugin_load &&
    module_load &&
    id=$(job_submit sh -c "test -d \$DW_JOB_p1") &&
    job_succeeds $id &&
    flux job info $id jobspec | grep rabbit-storage &&
    both=$(job_submit --dependency=afterok:$id \
        --dependency=rabbit-storage:dws-jobtap.so true) &&
    job_succeeds $both
'
test_expect_success 'a #DW job in flux batch fails: its instance has no plugin' '
    id=$(nested batch --output=none ./inner) &&
    wait_event $id clean &&
    test "$(cat inner.status)" -ne 0 &&
    grep "no storage: .* dws-jobtap.so is not loaded" inner.err &&
    test ! -e ran &&
    test -e empty
'
test_expect_success 'without plugin and frobnicator a #DW job fails in its shell' '
    plugin_remove &&
    rm conf/ingest.toml &&
    flux config reload &&
    refuses flux run -N2 -n2 --setattr=system.dw="$DW" touch ran
'
test_expect_success 'flux alloc with directives does not start either' '
    refuses nested alloc --setattr=system.dw="$DW" touch ran
'
test_expect_success 'jobs without directives still run' '
    flux run -N2 --setattr=system.dw= true
'
test_done
