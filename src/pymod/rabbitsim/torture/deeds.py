# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What people do in a story, and what happens to the machine."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.jobs.outcomes import DATA_OUT
from flux_k8s.objects.workflowmarks import INSTANCE, REQUESTED, requested_note
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import (
    SYSTEMSTATUS,
    WORKFLOW,
    Json,
    Kind,
)
from rabbitsim.torture.story import FOREVER, NODE, XFS, Deed, Job, Story, deed
from rabbitsim.torture.troubles.dws import FENCE

if TYPE_CHECKING:
    from rabbitsim.torture.life import StorySystem

# What the job's user does


def cancel(system: StorySystem) -> None:
    """The job is cancelled."""
    cancel_job(1)(system)


@deed
def cancel_job(system: StorySystem, number: int) -> None:
    """Another job is cancelled, by its number from 1."""
    manager = system.instance.manager
    jobid = system.jobids[number - 1]
    manager.raise_exception(jobid, "cancel", 0, "", manager.owner)


@deed
def set_urgency(system: StorySystem, urgency: int, number: int = 1) -> None:
    """A job gets another urgency, unless it has nodes, has ended, or was not submitted;
    0 holds it."""
    manager = system.instance.manager
    for jobid in system.jobids[number - 1 : number]:
        with suppress(OSError):
            manager.set_urgency(jobid, urgency, manager.owner)


@deed
def constrain(system: StorySystem, constraints: Json, number: int = 1) -> None:
    """A job may only have certain nodes from now on, as after ``flux update``."""
    job = system.instance.job(system.jobids[number - 1])
    updates = {"attributes.system.constraints": constraints}
    system.instance.manager.post(job, "jobspec-update", updates)


def submit(job: Job) -> Deed:
    """Another job is submitted."""
    return lambda system: system.submit(job)


def rescue(system: StorySystem) -> None:
    """The job's user has its data copied again, and asks until that is done."""
    _ask_rescue(system)


@deed
def rescue_each(system: StorySystem, every: float) -> None:
    """The job's data is copied again each time after so many seconds, until its storage
    is gone."""
    if system.workflows():
        _ask_rescue(system)
        system.loop.call_later(every, partial(rescue_each(every), system))


def give_up(system: StorySystem) -> None:
    """The job's user does without data that is kept."""
    _ask_rescue(system, give_up=True)


def _ask_rescue(system: StorySystem, **payload: bool) -> None:
    asked = {"id": system.first.id, **payload}
    user = system.first.userid

    def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
        if errnum not in (0, errno.EALREADY, errno.EINVAL, errno.ENOENT):
            system.loop.call_later(1.0, ask)

    def ask() -> None:
        system.instance.request("dws.rescue", asked, answered, userid=user)

    ask()


def tells(
    method: str,
    view: Callable[[Json], object],
    expected: object,
    user: Optional[int] = None,
    **payload: Any,
) -> Deed:
    """Somebody, or the instance owner, sends a query, that of a job about the first
    one. What a ``view`` makes of the answer, or of errno and text, is as expected,
    unless a machine has interrupted the story."""

    def ask(system: StorySystem) -> None:
        def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
            system.untrue.remove(unanswered)
            if not system.interrupted:
                found = view(answer or {"errnum": errnum, "text": text})
                if found != expected:
                    text = f"{method}: expected {expected}, found {found}"
                    system.untrue.append(text)

        unanswered = f"{method} has no answer"
        system.untrue.append(unanswered)
        asked = {"id": system.first.id} if method == "job-show" else payload
        system.instance.request(f"dws.{method}", asked, answered, userid=user)

    return ask


def ask_report(system: StorySystem) -> None:
    """The plugin asks what became of the job's data."""
    _request(system, "report_data", jobid=system.jobids[0])


def ask_late(method: str) -> Deed:
    """A request of the plugin about the job comes when its storage is released."""
    return lambda system: _request(system, method, jobid=system.jobids[0])


def _request(system: StorySystem, method: str, **payload: Any) -> None:
    system.instance.request(f"dws.{method}", payload, lambda *answer: None)


def write_record(text: str) -> Deed:
    """Somebody writes where it is recorded what became of the job's data."""
    return lambda system: system.first.kvs.update({DATA_OUT: text})


# What happens to nodes and Rabbits


def down(host: str = NODE) -> Deed:
    """The broker of a node is gone."""
    return lambda system: system.instance.set_up(host, False)


def up(host: str = NODE) -> Deed:
    """It is back."""
    return lambda system: system.instance.set_up(host, True)


@deed
def unlink(system: StorySystem, seconds: float = FOREVER, host: str = NODE) -> None:
    """A node loses its Rabbit for some seconds."""
    set_link = system.controllers.rabbits.set_link
    set_link(host, False)
    system.loop.call_later(seconds, partial(set_link, host, True))


@deed
def switch_off(system: StorySystem, host: str = NODE) -> None:
    """A node has no power: it can write to nothing."""
    system.instance.set_up(host, False)
    system.controllers.rabbits.set_link(host, False)


@deed
def switch_on(system: StorySystem, host: str = NODE) -> None:
    """It has power again."""
    system.instance.set_up(host, True)
    system.controllers.rabbits.set_link(host, True)


@deed
def break_rabbit(
    system: StorySystem, rabbit: str, seconds: float = FOREVER, status: str = "Failed"
) -> None:
    """A Rabbit does not work for some seconds."""
    set_status = system.controllers.rabbits.set_status
    set_status(rabbit, status)
    system.loop.call_later(seconds, partial(set_status, rabbit, "Ready"))


# What administrators do


def drain(host: str = NODE) -> Deed:
    """A node is drained."""
    return lambda system: system.instance.drain(host, "bad")


@deed
def disable_rabbit(system: StorySystem, rabbit: str, seconds: float = FOREVER) -> None:
    """New jobs do not get a Rabbit for some seconds."""
    ask = partial(_request, system, rabbits=[rabbit], reason="slow")
    ask("rabbit-disable")
    for later in (seconds, seconds + 60.0):  # Kubernetes may refuse the first request
        system.loop.call_later(later, partial(ask, "rabbit-enable"))


def undrain(host: str = NODE) -> Deed:
    """A node is put back."""
    return lambda system: system.undrain(host)


@deed
def fence(system: StorySystem, *hosts: str) -> None:
    """These nodes are fenced, as the site's program says."""
    system.instance.programs[FENCE] = lambda arguments: "\n".join(hosts)
    for host in hosts:
        system.controllers.rabbits.fence(host)


def disable(host: str = NODE) -> Deed:
    """A node is Disabled: DWS is to do without it."""
    body: Json = {"data": {"nodes": {host: "Disabled"}}}
    return lambda system: _patch(system, SYSTEMSTATUS, "default", body)


def enable(host: str = NODE) -> Deed:
    """It is Enabled again."""
    body: Json = {"data": {"nodes": {host: "Enabled"}}}
    return lambda system: _patch(system, SYSTEMSTATUS, "default", body)


def abort(system: StorySystem) -> None:
    """The epilogs of all jobs are given up."""
    system.free()


def purge(system: StorySystem) -> None:
    """The job is purged, so that Flux does not know it any more."""
    del system.instance.manager.jobs[system.jobids[0]]


def unload(seconds: float) -> Deed:
    """The module is unloaded for some seconds."""
    return lambda system: system.unload_for(seconds)


@deed
def unload_plugin(system: StorySystem, seconds: float) -> None:
    """The plugin is unloaded for some seconds."""
    system.instance.unload_plugin()
    system.loop.call_later(seconds, system.load_plugin)


@deed
def break_step(system: StorySystem, step: str) -> None:
    """The service has an internal error each time it takes a step for the job."""
    system.interrupter.plan(system.interrupter.broken, system.first.id, step)


@deed
def die_in(system: StorySystem, step: str) -> None:
    """The module dies each time it takes a step for the job, and is loaded again."""
    system.interrupter.plan(system.interrupter.deadly, system.first.id, step)


def mend(system: StorySystem) -> None:
    """A module without these errors is loaded."""
    for steps in (system.interrupter.broken, system.interrupter.deadly):
        steps.clear()
    system.barred.clear()
    system.unload_for(0.0)


def left_workflow(jobid: int, state: str = "Proposal") -> Json:
    """A Workflow that says that it is that of a job, made by an earlier service, or
    restored from a backup."""
    spec = {
        "desiredState": state,
        "dwDirectives": [XFS],
        "forceReady": False,
        "groupID": 0,
        "jobID": "ƒ" + f58(jobid)[1:],
        "userID": 0,
        "wlmID": "flux",
    }
    metadata = {"name": workflow_name(jobid), "finalizers": [FINALIZER]}
    return {"metadata": metadata, "spec": spec}


@deed
def leave_workflow(system: StorySystem, jobid: int, state: str = "Proposal") -> None:
    """There is a :func:`left_workflow`."""
    system.store.create(WORKFLOW, "default", left_workflow(jobid, state))


@deed
def set_clock(system: StorySystem, ahead: float) -> None:
    """The clock of the service's machine is set, and the module is loaded again. It is
    so many seconds ahead of that of Kubernetes then."""
    system.clock_ahead = ahead
    system.unload_for(0.0)


def reload_fluxion(system: StorySystem) -> None:
    """Fluxion is loaded anew."""
    system.instance.reload_fluxion()


def reload_manager(system: StorySystem) -> None:
    """The job manager is loaded anew, with the plugin, and job-exec a while later."""
    system.reload_manager()
    system.loop.call_later(10.0, system.instance.reload_exec)


@deed
def configure(system: StorySystem, config: Config) -> None:
    """The configuration is another one."""
    system.config = config
    if system.service is not None:
        system.service.reconfigure(config)


def tear_down(system: StorySystem) -> None:
    """Somebody moves the job's Workflow to Teardown."""
    _meddle(system, {"spec": {"desiredState": "Teardown"}})


def delete(system: StorySystem) -> None:
    """Somebody deletes the job's Workflow, at once."""
    _meddle(system, {"metadata": {"finalizers": None}})
    ask_deletion(system)


def ask_deletion(system: StorySystem) -> None:
    """Somebody deletes the job's Workflow, which its finalizers keep."""
    system.meddled = True
    if system.workflow is not None:
        system.store.delete(WORKFLOW, "default", workflow_name(system.first.id))


def set_finalizers(*names: str) -> Deed:
    """Another program has these finalizers on the Workflow, and no other is there."""
    return lambda system: _meddle(system, {"metadata": {"finalizers": list(names)}})


def take_over(system: StorySystem) -> None:
    """Another Flux instance says that the job's Workflow is its own."""
    _meddle(system, {"metadata": {"labels": {INSTANCE: "another"}}})


def force(system: StorySystem) -> None:
    """Somebody has the state be complete that the Workflows are in."""
    patch_workflows(system, {"spec": {"forceReady": True}})


def annotate(key: str, value: str) -> Deed:
    """Another program writes an annotation of the Workflows."""
    return partial(_annotate, key, value)


def _annotate(key: str, value: str, system: StorySystem) -> None:
    patch_workflows(system, {"metadata": {"annotations": {key: value}}})


def meddles(story: Story) -> bool:
    """Whether somebody changes what only the service may change, or has the job be
    forgotten."""
    deeds = {when.deed for when in story.deeds}
    return bool(deeds & {delete, ask_deletion, take_over, purge})


def undates(deed: Deed) -> bool:
    """Whether a deed takes away the times at which the service has requested states."""
    parts = (deed, *getattr(deed, "args", ()))
    return any(part in (strip, postdate, REQUESTED) for part in parts)


def strip(system: StorySystem) -> None:
    """Another program removes the annotations of the Workflows."""
    patch_workflows(system, {"metadata": {"annotations": None}})


def postdate(system: StorySystem) -> None:
    """The times on the Workflows come to be in the future, as after a clock was set
    back."""
    late = dict.fromkeys(State, system.loop.now() + 3600.0)
    annotations = {REQUESTED: requested_note(late)}
    patch_workflows(system, {"metadata": {"annotations": annotations}})


def _meddle(system: StorySystem, body: Json) -> None:
    """Somebody changes what only the service may change, of the first job."""
    system.meddled = True
    if system.workflow is not None:
        name = workflow_name(system.first.id)
        system.store.merge_patch(WORKFLOW, "default", name, body)


def patch_workflows(system: StorySystem, body: Json) -> None:
    """Somebody writes the Workflows."""
    for workflow in system.workflows():
        _patch(system, WORKFLOW, workflow["metadata"]["name"], body)


def _patch(system: StorySystem, kind: Kind, name: str, body: Json) -> None:
    system.store.merge_patch(kind, "default", name, body)
