#!/bin/sh
test_description='flux rabbitmapping and flux getrabbit: which Rabbits there are, and which a job has'
. "$(dirname "$0")/tap.sh"

# Instances within instances take their time to start.
PATIENCE=100

cluster_start
instance_start 4

# usage: answers HOSTLIST COMMAND...: with this, and nothing on standard error
answers () {
    answers_wanted=$1
    shift
    "$@" >out 2>err &&
    test "$(cat out)" = "$answers_wanted" &&
    test_must_be_empty err
}

test_expect_success 'the service takes the output of flux rabbitmapping' '
    flux rabbitmapping --help | grep "^usage: flux rabbitmapping" &&
    flux rabbitmapping -k "$TRASH/kubeconfig" --indent=2 >mapping.json &&
    module_start scheduler=none &&
    active=$(job_submit -N4 sh -c "$LOOP") &&
    wait_event $active start
'
test_expect_success 'all Rabbits of the mapping that Flux is configured with' '
    answers "rabbit-[01-02]" flux getrabbit
'
# The module records it a moment after it has placed the storage.
test_expect_success 'the Rabbits of a job that runs, whatever its user writes, or else as the module knows them' '
    new=$(job_submit --requires=host:compute-03 sh -c "$LOOP") &&
    job_end $active &&
    wait_event $new start &&
    flux job memo $new "rabbits=rabbit-01,\$(reboot)" &&
    answers rabbit-02 flux getrabbit -j $new &&
    record=$(flux job id --to=kvs $new).rabbit_hostlist &&
    eventually flux kvs get $record &&
    flux kvs unlink $record &&
    answers rabbit-02 flux getrabbit -j $new
'
test_expect_success 'a service that dies over the question is an error' '
    service=$(service_pid) &&
    module_trace &&
    process_stop $service &&
    { { eventually grep "rx > dws" asked; kill -KILL $service; } & } &&
    command_fails getrabbit "the dws service" flux getrabbit -j $new &&
    eventually flux getrabbit -j $new &&
    job_end $new &&
    job_succeeds $new
'
test_expect_success 'the Rabbits of a job that has ended, and of nodes, each once' '
    job_succeeds $active &&
    answers "rabbit-[01-02]" flux getrabbit -c compute-04 -j $active
'
test_expect_success 'within a batch job, and jobs of that, what the instance around it knows' '
    cat >batch.sh <<-END &&
	#!/bin/sh
	. "$TESTDIR/flux.sh"
	flux getrabbit >all
	flux getrabbit -c compute-01 >node
	flux getrabbit -j $active >job
	flux getrabbit -j \$(flux getattr jobid) >own
	flux alloc -n1 flux getrabbit rabbit-02 >deeper
	END
    batch=$(flux batch -N1 --requires=host:compute-03 -S dw="$DW" batch.sh) &&
    job_succeeds $batch &&
    test "$(cat all)" = "rabbit-[01-02]" &&
    test "$(cat node)" = rabbit-01 &&
    test "$(cat job)" = "rabbit-[01-02]" &&
    test "$(cat own)" = rabbit-02 &&
    test "$(cat deeper)" = "compute-[03-04,07-08]"
'
test_expect_success 'what is no job, a job without storage (yet) or that of somebody else is an error' '
    held=$(job_submit --urgency=hold true) &&
    command_fails getrabbit "job $held has no storage on Rabbits" \
        flux getrabbit -j $active $held &&
    job_cancel $held &&
    wait_event $held clean &&
    command_fails getrabbit "job f1 not found" flux getrabbit -j f1 &&
    command_fails getrabbit "job $active is not yours" as_guest flux getrabbit -j $active
'
test_expect_success 'without a mapping the error says what is missing' '
    test_must_fail flux start -Sbroker.rc1_path= -Sbroker.rc3_path= flux getrabbit 2>err &&
    grep "ERROR: rabbit.mapping is not set in Flux.s configuration" err
'
test_done
