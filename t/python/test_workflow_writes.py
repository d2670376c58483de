# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service writes to a Workflow: each write costs the API server and DWS more
than it costs the service."""

from __future__ import annotations

from typing import Callable, Optional

from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import WORKFLOW, KubeError, Request
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.service import (
    HOUR,
    LIFE,
    exceptions,
    in_state,
    jobspec,
    lines,
    names,
    settle,
    started,
)


def interfere(
    system: VirtualSystem, act: Callable[[Request], Optional[Fault]]
) -> list[Request]:
    """Have a function called before each write of the service to a Workflow. Returns
    the list of the writes."""
    found: list[Request] = []

    def note(request: Request) -> Optional[Fault]:
        if request.kind != WORKFLOW or request.verb in ("get", "list", "watch"):
            return None
        found.append(request)
        return act(request)

    assert system.service_kube is not None
    system.service_kube.faults = note
    return found


def requests_teardown(request: Request) -> bool:
    return "'Teardown'" in repr(request.body)


def test_a_workflow_is_written_to_once_for_each_state() -> None:
    system = started()
    found = interfere(system, lambda request: None)
    jobid = system.instance.submit(jobspec())
    settle(system)
    moves = ["patch"] * (len(State) - 1)
    assert [each.verb for each in found] == ["create", *moves, "delete"]
    assert names(system, jobid) == LIFE


def test_a_finalizer_that_was_not_removed_with_the_request_goes_soon_after() -> None:
    """Not only when DWS has completed Teardown."""
    slow = table({"Teardown": 8.0})
    system = started(options=Options(latency=slow, full_events=True))
    jobid = system.instance.submit(jobspec())
    refused: list[Request] = []

    def refuse(request: Request) -> Optional[Fault]:
        if not requests_teardown(request) or refused:
            return None
        refused.append(request)
        return Fault(error=KubeError(422, "Invalid", "the list has changed"))

    interfere(system, refuse)
    assert system.loop.run(in_state(system, "Teardown"), HOUR)
    system.loop.run(timeout=5.0)
    (workflow,) = system.workflows()
    assert FINALIZER not in workflow["metadata"]["finalizers"]
    assert refused and not workflow["status"]["ready"]
    settle(system, HOUR)
    assert names(system, jobid) == LIFE


def test_a_teardown_that_a_webhook_rejects_is_requested_once_at_a_time() -> None:
    """The finalizer is not the reason."""
    system = started()
    jobid = system.instance.submit(jobspec())
    over: list[None] = []
    at: list[float] = []

    def act(request: Request) -> Optional[Fault]:
        if over or not requests_teardown(request):
            return None
        at.append(system.loop.now())
        return Fault(error=KubeError(422, "Invalid", "no"))

    interfere(system, act)
    system.loop.run(timeout=600.0)
    assert len(lines(system, "trying again")) == 1
    pairs = [second for first, second in zip(at, at[1:]) if second - first < 0.05]
    assert len(at) > 5 and len(pairs) <= 1, at
    over.append(None)
    settle(system)
    assert names(system, jobid) == LIFE and exceptions(system, jobid) == []
