# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A node that somebody else has drained does not unmount: the job ends as if the
service had drained it."""

from __future__ import annotations

import pytest

from flux_k8s.dws.workflowmarks import KEPT_FOR
from flux_k8s.rfc.jobid import f58
from support.rabbits import drained, shown
from support.service import (
    DAY,
    HOUR,
    desired,
    exceptions,
    run_until_inactive,
    running,
    settle,
)
from support.unmounting import (
    BAD,
    LIMIT,
    REASON,
    fencing,
    is_kept,
    record,
    refuse_mark,
    settle_unharmed,
    submit,
    switch_off,
    system_of,
    wait,
)

DIMM = "bad DIMM"


def test_a_node_that_others_have_drained_does_not_hold_up_the_job() -> None:
    system = system_of(config={"unmount_failure": "teardown"})
    jobid = submit(system)
    running(system, jobid)
    system.instance.drain(BAD, DIMM)
    run_until_inactive(system, jobid)
    settle(system, DAY)
    assert drained(system) == {BAD: f"{DIMM}; {f58(jobid)}: {REASON}"}
    assert shown(system) == {BAD: "Disabled"}


@pytest.mark.parametrize("restart", [False, True])
def test_a_node_that_is_fenced_is_passed_over_whatever_it_was_drained_for(
    restart: bool,
) -> None:
    system, fenced, _ = fencing()
    jobid = submit(system)
    running(system, jobid)
    run_until_inactive(system, jobid)
    system.instance.undrain(BAD)
    wait(system, 10.0)
    system.instance.drain(BAD, DIMM)
    wait(system, HOUR)
    assert is_kept(system, jobid) and shown(system) == {}
    fenced.append(BAD)
    wait(system, LIMIT + 1.0)
    assert desired(system, jobid) == "DataOut"
    if restart:
        system.kill_module()
        system.load_module()
    settle(system, DAY)
    assert record(system, jobid)["success"] is False
    assert drained(system) == {BAD: DIMM}


def test_a_node_that_others_have_drained_has_its_storage_kept() -> None:
    system = system_of()
    jobid = submit(system)
    running(system, jobid)
    system.instance.drain(BAD, DIMM)
    run_until_inactive(system, jobid)
    wait(system, HOUR)
    assert is_kept(system, jobid) and shown(system) == {}
    switch_off(system)
    settle_unharmed(system)


def test_the_job_is_told_once_of_a_node_that_others_have_drained() -> None:
    system = system_of(config={"unmount_failure": "teardown"})
    jobid = submit(system)
    running(system, jobid)
    system.instance.drain(BAD, DIMM)
    run_until_inactive(system, jobid)
    told = [each for each in exceptions(system, jobid) if REASON in each["note"]]
    assert len(told) == 1


def test_the_job_is_told_once_of_a_node_that_was_drained_for_another_job() -> None:
    """Kubernetes does not take the annotation at first: the step is repeated."""
    system = system_of()
    jobid = submit(system)
    running(system, jobid)
    system.instance.drain(BAD, f"fABC: {REASON}")
    refused = refuse_mark(system, KEPT_FOR)
    run_until_inactive(system, jobid)
    told = [each for each in exceptions(system, jobid) if REASON in each["note"]]
    assert is_kept(system, jobid) and len(refused) == 3 and len(told) == 1
