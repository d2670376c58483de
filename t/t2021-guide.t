#!/bin/sh
test_description='What the documents show of a console is what is printed'
. "$(dirname "$0")/tap.sh"

SITE=$PREFIX/etc/flux
FLUX_CLI_PLUGINPATH_OVERRIDE=$SITE/cli/plugins
export XDG_CONFIG_DIRS="$PREFIX/etc/xdg"
export PYTHON TESTDIR
# Job IDs begin with an ƒ as in the documents.
unset FLUX_F58_FORCE_ASCII

# Jobs on fewer than all four nodes do not get compute-04.
cluster_start --fault 'PreRun:mount:compute-04'
rabbit_conf 'tc_timeout = 0.5' 'policy.maximums.xfs = 1024' 'daemons.copy-offload = {}' \
    'presets.scratch = "#DW jobdw type=xfs capacity=100GiB name=scratch"'
instance_start 4
# The instance of a batch job in the guide ends as that of a user does.
unset FLUX_DISABLE_JOB_CLEANUP

# usage: shown_is_printed FILE: in a folder with what the examples use
shown_is_printed () {
    mkdir -p "$TRASH/scratch/lustre/input" example &&
    cp "$TOP/t/data/copy-in-out.sh" example &&
    cp -r "$TOP"/t/data/lustre/* "$TRASH/scratch/lustre" &&
    (cd example && BASH_ENV=$TESTDIR/flux.sh "$PYTHON" "$TESTDIR/console.py" "$TOP/$1")
}

test_expect_success 'load the module' '
    module_start scheduler=none
'
for document in doc/user.md doc/admin.md doc/man1/flux-getrabbit.rst; do
    test_expect_success "$document" '
        shown_is_printed "$document"
    '
done
test_done
