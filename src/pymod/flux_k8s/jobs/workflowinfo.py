# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The state of one job's storage: the goal of Flux, and the view of Kubernetes."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Optional

from msgspec.structs import replace

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.formats.rset import Allocated
from flux_k8s.jobs.findings import DataProgress, Mounts, Recording, Refusal
from flux_k8s.objects.metadata import is_newer
from flux_k8s.objects.storagerequest import StorageRequest
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.reasons import Note, Reason
from flux_k8s.rules.directivebreakdown.breakdown import Breakdown
from flux_k8s.slots import slotted

Breakdowns = tuple[Breakdown, ...]


class Goal(enum.Enum):
    """The state of storage that Flux wants for a job."""

    PLANNED = "storage planned"
    READY = "storage ready"
    RELEASED = "storage released"


class Haste(enum.IntEnum):
    """How much of the way to Teardown is left out. ABANDON: unmounting and data
    movement. ABORT: the job does not wait for Teardown either."""

    NONE = 0
    ABANDON = 1
    ABORT = 2


DELETED, MOVED = "deleted", "moved to Teardown"

WITHDRAWN = {DELETED: Reason.WORKFLOW_DELETED, MOVED: Reason.WORKFLOW_MOVED}

REMAKE_PAUSES = (1.0, 10.0, 60.0)
"""Seconds before a Workflow is made again that was lost while nothing was at stake, by
how often it was already. It is not made again more often."""


NOT_HERE = Note("", Reason.CAUSE_UNKNOWN)
"""The failure of a job whose exception has a note that is not known here."""


@slotted
@dataclass
class WorkflowInfo:
    """The state of one job's storage.

    Attributes:
        **What Flux wants, and says of the job: written by requests and hello.**

        goal: the state of storage that Flux wants.
        learned: the UNIX time at which the service learned of the job; of one whose
            Workflow was not planned when the service was started, that of submission.
        request: the storage that the job asks for; None for a job that was planned
            before the module was started.
        userid: the job's user; None as long as neither Flux nor Kubernetes has named
            it.
        group: the primary group of the job's user, once it is known.
        failure_tolerance: the number of nodes without whose storage the job may run.
        prolog_since: the UNIX time since which the job is in its prolog; None before.
        allocation: the job's nodes and Rabbits by its R, once they are known.
        ran: the job's tasks were started (with goal RELEASED).
        haste: the haste with which the storage is to be released.

        **What Kubernetes shows: written by the watch and by answers.**

        last: the Workflow as it was seen last, also when it is gone; None before.
        shown: the uid of the Workflow that the watch shows, or None.
        doubtful: a GET is to tell whether there is a Workflow, and whether it is the
            job's, before anything else is done.
        begun: for each state the UNIX time at which this service has first tried to
            request it, or has first seen that it was.
        refusal: the error of the last attempt to request a state; None if Kubernetes
            has taken the request.
        troubled_since: when this service first saw the Error or TransientCondition
            that the Workflow is in (UNIX time).
        interference: what another program has done before the job's data was safe: it
            has deleted the Workflow, or moved it to Teardown. None if it has not.
        nodes_released: the job may end, or has ended, before its data is out: the
            Workflow has, or had, the annotation that says so.
        again_at: the UNIX time from which the Workflow, which is lost, is made again.
            None unless it is to be.
        breakdowns: its DirectiveBreakdowns, once they were read.
        data: the progress of its data movement.

        **What Flux was told: written by steps, and once by hello.**

        announced: the job's eventlog names the Workflow.
        answered: the goals that Flux has been told are reached: the plugin has answered
            ``resource-update``, ``prolog-remove``, ``epilog-remove``.
        failure: the note of the job's fatal exception about its storage; None without
            one. It has no text if another service has raised the exception, or the
            Workflow has the note, with the data that is kept.
        warned: the job has a warning that Teardown makes no progress.
        reported_nodes: the failed nodes that an exception of the job names.
        data_reported: it was reported what became of the data of a job that had ended.
        use_report: the line of the log about the nodes and Rabbits in use at an abort,
            or that Kubernetes does not say which they are; "" before. An exception of
            the job has the first one.
        withheld: the scheduler keeps the job's storage from others, although the job
            gives it back; False: it is to; None before.

        **What steps have found out or are about; another service finds it out anew.**

        fits: the plan of a Workflow that was made again fits what Flux was told.
        mounts: the nodes that have its storage mounted at its end.
        rescuing: a user's request to rescue its data, or give it up, is under way.
        rescues: how often its data was rescued, by this service.
        recording: the records of the job.
    """

    # What Flux wants, and says of the job: written by requests and hello.
    jobid: int
    goal: Goal
    learned: Optional[float] = None
    request: Optional[StorageRequest] = None
    userid: Optional[int] = None
    group: Optional[int] = None
    failure_tolerance: int = 0
    prolog_since: Optional[float] = None
    allocation: Optional[Allocated] = None
    ran: bool = False
    haste: Haste = Haste.NONE

    # What Kubernetes shows: written by the watch and by answers.
    last: Optional[WorkflowView] = None
    shown: Optional[str] = None
    doubtful: bool = False
    begun: dict[State, float] = field(default_factory=dict)
    refusal: Optional[Refusal] = None
    troubled_since: Optional[float] = None
    interference: Optional[Note] = None
    nodes_released: bool = False
    again_at: Optional[float] = None
    breakdowns: Breakdowns = ()
    data: DataProgress = field(default_factory=DataProgress)

    # What Flux was told: written by steps, and once by hello.
    announced: bool = False
    answered: frozenset[Goal] = frozenset()
    failure: Optional[Note] = None
    warned: bool = False
    reported_nodes: frozenset[str] = frozenset()
    data_reported: bool = False
    use_report: str = ""
    withheld: Optional[bool] = None

    # What steps have found out or are about; another service finds it out anew.
    fits: bool = False
    mounts: Mounts = field(default_factory=Mounts)
    rescuing: bool = False
    rescues: int = 0
    recording: Recording = field(default_factory=Recording)

    @property
    def f58(self) -> str:
        """The job ID in F58."""
        return f58(self.jobid)

    @property
    def view(self) -> Optional[WorkflowView]:
        """The Workflow, or None while there is none."""
        last = self.last
        return None if last is None or last.gone else last

    @property
    def decisive(self) -> Optional[tuple[object, ...]]:
        """What of the Workflow a decision may rest on at once; None while there is
        none."""
        return None if self.view is None else self.view.decisive

    @property
    def name(self) -> str:
        """The name of the Workflow."""
        return workflow_name(self.jobid)

    @property
    def abandoned(self) -> bool:
        """Whether unmounting and data movement are to be given up for Teardown."""
        return self.haste >= Haste.ABANDON

    @property
    def aborted(self) -> bool:
        """Whether they are, and the job does not wait for Teardown."""
        return self.haste is Haste.ABORT

    @property
    def remade(self) -> int:
        """How often the Workflow was made again after it was lost; of one that is to
        be, with that time."""
        made = 0 if self.last is None else self.last.remade
        return made if self.again_at is None else made + 1

    @property
    def may_have_token(self) -> bool:
        """Whether the job's KVS may have a workflow token: its Workflow has, or had,
        one. Of a job that the module before knew better there may be one, or none."""
        if self.last is not None and self.last.is_of(self.jobid):
            return self.last.token is not None or bool(self.last.damage)
        return self.existed or self.request is None

    @property
    def has_storage(self) -> bool:
        """Whether its storage was made, or begun with, with nodes or without."""
        return self.last is not None and _is_made(self.last)

    @property
    def since(self) -> Optional[float]:
        """The UNIX time at which the state was requested; without a Workflow, since
        when the service knows the job. None if that is not known, and for a Workflow
        that is gone."""
        if self.view is not None:
            return self.view.since
        return self.learned if self.last is None else None

    @property
    def satisfied(self) -> bool:
        """Whether Flux has an answer that its goal is reached."""
        return self.goal in self.answered

    @property
    def planned(self) -> bool:
        """Whether Flux knows that the storage is planned."""
        return Goal.PLANNED in self.answered

    @property
    def mounted(self) -> bool:
        """Whether Flux knows that the storage is mounted."""
        return Goal.READY in self.answered

    @property
    def failed(self) -> bool:
        """Whether the job has a fatal exception about its storage."""
        return self.failure is not None

    @property
    def told(self) -> Optional[Note]:
        """The note of that exception; None if it is not known here."""
        return self.failure if self.failure is not None and self.failure.text else None

    @property
    def released(self) -> bool:
        """Whether Flux knows that the storage is released, or does not wait for it."""
        return Goal.RELEASED in self.answered

    @property
    def may_have_run(self) -> bool:
        """Whether the job's tasks were started, or may have been: its prolog is
        finished. Only ``dws.post_run`` says that they were, and an abort may come
        first."""
        return self.ran or self.mounted

    @property
    def stages_ahead(self) -> bool:
        """Whether the job has no nodes, and its storage is made before it has some."""
        view = self.view
        return self.goal is Goal.PLANNED and view is not None and view.stages_ahead

    @property
    def awaits_staging(self) -> bool:
        """Whether the job's storage is to be made now, before the job has nodes."""
        view, request = self.view, self.request
        return (
            self.stages_ahead
            and not self.failed
            and view is not None
            and request is not None
            and not request.held
            and view.desired is State.Proposal
            and view.complete
        )

    @property
    def is_staged(self) -> bool:
        """Whether the job's storage was made, or is made, before the job has nodes."""
        return self.view is not None and self.view.staged_for is not None

    @property
    def owes_report(self) -> bool:
        """Whether the job has ended before its data was out, and it is still to be
        reported what became of the data."""
        return self.released and self.nodes_released and not self.data_reported

    @property
    def existed(self) -> bool:
        """Whether there has been a Workflow, and no other one is to be made."""
        return (self.last is not None or self.planned) and self.again_at is None

    # What Flux wants

    def want_planned(self, request: StorageRequest, failure_tolerance: int) -> None:
        """Flux wants storage to be planned."""
        self.request = request
        self.userid = request.userid
        self.failure_tolerance = failure_tolerance
        self.answered -= {Goal.PLANNED}

    def note_prolog(self, since: float) -> None:
        """The job is in its prolog since a time (UNIX), and maybe for longer."""
        known = self.prolog_since
        self.prolog_since = since if known is None else min(known, since)

    def want_ready(self, allocation: Allocated) -> None:
        """Flux wants the storage on these nodes, unless it is to be released already:
        the job may have ended meanwhile."""
        if self.goal is not Goal.RELEASED:
            self.goal = Goal.READY
        self.allocation = allocation
        self.answered -= {Goal.READY}

    def want_released(
        self,
        *,
        ran: bool = False,
        haste: Haste = Haste.NONE,
        waits: bool = True,
    ) -> None:
        """Flux wants the storage to be released. What is true stays so.

        Args:
            waits: the job waits for that.
        """
        self.goal = Goal.RELEASED
        self.ran = self.ran or ran
        self.haste = max(self.haste, haste)
        self.answered -= {Goal.RELEASED}
        if not waits:
            self.answered |= {Goal.RELEASED}

    # What Kubernetes shows

    def see(self, view: WorkflowView, now: float, *, watched: bool = False) -> None:
        """Take in the Workflow as a watch, or the answer to a request, shows it, unless
        that is older than what is known: an answer may come after a newer event.

        Args:
            watched: the watch shows it, which ends all doubts. It may be older than
                what was in doubt: the cluster was set back.
        """
        back = watched and self.doubtful
        if watched:
            self.shown, self.doubtful = view.uid, False
        if self._is_late(view) and not back:
            return
        if view.deleting and view.desired is not State.Teardown:
            self._note_interference(DELETED, view)
        elif view.desired is State.Teardown and not view.teardown_requested:
            self._note_interference(MOVED, view)
        before = self.view
        if before is not None and before.uid != view.uid:
            if before.is_of(self.jobid) and not view.is_of(self.jobid):
                self._note_interference(DELETED, before)
            self.begun = {}
        self.last = view
        if view.complete and not (before is not None and before.complete):
            self.mounts.found_at = None  # nodes have unmounted, or were passed over
        self.doubtful = self.doubtful or not view.is_of(self.jobid)
        if view.desired is not None:
            self.begun.setdefault(view.desired, now)
        if self.userid is None and view.is_of(self.jobid):
            self.userid = view.userid
        self.nodes_released = self.nodes_released or view.nodes_released
        self.again_at = None
        if view.trouble is None:
            self.troubled_since = None
        elif before is None or before.trouble != view.trouble:
            self.troubled_since = now
        if view.deleting and not view.finalizers:
            self.see_gone(now)

    def see_gone(self, now: float, *, confirmed: bool = False) -> None:
        """Take in that there is no Workflow (any more). The watch may lack one by
        mistake, and so may the answer to a GET: both are to say so, unless it was being
        deleted, and that is what Flux wants.

        Args:
            confirmed: a GET says so, and the watch shows none either.
        """
        view = self.view
        wanted = view is not None and view.deleting and self.goal is Goal.RELEASED
        self.doubtful = not (confirmed or wanted)
        if self.doubtful:
            return
        if view is not None:
            self._note_interference(DELETED, view)
            self.last = replace(view, gone=True)
            self.begun = {}
            self.troubled_since = None
        if self.existed and self.may_be_made_again:
            self.again_at = now + REMAKE_PAUSES[self.remade]
            self.fits = False

    def _is_late(self, view: WorkflowView) -> bool:
        known = self.view
        if known is None or known.uid != view.uid or not known.is_of(self.jobid):
            return False
        return bool(is_newer(known.resource_version, view.resource_version))

    @property
    def may_be_made_again(self) -> bool:
        """Whether nothing is at stake if the job loses its Workflow: it has no nodes,
        and none of its storage was made."""
        return (
            self.goal is Goal.PLANNED
            and not (self.has_storage or self.failed or self.interference)
            and self.remade < len(REMAKE_PAUSES)
        )

    def interference_note(self, how: str, more: str = "") -> Note:
        """The note that another program has done something to the Workflow, which the
        job still needed: :data:`DELETED` or :data:`MOVED`, and ``more`` about that."""
        text = f"Workflow {self.name} was {how} under the job"
        return Note(f"{text}{more}", WITHDRAWN[how])

    def _note_interference(self, how: str, view: WorkflowView) -> None:
        """Note the interference of another program, unless it is known, or costs the
        job no data. ``view`` has the data that was not copied."""
        if self.goal is Goal.PLANNED and not self.has_storage:
            return
        known = self.view
        if known is not None and known.uid == view.uid:
            safe = known.desired is State.DataOut and known.complete
            if safe or known.deleting or known.desired is State.Teardown:
                return
        copied = view.copies_out and not (view.unsaved or view.left_mounted)
        if copied or (view.desired is State.DataOut and view.complete):
            return
        if self.abandoned and not view.unsaved:
            return  # there is nothing to lose
        unsaved = f"; not copied: {', '.join(view.unsaved)}" if view.unsaved else ""
        self.interference = self.interference_note(how, unsaved)


def _is_made(view: WorkflowView) -> bool:
    """Whether the storage of a Workflow was made, or begun with."""
    asked = view.begun[State.Setup] is not None
    making = view.desired not in (None, State.Proposal, State.Teardown)
    made = view.ended[State.Setup] is not None
    return asked or making or made or view.staged_for is not None
