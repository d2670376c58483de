#!/bin/sh
test_description='Wrong directives are refused at submission, with the word underlined'
. "$(dirname "$0")/tap.sh"

SITE=$PREFIX/etc/flux
FLUX_CLI_PLUGINPATH_OVERRIDE=$SITE/cli/plugins

cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
END
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig"
mapping = "$TRASH/mapping.json"
tc_timeout = 0.5
[rabbit.presets]
scratch = "$DW"
[ingest.validator]
plugins = [ "jobspec", "$SITE/validator/dws.py" ]
END
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
    FLUX_CLI_PLUGINPATH_OVERRIDE= flux submit --dry-run "$@" true >spec.json &&
    flux job submit spec.json
}

# usage: guest_submit DW: submit a job of another user, signed by nobody
guest_submit () {
    FLUX_CLI_PLUGINPATH_OVERRIDE= flux submit --dry-run -S dw="$1" true >spec.json &&
    FLUX_HANDLE_USERID=1 flux python -c '
import base64, sys
import flux
header = b"version\0i1\0userid\0i1\0mechanism\0snone\0"
spec = open("spec.json", "rb").read()
parts = [base64.b64encode(part).decode() for part in (header, spec)]
payload = {"J": ".".join([*parts, "none"]), "urgency": 16, "flags": 0}
try:
    print(flux.Flux().rpc("job-ingest.submit", payload).get()["id"])
except OSError as error:
    sys.exit("submit: " + error.strerror)'
}

WRONG='#DW jobdw type=xfs capacity=10Gib name=p1'
WRONG_REFUSED='capacity=10Gib is not a size: did you mean 10GiB?
  #DW jobdw type=xfs capacity=10Gib name=p1
                              ^~~~~'

test_expect_success 'load the module' '
    module_load &&
    eventually stats_say "\"kubernetes\": \"ok\"" &&
    version=$(kube version)
'
test_expect_success 'flux submit -S dw: the word is underlined, what was meant is named' '
    refuses "$WRONG_REFUSED" flux submit -S dw="$WRONG" true
'
test_expect_success 'the guide shows the refusal of flux submit as it is' '
    test_must_fail flux submit --dw="$WRONG" true 2>err &&
    sed -n "/^flux-submit: ERROR: capacity/,/\^~/p" "$TOP/doc/user.md" >expected &&
    grep 10Gib expected &&
    diff expected err
'
test_expect_success 'flux run, flux batch and --dry-run refuse the word as flux submit does' '
    refuses "$WRONG_REFUSED" flux run -S dw="$WRONG" true &&
    refuses "$WRONG_REFUSED" flux batch -n1 -S dw="$WRONG" --wrap true &&
    refuses "$WRONG_REFUSED" flux submit --dry-run -S dw="$WRONG" true
'
# usage: narrow COLUMNS COMMAND...: run it in a terminal of so many columns
narrow () {
    "$PYTHON" -c "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)" \
        sh -c 'stty cols $0 && "$@"' "$@"
}

test_expect_success 'a terminal of 40 columns shows the marks below the word' '
    test_must_fail narrow 40 flux submit -S dw="$WRONG" true >shown &&
    tr -d "\r" <shown | tee lines &&
    printf "%s\n" "  ...DW jobdw type=xfs capacity=10Gib..." \
        "                                ^~~~~" >expected &&
    sed 1d lines | diff expected -
'
test_expect_success 'flux dws check of a script shows the marks, and has their place in JSON' '
    printf "%s\n" "#!/bin/sh" "#flux: -N1" "#flux: --dw=\"$WRONG\"" >wrong.sh &&
    test_must_fail narrow 40 flux dws check --color=never wrong.sh >shown &&
    tr -d "\r" <shown | tee lines &&
    sed 1d lines | diff expected - &&
    test_must_fail flux dws check --json "$WRONG" >expected.json &&
    test_must_fail flux dws check --json wrong.sh >wrong.json &&
    grep "\"start\": 28, \"end\": 33" wrong.json &&
    diff expected.json wrong.json
'
test_expect_success 'flux submit of a guest refuses the word before the job is submitted' '
    refuses "$WRONG_REFUSED" as_guest flux submit --dry-run -S dw="$WRONG" true
'
test_expect_success 'the validator refuses the word in a jobspec that did not come by our plugin' '
    refuses "$WRONG_REFUSED" raw -S dw="$WRONG"
'
test_expect_success 'the validator refuses the word in a job of another user' '
    refuses "$WRONG_REFUSED" guest_submit "$WRONG"
'
test_expect_success 'a type, a name and a key that are wrong are named' '
    refuses "type=zfs is not one of raw, xfs, gfs2, lustre: did you mean xfs?
  #DW jobdw type=zfs capacity=1GiB name=p1
                 ^~~" \
        flux submit -S dw="#DW jobdw type=zfs capacity=1GiB name=p1" true &&
    refuses "name=p_1 is not a name (a lower-case letter, then one or more of a-z, 0-9 and -): did you mean p-1?
  #DW jobdw type=xfs capacity=1GiB name=p_1
                                        ^~~" \
        flux submit -S dw="#DW jobdw type=xfs capacity=1GiB name=p_1" true &&
    refuses "unknown argument '\''typ='\'': did you mean type=?
  #DW jobdw typ=xfs capacity=1GiB name=p1
            ^~~" \
        flux submit -S dw="#DW jobdw typ=xfs capacity=1GiB name=p1" true
'
test_expect_success 'the name of storage that no directive makes' '
    refuses "\$DW_JOB_p2: no jobdw of this job has the name p2: did you mean \$DW_JOB_p1?
  #DW copy_in source=/lustre/x destination=\$DW_JOB_p2/
                                           ^~~~~~~~~~" \
        flux submit --dw=scratch \
            --dw="#DW copy_in source=/lustre/x destination=\$DW_JOB_p2/" true
'
test_expect_success 'a preset that is misspelt' '
    refuses "unknown preset and no '\''#DW'\'' directive: did you mean scratch?
  scrtch
  ^~~~~~" flux submit --dw=scrtch true
'
test_expect_success 'an argument that only the rules of DWS know' '
    refuses "unknown argument '\''profle='\'': did you mean profile=?
  $DW profle=x
                                            ^~~~~~" \
        flux submit --dw="$DW profle=x" true &&
    refuses "unknown argument '\''profle='\'': did you mean profile=?
  $DW profle=x
                                            ^~~~~~" \
        raw -S dw="$DW profle=x" &&
    refuses "unknown argument '\''profle='\'': did you mean profile=?
  $DW profle=x
                                            ^~~~~~" \
        guest_submit "$DW profle=x"
'
test_expect_success 'more storage than all Rabbits have' '
    refuses "asks for 3072 GiB; all Rabbits together have 2048 GiB
  #DW jobdw type=lustre capacity=3TiB name=p1
                                 ^~~~" \
        flux submit --dw="#DW jobdw type=lustre capacity=3TiB name=p1" true
'
test_expect_success 'a failure tolerance of all nodes' '
    refuses "expected an integer from 0 to 1, less than the nodes of the job
  dw_failure_tolerance=2
                       ^" \
        flux submit -N2 --dw=scratch -S dw_failure_tolerance=2 true
'
test_expect_success 'persistent storage of a guest, which the owner may have' '
    keep="#DW create_persistent type=xfs capacity=1GiB name=keep" &&
    refuses "only the instance owner may create persistent storage here (rabbit.restrict_persistent_creation)
  #DW create_persistent type=xfs capacity=1GiB name=keep
      ^~~~~~~~~~~~~~~~~" guest_submit "$keep" &&
    flux submit --dry-run --dw="$keep" true >jobspec
'
test_expect_success 'control characters do not reach the terminal' '
    test_must_fail flux submit -S dw="#DW jobdw type=$(printf "\033[31m") capacity=1GiB name=p1" \
        true 2>err &&
    grep -F "type=\\x1b[31m is not one of" err &&
    ! grep "$(printf "\033")" err
'
test_expect_success 'nothing was created in Kubernetes for any job that was refused' '
    test "$(kube version)" = "$version"
'
for command in alloc batch submit run bulksubmit; do
    test_expect_success "flux $command --help tells of --dw" "
        flux $command --help >help &&
        grep -A 2 -e '--dw=DIRECTIVE' help | tee lines &&
        grep 'Rabbit storage' lines
    "
done
test_expect_success 'flux submit --help=dw has an example of --dw' '
    flux submit --help=dw | tee help &&
    grep -F "#flux: --dw=\"#DW jobdw type=xfs capacity=10GiB name=demo\"" help
'
test_expect_success '--dw gives a job storage, as often as it is there' '
    id=$(flux submit --dw="$DW" --dw="#DW jobdw type=raw capacity=1GiB name=p2" \
        sh -c "env | grep DW_JOB_ | sort") &&
    job_succeeds $id &&
    flux job attach $id >variables &&
    cat variables &&
    grep ^DW_JOB_p1= variables &&
    grep ^DW_JOB_p2= variables
'
test_expect_success '--dw gives storage to each of several jobs' '
    flux submit --cc=1-2 --dw="$DW" true >ids &&
    flux bulksubmit --dw="$DW" true ::: a b >>ids &&
    test $(wc -l <ids) -eq 4 &&
    for id in $(cat ids); do
        job_succeeds $id || return 1
    done &&
    refuses "$WRONG_REFUSED" flux submit --cc=1-2 --dw="$WRONG" true
'
test_expect_success '--dw takes the name of a preset' '
    id=$(flux submit --dw=scratch sh -c "echo \$DW_JOB_p1") &&
    job_succeeds $id &&
    test -n "$(flux job attach $id)"
'
test_expect_success 'a batch script has it as well' '
    cat >script.sh <<-END &&
	#!/bin/sh
	#flux: -N1
	#flux: --output=$TRASH/out
	#flux: --dw="$DW"
	echo \$DW_JOB_p1
	END
    id=$(flux batch script.sh) &&
    job_succeeds $id &&
    cat out &&
    test -n "$(cat out)"
'
test_expect_success '--dw and -S dw are not for the same job' '
    test_must_fail flux submit --dw=scratch -S dw=scratch true 2>err &&
    grep -F "give only one of them" err
'
test_expect_success 'a job without directives is none of our business' '
    id=$(flux submit true) &&
    wait_event $id clean &&
    flux job status $id
'
test_expect_success 'without the module the same is refused' '
    flux module remove dws &&
    refuses "$WRONG_REFUSED" flux submit -S dw="$WRONG" true &&
    refuses "$WRONG_REFUSED" raw -S dw="$WRONG"
'

test_expect_success 'a jobspec of any shape is answered, and ends no validator' '
    cat >jobs.py <<-"END" &&
	import json, sys
	dw = {"system": {"dw": sys.argv[1], "dw_failure_tolerance": 1}}
	shapes = [None, 5, "x", [], {}, [{}], {"system": None}, {"system": {"dw": {}}}, dw]
	specs = [*shapes, *({"resources": r} for r in shapes)]
	for attributes in shapes:
	    specs += [{"attributes": attributes, "resources": r} for r in shapes]
	    specs.append({"attributes": attributes})
	for spec in specs:
	    print(json.dumps({"jobspec": spec, "userid": 1, "flags": 0, "urgency": 16}))
	END
    flux python jobs.py "$DW" >jobs &&
    flux job-validator --plugins=$SITE/validator/dws.py <jobs >answers &&
    test $(wc -l <answers) -eq $(wc -l <jobs)
'
# usage: rules_say JSON: a service that answers dws.rules with it, until rules_end;
# without JSON it does not answer
rules_say () {
    cat >rules.py <<-'END' &&
	import json, sys
	import flux
	from flux.constants import FLUX_MSGTYPE_REQUEST
	handle = flux.Flux()
	handle.service_register("dws").get()
	def answer(handle, watcher, message, arg):
	    if len(sys.argv) > 1:
	        handle.respond(message, json.loads(sys.argv[1]))
	watcher = handle.msg_watcher_create(answer, FLUX_MSGTYPE_REQUEST, "dws.rules")
	watcher.start()
	print("ready", flush=True)
	handle.reactor_run()
	END
    command flux python rules.py "$@" >rules.out 2>&1 &
    rules_pid=$!
    wait_for_line rules.out ready
}

rules_end () {
    kill $rules_pid
    wait $rules_pid
    true
}

test_expect_success 'directives that DWS would refuse are refused by the rules that the module has' '
    rules="{\"command\": \"jobdw\", \"ruleDefs\": [
        {\"key\": \"^type\$\", \"type\": \"string\", \"pattern\": \"^(xfs|zfs)\$\"},
        {\"key\": \"^capacity\$\", \"type\": \"string\"},
        {\"key\": \"^name\$\", \"type\": \"string\"},
        {\"key\": \"^stripes\$\", \"type\": \"integer\", \"max\": 8}]}" &&
    rules_say "{\"rules\": [$rules]}" &&
    flux submit --dry-run --dw="#DW jobdw type=zfs capacity=1GiB name=p_1 stripes=8" \
        true >jobspec &&
    refuses "unknown argument '\''strips='\'': did you mean stripes=?
  #DW jobdw type=zfs capacity=1GiB name=p1 strips=8
                                           ^~~~~~" flux submit \
        --dw="#DW jobdw type=zfs capacity=1GiB name=p1 strips=8" true &&
    refuses "stripes=9 is not an integer of at most 8
  #DW jobdw type=zfs capacity=1GiB name=p1 stripes=9
                                                   ^" flux submit \
        --dw="#DW jobdw type=zfs capacity=1GiB name=p1 stripes=9" true
    status=$?
    rules_end
    return $status
'
test_expect_success 'storage without whole nodes, where the scheduler gives it to nodes' '
    text="Rabbit storage needs whole nodes, and the job asks for none: add -N (--nodes) to the request
  $DW
      ^~~~~" &&
    rules_say "{\"rules\": null, \"scheduler\": true}" &&
    refuses "$text" flux submit -n2 --dw="$DW" true &&
    flux submit --dry-run -N2 --dw="$DW" true >jobspec &&
    flux submit --dry-run -n2 --dw="#DW persistentdw name=keep" true >jobspec
    status=$?
    rules_end
    return $status
'
test_expect_success 'a module that does not answer holds up no submission for long' '
    rules_say &&
    refuses "$WRONG_REFUSED" timeout 20 flux submit -S dw="$WRONG" true &&
    timeout 20 flux submit --dry-run --dw=scratch true >jobspec
    status=$?
    rules_end
    return $status
'
test_done
