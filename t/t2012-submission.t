#!/bin/sh
test_description='Commands of Flux: our options, what they refuse with the word underlined, and man pages'
. "$(dirname "$0")/tap.sh"

SITE=$PREFIX/etc/flux
FLUX_CLI_PLUGINPATH_OVERRIDE=$SITE/cli/plugins

cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
END
rabbit_conf 'tc_timeout = 0.5' "presets.scratch = \"$DW\"" '[ingest.validator]' \
    "plugins = [ \"jobspec\", \"$SITE/validator/dws.py\" ]"
instance_conf ingest.toml </dev/null
instance_start 2

# usage: refuses TEXT COMMAND...: it fails, with these lines after the prefix of Flux
refuses () {
    refuses_text=$1
    shift
    test_must_fail "$@" 2>err &&
    cat err &&
    ! grep Traceback err &&
    echo "$refuses_text" >expected &&
    sed '1s/^[^ ]*: \(ERROR: \)*//' err | diff expected -
}

# usage: raw [OPTION...]: submit a jobspec as it is
raw () {
    FLUX_CLI_PLUGINPATH_OVERRIDE= flux submit --dry-run "$@" true | flux job submit
}

WRONG='#DW jobdw type=xfs capacity=10Gib name=p1'
WRONG_REFUSED='capacity=10Gib is not a size: did you mean 10GiB?
  #DW jobdw type=xfs capacity=10Gib name=p1
                              ^~~~~'

REPEATED="argument 'name=' is repeated
  $DW name=p2
                                            ^~~~~~~"

PROFLE="unknown argument 'profle=': did you mean profile=?
  $DW profle=x
                                            ^~~~~~"

test_expect_success 'load the module' '
    module_start scheduler=none &&
    service=$(service_pid) &&
    version=$(kube version)
'
test_expect_success 'flux submit refuses a wrong word as the guide shows it' '
    test_must_fail flux submit --dw="$WRONG" true 2>err &&
    sed -n "/^flux-submit: ERROR: capacity/,/\^~/p" "$TOP/doc/user.md" >expected &&
    grep 10Gib expected &&
    diff expected err
'
test_expect_success 'flux batch refuses it in a script as well' '
    printf "%s\n" "#!/bin/sh" "#flux: -N1" "#flux: --dw=\"$WRONG\"" >wrong.sh &&
    refuses "$WRONG_REFUSED" flux batch wrong.sh
'
test_expect_success 'a terminal of 40 columns shows the marks below the word' '
    test_must_fail terminal sh -c "stty cols 40 && \"\$@\"" sh \
        flux submit -S dw="$WRONG" true >shown &&
    tr -d "\r" <shown | tee lines &&
    printf "%s\n" "  ...DW jobdw type=xfs capacity=10Gib..." \
        "                                ^~~~~" >expected &&
    sed 1d lines | diff expected -
'
test_expect_success 'the command of a guest has the rules of DWS, too' '
    refuses "$PROFLE" as_guest flux submit --dry-run --dw="$DW profle=x" true
'
test_expect_success 'so has the validator, for a jobspec that did not come by our plugin' '
    refuses "$PROFLE" raw -S dw="$DW profle=x"
'
test_expect_success 'the validator knows who submits: the owner may have persistent storage, a guest may not' '
    keep="#DW create_persistent type=xfs capacity=1GiB name=keep" &&
    refuses "only the instance owner may create persistent storage here (rabbit.restrict_persistent_creation)
  #DW create_persistent type=xfs capacity=1GiB name=keep
      ^~~~~~~~~~~~~~~~~" guest_submit -S dw="$keep" &&
    flux submit --dry-run --dw="$keep" true >jobspec
'
test_expect_success 'a module that does not answer holds up no submission for long' '
    process_stop $service &&
    refuses "$REPEATED" timeout 20 flux submit -S dw="$DW name=p2" true &&
    kill -CONT $service
'
test_expect_success 'nothing was created in Kubernetes for any job that was refused' '
    test "$(kube version)" = "$version"
'
test_expect_success 'a scheduler that knows no chassis places no job below them' '
    refuses "--rabbit-chassis=2 needs Fluxion, with a graph from flux dws2jgf, or sched-rabbit; the scheduler here is sched-simple" \
        flux submit --dry-run -N4 --rabbit-chassis=2 true
'
test_expect_success 'the commands tell of --dw and --rabbit-chassis' '
    flux alloc --help >help &&
    grep -A 2 -e --dw=DIRECTIVE help | grep "Rabbit storage" &&
    grep -A 2 -e --rabbit-chassis=N help | grep "Spread the job" &&
    flux submit --help=dw | grep "two nodes on each of four chassis"
'
test_expect_success '--dw gives each of several jobs storage, as often as it is there' '
    id=$(flux submit --cc=1 --dw="$DW" --dw="#DW jobdw type=raw capacity=1GiB name=p2" \
        sh -c "env | grep DW_JOB_ | sort") &&
    preset=$(flux bulksubmit --dw=scratch sh -c "echo \$DW_JOB_p1" ::: x) &&
    job_succeeds $id &&
    job_succeeds $preset &&
    test "$(flux job attach $id | grep -c "^DW_JOB_p[12]=")" -eq 2 &&
    test -n "$(flux job attach $preset)"
'
test_expect_success 'a jobspec of any shape is answered, and ends no validator' '
    flux python -c "
import json, sys
dw = {\"system\": {\"dw\": sys.argv[1], \"dw_failure_tolerance\": 1}}
shapes = [None, 5, [], {}, [{}], {\"system\": None}, {\"system\": {\"dw\": {}}}, dw]
specs = [{\"attributes\": a, \"resources\": r} for a in shapes for r in shapes]
for spec in [*shapes, {\"resources\": 5}, {\"attributes\": dw}, *specs]:
    print(json.dumps({\"jobspec\": spec, \"userid\": 1, \"flags\": 0, \"urgency\": 16}))" "$DW" >jobs &&
    flux job-validator --plugins=$SITE/validator/dws.py <jobs >answers &&
    test $(wc -l <answers) -eq $(wc -l <jobs)
'

# ---- the man pages, where man and flux help look for them

MANPATH=$PREFIX/share/man:
MANPAGER=cat
MANWIDTH=80
# A Flux that was built without its manual still has flux help.
FLUX_IGNORE_NO_DOCS=1
export MANPATH MANPAGER MANWIDTH FLUX_IGNORE_NO_DOCS

if command -v man >/dev/null; then
    test_expect_success 'flux help shows the pages of commands, plugins and the configuration' '
        for name in dws rabbitmapping dws2jgf getrabbit jobtap-dws shell-dws config-rabbit; do
            flux help flux-$name | grep -i "^flux-$name([15])" || return 1
        done &&
        man 5 flux-config-rabbit | grep "prerun_timeout"
    '
else
    test_count=$((test_count + 1))
    echo "ok $test_count - man pages # SKIP man is not installed"
fi
test_done
