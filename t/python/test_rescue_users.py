# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a user can do to others, and to the service, with data that is kept."""

from __future__ import annotations

import errno
from math import inf
from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.workflowmarks import FAILED_UNTIL, RESCUED
from flux_k8s.ports import NNFDATAMOVEMENT, WORKFLOW, Json
from flux_k8s.rfc.jobid import f58
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube import direct
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER, answer_of, ask, query
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    XFS,
    annotations,
    desired,
    exceptions,
    jobspec,
    lines,
    run_until_inactive,
    settle,
    started,
)

ALL_KEPT: Json = {"keep_failed": "1d", "keep_failed_limit": 100}
LIMIT = "its storage is not kept: rabbit.keep_failed_limit is reached"


def system_of(
    config: Optional[Json] = None, failing: float = inf, **options: Any
) -> VirtualSystem:
    """Four nodes on two Rabbits, from which no data can be copied, at least for some
    seconds."""
    return started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(
            latency=table({"DataOut": 1.0}),
            faults=(Fault("DataOut", "copy", duration=failing, message="no space"),),
        ),
        config=Config.parse({**ALL_KEPT, **(config or {})}),
        **options,
    )


def fail(system: VirtualSystem, userid: int, size: int = 60, **more: Any) -> int:
    """Run a job of a user with so many GiB, whose data cannot be copied."""
    dw = [XFS.replace("10GiB", f"{size}GiB"), COPY_OUT]
    jobid = system.instance.submit(jobspec(dw, 1, **more), userid=userid)
    run_until_inactive(system, jobid)
    system.loop.run(timeout=60.0)
    return jobid


def is_kept(system: VirtualSystem, jobid: int) -> bool:
    name = f"fluxjob-{jobid}"
    if name not in [found["metadata"]["name"] for found in system.workflows()]:
        return False
    waits = FAILED_UNTIL in annotations(system, jobid)
    ended = system.instance.job(jobid).state is JobState.INACTIVE
    return waits and ended and desired(system, jobid) == "DataOut"


def test_one_user_has_no_more_storage_kept_than_the_limit() -> None:
    system = system_of({"keep_failed_limit": 25})
    first, second = (fail(system, GUEST) for _ in range(2))
    (told,) = exceptions(system, second)
    assert is_kept(system, first) and not is_kept(system, second)
    assert "no space" in told["note"] and LIMIT in told["note"]
    assert is_kept(system, fail(system, OTHER))
    query(system, "rescue", {"id": first, "give_up": True}, GUEST)
    system.loop.run(timeout=60.0)
    assert is_kept(system, fail(system, GUEST))
    settle(system, 3 * DAY)


def test_a_job_that_has_ended_is_bounded_as_well_and_told_by_its_record() -> None:
    system = system_of({"keep_failed_limit": 25})
    fail(system, GUEST)
    jobid = fail(system, GUEST, dw_release="unmounted")
    assert not is_kept(system, jobid)
    assert LIMIT in system.instance.job(jobid).kvs["rabbit_data_out"]
    settle(system, 3 * DAY)


def test_a_copy_that_fails_again_does_not_count_twice() -> None:
    system = system_of({"keep_failed_limit": 25})
    jobid = fail(system, GUEST)
    for _ in range(3):
        query(system, "rescue", {"id": jobid}, GUEST)
        assert RESCUED in annotations(system, jobid)
        system.loop.run(timeout=60.0)
        assert is_kept(system, jobid)
    settle(system, 3 * DAY)


@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_jobs_whose_copies_fail_at_once_have_no_more_kept_than_the_limit(
    delay: float,
) -> None:
    def faults(request: direct.Request) -> Optional[direct.Fault]:
        slow = delay and request.kind == WORKFLOW and request.verb == "patch"
        return direct.Fault(delay=delay) if slow else None

    system = system_of({"keep_failed_limit": 35}, faults=faults)
    dw = [XFS.replace("10GiB", "60GiB"), COPY_OUT]
    users = [GUEST, GUEST, OTHER, GUEST]
    jobs = [system.instance.submit(jobspec(dw, 1), userid=each) for each in users]
    for jobid in jobs:
        run_until_inactive(system, jobid)
    system.loop.run(timeout=60.0)
    kept = [user for user, jobid in zip(users, jobs) if is_kept(system, jobid)]
    assert sorted(kept) == sorted([GUEST, GUEST, OTHER])
    settle(system, 3 * DAY)


def test_by_default_one_user_may_have_a_tenth_of_all_storage_kept() -> None:
    """Copies may be made again without end, and fail each time."""
    system = system_of({"keep_failed_limit": Config().keep_failed_limit})
    first, second = (fail(system, GUEST, 35) for _ in range(2))
    assert is_kept(system, first) and not is_kept(system, second)
    assert is_kept(system, fail(system, OTHER, 35))
    settle(system, 3 * DAY)


def test_one_user_may_have_all_storage_kept_where_the_limit_allows_that() -> None:
    system = system_of()
    jobs = [fail(system, GUEST, 90) for _ in range(4)]
    assert all(is_kept(system, jobid) for jobid in jobs)
    settle(system, 3 * DAY)


def test_data_that_is_given_up_many_times_at_once_is_one_request() -> None:
    patches: list[None] = []

    def faults(request: direct.Request) -> Optional[direct.Fault]:
        if not (slow and request.kind == WORKFLOW and request.verb == "patch"):
            return None
        patches.append(None)
        return direct.Fault(delay=20.0)

    slow: list[None] = []
    system = system_of(faults=faults)
    jobid = fail(system, GUEST)
    slow.append(None)
    payload = {"id": jobid, "give_up": True}
    asked = [ask(system, "rescue", payload, GUEST) for _ in range(15)]
    system.loop.run(timeout=10.0)
    assert len(patches) == 1
    slow.clear()
    system.loop.run(timeout=HOUR)
    answers = [answer() for answer in asked]
    text = f"job {f58(jobid)}: its data is given up"
    assert [answer and answer[0] for answer in answers] == [0] + 14 * [errno.EINVAL]
    assert all(answer and answer[1] == text for answer in answers[1:])
    assert len(lines(system, "gives its data up")) == 1


def test_data_that_was_given_up_may_be_given_up_again() -> None:
    system = system_of()
    jobid = fail(system, GUEST)
    payload = {"id": jobid, "give_up": True}
    query(system, "rescue", payload, GUEST)
    errnum, _, _ = answer_of(system, "rescue", payload, GUEST)
    assert errnum in (0, errno.EINVAL, errno.ENOENT)
    assert len(lines(system, "gives its data up")) == 1
    settle(system, DAY)


@pytest.mark.parametrize("verb", ["patch_status", "list"])
def test_a_rescue_that_takes_longer_than_its_job_does_not_end_the_service(
    verb: str,
) -> None:
    def faults(request: direct.Request) -> Optional[direct.Fault]:
        slows = slow and request.kind == NNFDATAMOVEMENT and request.verb == verb
        return direct.Fault(delay=50.0) if slows else None

    slow: list[None] = []
    system = system_of(failing=HOUR, faults=faults)
    jobid = fail(system, GUEST)
    system.loop.run(timeout=2 * HOUR)
    slow.append(None)
    rescued = ask(system, "rescue", {"id": jobid}, GUEST)
    system.loop.run(timeout=200.0)
    answer = rescued()
    assert answer is not None and answer[0] == 0
    settle(system, DAY)
    assert lines(system, f"{f58(jobid)}: its data is out")
