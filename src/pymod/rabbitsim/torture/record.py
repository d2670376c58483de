# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The true history of a job and its Workflows, as Kubernetes has it.

The service may see it late, twice or not at all. The monitor compares the service's
reports with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional

from flux_k8s.config.table import Config
from flux_k8s.formats.timestamps import parse_timestamp
from flux_k8s.objects.workflowmarks import (
    FAILED_UNTIL,
    GIVEN_UP,
    KEPT_FOR,
    NODES_RELEASED,
    RESCUED,
)
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from rabbitsim.flux.job import Job

NEVER = float("inf")
ABORT = "dws-epilog-timeout"

RESOLUTION = 1e-6
"""Seconds to which the time is exact that an annotation tells."""


@dataclass(frozen=True)
class Told:
    """An exception of a job.

    Attributes:
        reason: None where another program than the service raises it.
        state: the one that was asked for then; "" before there was a Workflow.
    """

    type: str
    note: str
    reason: Optional[Reason] = None
    state: str = ""

    @property
    def cause(self) -> str:
        """The reason, or else the type."""
        return self.type if self.reason is None else str(self.reason.value)


@dataclass
class Transient:
    """A TransientCondition, from a time to another."""

    state: str
    begin: float
    end: float = NEVER


@dataclass
class Record:
    """The history of one job's Workflows. Times are UNIX times.

    Attributes:
        made: the number of Workflows.
        desired: the state that was requested last.
        reached: when each state was complete for the first time.
        worked: when the service began to send requests for each state: it reads, and
            writes other objects, before it asks for the state.
        tried: when it asked for each state, also in vain.
        asked: the first time of these; when somebody else has moved the Workflow, the
            time of that.
        moved: when each state was first requested with success.
        began: when DWS took up each state.
        refused: when Kubernetes did not take a write, nor a read for the plan of the
            storage, since ``desired`` was asked for.
        held_up: it did not take the request for ``desired`` at once.
        errors: the states in which DWS gave up.
        transients: when it had trouble that may pass.
        lost: the state from which it was moved to Teardown, or deleted, before
            the data of a job that ran was safe; "" when it was not.
        overdue: a time limit of that state had passed.
        failed_nodes: the nodes that the job goes on without.
        fatal: the job's fatal exceptions.
        withdrawn: it has failed, and not because of data that it waits for.
        aborted_at: the time at which the epilog was given up.
        outputs: the places where the data that the job wrote must be in the end;
            ``unfailing`` those to which no copy fails.
        creates: the persistent storage that the job makes.
        kept: the Workflow says that its storage is kept for nodes that have not
            unmounted.
        failed_until: the time until which the storage is kept now so that data can be
            rescued, as the Workflow says; None if it says nothing.
        failed: it has said so.
        given_up: the Workflow says that the data is given up.
        rescued: when the data was last copied again; 0 for never.
        nodes_released: the Workflow says that the job may end before its data is out.
        outlives: the job has ended, and its Workflow still takes the data out.
        unattended: the module was away when the job's epilog ended.
        deleted: when its Workflow was deleted before Teardown was complete.
        unseen: that was while the module was away. Unless other jobs wait for the data
            nobody asks what became of it.
        bereft: its Workflow was gone by then, so nobody could tell what it had mounted.
    """

    made: int = 0
    desired: str = ""
    reached: dict[str, float] = field(default_factory=dict)
    worked: dict[str, float] = field(default_factory=dict)
    tried: dict[str, list[float]] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    refused: list[float] = field(default_factory=list)
    held_up: bool = False
    errors: set[str] = field(default_factory=set)
    transients: list[Transient] = field(default_factory=list)
    lost: str = ""
    overdue: bool = False
    failed_nodes: set[str] = field(default_factory=set)
    fatal: list[Told] = field(default_factory=list)
    withdrawn: bool = False
    aborted_at: float = NEVER
    outputs: tuple[str, ...] = ()
    unfailing: tuple[str, ...] = ()
    creates: tuple[str, ...] = ()
    kept: bool = False
    failed_until: Optional[float] = None
    failed: bool = False
    given_up: bool = False
    rescued: float = 0.0
    nodes_released: bool = False
    outlives: bool = False
    unattended: bool = False
    deleted: float = float("-inf")
    unseen: bool = False
    bereft: bool = False

    @property
    def aborted(self) -> bool:
        return self.aborted_at < NEVER

    def begin(self) -> None:
        """A Workflow is made. What is known of one that was lost before counts no
        more, but for what became of the data."""
        for state in ("Proposal", "Setup", "DataIn", "PreRun", "Teardown"):
            for times in (
                self.worked,
                self.asked,
                self.moved,
                self.began,
                self.reached,
            ):
                times.pop(state, None)
            if state != "Proposal":
                self.tried.pop(state, None)

    def work(self, now: float) -> None:
        """The service sends a request about the job, for the state after one that is
        complete."""
        states = list(STATES)
        if self.desired in self.reached and self.desired != states[-1]:
            following = states[states.index(self.desired) + 1]
            self.worked.setdefault(following, now)

    def ask(self, state: str) -> None:
        """A state is asked for."""
        self.desired = state
        self.held_up = bool(self.refused)
        self.refused.clear()

    def see(self, workflow: Json, now: float) -> None:
        """Take in a Workflow as it was written."""
        status = workflow.get("status") or {}
        state, desired = status.get("state"), workflow["spec"]["desiredState"]
        annotations = workflow["metadata"].get("annotations") or {}
        self.nodes_released = self.nodes_released or NODES_RELEASED in annotations
        self.kept = self.kept or KEPT_FOR in annotations
        self.failed_until = parse_timestamp(annotations.get(FAILED_UNTIL, ""))
        self.failed = self.failed or self.failed_until is not None
        self.given_up = self.given_up or GIVEN_UP in annotations
        rescued = parse_timestamp(annotations.get(RESCUED, ""))
        self.rescued = max(self.rescued, rescued or 0.0)
        first = self.tried.get(desired, [now])[0]
        self.asked.setdefault(desired, min(self.worked.get(desired, now), first))
        self.moved.setdefault(desired, now)
        if state == desired:
            changed = parse_timestamp(str(status.get("desiredStateChange")))
            self.began.setdefault(desired, now if changed is None else changed)
            if status.get("status") == "Error":
                self.errors.add(desired)
            if status.get("ready") is True:
                self.reached.setdefault(desired, now)
        transient = state == desired and status.get("status") == "TransientCondition"
        last = self.transients[-1] if self.transients else None
        if last is not None and last.end == NEVER:
            if transient and last.state == state:
                return
            last.end = now
        if transient:
            self.transients.append(Transient(str(state), now))

    def was_refused(self, seconds: float) -> bool:
        """Whether Kubernetes has refused the request for the next state for so many
        seconds, up to the last try."""
        times = self.refused
        return bool(times) and times[-1] - times[0] >= seconds - RESOLUTION

    def exceeded(self, state: str, seconds: float, now: float, first: str = "") -> bool:
        """A state had been under way for that long, and was not complete."""
        limit = self.asked.get(first or state, NEVER) + seconds
        limit -= RESOLUTION  # an annotation rounds its beginning
        return limit <= now and self.reached.get(state, NEVER) >= limit

    def began_late(self, state: str, seconds: float) -> bool:
        """Half of a limit was over when DWS took up the state."""
        began = self.began.get(state, NEVER)
        return began - self.asked.get(state, NEVER) >= seconds / 2

    def was_transient(self, state: str, seconds: float, now: float) -> bool:
        """A TransientCondition in a state lasted that long, seen as one: while
        it is away for a moment, nobody may look."""
        found = [t for t in self.transients if t.state == state]
        if not found:
            return False
        lasted = min(found[-1].end, now) - found[0].begin
        return lasted >= seconds - RESOLUTION  # a restart rounds its beginning

    def leaves(self, now: float, config: Config) -> None:
        """The Workflow is on its way out before the job's data was safe."""
        self.lost = self.desired
        limits = [config.teardown_after]
        if self.lost == "PostRun":
            limits.append(config.postrun_timeout)
        waited = now - self.asked.get("PostRun", NEVER) + RESOLUTION  # as in exceeded()
        self.overdue = self.lost in ("PostRun", "DataOut") and any(
            limit is not None and limit <= waited for limit in limits
        )


def limit_of(state: str, config: Config) -> Optional[float]:
    """The longest time for which a state may be awaited, in seconds."""
    limits: Mapping[str, tuple[Optional[float], ...]] = {
        "Proposal": (config.setup_timeout,),
        "Setup": (config.setup_timeout,),
        "PostRun": (config.postrun_timeout, config.teardown_after),
        "DataOut": (config.teardown_after,),
    }
    found = [limit for limit in limits.get(state, ()) if limit is not None]
    return min(found, default=None)


def gave_up(job: Job, ended: float = NEVER) -> Optional[float]:
    """When a fatal exception allowed to give up the data of a job that ran: one
    from before it ran, or in its epilog. (While the tasks of a job are being
    ended none does; a time limit never does it.) The tasks of a job that job-exec
    has lost end without a ``finish`` event: ``release`` is the first after them. Of
    one that job-exec does not have at all there is neither: its tasks have ``ended``
    when PostRun is asked for."""
    seen: set[str] = set()
    over = False
    for event in job.events:
        context = event.context or {}
        if event.name == "start" and over:
            return event.timestamp  # it was over before it began
        if event.name == "exception" and context["severity"] == 0:
            type = context["type"]
            done = bool(seen & {"finish", "release"}) or event.timestamp >= ended
            ending = "start" in seen and not done
            asks = not ending and type != "timeout"
            if type in ("dws", ABORT) or (over and asks):
                return event.timestamp
            if done and asks:
                return event.timestamp
            over = True
        seen.add(event.name)
    return None


def cancelled_in_epilog(job: Job) -> Optional[float]:
    """The time of the cancel in the epilog, by which the owner gives up the data."""
    finished = False
    for event in job.events:
        finished = finished or event.name == "finish"
        context = event.context or {}
        if finished and event.name == "exception" and context["type"] == "cancel":
            return event.timestamp
    return None
