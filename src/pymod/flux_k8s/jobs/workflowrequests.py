# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests to Kubernetes that are about a job's Workflow itself.

Those of one Workflow are carried out one after the other.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional, Union

from flux_k8s.config.settings import Settings
from flux_k8s.dws import cleanup
from flux_k8s.dws.workflowview import (
    DISMISSED,
    FINALIZER,
    OUT_OF_REACH,
    WLM_ID,
    State,
    WorkflowView,
    requested_key,
)
from flux_k8s.errors import DWSError, Occupied
from flux_k8s.jobs.answers import refusal, refused
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.tokens import Tokens
from flux_k8s.jobs.workflow import Advance
from flux_k8s.jobs.workflowinfo import RejectedRequest, WorkflowInfo
from flux_k8s.ports import (
    WORKFLOW,
    Flux,
    Json,
    Kube,
    KubeDone,
    KubeError,
    Patch,
    RpcError,
    gone,
)
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.timestamps import format_timestamp
from flux_k8s.text import SHOWN, printable

OVERLOOKED = 1.0
"""Seconds that we may take to see that PostRun is complete."""

StepError = Union[KubeError, RpcError, Occupied, DWSError]
FAILURES = (KubeError, RpcError, Occupied, DWSError)
StepDone = Callable[[Optional[StepError]], None]
"""Gets None when the step was carried out, else what is in its way. May be
called before the call that it was given to returns."""


class WorkflowRequests:
    """Creates, reads, moves and deletes Workflows. What Kubernetes answers stands in
    the :class:`~flux_k8s.jobs.workflowinfo.WorkflowInfo` then."""

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        settings: Settings,
        records: Records,
        tokens: Tokens,
    ) -> None:
        self._flux = flux
        self._kube = kube
        self._settings = settings
        self._records = records
        self._tokens = tokens

    def watch_request(
        self, info: WorkflowInfo, state: State, done: StepDone
    ) -> StepDone:
        """Note that Kubernetes does not take a request for a state, as long as it
        answers otherwise: the time limit of the state runs then. What is known of the
        Workflow may be out of date as well, since DWS refuses a state that it cannot
        move to."""
        tried = self._flux.now()

        def answer(error: Optional[StepError]) -> None:
            known = info.rejected
            info.rejected = None
            if not isinstance(error, KubeError) or not error.status:
                done(error)
                return
            same = known is not None and known.state is state
            since = known.since if known is not None and same else self._flux.now()

            def looked(problem: Optional[StepError]) -> None:
                reached = info.view is not None and (info.view.desired or 0) >= state
                if problem is None and not reached:
                    reason = f"Kubernetes: {error}"
                    info.rejected = RejectedRequest(state, since, tried, reason)
                done(error)

            self.lookup(info, looked)

        return answer

    # Each in the queue that is named after the Workflow

    def see(self, info: WorkflowInfo, done: StepDone) -> KubeDone:
        """The end of a step whose answer is the Workflow. Made before the request is
        sent: an answer that there is none is about the one that was known then."""
        known = info.view

        def answer(result: Union[Json, KubeError]) -> None:
            if isinstance(result, KubeError):
                if gone(result):
                    if known is not None:
                        info.see_gone(known.uid)
                    done(None)
                else:
                    done(result)
                return
            info.see(WorkflowView.parse(result), self._flux.now())
            self._records.note(info, result)
            done(None)

        return answer

    def lookup(self, info: WorkflowInfo, done: StepDone) -> None:
        asked = self._flux.now()
        see = self.see(info, done)

        def answer(result: Union[Json, KubeError]) -> None:
            if not isinstance(result, KubeError):
                info.looked = asked
            elif gone(result):
                info.uncertain = False
            see(result)

        self._kube.get(
            WORKFLOW, self._settings.namespace, info.name, answer, key=info.name
        )

    def patch(self, info: WorkflowInfo, body: Patch, done: KubeDone) -> None:
        self._kube.patch(
            WORKFLOW, self._settings.namespace, info.name, body, done, key=info.name
        )

    def create(self, info: WorkflowInfo, done: StepDone) -> None:
        assert info.request is not None
        create = partial(self._create_for_group, info, done)
        if info.group is None:
            self._flux.primary_group(info.request.userid, create)
        else:
            create(info.group)

    def _create_for_group(
        self, info: WorkflowInfo, done: StepDone, group: Optional[int]
    ) -> None:
        request = info.request
        assert request is not None
        if group is None:
            info.failure = (
                f"user {request.userid} is unknown here: cannot tell which group "
                "the storage would belong to"
            )
            done(None)
            return
        info.group = group
        workflow: Json = {
            "metadata": {
                "name": info.name,
                "finalizers": [FINALIZER],
                "annotations": self._request_time(State.Proposal),
            },
            "spec": {
                "desiredState": State.Proposal.name,
                "dwDirectives": [d.text for d in request.directives],
                "forceReady": False,
                "groupID": group,
                "jobID": f58(info.jobid),
                "userID": request.userid,
                "wlmID": WLM_ID,
            },
        }
        self._kube.create(
            WORKFLOW,
            self._settings.namespace,
            workflow,
            partial(self._created, info, done),
            key=info.name,
        )

    def _created(
        self, info: WorkflowInfo, done: StepDone, result: Union[Json, KubeError]
    ) -> None:
        if isinstance(result, KubeError):
            if result.status == 409:
                self.lookup(info, done)
                return
            if refused(result):
                assert info.request is not None
                texts = "; ".join(d.text for d in info.request.directives)
                info.failure = f"{printable(texts, SHOWN)}: {refusal(result)}"
                done(None)
                return
            info.uncertain = result.status == 0 or result.status >= 500
            done(result)
            return
        self.announce(info)
        self.see(info, done)(result)

    def announce(self, info: WorkflowInfo) -> None:
        """Let the user know the Workflow's name."""
        info.announced = True
        self._flux.post_memo(info.jobid, {"rabbit_workflow": info.name})

    def move(self, info: WorkflowInfo, step: Advance, done: StepDone) -> None:
        spec: Json = {"desiredState": step.state.name}
        annotations = self._request_time(step.state)
        if step.state is State.Teardown:
            if info.view is not None:
                info.unmounted = info.unmounted or _never_mounted(info.view)
                self._records.leave(info, info.view)
            annotations[DISMISSED] = "true"
        elif step.state is State.DataOut and info.view is not None:
            overlooked = _overlooked(info, info.view, self._flux.now())
            info.out_of_reach = round(info.out_of_reach + overlooked, 3)
            if info.out_of_reach:
                annotations[OUT_OF_REACH] = f"{info.out_of_reach:.3f}"
        body: Json = {"metadata": {"annotations": annotations}, "spec": spec}
        if step.hurry:
            spec["hurry"] = True
        see = self.see(info, done)

        def moved(result: Union[Json, KubeError]) -> None:
            if step.state is State.Teardown and not isinstance(result, KubeError):
                self._tokens.unlink(info)
            see(result)

        self.patch(info, body, moved)

    def _request_time(self, state: State) -> Json:
        """The annotation that goes with a request for a state."""
        return {requested_key(state): format_timestamp(self._flux.now())}

    def annotate(
        self, info: WorkflowInfo, key: str, text: Optional[str], done: StepDone
    ) -> None:
        body: Json = {"metadata": {"annotations": {key: text}}}
        self.patch(info, body, self.see(info, done))

    def force(self, info: WorkflowInfo, done: StepDone) -> None:
        """Have DWS take the state for reached."""
        self.patch(info, {"spec": {"forceReady": True}}, self.see(info, done))

    def remove_finalizer(self, info: WorkflowInfo, done: StepDone) -> None:
        assert info.view is not None

        def answer(error: Optional[StepError]) -> None:
            if isinstance(error, KubeError) and error.status in (400, 409, 422):
                self.lookup(info, done)  # the list of finalizers has changed
            else:
                done(error)

        self.patch(info, cleanup.finalizer_patch(info.view), self.see(info, answer))

    def delete(self, info: WorkflowInfo, done: StepDone) -> None:
        see = self.see(info, done)

        def answer(result: Union[Json, KubeError]) -> None:
            if not isinstance(result, KubeError) and result.get("kind") == "Status":
                result = KubeError(404, "NotFound")  # it is gone already
            see(result)

        self._kube.delete(
            WORKFLOW, self._settings.namespace, info.name, answer, key=info.name
        )


def _overlooked(info: WorkflowInfo, view: WorkflowView, now: float) -> float:
    """For how many seconds PostRun was complete without our knowing it, apart from
    what is counted already: a module that was loaded in an outage does not know when
    that began."""
    if view.unmounting is None or view.elapsed is None or not view.complete:
        return 0.0
    if info.rejected is not None:  # we know it, and Kubernetes does not let us go on
        return 0.0
    seconds = now - view.unmounting - view.elapsed - info.out_of_reach
    return round(seconds, 3) if seconds > OVERLOOKED else 0.0


def _never_mounted(view: WorkflowView) -> bool:
    """DWS was not asked to mount anything yet."""
    return view.desired is not None and view.desired < State.PreRun
