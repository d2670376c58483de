#!/bin/sh
test_description='The man pages, where man and flux help look for them'
. "$(dirname "$0")/tap.sh"

command -v man >/dev/null || skip_all "man is not installed"

cluster_start
instance_start 1

# Flux puts its own man pages before those of MANPATH. Its own folder has links to these
# once flux-dws is installed.
MANPATH=$PREFIX/share/man:
MANPAGER=cat
MANWIDTH=80
# A Flux that was built without its manual still has flux help.
FLUX_IGNORE_NO_DOCS=1
export MANPATH MANPAGER MANWIDTH FLUX_IGNORE_NO_DOCS

test_expect_success 'flux help dws shows the page' '
    flux help dws >page &&
    grep "^FLUX-DWS(1)" page &&
    grep "show and manage storage on Rabbits" page
'
test_expect_success 'flux help shows the pages of the other commands and plugins' '
    for name in rabbitmapping dws2jgf getrabbit jobtap-dws shell-dws; do
        flux help $name | grep -i "^flux-$name(1)" || return 1
    done
'
test_expect_success 'flux help and man show the page of the configuration' '
    flux help flux-config-rabbit | grep "^FLUX-CONFIG-RABBIT(5)" &&
    man 5 flux-config-rabbit | grep "prerun_timeout"
'
test_expect_success 'links in the folder of Flux are found as well' '
    mkdir -p man/man1 &&
    ln -s "$PREFIX/share/man/man1/flux-dws.1" man/man1 &&
    MANPATH=$PWD/man flux help dws | grep "^FLUX-DWS(1)"
'
test_expect_success 'a page that is not there is an error of man' '
    test_must_fail flux help dws-nothing 2>err &&
    grep "No manual entry" err
'
test_done
