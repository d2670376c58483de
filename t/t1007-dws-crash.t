#!/bin/sh
test_description='The dws module dies, and the plugin has it loaded again'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_start 2

# usage: module_crash [PHASE]: the module's process is killed, and there is
# another one. How long that took for a job in this phase is written down.
module_crash () {
    crashed=$(module_pid)
    kill -KILL "$crashed" &&
    begin=$(date +%s%N) &&
    eventually module_is_back &&
    end=$(date +%s%N) &&
    echo "# ${1:-no job}: back after $(((end - begin) / 1000000)) ms" >>back
}

module_is_back () {
    pid=$(module_pid)
    test -n "$pid" && test "$pid" != "$crashed" && flux module stats dws
}

# The back-off is that of a module that has not died yet.
plugin_reload () {
    flux jobtap remove dws-jobtap.so &&
    flux dmesg -C &&
    flux jobtap load "$JOBTAP" epilog-timeout=60 "$@" &&
    eventually log_has "hello from the dws module"
}

# usage: log_has TEXT
log_has () {
    flux dmesg | grep -F -e "$1"
}

# usage: log_count TEXT NUMBER
log_count () {
    test "$(flux dmesg | grep -c -F -e "$1")" -eq "$2"
}

# usage: module_path_is PATH
module_path_is () {
    rpc module.list | grep -F "\"name\": \"dws\", \"path\": \"$1\""
}

# A dws.py that fails as soon as it has said hello.
make_broken_module () {
    mkdir -p broken &&
    cp "$PREFIX/lib/flux/modules/dws.py" broken/dws.py &&
    echo "DwsModule.run = lambda self: 1 / 0" >>broken/dws.py
}

test_expect_success 'autoload takes nothing but true and false' '
    flux jobtap remove dws-jobtap.so &&
    test_must_fail flux jobtap load "$JOBTAP" autoload=1 2>err &&
    grep "autoload is 1, expected true or false" err &&
    flux jobtap load "$JOBTAP" epilog-timeout=60 autoload=true
'
test_expect_success 'the module is loaded' '
    module_load
'

# ---- it died ----------------------------------------------------------------

for phase in $PHASES; do
    test_expect_success "it is killed while a job is in $phase: it comes back" '
        plugin_reload &&
        id=$(job_in $phase) &&
        module_crash $phase &&
        broker_lives &&
        log_has "the dws module died: jobs with #DW directives wait, loading it again in 1 s" &&
        log_has "the dws module was loaded again"
    '
    test_expect_success "and the job goes on as if nothing had been" '
        job_let_go $id $phase &&
        job_succeeds $id
    '
done
test_expect_success 'it is killed while there are jobs in all phases' '
    plugin_reload &&
    jobs_in_all_phases &&
    module_crash "all phases" &&
    broker_lives &&
    let_go
'
expect_each_to_succeed 'after that'
test_expect_success 'jobs end while it is not there, and their storage goes later' '
    plugin_reload &&
    id=$(job_in running) &&
    kill -KILL $(module_pid) &&
    flux cancel $id &&
    wait_event $id clean &&
    job_exception $id cancel &&
    no_workflows
'
test_expect_success 'it is loaded from where it was, with the arguments it had' '
    flux module remove dws &&
    mkdir -p copy &&
    cp "$PREFIX/lib/flux/modules/dws.py" copy/dws.py &&
    flux module load "$TRASH/copy/dws.py" scheduler=none &&
    plugin_reload &&
    module_crash &&
    module_path_is "$TRASH/copy/dws.py" &&
    id=$(job_submit true) &&
    job_succeeds $id
'
cat "$TRASH/back"

# ---- it fails by itself -----------------------------------------------------

# A dws.py with a bug, which shows once in each function for which there is a file.
make_fragile_module () {
    mkdir -p fragile &&
    cp "$PREFIX/lib/flux/modules/dws.py" fragile/dws.py &&
    cat >>fragile/dws.py <<-END
	def fragile(name, function):
	    def call(*args):
	        try:
	            os.unlink("$TRASH/fragile/" + name)
	        except FileNotFoundError:
	            return function(*args)
	        raise RuntimeError("it broke")
	    return call
	for name in ("event", "request", "_pump", "_stepped"):
	    setattr(Service, name, fragile(name, getattr(Service, name)))
	END
}

# usage: module_fragile FUNCTION: when it is called next, it fails
module_fragile () {
    crashed=$(module_pid)
    test -n "$crashed" &&
    touch "fragile/$1"
}

# usage: ended_by_itself: with an error in the log, and without saying bye
ended_by_itself () {
    eventually module_is_back &&
    log_has "dws.crit[0]: dws ends: RuntimeError: it broke" &&
    log_has "dws.crit[0]:   File \"$TRASH/fragile/dws.py\"" &&
    log_count "the dws module died" 1 &&
    log_count "was loaded again" 1 &&
    log_count "the dws module ends" 0 &&
    broker_lives
}

test_expect_success 'a module with a bug is loaded' '
    flux module remove dws &&
    make_fragile_module &&
    flux module load "$TRASH/fragile/dws.py" scheduler=none
'
# What the watch of Workflows sees, a timer, the answer to an RPC.
for callback in event _pump _stepped; do
    test_expect_success "it fails in $callback: it ends, and the next takes over" '
        plugin_reload &&
        module_fragile $callback &&
        id=$(job_submit true) &&
        ended_by_itself &&
        job_succeeds $id
    '
done
test_expect_success 'it fails at a request: who asked gets an error' '
    plugin_reload &&
    id=$(job_in running) &&
    module_fragile request &&
    test_must_fail flux module stats dws 2>err &&
    grep "internal error, see the log" err &&
    ended_by_itself &&
    job_end $id &&
    job_succeeds $id
'
test_expect_success 'the module without the bug is loaded again' '
    flux module remove dws &&
    flux dmesg -C &&
    module_load
'

# ---- again and again --------------------------------------------------------

test_expect_success 'each time that it dies it waits longer' '
    plugin_reload &&
    module_crash && module_crash && module_crash &&
    log_has "loading it again in 1 s" &&
    log_has "loading it again in 2 s" &&
    log_has "loading it again in 4 s" &&
    log_count "the dws module died" 3 &&
    log_count "was loaded again" 3
'
test_expect_success 'so it does when it fails by itself at once' '
    flux module remove dws &&
    make_broken_module &&
    flux dmesg -C &&
    flux jobtap remove dws-jobtap.so &&
    flux jobtap load "$JOBTAP" epilog-timeout=60 &&
    flux module load "$TRASH/broken/dws.py" scheduler=none &&
    eventually log_has "loading it again in 4 s" &&
    log_has "dws ends: ZeroDivisionError" &&
    broker_lives &&
    log_count "the dws module died" 3 &&
    log_count "was loaded again" 2
'
test_expect_success 'one that is loaded by hand meanwhile is left alone' '
    eventually module_is_gone &&
    module_load &&
    id=$(job_submit true) &&
    job_succeeds $id &&
    plugin_reload
'
test_expect_success 'if it cannot be loaded that is tried again, later each time' '
    flux dmesg -C &&
    sed -i "s/^kubeconfig/kubeconfigg/" conf/rabbit.toml &&
    flux config reload &&
    kill -KILL $(module_pid) &&
    eventually log_has "cannot be loaded again: Invalid argument; trying again in 2 s" &&
    eventually log_has "trying again in 4 s" &&
    log_has "dws.err[0]: rabbit.kubeconfigg: unknown key" &&
    broker_lives
'
test_expect_success 'and it comes back when the reason is gone' '
    sed -i "s/^kubeconfigg/kubeconfig/" conf/rabbit.toml &&
    flux config reload &&
    eventually log_has "the dws module was loaded again" &&
    id=$(job_submit true) &&
    job_succeeds $id
'

# ---- it did not die ---------------------------------------------------------

test_expect_success 'a module that was removed is not loaded again' '
    plugin_reload &&
    flux module remove dws &&
    sleep 2 &&
    module_is_gone &&
    log_has "the dws module ends" &&
    log_count "loading it again" 0
'
test_expect_success 'nor one that ended cleanly at SIGTERM' '
    module_load &&
    flux dmesg -C &&
    kill -TERM $(module_pid) &&
    eventually module_is_gone &&
    sleep 2 &&
    module_is_gone &&
    log_count "loading it again" 0
'
test_expect_success 'nor one that was reloaded' '
    module_load &&
    flux module reload dws scheduler=none &&
    id=$(job_submit true) &&
    job_succeeds $id &&
    log_count "loading it again" 0
'
test_expect_success 'with autoload=false it stays away when it died' '
    plugin_reload autoload=false &&
    id=$(job_in running) &&
    module_kill &&
    job_end $id &&
    other=$(job_submit true) &&
    sleep 2 &&
    module_is_gone &&
    log_has "the dws module died: jobs with #DW directives wait until it is loaded"
'
test_expect_success 'jobs wait, and say why' '
    eventually has_memo $id dws "not loaded" &&
    eventually has_memo $other dws "not loaded" &&
    ! has_event $id clean &&
    ! has_event $other depend
'
test_expect_success 'until it is loaded' '
    module_load &&
    job_succeeds $id &&
    job_succeeds $other
'
test_done
