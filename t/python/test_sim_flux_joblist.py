# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in's job-list and job-info, and the commands that ask them."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from dwscli.fluxinstance import ATTRIBUTES
from rabbitsim.commands import VirtualInstance
from rabbitsim.system import VirtualSystem
from support.service import XFS, jobspec, long, running, settle, started

GUEST, OTHER = 4711, 4712


def ended(system: VirtualSystem, spec: Any, userid: int = GUEST) -> int:
    jobid = system.instance.submit(spec, userid=userid)
    settle(system)
    return jobid


def test_a_job_that_ended_has_its_result_and_its_times() -> None:
    system = started()
    instance = VirtualInstance(system)
    jobid = ended(system, jobspec(XFS, 2, bank="physics"))
    job = instance.job(jobid)
    assert job is not None and set(job) <= {"id", *ATTRIBUTES}
    assert (job["state"], job["result"], job["bank"]) == (64, 1, "physics")
    assert (job["nnodes"], job["userid"]) == (2, GUEST)
    assert job["nodelist"] and not job["exception_occurred"]
    assert job["t_submit"] < job["t_run"] < job["t_cleanup"] < job["t_inactive"]
    assert job["annotations"]["user"]["rabbit_workflow"] == f"fluxjob-{jobid}"


def test_an_exception_says_how_a_job_ended() -> None:
    system = started()
    instance = VirtualInstance(system)
    jobids = [system.instance.submit(long(XFS, 1)) for _ in range(2)]
    running(system, *jobids)
    instance.raise_exception(jobids[0], "cancel", "enough")
    instance.raise_exception(jobids[1], "timeout", "too long")
    settle(system)
    found = [instance.job(jobid) or {} for jobid in jobids]
    assert [job["result"] for job in found] == [4, 8]
    assert found[0]["exception_note"] == "enough"
    with pytest.raises(FileNotFoundError):
        instance.raise_exception(jobids[0], "cancel", "again")


def test_jobs_that_ended_are_listed_by_their_end() -> None:
    system = started()
    instance = VirtualInstance(system)
    first, second = ended(system, jobspec()), ended(system, jobspec(), OTHER)
    system.instance.submit(jobspec())
    assert [job["id"] for job in instance.ended_jobs(None, 0.0, 10)] == [second, first]
    assert [job["id"] for job in instance.ended_jobs(GUEST, 0.0, 10)] == [first]
    assert [job["id"] for job in instance.ended_jobs(None, 0.0, 1)] == [second]
    since = (instance.job(first) or {})["t_inactive"]
    assert [job["id"] for job in instance.ended_jobs(None, since, 10)] == [second]
    request = {"attrs": [], "constraint": {"not": []}}
    with pytest.raises(OSError, match="unknown constraint operator not"):
        instance.ask("job-list.list", request)


def test_a_guest_reads_the_kvs_of_the_own_jobs_only() -> None:
    system = started()
    jobid = ended(system, jobspec())
    wanted = [(jobid, "rabbit_setup_timing"), (jobid, "none")]
    for userid in (None, GUEST):
        found = VirtualInstance(system, userid).kvs(wanted)
        assert [*found] == wanted[:1] and float(found[wanted[0]]) >= 0
    with pytest.raises(PermissionError):
        VirtualInstance(system, OTHER).kvs(wanted)


def test_an_unknown_job_and_a_module_that_is_not_loaded_are_errors() -> None:
    system = started()
    instance = VirtualInstance(system)
    assert instance.job(1) is None
    system.unload_module()
    with pytest.raises(OSError) as error:
        instance.ask("dws.job-list", {})
    assert error.value.errno == errno.ENOSYS


def test_time_passes_while_an_answer_is_awaited() -> None:
    system = started()
    jobid = system.instance.submit(long(XFS, 1))
    running(system, jobid)
    instance, ticks, begin = VirtualInstance(system), [], system.loop.now()
    serial = instance.ask("dws.job-show", {"id": jobid})["serial"]
    request = {"id": jobid, "seen": serial}
    answer = instance.ask("dws.job-show", request, lambda: ticks.append(1))
    assert answer["serial"] == serial and 25 <= len(ticks) <= 31
    assert system.loop.now() - begin == pytest.approx(30, abs=2)
