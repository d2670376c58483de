# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Memos that say how far a long state of a job is, for ``flux jobs``.

They are volatile: no eventlog grows by them. A job has another one only after a while,
and all jobs together have only so many each second. The memo goes with the state: it is
removed at once, before the job can end with it.
"""

from __future__ import annotations

from typing import Callable, Optional

from flux_k8s.control.controller import Controller, Options
from flux_k8s.jobs.jobrows import NONE, JobFacts, Mounts, state_of
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.objects.datamovement import Progress
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Flux

MEMO = "rabbit_progress"

INTERVAL = 10.0
"""Seconds between two memos of a job."""

RECENT = 3600.0
"""Seconds from the begin of a state for which a memo of an earlier service is looked
for once the state is reached."""

TICK = 1.0
MEMOS_PER_TICK = 10
LOOKS_PER_TICK = 100
"""The most memos that are posted in one tick, and jobs that are looked at."""


class ProgressMemos:
    """Posts the memos.

    Args:
        text_of: gives the text of a job's memo, None for no memo.
    """

    def __init__(
        self, flux: Flux, jobs: JobTable, text_of: Callable[[int], Optional[str]]
    ) -> None:
        self._flux = flux
        self._jobs = jobs
        self._text_of = text_of
        self._waiting: dict[int, None] = {}
        self._controller = Controller[str](
            flux, self._reconcile, options=Options[str](debounce=TICK)
        )

    def changed(self, jobid: int) -> None:
        """The memo of a job may have to be another."""
        self._waiting[jobid] = None
        self._controller.add(MEMO)

    def inherit(self, job: Job) -> None:
        """A job may have a memo of an earlier service. It goes when the job's state
        does."""
        if job.shown.memo is None:
            job.shown.memo = "", 0.0

    def update(self, job: Job, before: Optional[str]) -> None:
        """Remove the memo of a job whose state is another, or has been reached.

        Args:
            before: the state that the job was in, as far as this service knows.
        """
        if job.shown.memo is None:
            return
        view, state = job.info.view, state_of(job.info)
        text, _ = job.shown.memo
        over = state == State.Teardown.name or before not in (None, NONE, state)
        if view is not None and view.complete:
            # Nobody knows which jobs have a memo of an earlier service. Few of those
            # that run do: the others have not just been through PreRun.
            late = view.since is None or self._flux.now() - view.since > RECENT
            over = over or bool(text) or not late
        if over:
            job.shown.memo = None
            self._flux.post_memo(job.info.jobid, {MEMO: None}, volatile=True)

    def forget(self, jobid: int) -> None:
        """A job is over, and takes no memos."""
        self._waiting.pop(jobid, None)

    def stop(self) -> None:
        self._controller.stop()

    async def _reconcile(self, memo: str) -> Optional[float]:
        """Post some of the memos that wait. Returns the seconds until the next ones, or
        None."""
        posts = 0
        for jobid in list(self._waiting)[:LOOKS_PER_TICK]:
            del self._waiting[jobid]
            if posts < MEMOS_PER_TICK:
                posts += self._post(jobid)
            else:
                self._waiting[jobid] = None
        return TICK if self._waiting else None

    def _post(self, jobid: int) -> bool:
        """Post a job's memo if it is another. One that is too early waits."""
        job, text = self._jobs.get(jobid), self._text_of(jobid)
        if job is None or text is None:
            return False
        before, then = job.shown.memo or (None, 0.0)
        if text == before:
            return False
        now = self._flux.now()
        if then <= now < then + INTERVAL:  # else the clock was set back
            self._waiting[jobid] = None
            return False
        job.shown.memo = text, now
        self._flux.post_memo(jobid, {MEMO: text}, volatile=True)
        return True


def memo_text(facts: JobFacts, jobid: int) -> Optional[str]:
    """The text about a long state for the job's memo; None for a short one."""
    job = facts.jobs.get(jobid)
    if job is None or job.info.released:
        return None
    state, progress = state_of(job.info), facts.progress(job)
    if progress is not None:
        return data_text(state, progress)
    mounts = facts.mounts(job)
    return None if mounts is None else mount_text(state, mounts)


def data_text(state: str, progress: Progress) -> str:
    """``DataIn 43 %, 2 min left``."""
    text = f"{state} {progress.percent} %"
    return text if progress.left is None else f"{text}, {duration(progress.left)} left"


def mount_text(state: str, mounts: Mounts) -> str:
    """``PreRun 12/16 mounted``, ``PostRun 3/16 unmounted``."""
    what = "mounted" if state == "PreRun" else "unmounted"
    return f"{state} {mounts.done}/{mounts.wanted} {what}"


def duration(seconds: float) -> str:
    """A time in one unit, rounded up."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds > size:
            return f"{int(-(-seconds // size))} {unit}"
    return f"{int(-(-seconds // 1))} s"
