#!/bin/sh
test_description='Kubernetes gives us other credentials while there are jobs'
. "$(dirname "$0")/tap.sh"

kubernetes_run () {
    standin kube "$TESTDIR/tokens.py" "$TRASH/kubeconfig" "$TRASH/tokens"
}

cluster_start
instance_conf rabbit.toml <<END
[rabbit]
kubeconfig = "$TRASH/kubeconfig.flux"
mapping = "$TRASH/mapping.json"
END
instance_start 2

# usage: accept TOKEN: this token is good from now on, and no other one
accept () {
    echo "$1" >tokens &&
    kill -HUP "$KUBE_PID" &&
    eventually test ! -e tokens
}

# usage: kubeconfig_with TOKEN: what the module uses from its next look on
kubeconfig_with () {
    sed "s/$(sed -n 's/^ *token: //p' kubeconfig)/$1/g" kubeconfig >new &&
    mv new kubeconfig.flux
}

# usage: kubeconfig_names FILE: the same with a file that has the token
kubeconfig_names () {
    sed -e "s,token: .*,tokenFile: $TRASH/$1," -e "s,//.*@,//," kubeconfig >new &&
    mv new kubeconfig.flux
}

# usage: log_count TEXT NUMBER
log_count () {
    test "$(flux dmesg | grep -c -F -e "$1")" -eq "$2"
}

# Nothing that an administrator would have to read.
log_is_quiet () {
    ! flux dmesg | grep -E "\.(warning|err|crit|alert|emerg)\["
}

test_expect_success 'the module is loaded with a token that is not good yet' '
    kubeconfig_with token-1 &&
    module_load &&
    id=$(job_submit true) &&
    eventually has_memo $id rabbit_waits_for "Kubernetes: .*Unauthorized" &&
    ! has_event $id depend &&
    log_count "; jobs wait" 1
'
test_expect_success 'a job goes on when the token is good' '
    accept token-1 &&
    job_succeeds $id &&
    eventually log_count "Kubernetes answers again" 1
'
test_expect_success 'a new token comes into the kubeconfig, then the old one is refused' '
    flux dmesg -C &&
    id=$(job_in running) &&
    kubeconfig_with token-2 &&
    accept token-2 &&
    job_end $id &&
    job_succeeds $id
'
test_expect_success 'the log says that the kubeconfig was read again, and no more' '
    eventually log_says "kubeconfig.flux: read again after: http" &&
    eventually log_says ": Unauthorized" &&
    log_is_quiet
'
test_expect_success 'the old token is refused, there is no new one yet, and jobs wait' '
    flux dmesg -C &&
    id=$(job_in running) &&
    depend=$(job_in depend) &&
    accept token-3 &&
    job_end $id &&
    job_let_go $depend depend &&
    eventually has_memo $id rabbit_waits_for "Kubernetes: .*Unauthorized" &&
    ! has_event $id clean &&
    eventually log_count "; jobs wait" 1
'
test_expect_success 'a kubeconfig that cannot be used changes nothing, and the log says why' '
    echo "a: [" >kubeconfig.flux &&
    eventually log_says "kubeconfig.flux: is not YAML" &&
    ! has_event $depend depend
'
test_expect_success 'jobs go on when a new token comes, in a file of its own' '
    echo token-3 >token &&
    kubeconfig_names token &&
    job_succeeds $id &&
    job_succeeds $depend
'
test_expect_success 'another token in that file is read' '
    id=$(job_in running) &&
    echo token-4 >token &&
    accept token-4 &&
    job_end $id &&
    job_succeeds $id
'
test_expect_success 'no token was shown' '
    flux dmesg >dmesg &&
    ! grep token- dmesg stderr kube.log dws.log
'
test_done
