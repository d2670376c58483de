# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The steps of a job: what :mod:`flux_k8s.jobs.workflow` decides on, and
:mod:`flux_k8s.jobs.steps` carries out."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional

from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.reasons import Note


class Step(enum.Enum):
    """What is done next for a job."""

    CREATE = enum.auto()
    """Create the Workflow, in Proposal."""
    LOOK_UP = enum.auto()
    """Ask for the Workflow: whether it is gone, or another job's."""
    PLAN = enum.auto()
    """Read the DirectiveBreakdowns, and send the resources to Flux."""
    PLACE = enum.auto()
    """Fill in Servers and Computes, then move to Setup."""
    STAGE = enum.auto()
    """Fill in Servers for a job without nodes, then move to Setup."""
    ADD_NODES = enum.auto()
    """Fill in Computes for storage that is there, then move to PreRun."""
    MOVE = enum.auto()
    """Move to another state."""
    TOLERATE = enum.auto()
    """Find out which nodes of the job failed, and go on without them, or fail."""
    RELEASE_PROLOG = enum.auto()
    """Give the environment to Flux: the job may start."""
    UNMOUNT = enum.auto()
    """Drain the nodes that have not unmounted the job's storage, and keep it as long as
    one of them could write."""
    CUT_OFF = enum.auto()
    """Take nodes and Rabbits that the job still uses out of service."""
    KEEP_FAILED = enum.auto()
    """Keep the storage of a job whose data could not be copied out."""
    WARN = enum.auto()
    """Report to the job's owner that Teardown makes no progress."""
    WITHHOLD = enum.auto()
    """Have the scheduler keep the job's storage from others."""
    REPORT_DATA = enum.auto()
    """Report what became of the data of a job that has ended."""
    RELEASE_EPILOG = enum.auto()
    """Release the epilog, so that the job may end."""
    REMOVE_FINALIZER = enum.auto()
    """Remove our finalizer, so that the Workflow can be deleted."""
    DELETE = enum.auto()
    """Delete the Workflow."""
    FAIL = enum.auto()
    """Raise a fatal exception on the job."""
    FORGET = enum.auto()
    """The job and its Workflow are gone."""
    WAIT = enum.auto()
    """Nothing, until something changes, or until a time."""

    def __call__(
        self,
        note: Optional[Note] = None,
        *,
        to: Optional[State] = None,
        until: Optional[float] = None,
        failed: bool = False,
        ends: bool = False,
        patience: float = 0.0,
    ) -> Next:
        """The step, with what it needs: as ``Step.MOVE(to=State.Setup)``."""
        return Next(self, note, to, until, failed, ends, patience)


FINAL = frozenset(
    {
        Step.FAIL,
        Step.FORGET,
        Step.KEEP_FAILED,
        Step.REPORT_DATA,
        Step.WARN,
    }
)
"""The steps that cannot be undone: what they tell, drain, keep or forget stays so."""


@dataclass(frozen=True)
class Next:
    """The next step of a job; :meth:`Step.__call__` makes it.

    Attributes:
        note: why, for an exception, a drain, a report, or a memo.
        to: the state to move to (MOVE).
        until: the UNIX time until which the job waits at most (WAIT).
        failed: DWS has given up: Teardown (WARN), or the unmounts, so that it unmounts
            in Teardown what it has not told to unmount before (UNMOUNT).
        ends: the nodes have had their time to unmount in Teardown: the job ends before
            that is complete, if none of them could write (UNMOUNT).
        patience: the seconds that DWS may take without the nodes that failed
            (TOLERATE).
    """

    step: Step
    note: Optional[Note] = None
    to: Optional[State] = None
    until: Optional[float] = None
    failed: bool = False
    ends: bool = False
    patience: float = 0.0

    @property
    def why(self) -> Note:
        """The note of a step that has one."""
        assert self.note is not None
        return self.note

    def is_like(self, other: Next) -> bool:
        """Whether it is the same step, in whatever words."""
        return (self.step, self.to) == (other.step, other.to)

    def __str__(self) -> str:
        return self.step.name + ("" if self.to is None else f" to {self.to.name}")


def is_final(following: Next, info: WorkflowInfo) -> bool:
    """Whether a step cannot be undone, so that what is there is read before it. Without
    a Workflow a GET has been sent already. A job whose Workflow somebody else has taken
    away is forgotten after another one: what was missed by mistake would be left."""
    view, step = info.view, following.step
    if view is None:
        return step is Step.FORGET and info.interference is not None
    if following.to is State.Teardown:
        return info.ran and not (view.desired is State.DataOut and view.complete)
    if step is Step.UNMOUNT:
        return not view.complete
    return step in FINAL
