#!/bin/sh
test_description='Queries while the module, Kubernetes, modules of Flux or the client fail'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 2

# usage: follow_all JOBID: three commands that follow the job, in the background
follow_all () {
    command flux dws wait "$1" >wait.out 2>wait.err &
    wait_pid=$!
    command flux dws show --follow "$1" >show.out 2>show.err &
    show_pid=$!
    command flux dws wait --json "$1" >json.out 2>json.err &
    json_pid=$!
}

# They all show this state, and nothing has failed.
all_show () {
    grep -q "$1" wait.out && grep -q "$1" show.out && grep -q "$1" json.out &&
    ! grep ERROR wait.err show.err json.err
}

# All end, and say that the storage is gone.
all_end_well () {
    wait "$wait_pid" && wait "$show_pid" && wait "$json_pid" &&
    tail -n 1 wait.out | grep "storage is gone" &&
    tail -n 1 show.out | grep "storage is gone" &&
    tail -n 1 json.out | grep "\"state\": \"ended\""
}

# usage: held COUNT: the module holds so many queries
held () {
    test "$(flux module stats dws | python -c \
        'import json, sys; print(json.load(sys.stdin)["queries"]["held"])')" -eq "$1"
}

# usage: one_line TEXT FILE: all that the command wrote
one_line () {
    grep "$1" "$2" && test $(wc -l <"$2") -eq 1
}

shows_outage () {
    flux dws list -n 2>&1 | grep "last heard of" &&
    flux dws show "$1" | grep "^Kubernetes: *last heard of"
}

test_expect_success 'jobs are followed while the module is loaded again' '
    module_load &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    gate_shut PreRun &&
    gate_shut PostRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    follow_all $id &&
    eventually held 3 &&
    flux module reload dws scheduler=none &&
    eventually held 3 &&
    all_show PreRun &&
    one_line "the dws module is away: waiting for it" wait.err
'
test_expect_in_soak 'while it is removed, and when it is back' '
    flux module remove dws &&
    sleep 2 &&
    module_load watchdog=15 &&
    eventually held 3 &&
    all_show PreRun
'
test_expect_success 'while the service is killed' '
    service_kill &&
    eventually held 3 &&
    all_show PreRun
'
test_expect_in_soak 'while the service hangs, and other commands have an end' '
    process_stop $(service_pid) &&
    { flux dws list >list.out 2>&1 || test $? -eq 1; } &&
    test $(wc -l <list.out) -le 2 &&
    eventually held 3 &&
    all_show PreRun
'
test_expect_in_soak 'while the module is killed' '
    module_kill &&
    command_fails dws "the dws module is not loaded" flux dws rabbits &&
    sleep 1 &&
    module_load &&
    eventually held 3 &&
    all_show PreRun
'
test_expect_success 'while the plugin and the modules of Flux are loaded again' '
    flux jobtap remove dws-jobtap.so &&
    flux jobtap load $JOBTAP &&
    flux module reload job-list &&
    flux module reload job-info &&
    flux module reload kvs-watch &&
    eventually held 3 &&
    all_show PreRun
'
test_expect_in_soak 'while Kubernetes hangs all commands show what is known, with its age' '
    process_stop $KUBE_PID &&
    another=$(job_submit true) &&
    eventually shows_outage $id &&
    flux dws rabbits -n >out 2>err &&
    grep "last heard of" err &&
    flux dws metrics >metrics &&
    flux dws timeline -o jobs.svg &&
    eventually grep "last heard of" wait.out &&
    kill -CONT $KUBE_PID &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    all_show PreRun
'
test_expect_success 'commands that wait go on to the end of the job' '
    rm gates/PreRun &&
    kube wait $(workflow $id) PostRun &&
    eventually all_show PostRun &&
    rm gates/PostRun &&
    all_end_well &&
    eventually held 0 &&
    job_succeeds $id &&
    { test -z "$another" || job_succeeds $another; }
'
test_expect_success 'a client that is killed, or whose terminal is closed, leaves no query' '
    gate_shut PreRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PreRun &&
    follow_all $id &&
    eventually held 3 &&
    kill -KILL $wait_pid $show_pid &&
    kill -HUP $json_pid &&
    eventually held 0 &&
    python_stdin "
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(\"flux\", [\"flux\", \"dws\", \"show\", \"--follow\", sys.argv[1]])
shown = b\"\"
while b\"PreRun\" not in shown:
    shown += os.read(terminal, 4096)
time.sleep(1)
os.close(terminal)
print(os.waitpid(pid, 0))
" $id &&
    eventually held 0
'
test_expect_in_soak 'a job that is purged while it is followed is one line' '
    follow_all $id &&
    eventually held 3 &&
    process_stop $wait_pid &&
    rm gates/PreRun &&
    wait $show_pid &&
    wait $json_pid &&
    wait_event $id clean &&
    flux job purge -f --num-limit=0 &&
    kill -CONT $wait_pid &&
    test_expect_code 1 wait $wait_pid &&
    one_line "ERROR: job .* not found" wait.err
'
test_expect_success 'no job waits for those who have asked about it' '
    rm -f gates/PreRun &&
    queue_idle $PATIENCE
'
test_done
