# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin when there is no memory, or Flux refuses what it asks for."""

from __future__ import annotations

import errno
import itertools
from typing import Any, Callable, Iterator, Optional

import pytest
from rabbitsim._jobtap import lib

from support.effort import SOAKING
from support.jobtap import DEPEND, JobManager
from support.jobtap_jobs import error_of, notes, up_to


@pytest.fixture(autouse=True)
def plenty() -> Iterator[None]:
    yield
    lib.standin_fail_json(0)


def each_allocation(function: Callable[[], None], step: int = 1) -> int:
    """Call the function until none of its allocations has failed; return how many
    there are. Only each ``step``-th fails."""
    for number in itertools.count(1, step):
        lib.standin_fail_json(number)
        function()
        if lib.standin_fail_json(0) > 0:
            return number - 1
    raise AssertionError


@pytest.mark.parametrize("jobs, step", [(1, 1), (3, 1), (34, 1 if SOAKING else 53)])
@pytest.mark.parametrize("anew", [False, True], ids=["goes on", "begins again"])
def test_no_job_is_left_out_of_hello_for_want_of_memory(
    manager: JobManager, jobs: int, step: int, anew: bool
) -> None:
    for jobid in range(1, jobs + 1):
        manager.submit(jobid, {"dw": "#DW a"})

    def ask() -> None:
        told: list[int] = []
        payload: Optional[dict[str, Any]] = {}
        while payload is not None:
            try:
                answer = manager.request("hello", payload)
            except (OSError, ValueError):  # a response that was not sent
                payload, told = ({}, []) if anew else (payload, told)
                continue
            told += [job["id"] for job in answer["jobs"]]
            payload = {"cursor": answer["cursor"]} if "cursor" in answer else None
        assert told == list(manager.jobs)

    assert each_allocation(ask, step) > 10 * jobs


def test_the_error_of_a_jobspec_update_is_in_the_log(manager: JobManager) -> None:
    job = up_to(manager, "depend")

    def refuse(jobid: int, updates: Any) -> None:
        raise OSError(errno.EPERM, "no")

    # Of this one object only.
    manager.jobspec_update = refuse  # type: ignore[method-assign]
    lib.standin_fail_json(0)  # from now on errno is lost where memory is freed
    update = {"id": 1, "resources": [{"type": "slot"}], "exclude": None}
    assert error_of(manager, "resource-update", update).errno == errno.EINVAL
    assert "error updating jobspec: Operation not permitted" in manager.logged[-1][1]
    assert job.state == DEPEND and not notes(job)


def test_a_job_whose_resources_cannot_be_updated_for_want_of_memory_is_not_admitted(
    manager: JobManager,
) -> None:
    job = up_to(manager, "depend")
    update = {"id": 1, "resources": [{"type": "slot"}], "exclude": {"hostlist": ["a"]}}
    for number in itertools.count(1):
        lib.standin_fail_json(number)
        try:
            manager.request("resource-update", update)
        except (OSError, ValueError):
            pass
        left = lib.standin_fail_json(0)
        if job.state != DEPEND:
            assert job.jobspec["resources"] == update["resources"]
            assert job.jobspec["attributes"]["system"]["constraints"]
            break
        assert left == 0
