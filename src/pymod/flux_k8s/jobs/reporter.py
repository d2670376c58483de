# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reports why jobs wait, to their users and to the administrator.

A job that does not get on has a memo that says what it waits for. The log has one line
for a job whose step fails, and one for an outage of Kubernetes, which concerns all
jobs.
"""

from __future__ import annotations

import errno
import syslog
from dataclasses import dataclass
from typing import Callable, Optional

from flux_k8s.control.backoff import Backoff
from flux_k8s.dws.workflowview import State, WorkflowView
from flux_k8s.errors import NoEffect, NotReady, StorageUnavailable
from flux_k8s.jobs.workflow import Create, Fail, ReleaseEpilog, ReleaseProlog, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import StepError
from flux_k8s.ports import Flux, Kind, KubeError, RpcError
from flux_k8s.rfc.jobid import f58
from flux_k8s.text import NOTE, printable

PATIENCE = 10.0
"""Seconds without an answer until the job's memo says so."""

DWS_PATIENCE = 60.0
"""Seconds that DWS may work on a state until the job's memo says so."""

TRIES = 3
"""Failures in a row until the job's memo names the reason."""

MEMO = "rabbit_waits_for"

SILENCE = f"no answer for {PATIENCE:g} s"


@dataclass
class Progress:
    """How one job gets on.

    Attributes:
        backoff: the pauses between tries of a step.
        logged: the log has a line about the step that fails.
        memo: the text of the job's memo; None when there is no memo, empty when an
            earlier service has posted it, with a text that is not known.
        outage: the job waits for the end of an outage.
        state: the state that DWS works on, and since when (UNIX time).
    """

    backoff: Backoff
    logged: bool = False
    memo: Optional[str] = None
    outage: bool = False
    state: Optional[tuple[State, float]] = None

    def inherit(self) -> None:
        """The job has a memo of an earlier service."""
        if self.memo is None:
            self.memo = ""

    def begin(self) -> None:
        """Another step begins: earlier failures do not count any more."""
        self.backoff.reset()
        self.logged = False


class Reporter:
    """Posts memos and logs lines about jobs that wait.

    An outage begins when a watch is lost, or when Kubernetes sends nothing at all for
    ``PATIENCE``. It ends when all watches are back and Kubernetes answers.

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
        """The reason of the outage; None if Kubernetes is within reach."""
        lost = next(iter(self._lost.values()), None)
        return SILENCE if lost is None and self._silent else lost

    def note_watch(self, kind: Kind, error: Optional[KubeError]) -> None:
        """A watch was lost by an error, or (None) has listed all objects."""
        before = self.outage
        if error is not None:
            self._lost[kind] = str(error)
        else:
            self._lost.pop(kind, None)
            self._note_time()
        self._compare(before)

    def note_answer(self) -> None:
        """Kubernetes has sent something."""
        before = self.outage
        self._note_time()
        self._compare(before)

    def note_silence(self, since: float) -> None:
        """An answer of Kubernetes is awaited since ``since``, ``PATIENCE`` ago."""
        before = self.outage
        if self._heard <= since:
            self._silent = True
        self._compare(before)

    def _note_time(self) -> None:
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

    def step_begins(self, info: WorkflowInfo, progress: Progress, step: Step) -> None:
        """A step begins. A job whose epilog is released waits for nothing more."""
        if isinstance(step, ReleaseEpilog):
            self._memo(info, progress, None)

    def report_slow_step(
        self, info: WorkflowInfo, progress: Progress, step: Step, since: float
    ) -> None:
        """A step is under way since a time, which was ``PATIENCE`` ago: post a memo."""
        source = awaited(info, step)
        if source == "Kubernetes":
            self.note_silence(since)
        if self.outage is None and not progress.memo:
            self._memo(info, progress, f"{source}: {SILENCE}")

    def step_ended(self, step: Step, error: Optional[StepError]) -> None:
        """A step has ended. Most steps end with an answer of Kubernetes."""
        if error is None:
            answered = not isinstance(step, (Fail, ReleaseProlog, ReleaseEpilog))
        else:
            answered = isinstance(error, KubeError) and error.status != 0
        if answered:
            self.note_answer()

    def step_failed(
        self, info: WorkflowInfo, progress: Progress, error: StepError
    ) -> None:
        """A step has failed: log it once, post a memo after ``TRIES`` failures."""
        failures, what = progress.backoff.failures + 1, reason_of(error)
        if self.outage is not None:
            self.report_outage(info, progress)
            return
        unanswered = isinstance(error, KubeError) and error.status == 0
        # Without any answer it may be an outage, and a watch is about to tell.
        early = unanswered and failures == 1
        if not progress.logged and not early and not is_not_ready(error):
            progress.logged = True
            text = f"{f58(info.jobid)}: {what}; trying again"
            self._flux.log(syslog.LOG_WARNING, text)
        if failures >= TRIES or isinstance(error, StorageUnavailable):
            self._memo(info, progress, what)

    def report_outage(self, info: WorkflowInfo, progress: Progress) -> None:
        """Post a memo while a job waits for the end of an outage, remove it then."""
        if self.outage is None and progress.outage:
            self._memo(info, progress, None)
        elif self.outage is not None and not info.satisfied:
            self._memo(info, progress, f"Kubernetes: {self.outage}")
        progress.outage = self.outage is not None

    def report_state(self, info: WorkflowInfo, progress: Progress) -> Optional[float]:
        """Remove a job's memo, or post one with the message of DWS about a state that
        takes long: copying much data may take long, and so may a state that never ends.

        Returns:
            When (UNIX time) the state will have taken long; None if no memo is due.
        """
        view, now = info.view, self._flux.now()
        if view is None or view.complete or view.desired is None:
            progress.state = None
        elif progress.state is None or progress.state[0] is not view.desired:
            since = now if view.since is None else min(view.since, now)
            progress.state = view.desired, since
        if self.outage is not None:
            return None
        if view is None or progress.state is None:
            self._memo(info, progress, None)
            return None
        state, since = progress.state
        due = since + DWS_PATIENCE
        self._memo(info, progress, _progress(state, view) if now >= due else None)
        return due if now < due else None

    def _memo(
        self, info: WorkflowInfo, progress: Progress, reason: Optional[str]
    ) -> None:
        """Post a memo. A job whose epilog was released has ended, and takes none."""
        if progress.memo != reason and not info.released:
            progress.memo = reason
            text = None if reason is None else printable(reason, NOTE)
            self._flux.post_memo(info.jobid, {MEMO: text})


def _progress(state: State, view: WorkflowView) -> str:
    """The message of DWS about the state that was requested."""
    if view.state is not state:
        return f"DWS, to begin with {state.name}"
    return f"DWS in {state.name}: {view.message or view.status or 'no message'}"


def awaited(info: WorkflowInfo, step: Step) -> str:
    """The party whose answer a step waits for, for a memo."""
    if isinstance(step, (Fail, ReleaseEpilog)):
        return "Flux"
    if isinstance(step, Create) and info.group is None:
        return "the user database"
    return "Kubernetes"


def is_not_ready(error: object) -> bool:
    """Whether the error is that of a plugin that still reads its jobs' eventlogs."""
    return isinstance(error, RpcError) and error.errnum == errno.EAGAIN


def reason_of(error: StepError) -> str:
    """What a job waits for after this error of its step, for a memo."""
    if isinstance(error, (StorageUnavailable, NoEffect)):
        return str(error)
    if isinstance(error, RpcError) and error.errnum == errno.ENOSYS:
        return "Flux: dws-jobtap.so is not loaded"
    if isinstance(error, NotReady):
        return f"DWS: {error}"
    return f"{'Kubernetes' if isinstance(error, KubeError) else 'Flux'}: {error}"
