# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service writes to a Workflow: each write costs the API server and DWS more
than it costs the service."""

from __future__ import annotations

from typing import Callable, Optional

from flux_k8s.formats.jobid import workflow_name
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import WORKFLOW, Json, Kind, Request
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.errors import ApiError
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


def interfere(system: VirtualSystem, act: Callable[[Request], None]) -> list[Request]:
    """Have a function called before each write of the service to a Workflow. Returns
    the list of the writes."""
    found: list[Request] = []

    def note(request: Request) -> None:
        if request.kind == WORKFLOW and request.verb not in ("get", "list", "watch"):
            found.append(request)
            act(request)

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
    tried: list[Request] = []

    def change(request: Request) -> None:
        """Another program has changed the list just before."""
        if requests_teardown(request):
            tried.append(request)
        if requests_teardown(request) and len(tried) == 1:
            body: Json = {"metadata": {"finalizers": ["example.com/x", FINALIZER]}}
            name = workflow_name(jobid)
            system.store.merge_patch(WORKFLOW, "default", name, body)

    interfere(system, change)
    assert system.loop.run(in_state(system, "Teardown"), HOUR)
    system.loop.run(timeout=5.0)
    (workflow,) = system.workflows()
    assert FINALIZER not in workflow["metadata"]["finalizers"]
    assert len(tried) == 2 and not workflow["status"]["ready"]
    system.store.merge_patch(
        WORKFLOW, "default", workflow_name(jobid), {"metadata": {"finalizers": None}}
    )
    settle(system, HOUR)
    assert names(system, jobid) == LIFE


def test_a_teardown_that_a_webhook_rejects_is_requested_once_at_a_time() -> None:
    """The finalizer is not the reason."""
    system = started()
    jobid = system.instance.submit(jobspec())
    at: list[float] = []

    def note(request: Request) -> None:
        if requests_teardown(request):
            at.append(system.loop.now())

    def reject(
        operation: str, kind: Kind, new: Optional[Json], old: Optional[Json]
    ) -> None:
        if kind == WORKFLOW and new and new["spec"]["desiredState"] == "Teardown":
            raise ApiError(422, "Invalid", "no")

    interfere(system, note)
    system.store.admission.append(reject)
    system.loop.run(timeout=600.0)
    assert len(lines(system, "trying again")) == 1
    pairs = [second for first, second in zip(at, at[1:]) if second - first < 0.05]
    assert len(at) > 5 and len(pairs) <= 1, at
    system.store.admission.remove(reject)
    settle(system)
    assert names(system, jobid) == LIFE and exceptions(system, jobid) == []
