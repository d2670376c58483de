#!/bin/sh
test_description='flux rabbitmapping: the topology of a live cluster'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 4

map () {
    flux rabbitmapping -k "$TRASH/kubeconfig" "$@"
}

# usage: same_json FILE FILE
same_json () {
    python_stdin '
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
sys.exit(0 if a == b else f"{a} and {b} differ")' "$1" "$2"
}

map_is_known () {
    map >now.json && same_json now.json mapping.json
}

test_expect_success 'flux rabbitmapping is a command with a usage' '
    flux rabbitmapping --help >help &&
    grep "^usage: flux rabbitmapping" help
'
test_expect_success 'flux rabbitmapping writes the mapping that the cluster was made from' '
    map_is_known
'
test_expect_success 'hostlists are folded, and --indent makes lines' '
    map --indent=2 >mapping.txt &&
    map -i 2 >short.txt &&
    cmp mapping.txt short.txt &&
    grep "^    \"rabbit-01\": {\$" mapping.txt &&
    grep "\"hostlist\": \"compute-\[01-02,05-06\]\"" mapping.txt
'
test_expect_success 'storage of jobs does not change a capacity' '
    module_load &&
    id=$(job_in running) &&
    kube get storages rabbit-01 | grep "\"capacity\"" &&
    eventually map_is_known &&
    job_let_go $id running &&
    job_succeeds $id
'
test_expect_success 'the service takes the output of flux rabbitmapping' '
    map >mapping.json &&
    flux module reload dws scheduler=none &&
    id=$(job_submit -N4 true) &&
    job_succeeds $id
'
test_done
