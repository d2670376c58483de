# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job says of a state that DWS works on for long."""

from __future__ import annotations

import pytest

from flux_k8s.jobs.reports import DWS_PATIENCE, MEMO
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.system import VirtualSystem
from support.service import (
    exceptions,
    jobspec,
    memo,
    settle,
    started,
)


def system_with(*faults: DwsFault) -> VirtualSystem:
    system: VirtualSystem = started(options=Options(faults=faults))
    return system


def memos(system: VirtualSystem, jobid: int) -> int:
    """How often a job has said what it waits for."""
    events = system.instance.job(jobid).events
    return sum(event.name == "memo" and MEMO in event.context for event in events)


@pytest.mark.parametrize(
    "state", ["Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown"]
)
def test_the_memo_of_a_job_names_the_work_of_dws_until_there_is_progress(
    state: str,
) -> None:
    fault = DwsFault(state, "never", duration=2 * DWS_PATIENCE, message="at work")
    system = system_with(fault)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=DWS_PATIENCE - 1.0)
    assert memo(system, jobid, MEMO) is None
    system.loop.run(timeout=5.0)
    assert str(memo(system, jobid, MEMO)).startswith(f"DWS in {state}: ")
    settle(system)
    assert memo(system, jobid, MEMO) is None
    assert memos(system, jobid) == 2
    assert all(exception["severity"] for exception in exceptions(system, jobid))


def test_a_job_with_progress_has_no_memo() -> None:
    system = system_with(DwsFault("DataIn", "slow", duration=DWS_PATIENCE - 5.0))
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert memos(system, jobid) == 0
