# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Why jobs wait: what is told to their users and to the administrator.

A job that does not get on says in a memo what it waits for. The log has one line
for a job whose step fails, and one for an outage, which is everybody's.
"""

from __future__ import annotations

import errno
import syslog
from dataclasses import dataclass
from typing import Callable, Optional

from flux_k8s.control.backoff import Backoff
from flux_k8s.dws.workflowview import State, WorkflowView
from flux_k8s.errors import NoEffect, NotReady, Occupied
from flux_k8s.jobs.workflow import Create, Fail, ReleaseEpilog, ReleaseProlog, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import StepError
from flux_k8s.ports import Flux, Kind, KubeError, RpcError
from flux_k8s.rfc.jobid import f58
from flux_k8s.text import NOTE, printable

PATIENCE = 10.0
"""Seconds without an answer until that is told."""

DWS_PATIENCE = 60.0
"""Seconds that DWS may work on a state until that is told."""

TRIES = 3
"""Failures in a row until a job's user is told."""

MEMO = "rabbit_waits_for"

SILENCE = f"no answer for {PATIENCE:g} s"


@dataclass
class Waiting:
    """How one job gets on.

    Attributes:
        backoff: the pauses between tries of a step: few seconds at first, about a
            minute in the end.
        logged: the log says that they do.
        memo: what the job waits for, as its memo says; None when it does not, and
            empty when that is a memo of the service before.
        outage: that is an outage's end.
        state: the one that DWS works on, and since when it is known to.
    """

    backoff: Backoff
    logged: bool = False
    memo: Optional[str] = None
    outage: bool = False
    state: Optional[tuple[State, float]] = None

    def inherit(self) -> None:
        """The job has a memo, which the service before may have posted."""
        if self.memo is None:
            self.memo = ""

    def begin(self) -> None:
        """Another step is taken."""
        self.backoff.reset()
        self.logged = False


class Notices:
    """Tells why jobs wait.

    An outage begins when a watch is lost, or when nothing at all is heard of
    Kubernetes for a while. It ends when the watches are back and Kubernetes
    answers.

    Args:
        changed: is called when an outage has begun, is another, or has ended.
    """

    def __init__(self, flux: Flux, changed: Callable[[], None]) -> None:
        self._flux = flux
        self._changed = changed
        self._lost: dict[Kind, str] = {}
        self._silent = False
        self._heard = flux.now()

    @property
    def outage(self) -> Optional[str]:
        """What keeps us from Kubernetes, or None."""
        lost = next(iter(self._lost.values()), None)
        return SILENCE if lost is None and self._silent else lost

    def watched(self, kind: Kind, error: Optional[KubeError]) -> None:
        """A watch was lost, or (None) is complete."""
        before = self.outage
        if error is not None:
            self._lost[kind] = str(error)
        else:
            self._lost.pop(kind, None)
            self._note_answer()
        self._compare(before)

    def heard(self) -> None:
        """Kubernetes has told something."""
        before = self.outage
        self._note_answer()
        self._compare(before)

    def unheard(self, since: float) -> None:
        """For ``PATIENCE``, since then, an answer of Kubernetes is awaited."""
        before = self.outage
        if self._heard <= since:
            self._silent = True
        self._compare(before)

    def _note_answer(self) -> None:
        self._heard = self._flux.now()
        self._silent = False

    def _compare(self, before: Optional[str]) -> None:
        outage = self.outage
        if outage == before:
            return
        if before is None:
            self._flux.log(syslog.LOG_ERR, f"Kubernetes: {outage}; jobs wait")
        elif outage is None:
            self._flux.log(syslog.LOG_NOTICE, "Kubernetes answers again")
        self._changed()

    # Each of these is about one job

    def begins(self, info: WorkflowInfo, waiting: Waiting, step: Step) -> None:
        """A step is about to be taken. A job that ends waits for nothing more."""
        if isinstance(step, ReleaseEpilog):
            self._memo(info, waiting, None)

    def slow(
        self, info: WorkflowInfo, waiting: Waiting, step: Step, since: float
    ) -> None:
        """A step is under way for ``PATIENCE``, since then."""
        source = awaited(info, step)
        if source == "Kubernetes":
            self.unheard(since)
        if self.outage is None and not waiting.memo:
            self._memo(info, waiting, f"{source}: {SILENCE}")

    def stepped(self, step: Step, error: Optional[StepError]) -> None:
        """A step has ended: does that tell that Kubernetes answers?"""
        if error is None:
            answered = not isinstance(step, (Fail, ReleaseProlog, ReleaseEpilog))
        else:
            answered = isinstance(error, KubeError) and error.status != 0
        if answered:
            self.heard()

    def failed(self, info: WorkflowInfo, waiting: Waiting, error: StepError) -> None:
        """A step has failed."""
        failures, what = waiting.backoff.failures + 1, reason_of(error)
        if self.outage is not None:
            self.tell(info, waiting)
            return
        unanswered = isinstance(error, KubeError) and error.status == 0
        # Without any answer it may be an outage, and a watch is about to tell.
        early = unanswered and failures == 1
        if not waiting.logged and not early and not is_not_ready(error):
            waiting.logged = True
            text = f"{f58(info.jobid)}: {what}; trying again"
            self._flux.log(syslog.LOG_WARNING, text)
        if failures >= TRIES or isinstance(error, Occupied):
            self._memo(info, waiting, what)

    def tell(self, info: WorkflowInfo, waiting: Waiting) -> None:
        """Say whether a job that has not got what it needs waits for an outage's
        end."""
        if self.outage is None and waiting.outage:
            self._memo(info, waiting, None)
        elif self.outage is not None and not info.satisfied:
            self._memo(info, waiting, f"Kubernetes: {self.outage}")
        waiting.outage = self.outage is not None

    def gets_on(self, info: WorkflowInfo, waiting: Waiting) -> Optional[float]:
        """Say that a job waits for nothing unusual, or what DWS says of a state
        that takes long: copying much data may, and so may what never ends.

        Returns:
            When it will have taken long.
        """
        view, now = info.view, self._flux.now()
        if view is None or view.complete or view.desired is None:
            waiting.state = None
        elif waiting.state is None or waiting.state[0] is not view.desired:
            since = now if view.since is None else min(view.since, now)
            waiting.state = view.desired, since
        if self.outage is not None:
            return None
        if view is None or waiting.state is None:
            self._memo(info, waiting, None)
            return None
        state, since = waiting.state
        due = since + DWS_PATIENCE
        self._memo(info, waiting, _progress(state, view) if now >= due else None)
        return due if now < due else None

    def _memo(
        self, info: WorkflowInfo, waiting: Waiting, reason: Optional[str]
    ) -> None:
        """Once it was let go a job is its user's no more."""
        if waiting.memo != reason and not info.released:
            waiting.memo = reason
            text = None if reason is None else printable(reason, NOTE)
            self._flux.post_memo(info.jobid, {MEMO: text})


def _progress(state: State, view: WorkflowView) -> str:
    """What DWS says of the state that it was asked for."""
    if view.state is not state:
        return f"DWS, to begin with {state.name}"
    return f"DWS in {state.name}: {view.message or view.status or 'no message'}"


def awaited(info: WorkflowInfo, step: Step) -> str:
    """Whose answer a step that is under way waits for."""
    if isinstance(step, (Fail, ReleaseEpilog)):
        return "Flux"
    if isinstance(step, Create) and info.group is None:
        return "the user database"
    return "Kubernetes"


def is_not_ready(error: object) -> bool:
    """Whether the plugin is loaded, and cannot say yet what its jobs wait for."""
    return isinstance(error, RpcError) and error.errnum == errno.EAGAIN


def reason_of(error: StepError) -> str:
    """What a job waits for whose step failed like this."""
    if isinstance(error, (Occupied, NoEffect)):
        return str(error)
    if isinstance(error, RpcError) and error.errnum == errno.ENOSYS:
        return "Flux: dws-jobtap.so is not loaded"
    if isinstance(error, NotReady):
        return f"DWS: {error}"
    return f"{'Kubernetes' if isinstance(error, KubeError) else 'Flux'}: {error}"
