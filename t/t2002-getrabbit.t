#!/bin/sh
test_description='flux getrabbit: which Rabbits, of whom'
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

test_expect_success 'all Rabbits of the mapping that Flux is configured with' '
    answers "rabbit-[01-02]" flux getrabbit
'
test_expect_success 'the answer of one is the question of another' '
    flux hostlist -S $(flux getrabbit $(flux getrabbit)) >found &&
    test "$(cat found)" = "compute-[01-08]"
'
test_expect_success 'no hosts: flux hostlist has no output and no error either' '
    answers "" flux hostlist ""
'
test_expect_success 'the Rabbits of a job that runs' '
    module_load &&
    active=$(job_submit -N4 sh -c "$LOOP") &&
    wait_event $active start &&
    answers "rabbit-[01-02]" flux getrabbit -j $active
'
test_expect_success 'the Rabbits of a job that has ended, and of several jobs' '
    job_end $active &&
    job_succeeds $active &&
    ended=$(job_submit --requires=host:compute-03 true) &&
    job_succeeds $ended &&
    answers rabbit-02 flux getrabbit -j $ended &&
    answers "rabbit-[02,01]" flux getrabbit -j $ended $active &&
    answers "rabbit-[02,01]" flux getrabbit -j $ended -j $active
'
test_expect_success 'a memo that the user of a job writes changes nothing' '
    wrong=$(job_submit --requires=host:compute-03 sh -c "$LOOP") &&
    wait_event $wrong start &&
    flux job memo $wrong "rabbits=rabbit-01,\$(reboot)" &&
    answers rabbit-02 flux getrabbit -j $wrong &&
    job_end $wrong &&
    job_succeeds $wrong
'
# The module records it a moment after it has placed the storage.
test_expect_success 'of a job without a record the module knows the Rabbits' '
    new=$(job_submit --requires=host:compute-03 sh -c "$LOOP") &&
    wait_event $new start &&
    record=$(flux job id --to=kvs $new).rabbit_hostlist &&
    eventually flux kvs get $record &&
    flux kvs unlink $record &&
    answers rabbit-02 flux getrabbit -j $new
'
# A minute is long for a test.
test_expect_success 'a module that does not answer is an error' '
    cp "$PREFIX/libexec/flux/cmd/flux-getrabbit.py" hasty.py &&
    set_constant hasty.py PATIENCE 1.0 &&
    service=$(service_pid) &&
    process_stop $service &&
    {
        command_fails getrabbit "the dws module has not answered for 1 s" \
            timeout 30 flux python hasty.py -j $new
        status=$?
        kill -CONT $service
    } &&
    test $status -eq 0
'
test_expect_success 'so is a service that dies over the question' '
    process_stop $service &&
    { { sleep 5; kill -KILL $service; } & } &&
    command_fails getrabbit "the dws service" flux getrabbit -j $new &&
    eventually flux getrabbit -j $new &&
    job_end $new &&
    job_succeeds $new
'
test_expect_success 'the Rabbits of jobs and of nodes together, each once' '
    answers rabbit-02 flux getrabbit -j $ended -c compute-04 &&
    answers "rabbit-[02,01]" flux getrabbit -j $ended -c "compute-[01-04]" &&
    answers "rabbit-[02,01]" flux getrabbit -c compute-01 -j $ended
'
test_expect_success 'within a batch job, what the instance around it knows' '
    cat >batch.sh <<-END &&
	#!/bin/sh
	flux getrabbit >all
	flux getrabbit -c compute-01 >node
	flux getrabbit -j $ended >job
	flux getrabbit -j \$(flux getattr jobid) >own
	flux alloc -n1 flux getrabbit compute-01 2>&1 | cat >inner
	flux alloc -n1 flux getrabbit rabbit-02 >deeper
	END
    batch=$(flux batch -N1 --requires=host:compute-03 -S dw="$DW" batch.sh) &&
    job_succeeds $batch &&
    test "$(cat all)" = "rabbit-[01-02]" &&
    test "$(cat node)" = rabbit-01 &&
    test "$(cat job)" = rabbit-02 &&
    test "$(cat own)" = rabbit-02 &&
    grep "no such Rabbit: compute-01" inner &&
    test "$(cat deeper)" = "compute-[03-04,07-08]"
'
test_expect_success 'the Rabbits of a job that failed' '
    failed=$(job_submit --requires=host:compute-01 sh -c "exit 3") &&
    wait_event $failed clean &&
    answers rabbit-01 flux getrabbit --jobids $failed
'
test_expect_success 'a job without storage, or not with it yet, is an error' '
    plain=$(flux submit true) &&
    wait_event $plain clean &&
    command_fails getrabbit "job $plain has no storage on Rabbits" \
        flux getrabbit -j $plain &&
    held=$(job_submit --urgency=hold true) &&
    command_fails getrabbit "job $held has no storage on Rabbits" \
        flux getrabbit -j $ended $held &&
    job_cancel $held &&
    wait_event $held clean
'
test_expect_success 'an argument that is no job is an error' '
    command_fails getrabbit "not the ID of a job: compute-01" \
        flux getrabbit -j compute-01 &&
    command_fails getrabbit "job f1 not found" flux getrabbit -j f1
'
test_expect_success "a job of somebody else is not shown" '
    command_fails getrabbit "job $ended is not yours" as_guest flux getrabbit -j $ended
'
test_expect_success 'without a mapping the error says what is missing' '
    test_must_fail flux start flux getrabbit 2>err &&
    grep "ERROR: rabbit.mapping is not set in Flux.s configuration" err
'
test_done
