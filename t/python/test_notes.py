# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What jobs are told, in words. What happens to them is in :mod:`stories`, where
reasons stand for these."""

from __future__ import annotations

import re

import pytest

from rabbitsim.torture.life import live
from stories import STORIES

LOST = r"; not copied: \$DW_JOB_p1/ to /lustre/out"
MORE = r"; flux dws show f\w+ says more"
NOTES = {
    "PreRun counts from when it is asked for, whether DWS takes it up or not": (
        "PreRun took more than prerun_timeout=60s; DWS has not begun with it" + MORE
    ),
    "Kubernetes refuses PreRun: that counts from the first try (500)": (
        "PreRun took more than prerun_timeout=60s; Kubernetes: no webhook" + MORE
    ),
    "teardown_after is that of PostRun and DataOut together": (
        "PostRun and DataOut took more than teardown_after=60s" + LOST + MORE
    ),
    "a copy into the storage moves no data any more": (
        "no data moved in DataIn for stall_timeout=60s" + MORE
    ),
    "a copy out of the storage moves no data any more": (
        "no data moved in DataOut for stall_timeout=60s" + LOST + MORE
    ),
    "a job waits for the copies that go on (y), and loses the others (xz)": (
        r"DWS failed in DataOut: .*no space.*; not copied: \$DW_JOB_p1/ to /lustre/x, "
        r"\$DW_JOB_p1/ to /lustre/z" + MORE
    ),
    "teardown_after is that of copies of which none has failed": (
        r"DWS failed in DataOut: .*; not copied: \$DW_JOB_p1/ to /lustre/x \(failed\), "
        r"\$DW_JOB_p1/ to /lustre/y" + MORE
    ),
    "a copy that is over is not lost with one that takes too long (teardown_after)": (
        r"PostRun and DataOut took more than teardown_after=300s; not copied: "
        r"\$DW_JOB_p1/ to /lustre/x" + MORE
    ),
    "a copy that is over is not lost with one that takes too long (stall_timeout)": (
        r"no data moved in DataOut for stall_timeout=300s; not copied: "
        r"\$DW_JOB_p1/ to /lustre/x" + MORE
    ),
    "a cancelled job names the persistent storage that it has made": (
        "the job did not run, but its persistent storage keep exists:"
        " #DW destroy_persistent removes it"
    ),
    "a cancel after the tasks have ended gives the data up": (
        "given up in PostRun" + LOST + MORE
    ),
    "a daemon that a job requires is there no more in PreRun": (
        r".*: requires=copy-offload is not available here, expected one of "
        r"scratch-cache \(an administrator makes it available with a table "
        r"\[rabbit.daemons.copy-offload\] in Flux's configuration\)"
    ),
    "a job requires a daemon that is not known": (
        r".*is not available here, expected no requires= at all \(.*"
    ),
    "the process that reads R fails, at the cost of one job": (
        "the process that reads R fails: it was killed by SIGKILL"
    ),
    "a job is let go before its tasks have ended": (
        r"epilog-timeout in PreRun: .*" + LOST
    ),
    "an epilog is given up while data movements are listed": (
        "epilog-timeout in DataOut: rabbit-01: still allocated, disabled"
    ),
    "a DirectiveBreakdown that is malformed fails the job at once": (
        r'DirectiveBreakdown .*: status.ready is "soon", expected true or false'
    ),
    "an abort of a job that never had nodes has none to drain": (
        "epilog-timeout: the dws module has not finished in time to take out of .*"
    ),
    "the storage of a preset is 20 GiB when a Workflow is made again": (
        ".*needs other resources now than Flux was asked for.*"
    ),
    "a Rabbit of a job is full, and another one is broken": (
        r".*Rabbit rabbit-02, .* is not fit for use \(Offline\)"
    ),
    "Kubernetes refuses a job in words of its own": (
        "#DW jobdw type=xfs capacity=10GiB name=p1; .*: DWS refuses: not today"
    ),
    "somebody has DWS count DataOut as done": "the storage is gone" + LOST + MORE,
    "at epilog-timeout nodes and Rabbits that are in use go out of service": (
        "epilog-timeout in PostRun: compute-02: still mounted, drained; "
        r"rabbit-\[01-02\]: still allocated, disabled" + LOST
    ),
}


@pytest.mark.parametrize(("story", "note"), NOTES.items(), ids=NOTES)
def test_an_exception_of_a_story_says(story: str, note: str) -> None:
    (told,) = (each for each in STORIES if each.name == story)
    found = [exception.note for exception in live(told).exceptions]
    assert any(re.fullmatch(note, each) for each in found), found


WAITS = {
    "a DirectiveBreakdown is not ready yet (its status is None)": (
        r"DWS: DirectiveBreakdown default/fluxjob-\d+-0: status.ready is missing, .*"
    ),
    "Servers of persistent storage are not ready yet ({'ready': False})": (
        "DWS: Servers default/keep: status.ready is false, expected true"
    ),
    "a job waits in its prolog for a Rabbit without its colocation key": (
        '.*rabbit-01 has another allocation with the colocation key "lustre-mgt"'
    ),
    "an abort of a job that never had nodes has none to drain": (
        "Kubernetes: connection refused"
    ),
    "PreRun counts from when it is asked for, whether DWS takes it up or not": (
        "DWS, to begin with PreRun"
    ),
    "a copy stalls, and goes on in time": (
        "DWS in DataIn: DW Directive 1: data movement in progress"
    ),
    "Kubernetes says nothing when the module starts": "Kubernetes: no answer yet",
    "the user database says nothing for a minute": "the user database: no answer yet",
    "a node that others have drained does not hold up the job": (
        "DWS in PostRun: .*pending unmount"
    ),
}
"""What a job says that it waits for."""


@pytest.mark.parametrize(("story", "text"), WAITS.items(), ids=WAITS)
def test_a_job_of_a_story_waits_for(story: str, text: str) -> None:
    (told,) = (each for each in STORIES if each.name == story)
    found = live(told).waits
    assert any(re.fullmatch(text, each) for each in found), found


LOGGED = {
    "a job that cannot even be failed is left alone": "cannot be failed",
    "one cannot list nnfdatamovements (403), which costs one record": (
        "data movements are not recorded: you may not"
    ),
    "one cannot log pods (500), which costs one record": (
        "container logs are not recorded: conversion webhook failed"
    ),
    "a list of data movements has no end": (
        "data movements are not recorded: reading them takes more than 60s"
    ),
    "an epilog is given up while data movements are listed": (
        "data movements are not recorded: the epilog is given up"
    ),
}


@pytest.mark.parametrize(("story", "text"), LOGGED.items(), ids=LOGGED)
def test_a_line_of_the_log_of_a_story_says(story: str, text: str) -> None:
    (told,) = (each for each in STORIES if each.name == story)
    found = live(told).lines
    assert any(f": {text}" in each for each in found), found


@pytest.mark.parametrize("texts", [2, 1000])
def test_a_job_is_told_few_of_the_errors_of_an_outage(texts: int) -> None:
    """It may have thousands of jobs, and last for days."""
    name = f"the errors of an outage alternate ({texts})"
    (told,) = (each for each in STORIES if each.name == name)
    assert 1 <= len(live(told).waits) <= 4
