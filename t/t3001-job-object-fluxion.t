#!/bin/sh
test_description='flux dws job-object: storage that a real Fluxion placed'
. "$(dirname "$0")/tap.sh"

need_fluxion

# Four nodes are on two Rabbits of 8 x 128 GiB.
cluster_start
fluxion_start 4 --no-validate

# usage: says FILE PATH: what the elements at this path (as in ElementTree) say
says () {
    python_stdin '
import sys
import xml.etree.ElementTree as ElementTree
from sssjob import read

document = open(sys.argv[1], "rb").read()
read(document.decode("utf-8"))
for element in ElementTree.fromstring(document).findall(sys.argv[2]):
    print(element.text)' "$@"
}

test_expect_success 'a job with storage on two Rabbits runs' '
    flux module load dws &&
    id=$(job_submit -N4 -n4 -t 1m true) &&
    job_succeeds $id &&
    event_context $id jobspec-update | grep "\"ssd\"" &&
    flux dws job-object $id >job.xml 2>err &&
    test_must_be_empty err
'
test_expect_success 'the storage that Fluxion added is not what was asked for' '
    says job.xml Requested/NodeCount | grep -x 4 &&
    says job.xml Requested/Processors | grep -x 4 &&
    says job.xml "Requested/Resource[@name=\"Storage\"][@type=\"xfs\"]" | grep -x 10 &&
    says job.xml Extension >extensions &&
    test $(wc -l <extensions) -eq 2
'
test_expect_success 'the storage that was delivered is 128 GiB for each node' '
    says job.xml "Delivered/Resource[@type=\"ssd\"][@units=\"GB\"]" | grep -x 512 &&
    says job.xml "Extension[@name=\"rabbits\"]" | grep -x "rabbit-\[01-02\]"
'
test_done
