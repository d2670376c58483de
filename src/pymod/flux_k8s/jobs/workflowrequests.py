# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests to Kubernetes about a job's Workflow itself.

The requests about one Workflow are carried out one after the other.
"""

from __future__ import annotations

import contextlib
import syslog
from typing import Awaitable, Callable, Mapping, Optional, Sequence, Union

from flux_k8s.config.context import Context
from flux_k8s.config.policy import releases_unmounted
from flux_k8s.config.stagepolicy import stages_ahead
from flux_k8s.control.coroutines import Call, call
from flux_k8s.control.kubecalls import KubeCalls, in_question, refusal, refused
from flux_k8s.dws import cleanup
from flux_k8s.dws.directives import Directive
from flux_k8s.dws.storagerequest import AHEAD, UNMOUNTED
from flux_k8s.dws.workflowmarks import (
    FAILED_UNTIL,
    FAILURE,
    FAILURE_REASON,
    INSTANCE,
    KEPT_FOR,
    LEFT_MOUNTED,
    NODES_RELEASED,
    OUT_OF_REACH,
    RELEASE,
    REMADE,
    REQUESTED,
    RESCUED,
    STAGE,
    TEARDOWN_REQUESTED,
    requested_note,
)
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import FINALIZER, WLM_ID, WorkflowView
from flux_k8s.errors import DWSError, NoEffect, StorageUnavailable
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.step import Advance
from flux_k8s.jobs.tokens import Tokens
from flux_k8s.jobs.workflowinfo import RejectedRequest, WorkflowInfo
from flux_k8s.ports import (
    WORKFLOW,
    Json,
    KubeError,
    Patch,
    RpcError,
    gone,
)
from flux_k8s.reasons import Note, Reason
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.timestamps import format_timestamp
from flux_k8s.text import NOTE, SHOWN, printable

OVERLOOKED = 1.0
"""Seconds that the service may take to see that PostRun is complete."""

StepError = Union[KubeError, RpcError, StorageUnavailable, NoEffect, DWSError]
FAILURES = (KubeError, RpcError, StorageUnavailable, NoEffect, DWSError)
"""The errors of a step that is to be tried again."""


class WorkflowRequests:
    """Creates, reads, moves and deletes Workflows. The answers of Kubernetes update the
    :class:`~flux_k8s.jobs.workflowinfo.WorkflowInfo`.

    Attributes:
        explain: what is wrong in directives that DWS has refused, "" if that is not
            known.
    """

    def __init__(
        self,
        context: Context,
        records: Records,
        tokens: Tokens,
    ) -> None:
        self._flux = context.flux
        self._calls = KubeCalls(context.kube)
        self._settings = context.settings
        self._records = records
        self._tokens = tokens
        self.explain: Callable[[Sequence[Directive]], str] = lambda directives: ""

    async def request_state(
        self, info: WorkflowInfo, state: State, carried_out: Awaitable[None]
    ) -> None:
        """Carry out a request for a state. If Kubernetes rejects it while it answers
        other requests, note that: the time limit of the state runs. The view of the
        Workflow may be out of date then, since DWS refuses a state to which the
        Workflow cannot move. So the Workflow is read again."""
        tried = self._flux.now()
        try:
            await carried_out
        except FAILURES as error:
            known, info.rejected = info.rejected, None
            if isinstance(error, KubeError) and error.status:
                same = known is not None and known.state is state
                since = known.since if known is not None and same else self._flux.now()
                reason = f"Kubernetes: {error}"
                rejected = RejectedRequest(state, since, tried, reason)
                await self._note_rejected(info, rejected)
            raise
        info.rejected = None

    async def _note_rejected(
        self, info: WorkflowInfo, rejected: RejectedRequest
    ) -> None:
        with contextlib.suppress(*FAILURES):
            if info.looked_up < rejected.tried:
                await self.lookup(info)
            if info.view is None or (info.view.desired or 0) < rejected.state:
                info.rejected = rejected

    # Requests in the queue that is named after the Workflow

    def _see(self, info: WorkflowInfo, workflow: Json) -> None:
        info.see(info.read(workflow), self._flux.now())
        self._records.note(info, workflow)

    async def _send(self, info: WorkflowInfo, request: Awaitable[Json]) -> None:
        """Send a patch, or a DELETE. If it fails as that of a Workflow that is gone or
        another one does, a GET decides. Without a Workflow nothing is left to be done.
        A Status as the answer says that the Workflow is gone; a GET decides that."""
        try:
            workflow = await request
        except KubeError as error:
            if not in_question(error):
                raise
            await self.lookup(info)
            if info.view is not None:
                raise
        else:
            if workflow.get("kind") == "Status":
                await self.lookup(info)
            else:
                self._see(info, workflow)

    async def lookup(self, info: WorkflowInfo) -> None:
        """Read the Workflow. Only that decides that it is gone, or another job's. The
        doubts that the watch raises meanwhile call for another look."""
        requested_at, known = self._flux.now(), info.view
        doubtful, info.doubtful = info.doubtful, False
        try:
            workflow = await self._get(info)
        except KubeError as error:
            if not gone(error):
                info.doubtful = info.doubtful or doubtful
                raise
            info.see_missing(known, self._flux.now())
        else:
            doubtful = info.doubtful
            info.looked_up = requested_at
            if workflow["metadata"]["uid"] == info.deleted_uid:
                info.deleted_uid = None  # one that has missed it was wrong
            self._see(info, workflow)
            info.doubtful = doubtful

    async def save_failed(self, info: WorkflowInfo) -> None:
        """Record the Workflow of a job that fails, as it is now."""
        workflow = await self._get(info)
        await self._records.fail(info, WorkflowView.parse(workflow), workflow)

    def _get(self, info: WorkflowInfo) -> Call[Json]:
        namespace, name, uid = self._settings.namespace, info.name, info.watched_uid
        return self._calls.get(WORKFLOW, namespace, name, key=name, uid=uid)

    async def _patch(self, info: WorkflowInfo, body: Patch) -> Json:
        namespace, name, view = self._settings.namespace, info.name, info.view
        if view is not None and not info.owns(view):  # shown since the step has begun
            raise KubeError(409, "Conflict", "another job's")
        uid = None if view is None else view.uid
        patch = self._calls.patch(WORKFLOW, namespace, name, body, key=name, uid=uid)
        return await patch

    async def create(self, info: WorkflowInfo) -> None:
        """Create the Workflow, or adopt it if it exists. The doubts that the watch
        raises meanwhile call for a look."""
        request = info.request
        assert request is not None
        if info.group is None:
            info.group = await call(self._flux.primary_group, request.userid)
        if info.group is None:
            text = (
                f"user {request.userid} is unknown here: cannot tell which group "
                "the storage would belong to; please tell an administrator"
            )
            info.failure = Note(text, Reason.USER_UNKNOWN)
            return
        instance = self._settings.identity.name
        config = self._settings.config
        unmounted = releases_unmounted(request, config)
        ahead = stages_ahead(request, config, self._settings.scheduler)
        ahead = ahead and not info.planned
        workflow: Json = {
            "metadata": {
                "name": info.name,
                **({"labels": {INSTANCE: instance}} if instance else {}),
                "finalizers": [FINALIZER],
                "annotations": {
                    **self._request_time(info, State.Proposal),
                    **({RELEASE: UNMOUNTED} if unmounted else {}),
                    **({STAGE: AHEAD} if ahead else {}),
                    **({REMADE: str(info.remade)} if info.remade else {}),
                },
            },
            "spec": {
                "desiredState": State.Proposal.name,
                "dwDirectives": [d.text for d in request.directives],
                "forceReady": False,
                "groupID": info.group,
                "jobID": f58(info.jobid),
                "userID": request.userid,
                "wlmID": WLM_ID,
            },
        }
        namespace = self._settings.namespace
        try:
            created = await self._calls.create(
                WORKFLOW, namespace, workflow, key=info.name
            )
        except KubeError as error:
            if error.status == 409:
                await self.lookup(info)
            elif refused(error):
                text = self.explain(request.directives)
                text = text or _refused(request.directives, error)
                info.failure = Note(text, Reason.DWS_REFUSED)
            else:
                info.doubtful = error.status == 0 or error.status >= 500
                raise
        else:
            self.announce(info)
            doubtful = info.doubtful
            self._see(info, created)
            info.doubtful = info.doubtful or doubtful
            if info.remade:
                text = f"Workflow {info.name} was lost, and is made again"
                remade = Reason.WORKFLOW_REMADE
                self._flux.log(syslog.LOG_WARNING, f"{info.f58}: {text}", remade)

    def announce(self, info: WorkflowInfo) -> None:
        """Post a memo with the Workflow's name."""
        info.announced = True
        self._flux.post_memo(info.jobid, {"rabbit_workflow": info.name})

    async def move(
        self, info: WorkflowInfo, step: Advance, marks: Mapping[str, str]
    ) -> None:
        """Request the next state, or Teardown.

        Args:
            marks: annotations that go with the request.
        """
        spec: Json = {"desiredState": step.state.name}
        annotations = {**self._request_time(info, step.state), **marks}
        if step.state is State.Teardown:
            if info.view is not None:
                info.unmounted = info.unmounted or _never_mounted(info.view)
                await self._records.leave(info, info.view)
            annotations.update({TEARDOWN_REQUESTED: "true", **cause_note(info)})
        elif step.state is State.DataOut and info.view is not None:
            overlooked = _overlooked(info, info.view, self._flux.now())
            info.out_of_reach = round(info.out_of_reach + overlooked, 3)
            if info.out_of_reach:
                annotations[OUT_OF_REACH] = f"{info.out_of_reach:.3f}"
        if info.writers is not None and info.still_mounted:
            annotations[LEFT_MOUNTED] = hostlist.encode(info.still_mounted)
        body: Json = {"metadata": {"annotations": annotations}, "spec": spec}
        if step.hurry:
            spec["hurry"] = True
        if step.state is State.Teardown:
            await self._send(info, self._request_teardown(info, body))
        else:
            await self._send(info, self._patch(info, body))

    async def _request_teardown(self, info: WorkflowInfo, body: Json) -> Json:
        """Request Teardown, and remove the token, which has no use after it. The
        finalizer goes with the same request. Kubernetes rejects that when another
        program has changed the finalizers or removed the annotations; then, as after
        any request for a state that it has rejected, Teardown is requested alone."""
        view = info.view
        patch: Patch = body
        if view is not None and FINALIZER in view.finalizers and info.rejected is None:
            patch = cleanup.teardown_patch(view, body)
        workflow = await self._patch(info, patch)
        self._tokens.unlink(info)
        return workflow

    def _request_time(self, info: WorkflowInfo, state: State) -> Json:
        """The annotation that goes with a request for a state. It also has the request
        before, of which the answer may be lost, and which no event may show yet."""
        times = self._times(info)
        times[state] = self._flux.now()
        info.begun = times
        return {REQUESTED: requested_note(times)}

    def _times(self, info: WorkflowInfo) -> dict[State, float]:
        """The UNIX time of each request for a state."""
        if info.view is None:
            return {}
        shown = zip(State, info.view.begun)
        times = {each: time for each, time in shown if time is not None}
        return {**info.begun, **times}

    async def note_times(self, info: WorkflowInfo) -> None:
        """Write down the times from which limits count as they are now."""
        annotations = {REQUESTED: requested_note(self._times(info))}
        if info.view is not None and info.view.rescued is not None:
            annotations[RESCUED] = format_timestamp(info.view.rescued)
        await self.annotate(info, annotations)

    async def annotate(
        self, info: WorkflowInfo, annotations: Mapping[str, Optional[str]]
    ) -> None:
        """Set annotations, or (None) remove them."""
        body: Json = {"metadata": {"annotations": annotations}}
        await self._send(info, self._patch(info, body))

    async def keep(
        self, info: WorkflowInfo, hosts: Sequence[str], release_nodes: bool
    ) -> None:
        """Mark the Workflow: its storage is kept as long as one of these nodes could
        write.

        Args:
            release_nodes: its job may end from now on.
        """
        annotations = {KEPT_FOR: hostlist.encode(hosts)} if hosts else {}
        if release_nodes:
            annotations[NODES_RELEASED] = "true"
        await self.annotate(info, annotations)

    async def keep_failed(self, info: WorkflowInfo, until: float, note: Note) -> None:
        """Mark the Workflow: its data could not be copied out, and its storage is kept
        until a time. Its job may end from now on."""
        annotations = {
            FAILED_UNTIL: format_timestamp(until),
            FAILURE: printable(note.text, NOTE),
            FAILURE_REASON: note.reason.value,
            RESCUED: None,
            NODES_RELEASED: "true",
        }
        await self.annotate(info, annotations)

    async def force(self, info: WorkflowInfo) -> None:
        """Have DWS treat the state as reached (``forceReady``)."""
        await self._send(info, self._patch(info, {"spec": {"forceReady": True}}))

    async def remove_finalizer(self, info: WorkflowInfo) -> None:
        """Remove the service's finalizer, so that the Workflow can be deleted."""
        assert info.view is not None
        try:
            await self._send(
                info, self._patch(info, cleanup.finalizer_patch(info.view))
            )
        except KubeError as error:
            if not in_question(error):
                raise  # else the list of finalizers has changed

    async def delete(self, info: WorkflowInfo) -> None:
        """Delete the Workflow."""
        namespace, name = self._settings.namespace, info.name
        uid = None if info.view is None else info.view.uid
        deleted = self._calls.delete(WORKFLOW, namespace, name, key=name, uid=uid)
        await self._send(info, deleted)


def _refused(directives: Sequence[Directive], error: KubeError) -> str:
    texts = "; ".join(directive.text for directive in directives)
    return f"{printable(texts, SHOWN)}: {refusal(error)}"


def cause_note(info: WorkflowInfo) -> dict[str, str]:
    """The annotation by which the next service knows why the job has failed."""
    return {} if info.cause is None else {FAILURE_REASON: info.cause.value}


def _overlooked(info: WorkflowInfo, view: WorkflowView, now: float) -> float:
    """The seconds for which PostRun was complete before the service saw that, without
    the seconds in ``out_of_reach``. A service that was started in an outage does not
    know when the outage began."""
    if view.unmounting is None or view.elapsed is None or not view.complete:
        return 0.0
    if info.rejected is not None:  # known, but Kubernetes rejects the next state
        return 0.0
    seconds = now - view.unmounting - view.elapsed - info.out_of_reach
    return round(seconds, 3) if seconds > OVERLOOKED else 0.0


def _never_mounted(view: WorkflowView) -> bool:
    """Whether no mount was requested of DWS yet."""
    return view.desired is not None and view.desired < State.PreRun
