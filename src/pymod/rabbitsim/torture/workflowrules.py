# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules about Workflows: how they change, and what the service asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from flux_k8s.formats.jobid import f58, jobid_of_workflow
from flux_k8s.objects.workflowmarks import CUT_OFF
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.objects.workflowview import FINALIZER, WLM_ID
from flux_k8s.ports import Json, Request
from flux_k8s.reasons import Reason
from rabbitsim.kube.patch import as_merge_patch
from rabbitsim.torture.record import (
    NEVER,
    RESOLUTION,
    cancelled_in_epilog,
    limit_of,
)

if TYPE_CHECKING:
    from rabbitsim.torture.monitor import Monitor

COPY_FAILED = (Reason.DWS_FAILED, Reason.STALL_TIMEOUT, Reason.TEARDOWN_AFTER)
"""The reasons in DataOut for which data is kept, so that it can be rescued."""

AFTER_RUN = ("PostRun", "DataOut")
"""The states that save the data of a job."""

MOMENT = 1.0
"""Seconds that it takes to let a job go."""

OBEDIENCE = 100.0
"""Seconds after which a job that was cancelled in its epilog makes no more moves
to save its data: requests that were sent before have arrived."""


# How a Workflow changes. (The record is still that of before.)


def check_tasks(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """Storage is not let go while the job's tasks run."""
    record, desired = monitor.record(jobid), workflow["spec"]["desiredState"]
    if STATES[desired] < STATES["PostRun"] or not monitor.running(jobid):
        return
    # A request may be on its way when somebody else deletes and moves the Workflow.
    if not (record.aborted or monitor.allowances.twice(jobid)):
        monitor.fail("tasks", f"{f58(jobid)} went to {desired}, and its tasks run")


def check_order(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """States follow each other, or Teardown follows any."""
    before, desired = monitor.record(jobid).desired, workflow["spec"]["desiredState"]
    if STATES[desired] < STATES[before] and not monitor.allowances.twice(jobid):
        monitor.fail("order", f"{f58(jobid)} went back from {before} to {desired}")
    if desired != "Teardown" and STATES[desired] > STATES[before] + 1:
        monitor.fail("order", f"{f58(jobid)} skipped from {before} to {desired}")


def check_kept(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """Storage that is kept so that data can be rescued does not go before its time,
    and no storage goes that should have been kept."""
    record, allowances = monitor.record(jobid), monitor.allowances
    free = record.given_up or record.aborted or allowances.twice(jobid)
    teardown = workflow["spec"]["desiredState"] == "Teardown"
    if free or "DataOut" in record.reached or not teardown:
        return
    until, now = record.failed_until, monitor.now()
    if until is not None and now < until - allowances.early(jobid):
        text = f"{f58(jobid)} was torn down {until - now:.3f}s before its time"
        monitor.fail("kept", text)
    job, unkept = monitor.jobs().get(jobid), allowances.config.keep_failed is None
    if job is None or unkept or allowances.unkept():
        return
    if cancelled_in_epilog(job) is not None:
        return  # its data is not waited for
    # A container runs on, so its job cannot end before its storage is gone.
    keeps = "requires=" not in str(job.jobspec["attributes"]["system"]["dw"])
    for told in record.fatal:
        failed = told.state == "DataOut" and told.reason in COPY_FAILED
        lost = any(place in told.note for place in record.outputs)
        if keeps and failed and lost and not record.failed:
            monitor.fail("kept", f"{f58(jobid)} was not kept: {told.note}")


def check_limit(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """A state that was not reached in time is not waited for any longer."""
    record, allowances = monitor.record(jobid), monitor.allowances
    state, now = record.desired, monitor.now()
    limit, asked = limit_of(state, allowances.config), record.moved.get(state)
    if limit is None or asked is None or allowances.twice(jobid):
        return
    if record.kept and state in ("PostRun", "DataOut"):
        return
    if record.failed and state == "DataOut":
        return
    due = asked + limit
    if state in ("PostRun", "DataOut"):  # a service that came later counts anew, once
        due = min(max(asked, allowances.loaded_at) + limit, due + limit)
    due += allowances.lateness
    told = state in ("Proposal", "Setup") and bool(record.fatal)
    if now > due and record.reached.get(state, NEVER) > due and not told:
        waited = now - asked
        text = f"{f58(jobid)} waited {waited:.0f}s for {state}, at most {limit:g}"
        monitor.fail("overdue", text)


def check_finalizer(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """A Workflow has our finalizer before Teardown."""
    desired, metadata = workflow["spec"]["desiredState"], workflow["metadata"]
    free = desired == "Teardown" or monitor.allowances.twice(jobid)
    if not (free or is_deleting(workflow)):
        if FINALIZER not in metadata.get("finalizers", ()):
            monitor.fail("finalizer", f"{f58(jobid)} lost its finalizer in {desired}")


def check_made_once(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """A job has one Workflow."""
    if monitor.record(jobid).made > 0 and not monitor.allowances.twice(jobid):
        monitor.fail("made twice", f"{f58(jobid)} got another Workflow")


def check_gone(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """A Workflow goes when its Teardown is complete."""
    if not (is_complete(workflow, "Teardown") or monitor.allowances.twice(jobid)):
        state = workflow["spec"]["desiredState"]
        monitor.fail("deleted", f"{f58(jobid)} lost its Workflow in {state}")


Rule = Callable[["Monitor", int, Json], None]


def check_in_use(monitor: Monitor, jobid: int, workflow: Json) -> None:
    """After an abort what a job uses is out of service when that was carried out, as
    the Workflow says, or Teardown was asked for by a service that has been told of the
    abort."""
    record = monitor.record(jobid)
    if not record.aborted:
        return
    annotations = workflow["metadata"].get("annotations") or {}
    tried, loaded_at = record.tried.get("Teardown", ()), monitor.allowances.loaded_at
    decided = next((at for at in tried if at >= loaded_at), NEVER)
    told = record.aborted_at + monitor.allowances.delivery + RESOLUTION
    if CUT_OFF in annotations or told < decided < NEVER:
        monitor.storage.cut_off(workflow["metadata"]["name"], monitor.drained)


OF_CHANGES: Mapping[str, Sequence[Rule]] = {
    "made": (check_made_once,),
    "moved": (check_tasks, check_kept, check_limit, check_order),
    "written": (check_finalizer, check_in_use),
    "gone": (check_gone,),
}
"""The rules for what happens to a Workflow."""


# What the service asks for


def check_deletion(monitor: Monitor, request: Request, workflow: Json) -> None:
    """Nothing is deleted before Teardown is complete."""
    if request.verb != "delete" or is_complete(workflow, "Teardown"):
        return
    if not is_deleting(workflow):
        text = f"delete of {request.name} before Teardown is complete"
        monitor.fail("deleted", text)


def check_request_order(monitor: Monitor, request: Request, workflow: Json) -> None:
    """The next state is asked for, or Teardown."""
    state, current = wanted(request), workflow["spec"]["desiredState"]
    if state is None or state == "Teardown":
        return
    steps = STATES[state] - STATES[current]
    meddled = monitor.allowances.twice(_jobid_of(workflow))
    if (steps < 0 or steps > 1) and not meddled:
        text = f"{request.name} in {current} was asked to go to {state}"
        monitor.fail("order", text)


def check_rabbits(monitor: Monitor, request: Request, workflow: Json) -> None:
    """A job goes on if the Rabbits work that its persistent storage is on."""
    job, now = monitor.jobs().get(_jobid_of(workflow)), monitor.now()
    if job is not None and wanted(request) == "Setup":
        monitor.storage.sets_up(
            job, workflow, lambda rabbit: monitor.allowances.broken(rabbit, now)
        )


def check_obedience(monitor: Monitor, request: Request, workflow: Json) -> None:
    """The data of a job that was cancelled in its epilog is not waited for."""
    job, state = monitor.jobs().get(_jobid_of(workflow)), wanted(request)
    keeps = monitor.allowances.config.keeps_mounted
    if job is None or state not in (("DataOut",) if keeps else AFTER_RUN):
        return
    since = cancelled_in_epilog(job)
    # One in the moment in which the job is let go comes too late.
    in_time = job.active or job.events[-1].timestamp > (since or 0.0) + MOMENT
    if since is not None and in_time and monitor.now() > since + OBEDIENCE:
        text = f"{request.name} goes to {state}, {job} was cancelled"
        monitor.fail("obedience", text)


def _body_of(request: Request) -> Json:
    return {} if request.body is None else as_merge_patch(request.body)


def wanted(request: Request) -> Optional[str]:
    """The state that is asked for; None if none is."""
    state: Optional[str] = (_body_of(request).get("spec") or {}).get("desiredState")
    return state


def _jobid_of(workflow: Json) -> int:
    return jobid_of_workflow(workflow["metadata"]["name"]) or 0


OF_REQUESTS: Sequence[Callable[["Monitor", Request, Json], None]] = (
    check_deletion,
    check_request_order,
    check_rabbits,
    check_obedience,
)
"""The rules for requests that write a Workflow of ours."""


def is_ours(workflow: Json) -> bool:
    jobid = jobid_of_workflow(workflow["metadata"]["name"])
    spec: Any = workflow["spec"]
    if jobid is None or spec["wlmID"] != WLM_ID:
        return False
    return bool(spec["jobID"].replace("ƒ", "f") == f58(jobid))


def is_deleting(workflow: Json) -> bool:
    return "deletionTimestamp" in workflow["metadata"]


def is_complete(workflow: Json, state: str) -> bool:
    status = workflow.get("status") or {}
    return (
        workflow["spec"]["desiredState"] == state
        and status.get("state") == state
        and status.get("ready") is True
    )


def waits(workflow: Optional[Json]) -> bool:
    """Whether a Workflow is there, and has not reached the state that it is to."""
    return workflow is not None and not is_complete(
        workflow, workflow["spec"]["desiredState"]
    )
