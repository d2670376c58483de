#!/bin/sh
test_description='A guest takes nothing out of service, and has no command act for him'
. "$(dirname "$0")/tap.sh"

cluster_start
instance_conf access.toml <<END
[access]
allow-guest-user = true
[exec.testexec]
allow-guests = true
END
instance_start 2

GUEST=1

# usage: guest_submit [OPTION...]: a #DW job of the guest, signed by nobody; its ID
guest_submit () {
    flux submit --dry-run --setattr=system.dw="$DW" \
        --setattr=system.exec.test.run_duration=0.1s "$@" true >spec.json &&
    FLUX_HANDLE_USERID=$GUEST flux python -c '
import base64, sys
import flux
header = f"version\0i1\0userid\0i{sys.argv[1]}\0mechanism\0snone\0".encode()
spec = open("spec.json", "rb").read()
parts = [base64.b64encode(part).decode() for part in (header, spec)]
payload = {"J": ".".join([*parts, "none"]), "urgency": 16, "flags": 0}
print(flux.Flux().rpc("job-ingest.submit", payload).get()["id"])' $GUEST
}

guest () {
    FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=$GUEST "$@"
}

test_expect_success 'their job ends, as after any other exception' '
    module_load &&
    id=$(guest_submit) &&
    gate_shut PostRun $id &&
    kube wait $(workflow $id) PostRun &&
    wait_event $id release &&
    guest flux job raise --severity=0 --type=dws-epilog-timeout $id &&
    wait_event $id clean
'
test_expect_success 'no Rabbit is disabled, no node drained' '
    flux dmesg >log &&
    ! grep "disabling rabbit" log &&
    only_drained
'
test_expect_success 'nobody can raise dws-epilog-timeout on the job of another user' '
    gate_shut PostRun &&
    id=$(job_submit true) &&
    kube wait $(workflow $id) PostRun &&
    test_must_fail guest flux job raise --severity=0 --type=dws-epilog-timeout $id &&
    rm gates/PostRun &&
    job_succeeds $id
'
test_expect_success 'a URI in the memo of their job has nobody else run a program' '
    id=$(guest_submit --setattr=system.exec.test.run_duration=60s) &&
    wait_event $id start &&
    guest flux job memo $id "uri=ssh://-oProxyCommand=touch followed;/x" &&
    command_fails dws "job $(flux job id --to=f58plain $id) is not yours" \
        flux dws job-object --steps $id &&
    test ! -e followed &&
    flux cancel $id &&
    wait_event $id clean
'
test_done
