# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""DirectiveBreakdowns and Servers that are not ready yet are waited for."""

from __future__ import annotations

from typing import Any

import pytest

from flux_k8s.jobs.reporter import MEMO
from flux_k8s.ports import DIRECTIVEBREAKDOWN, SERVERS, Kind, KubeDone, KubeError
from rabbitsim.system import VirtualSystem
from support.service import (
    HOUR,
    KEEP,
    LIFE,
    USE,
    XFS,
    exceptions,
    jobspec,
    memo,
    names,
    settle,
)


def unready(system: VirtualSystem, kind: Kind, status: Any, seconds: float) -> None:
    """For a while, objects of a kind are told to have another status."""
    kube = system.service_kube
    assert kube is not None
    until, get = system.loop.now() + seconds, kube.get

    def early(
        asked: Kind, namespace: str, name: str, done: KubeDone, *, key: str
    ) -> None:
        def answered(result: Any) -> None:
            late = system.loop.now() < until and asked == kind
            if late and not isinstance(result, KubeError):
                result = {**result, "status": status}
            done(result)

        get(asked, namespace, name, answered, key=key)

    kube.get = early  # type: ignore[method-assign]


def started() -> VirtualSystem:
    system = VirtualSystem()
    system.start()
    system.loop.run(timeout=1.0)
    return system


STATUSES: list[Any] = [None, {}, {"ready": False}]


@pytest.mark.parametrize("status", STATUSES)
def test_a_breakdown_that_is_not_ready_is_waited_for(status: Any) -> None:
    system = started()
    unready(system, DIRECTIVEBREAKDOWN, status, 30.0)
    jobid = system.instance.submit(jobspec(XFS))
    system.loop.run(timeout=20.0)
    assert "depend" not in names(system, jobid)
    waits = str(memo(system, jobid, MEMO))
    assert waits.startswith("DWS: DirectiveBreakdown default/fluxjob-")
    assert "status.ready is " in waits
    settle(system)
    assert names(system, jobid) == LIFE
    assert memo(system, jobid, MEMO) is None


@pytest.mark.parametrize("status", STATUSES)
def test_servers_of_persistent_storage_that_are_not_ready_are_waited_for(
    status: Any,
) -> None:
    system = started()
    made = system.instance.submit(jobspec(KEEP))
    settle(system)
    unready(system, SERVERS, status, 30.0)
    jobid = system.instance.submit(jobspec(USE))
    system.loop.run(timeout=20.0)
    assert "depend" not in names(system, jobid)
    assert str(memo(system, jobid, MEMO)).startswith("DWS: Servers default/keep: ")
    settle(system)
    assert names(system, made) == names(system, jobid) == LIFE


def test_a_job_that_waits_for_a_breakdown_can_be_cancelled() -> None:
    system = started()
    unready(system, DIRECTIVEBREAKDOWN, None, HOUR)
    jobid = system.instance.submit(jobspec(XFS))
    system.loop.run(timeout=20.0)
    system.instance.cancel(jobid)
    settle(system, 60.0)
    assert [context["type"] for context in exceptions(system, jobid)] == ["cancel"]


def test_a_breakdown_that_is_malformed_fails_the_job_at_once() -> None:
    system = started()
    unready(system, DIRECTIVEBREAKDOWN, {"ready": "soon"}, HOUR)
    jobid = system.instance.submit(jobspec(XFS))
    settle(system, 10.0)
    (context,) = exceptions(system, jobid)
    assert "status.ready is " in context["note"]
