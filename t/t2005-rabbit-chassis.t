#!/bin/sh
test_description='flux submit --rabbit-chassis=N, with a real Fluxion'
. "$(dirname "$0")/tap.sh"

need_fluxion

FLUX_CLI_PLUGINPATH_OVERRIDE=$PREFIX/etc/flux/cli/plugins

# Eight nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
fluxion_start 8

# usage: share JOBID: how many of its nodes each Rabbit has
share () {
    flux hostlist -e -d "\n" "$(flux jobs -no "{nodelist}" "$1")" \
        | sed 's/compute-0[1256]/rabbit-01/; s/compute-0[3478]/rabbit-02/' \
        | sort | uniq -c | awk '{ print $2 "=" $1 }' | tr "\n" " "
}

# usage: is_shared JOBID WORDS: these are the shares
is_shared () {
    share "$1" | tee shares &&
    test "$(cat shares)" = "$2 "
}

test_expect_success 'load the module' '
    flux module load dws &&
    eventually stats_say "\"kubernetes\": \"ok\""
'
test_expect_success 'a job has as many nodes on each chassis' '
    for n in 2 4 8; do
        id=$(flux submit -N$n --rabbit-chassis=2 true) &&
        wait_event $id clean &&
        flux job status $id &&
        is_shared $id "rabbit-01=$((n / 2)) rabbit-02=$((n / 2))" || return 1
    done
'
test_expect_success 'on one chassis a job has all of its nodes' '
    id=$(flux submit -N4 --rabbit-chassis=1 true) &&
    wait_event $id clean &&
    share $id | grep -x "rabbit-0[12]=4 "
'
test_expect_success 'more chassis than there are cannot be had' '
    test_must_fail flux submit -N3 --rabbit-chassis=3 true 2>err &&
    cat err &&
    grep -i -e "--rabbit-chassis=3: the scheduler: unsatisfiable" err
'
test_expect_success 'with storage, each chassis gives what its nodes need' '
    id=$(job_submit -N4 --rabbit-chassis=2 hostname) &&
    job_succeeds $id &&
    is_shared $id "rabbit-01=2 rabbit-02=2" &&
    test "$(memos $id rabbits)" = "rabbit-[01-02]" &&
    flux job info $id R >R.json &&
    python_stdin "
import json
nodes = json.load(open(\"R.json\"))[\"scheduling\"][\"graph\"][\"nodes\"]
ssds = [n[\"metadata\"][\"paths\"][\"containment\"] for n in nodes
        if n[\"metadata\"][\"type\"] == \"ssd\"]
print(ssds)
assert len(ssds) == 4 and len({path.split(\"/\")[2] for path in ssds}) == 2
"
'
test_expect_success 'as many tasks run on the chassis as were asked for' '
    for n in 4 6 8; do
        id=$(job_submit -N4 -n$n --rabbit-chassis=2 hostname) &&
        job_succeeds $id &&
        test $(flux job attach $id 2>/dev/null | wc -l) -eq $n || return 1
    done
'
test_expect_success 'flux alloc has its nodes from all chassis, and storage on them' '
    cat >inside <<-"END" &&
	#!/bin/sh
	flux resource list -s free -no "{nnodes}"
	test -n "$DW_JOB_p1" && echo "$DW_JOB_p1"
	END
    chmod +x inside &&
    flux alloc -N2 --rabbit-chassis=2 -S dw="$DW" --conf=resource.noverify=true \
        ./inside >out 2>err &&
    cat out err &&
    test "$(head -n 1 out)" = 2 &&
    test "$(wc -l <out)" -eq 2
'
test_done
