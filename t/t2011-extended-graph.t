#!/bin/sh
test_description='flux dws2jgf: a graph that is extended, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Eight nodes are on two Rabbits of 8 x 128 GiB, compute-09 is on none. The graph
# without Rabbits is the one that Fluxion's own "flux ion-R" makes.
fluxion_conf () {
    write_config "$1"
    default_conf fluxion.toml <<-END
	[resource]
	scheduling = "$TRASH/scheduling.json"
	[sched-fluxion-resource]
	match-policy = "firstnodex"
	match-format = "rv1"
	prune-filters = "ALL:core,ALL:ssd"
	END
    flux R parse-config "$TRASH/conf/resource.toml" | flux ion-R encode >"$TRASH/R.json" &&
    python "$PREFIX/libexec/flux/cmd/flux-dws2jgf.py" --only-sched -c8 \
        "$TRASH/mapping.json" <"$TRASH/R.json" >"$TRASH/scheduling.json" \
        2>"$TRASH/warnings" || die "no graph: $(cat "$TRASH/warnings")"
}
cluster_start
fluxion_start 9

test_expect_success 'Fluxion has loaded it: a chassis for each Rabbit, and its ssd' '
    flux ion-resource stats >stats &&
    grep "Num. of Vertices: *$((1 + 2 + 2 * 8 + 9 * 5))\$" stats &&
    ! flux dmesg | grep "sched-fluxion.*\.err\["
'
test_expect_success 'the module finds the Rabbits and their nodes in it' '
    module_start &&
    stats_say "\"unknown_nodes\": 0"
'
test_expect_success 'jobs without storage run on all nodes' '
    id=$(flux submit -N9 true) &&
    flux job status $id
'
test_expect_success 'jobs with storage get nodes and storage below one Rabbit, or below both' '
    one=$(job_submit -N4 sh -c "test -d \$DW_JOB_p1") &&
    job_succeeds $one &&
    case $(flux getrabbit -j $one) in
    rabbit-01) nodes="compute-[01-02,05-06]" ;;
    rabbit-02) nodes="compute-[03-04,07-08]" ;;
    esac &&
    test "$(flux jobs -no "{nodelist}" $one)" = "$nodes" &&
    both=$(job_submit -N8 true) &&
    job_succeeds $both &&
    test "$(flux getrabbit -j $both)" = "rabbit-[01-02]" &&
    id=$(job_submit -N9 true) &&
    wait_event $id clean &&
    job_exception $id dws "asks for 9 nodes, and 8 are below Rabbits"
'
test_expect_success 'the ssd of a Rabbit that is broken are found there' '
    kube disable rabbit-01 &&
    ssds_down 8 8 &&
    kube enable rabbit-01 &&
    ssds_down 0 0
'
test_done
