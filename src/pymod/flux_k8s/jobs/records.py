# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writes the records of a job's storage to its KVS: how long DWS took for each state,
and the Workflow. (What Teardown deletes is in :mod:`flux_k8s.jobs.datarecords`. Where
its storage is and what became of its data is written when that is known, by
:mod:`flux_k8s.jobs.steps` and :mod:`flux_k8s.jobs.outcomes`. doc/durable.md lists all.)

The Workflow is written when the job fails, when it moves to Teardown (DWS still shows
the state before, unless the answer to that request was lost) and when Teardown is
complete. A module that is killed takes along what it has not committed yet. The next
one writes the Rabbits again when it moves the job, and the durations when it moves it
to Teardown, by the times that the Workflow has.
"""

from __future__ import annotations

import errno
import json
import syslog
from typing import Any, Mapping, Optional, Sequence

from flux_k8s.control.coroutines import call
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.objects.decoding import plain
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import (
    Encoded,
    Flux,
    RpcError,
)
from flux_k8s.reasons import Reason

IDLE_AFTER = (State.Proposal, State.PreRun)
"""The states after which a job waits for nodes, or runs, before the next one."""


def begun_of(view: WorkflowView) -> dict[State, float]:
    """The UNIX time of the request for each state, where it is known."""
    begun = {state: at for state, at in zip(State, view.begun) if at is not None}
    if view.desired is not None and view.since is not None:
        begun.setdefault(view.desired, view.since)
    return begun


def durations(info: WorkflowInfo) -> dict[State, float]:
    """The seconds of each state that is over, where they are known: as this module has
    recorded them, as DWS says, or by the times that the Workflow has."""
    found = dict(info.recording.durations)
    view = info.view
    if view is None:
        return found
    if view.complete and view.state is not None and view.elapsed is not None:
        found.setdefault(view.state, view.elapsed)
    begun = begun_of(view)
    for state in begun:
        if state not in found and view.desired is not None and state < view.desired:
            seconds = _duration(state, begun, view.ended)
            if seconds is not None:
                found[state] = seconds
    return found


def _duration(
    state: State, begun: Mapping[State, float], ended: Sequence[Optional[float]]
) -> Optional[float]:
    """The seconds of a state that is over, and that this service has not recorded."""
    end = ended[state]
    following = min((later for later in begun if later > state), default=None)
    if end is None and following is not None:
        # A PreRun that is complete is followed by PostRun.
        given_up = (state, following) == (State.PreRun, State.Teardown)
        if given_up or state not in IDLE_AFTER:
            end = begun[following]
    return None if end is None else round(max(0.0, end - begun[state]), 6)


class Records:
    """Keeps records of jobs."""

    def __init__(self, flux: Flux, scope: JobScope) -> None:
        self._flux = flux
        self._scope = scope

    def note(self, info: WorkflowInfo, workflow: Encoded) -> None:
        """Write the duration of each state, and the Workflow when it moves to Teardown
        and at its end. ``workflow`` comes from an answer or from the watch, whichever
        is first. The other may never come."""
        if info.view is not None and info.view.is_of(info.jobid):
            self._scope.spawn(info.jobid, self._note(info, info.view, workflow))

    async def _note(
        self, info: WorkflowInfo, view: WorkflowView, workflow: Encoded
    ) -> None:
        recording = info.recording
        if view.desired is State.Teardown and not recording.end:
            recording.end = True
            if not view.complete:
                await self._put_workflow(info, workflow)
            # A module that was killed may not have recorded the last states before.
            for state, seconds in sorted(durations(info).items()):
                if state is not State.Teardown and state not in recording.durations:
                    await self._put_timing(info, state, seconds)
        timed = view.state in recording.durations
        if not view.complete or view.state is None or timed:
            return
        if view.elapsed is not None:
            await self._put_timing(info, view.state, view.elapsed)
        if view.state is State.Teardown:
            # The Workflow goes now, and a job that has ended waits for no commit.
            await self._put_workflow(info, workflow, last=info.released)

    async def fail(
        self, info: WorkflowInfo, view: WorkflowView, workflow: Encoded
    ) -> None:
        """Keep the Workflow of a job that fails."""
        await self.leave(info, view)
        if view.desired is not State.Teardown:
            await self._put_workflow(info, workflow)

    async def leave(self, info: WorkflowInfo, view: WorkflowView) -> None:
        """Write the seconds since the current state was requested, if it was not
        reached.

        The caller does this before it moves the Workflow to another state: a later
        service cannot know whether the state was reached.

        Args:
            view: the Workflow in the current state.
        """
        state, recording = view.desired, info.recording
        if state is None or state is State.Teardown or state in recording.durations:
            return
        if not (view.complete or view.since is None):
            seconds = max(0.0, self._flux.now() - view.since)
            await self._put_timing(info, state, seconds)

    async def _put_workflow(
        self, info: WorkflowInfo, workflow: Encoded, last: bool = False
    ) -> None:
        await self.put_json(info, "rabbit_workflow", plain(workflow), last)

    async def _put_timing(
        self, info: WorkflowInfo, state: State, seconds: float
    ) -> None:
        info.recording.durations[state] = round(seconds, 6)
        key = f"rabbit_{state.name.lower()}_timing"
        await self.put(info, key, json.dumps(round(seconds, 6)), last=False)

    def give_up(self, info: WorkflowInfo, what: str, why: object) -> None:
        """Log that a record is not written."""
        self._flux.log(
            syslog.LOG_WARNING,
            f"{info.f58}: {what} are not recorded: {why}",
            Reason.RECORD_INCOMPLETE,
        )

    async def put_json(
        self, info: WorkflowInfo, key: str, value: Any, last: bool = True
    ) -> None:
        try:
            text = json.dumps(value)
        except RecursionError:
            # Python can read deeper JSON than it can write here.
            self.give_up(info, f"the objects of {key}", "too many levels")
        else:
            await self.put(info, key, text, last)

    async def put(
        self, info: WorkflowInfo, key: str, text: str, last: bool = True
    ) -> None:
        """Write a record, at once if it is the ``last`` one for now: its source may be
        about to go. Flux may have purged a job that has ended."""
        try:
            ended = info.released or info.nodes_released
            if ended and await is_purged(self._flux, info.jobid):
                return
        except RpcError as error:
            self.give_up(info, key, error)
        else:
            self._flux.kvs_put(info.jobid, key, text, last=last)


async def look_up(flux: Flux, jobid: int, key: str) -> Optional[str]:
    """The text at a key in a job's KVS directory; None if there is none, or Flux has
    removed the job.

    Raises:
        RpcError: that is not known.
    """
    payload = {"id": jobid, "keys": [key], "flags": 0}
    try:
        answer = await call(flux.rpc, "job-info.lookup", payload)
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise
        return None
    return str(answer[key])


async def is_purged(flux: Flux, jobid: int) -> bool:
    """Whether Flux has removed a job and its KVS directory. A write would make the
    directory anew. The job manager has all other jobs in memory; of what a guest wrote
    nothing is asked for, for that may be large.

    Raises:
        RpcError: that is not known.
    """
    try:
        await call(flux.rpc, "job-manager.getattr", {"id": jobid, "attrs": []})
    except RpcError as error:
        if error.errnum != errno.EINVAL:
            raise
        return True
    return False
