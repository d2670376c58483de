# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests to Kubernetes about a job's Workflow itself, and for its mounts."""

from __future__ import annotations

import base64
import binascii
import contextlib
import syslog
from typing import Awaitable, Callable, Mapping, Optional, Sequence, Union

from flux_k8s.config.context import Context
from flux_k8s.config.policy import releases_unmounted, stages_ahead
from flux_k8s.control.coroutines import Call, call
from flux_k8s.control.kubecalls import in_question, refusal, refused
from flux_k8s.errors import DWSError, StorageDenied
from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import Directive
from flux_k8s.formats.timestamps import format_timestamp
from flux_k8s.jobs.findings import Refusal
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.objects import cleanup
from flux_k8s.objects.storagerequest import AHEAD, UNMOUNTED
from flux_k8s.objects.workflowmarks import (
    FAILED_UNTIL,
    FAILURE,
    FAILURE_REASON,
    FORCED,
    GIVEN_UP,
    INSTANCE,
    KEPT_FOR,
    LEFT_MOUNTED,
    NODES_RELEASED,
    RELEASE,
    REMADE,
    REQUESTED,
    RESCUED,
    STAGE,
    TEARDOWN_REQUESTED,
    requested_note,
)
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import FINALIZER, WLM_ID, WorkflowView
from flux_k8s.ports import (
    CLIENTMOUNT,
    SECRET,
    WORKFLOW,
    Json,
    KubeError,
    Patch,
    RpcError,
    gone,
)
from flux_k8s.reasons import Note, Reason
from flux_k8s.text import NOTE, SHOWN, printable

StepError = Union[KubeError, RpcError, DWSError]
FAILURES = (KubeError, RpcError, DWSError)
"""The errors of a step that is to be tried again."""


PERSISTENCE = 120.0
"""Seconds for which a request that fails is repeated while Kubernetes answers others.
An outage does not count."""

TOKEN_KEY = "dws_token"
"""The key of the workflow token in the job's KVS directory. The shell plugin has the
same. With it a job's tasks work with DWS themselves. It is a secret, and eventlogs are
archived. So the job's shells read it there, which ``job-info`` shows to the job's user
and to the instance owner."""


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
        jobs: JobTable,
    ) -> None:
        self._flux = context.flux
        self._calls = context.kube
        self._settings = context.settings
        self._may_own = context.settings.identity.may_own
        self._records = records
        self._jobs = jobs
        self.explain: Callable[[Sequence[Directive]], str] = lambda directives: ""

    async def request_state(
        self, info: WorkflowInfo, state: State, carried_out: Awaitable[None]
    ) -> None:
        """Carry out a request for a state. Its time limit counts from the first attempt
        that Kubernetes refuses while it answers a GET, and anew after one that it does
        not answer. (Storage that is awaited has
        another limit, and Teardown, which is requested until it is taken, has none.)
        The GET also shows whether the refusal was for a view that is out of date."""
        tried = self._flux.now()
        try:
            await carried_out
        except FAILURES as error:
            info.refusal = None
            first = info.begun.pop(state, None)
            if isinstance(error, KubeError):
                with contextlib.suppress(*FAILURES):
                    await self.lookup(info)
                    info.refusal = Refusal(tried, f"Kubernetes: {error}")
                    if state is not State.Teardown:
                        now = self._flux.now()
                        info.begun[state] = now if first is None else first
            raise
        info.refusal = None

    # The Workflow

    def _read(self, workflow: Json) -> WorkflowView:
        return WorkflowView.parse(workflow, self._may_own)

    def _see(self, info: WorkflowInfo, workflow: Json) -> None:
        """Take in the answer to a request, unless the Workflow that it shows is gone
        meanwhile, or another one is there."""
        view, last = self._read(workflow), info.last
        over = last is not None and (last.uid == view.uid) is last.gone
        if not over:
            info.see(view, self._flux.now())
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
        doubts that the watch raises meanwhile call for another look.

        Raises:
            KubeError: the request failed, or there is no Workflow, but the watch shows
                it.
        """
        doubtful, info.doubtful = info.doubtful, False
        try:
            workflow = await self._get(info)
        except KubeError as error:
            shown = info.view is not None and info.view.uid == info.shown
            if not gone(error) or shown:
                info.doubtful = info.doubtful or doubtful
                raise
            info.see_gone(self._flux.now(), confirmed=True)
        else:
            raised = info.doubtful
            info.see(self._read(workflow), self._flux.now())
            info.doubtful = raised
            self._records.note(info, workflow)

    async def has_persisted(
        self, info: WorkflowInfo, limit: float = PERSISTENCE
    ) -> bool:
        """Whether requests of the step that a job is in have failed for ``limit``
        seconds while Kubernetes answers others: no job's end waits for ever for one
        that fails by itself, as where a role forbids it or a webhook is broken. Call
        this after each failure. The job's Workflow is requested to tell
        that from an outage."""
        now, job = self._flux.now(), self._jobs.get(info.jobid)
        assert job is not None
        try:
            await self._get(info)
        except KubeError:
            job.failing_since = None
            return False
        since = now if job.failing_since is None else job.failing_since
        persists = now >= since + limit
        job.failing_since = None if persists else since  # what has failed is given up
        return persists

    async def save_failed(self, info: WorkflowInfo) -> None:
        """Record the Workflow of a job that fails, as it is now."""
        workflow = await self._get(info)
        await self._records.fail(info, self._read(workflow), workflow)

    def _get(self, info: WorkflowInfo) -> Call[Json]:
        namespace, name, uid = self._settings.namespace, info.name, info.shown
        return self._calls.get(WORKFLOW, namespace, name, uid=uid)

    async def _patch(self, info: WorkflowInfo, body: Patch) -> Json:
        namespace, name, view = self._settings.namespace, info.name, info.view
        if view is not None and not view.is_of(
            info.jobid
        ):  # shown since the step has begun
            raise KubeError(409, "Conflict", "another job's")
        uid = None if view is None else view.uid
        return await self._calls.patch(WORKFLOW, namespace, name, body, uid=uid)

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
            raise StorageDenied(text, Reason.USER_UNKNOWN)
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
                "jobID": info.f58,
                "userID": request.userid,
                "wlmID": WLM_ID,
            },
        }
        namespace = self._settings.namespace
        try:
            created = await self._calls.create(WORKFLOW, namespace, workflow)
        except KubeError as error:
            if error.status == 409:
                await self.lookup(info)
            elif refused(error):
                text = self.explain(request.directives)
                text = text or _refused(request.directives, error)
                raise StorageDenied(text, Reason.DWS_REFUSED) from error
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
        self, info: WorkflowInfo, state: State, marks: Mapping[str, str]
    ) -> None:
        """Request the next state, or Teardown.

        Args:
            marks: annotations that go with the request.
        """
        spec: Json = {"desiredState": state.name}
        annotations = {**self._request_time(info, state), **marks}
        if state is State.Teardown:
            if info.view is not None:
                await self._records.leave(info, info.view)
            annotations.update({TEARDOWN_REQUESTED: "true", **cause_note(info)})
        keeps = self._settings.config.keeps_mounted
        if info.mounts.left and (keeps or (info.view and info.view.kept_for)):
            annotations[LEFT_MOUNTED] = hostlist.encode(info.mounts.left)
        body: Json = {"metadata": {"annotations": annotations}, "spec": spec}
        if state is State.Teardown and info.aborted:
            spec["hurry"] = True
        if state is State.Teardown:
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
        if view is not None and FINALIZER in view.finalizers and info.refusal is None:
            patch = cleanup.teardown_patch(view, body)
        workflow = await self._patch(info, patch)
        self.unlink_token(info)
        return workflow

    def _request_time(self, info: WorkflowInfo, state: State) -> Json:
        """The annotation that goes with a request for a state: the time of the first
        attempt. It also has the request before, of which the answer may be lost, and
        which no event may show yet."""
        noted = () if info.view is None else zip(State, info.view.begun)
        known = {state: time for state, time in noted if time is not None}
        now = self._flux.now()
        times = {**info.begun, **known, state: info.begun.get(state, now)}
        return {REQUESTED: requested_note(times)}

    async def annotate(
        self, info: WorkflowInfo, annotations: Mapping[str, Optional[str]]
    ) -> None:
        """Set annotations, or (None) remove them."""
        body: Json = {"metadata": {"annotations": annotations}}
        await self._send(info, self._patch(info, body))

    async def mark_given_up(self, info: WorkflowInfo) -> None:
        """Mark the Workflow: the data of its job is given up. A module that comes after
        the job's end goes by that."""
        await self.annotate(info, {GIVEN_UP: "true", **cause_note(info)})

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

    async def mark_not_kept(self, info: WorkflowInfo, note: Note) -> None:
        """Mark the Workflow: its data could not be copied out, and its storage is not
        kept."""
        annotations = {
            FAILURE: printable(note.text, NOTE),
            FAILURE_REASON: note.reason.value,
            RESCUED: None,
        }
        await self.annotate(info, annotations)

    async def force(self, info: WorkflowInfo) -> None:
        """Have DWS treat the state as reached (``forceReady``)."""
        annotations = {FORCED: format_timestamp(self._flux.now())}
        body: Json = {
            "metadata": {"annotations": annotations},
            "spec": {"forceReady": True},
        }
        await self._send(info, self._patch(info, body))

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
        deleted = self._calls.delete(WORKFLOW, namespace, name, uid=uid)
        await self._send(info, deleted)

    def list_mounts(self, info: WorkflowInfo) -> Call[Json]:
        """The ClientMounts of a job. A list of none is no answer where DWS has made
        some, and else if another says so, too."""
        return self._calls.list(
            CLIENTMOUNT,
            None,
            label_selector=cleanup.workflow_selector(info.name),
            some=info.view is not None and info.view.has_clientmounts,
            certain=True,
        )

    # The workflow token

    async def give_token(self, info: WorkflowInfo) -> None:
        """Write a job's token, if it has one.

        Raises:
            StorageDenied: its Secret has none.
        """
        if info.view is None or info.view.token is None:
            return
        namespace, name = info.view.token
        secret = await self._calls.get(SECRET, namespace, name)
        if info.goal is Goal.RELEASED:
            return  # what an abort has taken back does not come again
        token = read_token(secret)
        if token is None:
            text = (
                f"Secret {namespace}/{name} has no token for the job; please tell an "
                "administrator"
            )
            raise StorageDenied(text, Reason.TOKEN_MISSING)
        await call(self._flux.kvs_commit, info.jobid, TOKEN_KEY, token)

    def unlink_token(self, info: WorkflowInfo) -> None:
        """Take a job's token back, which it has no use for any more."""
        if info.may_have_token:
            self._flux.kvs_put(info.jobid, TOKEN_KEY, None)


def _refused(directives: Sequence[Directive], error: KubeError) -> str:
    texts = "; ".join(directive.text for directive in directives)
    return f"{printable(texts, SHOWN)}: {refusal(error)}"


def cause_note(info: WorkflowInfo) -> dict[str, str]:
    """The annotation by which the next service knows why the job has failed."""
    failure = info.told
    return {} if failure is None else {FAILURE_REASON: failure.reason.value}


def read_token(secret: Json) -> Optional[str]:
    """The workflow token in a Secret, or None."""
    data = secret.get("data")
    encoded = data.get("token") if isinstance(data, dict) else None
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
