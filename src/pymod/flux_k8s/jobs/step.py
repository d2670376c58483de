# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The steps of a job: what :mod:`flux_k8s.jobs.workflow` decides on, and
:mod:`flux_k8s.jobs.steps` carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from flux_k8s.dws.workflowstate import State
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.reasons import Note


@dataclass(frozen=True)
class Create:
    """Create the Workflow, in Proposal."""


@dataclass(frozen=True)
class Lookup:
    """Ask for the Workflow: whether it is gone, or another job's, whether a create
    that got no answer was carried out, or whether a time limit was kept while the watch
    was interrupted."""


@dataclass(frozen=True)
class Plan:
    """Read the DirectiveBreakdowns, and send the resources to Flux."""


@dataclass(frozen=True)
class Allocate:
    """Fill in Servers and Computes, then move to Setup."""


@dataclass(frozen=True)
class Stage:
    """Fill in Servers for a job that has no nodes yet, then move to Setup."""


@dataclass(frozen=True)
class AddNodes:
    """Fill in Computes for storage that is there already, then move to PreRun."""


@dataclass(frozen=True)
class Advance:
    """Move to another state; ``hurry`` goes with a Teardown after an abort."""

    state: State
    hurry: bool = False


@dataclass(frozen=True)
class Inspect:
    """Find out which nodes of the job have their storage."""


@dataclass(frozen=True)
class Exclude:
    """Go on without the failed nodes. ``note`` is that of the exception about them."""

    note: str = ""


@dataclass(frozen=True)
class Force:
    """Have DWS take the state for reached, without the nodes that failed."""


@dataclass(frozen=True)
class ReleaseProlog:
    """Give the environment to Flux: the job may start."""


@dataclass(frozen=True)
class DrainMounted:
    """Drain the nodes that still have the job's storage mounted. ``note`` has the
    reason, for the exception about them."""

    note: str


@dataclass(frozen=True)
class LetNodesGo:
    """Drain the nodes that still have the job's storage mounted, and have the job end
    before Teardown is complete. ``note`` has the reason, for the exception about these
    nodes."""

    note: str


@dataclass(frozen=True)
class FindWriters:
    """Find the nodes that have the job's storage mounted, and could write to it. The
    storage is kept as long as there are any. ``note`` has the reason. ``failed``: DWS
    has given up, and has the nodes unmount in Teardown that it has not told before."""

    note: str
    failed: bool = False


@dataclass(frozen=True)
class CutOff:
    """Take nodes and Rabbits that the job still uses out of service."""


@dataclass(frozen=True)
class NoteGivenUp:
    """Write down on the Workflow that the job's data is given up, for a module that
    comes after the job's end."""


@dataclass(frozen=True)
class KeepFailed:
    """Keep the storage of a job whose data could not be copied out, so that the data
    can be rescued. ``note`` has the reason."""

    note: Note


@dataclass(frozen=True)
class Warn:
    """Report to the job's owner that Teardown makes no progress. ``fatal``: DWS has
    given up, and the job's exception has to be a fatal one."""

    note: Note
    fatal: bool = False


@dataclass(frozen=True)
class Record:
    """Write the records of the objects that Teardown deletes to the job's KVS."""


@dataclass(frozen=True)
class Withhold:
    """Have the scheduler keep the job's storage from others after the job's end."""


@dataclass(frozen=True)
class ReportData:
    """Report what became of the data of a job that has ended. ``loss`` says what is
    lost, and why; None if nothing is."""

    loss: Optional[Note] = None


@dataclass(frozen=True)
class ReleaseEpilog:
    """Release the epilog, so that the job may end."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Remove our finalizer, so that the Workflow can be deleted."""


@dataclass(frozen=True)
class Delete:
    """Delete the Workflow."""


@dataclass(frozen=True)
class Fail:
    """Raise a fatal exception on the job."""

    note: Note


@dataclass(frozen=True)
class Forget:
    """The job and its Workflow are gone."""


@dataclass(frozen=True)
class Wait:
    """Nothing to do until something changes, or until a time (UNIX)."""

    until: Optional[float] = None


Step = Union[
    Create,
    Lookup,
    Plan,
    Allocate,
    Stage,
    AddNodes,
    Advance,
    Inspect,
    Exclude,
    Force,
    ReleaseProlog,
    DrainMounted,
    LetNodesGo,
    FindWriters,
    CutOff,
    NoteGivenUp,
    KeepFailed,
    Warn,
    Record,
    Withhold,
    ReportData,
    ReleaseEpilog,
    RemoveFinalizer,
    Delete,
    Fail,
    Forget,
    Wait,
]


def is_final(step: Step, info: WorkflowInfo) -> bool:
    """Whether a step about a Workflow that is there cannot be undone, and costs the job
    its life, its data, or nodes."""
    view = info.view
    if view is None:
        return isinstance(step, Forget) and info.interference is not None
    if isinstance(step, Advance) and step.state is State.Teardown:
        return info.ran and bool(view.unsaved)
    return isinstance(step, FINAL)


FINAL = (
    Fail,
    Forget,
    Exclude,
    DrainMounted,
    LetNodesGo,
    KeepFailed,
    ReportData,
    Warn,
)
