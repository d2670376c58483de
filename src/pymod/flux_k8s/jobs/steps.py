# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Carries out the steps of :mod:`flux_k8s.jobs.workflow`.

A step is a few requests to Kubernetes and to Flux. A step that succeeds updates the
:class:`~flux_k8s.jobs.workflowinfo.WorkflowInfo`. A step that fails may be repeated
without harm.
"""

from __future__ import annotations

import json
import syslog
from functools import partial
from typing import Awaitable, Callable, Mapping, Optional, TypeVar

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import call
from flux_k8s.control.kubecalls import refusal, refused
from flux_k8s.errors import DWSError, NotReady, StorageDenied, StorageUnavailable
from flux_k8s.formats import hostlist
from flux_k8s.jobs.copies import Copies, Movements
from flux_k8s.jobs.datarecords import DataRecords
from flux_k8s.jobs.exclusion import Exclusion
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.jobrows import allocations
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.keeping import MOUNTING, Keeping
from flux_k8s.jobs.losses import cause_of, data_loss, losses, with_losses
from flux_k8s.jobs.outcomes import Outcomes
from flux_k8s.jobs.placement import Placement, Proposal
from flux_k8s.jobs.planning import Planner
from flux_k8s.jobs.plugin import read_jobspec, request_plugin
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.reports import FailureReports
from flux_k8s.jobs.staging import Staging
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.timelimits import copies_unknown
from flux_k8s.jobs.workflowinfo import DELETED, Goal, WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.workflowmarks import (
    COPIES,
    NODES_RELEASED,
    STAGE,
    STAGED_FOR,
    copies_note,
)
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import (
    Json,
    KubeError,
)
from flux_k8s.reasons import Note, Reason
from flux_k8s.text import SHOWN, printable

T = TypeVar("T")

Procedure = Callable[[WorkflowInfo, Next], Awaitable[None]]
"""Carries out a step of a job."""

REQUESTS = {
    Step.CREATE: State.Proposal,
    Step.PLACE: State.Setup,
    Step.STAGE: State.Setup,
    Step.ADD_NODES: State.PreRun,
}
"""The states that steps request beside MOVE."""


class Steps:
    """Carries out steps, through the two interfaces to the world."""

    def __init__(
        self,
        context: Context,
        machine: RabbitManager,
        jobs: JobTable,
        records: Records,
        movements_shown: Callable[[int], Optional[Movements]],
    ) -> None:
        """
        Args:
            movements_shown: as for :class:`Copies`.
        """
        self._flux = flux = context.flux
        self._context = context
        self._planner = Planner(context, machine)
        self._machine = machine
        self._jobs = jobs
        self._ledger = machine.ledger
        self._system_status = machine.system_status
        self.workflows = WorkflowRequests(context, records, jobs)
        self._records = records
        self._data_records = DataRecords(context, records, self.workflows)
        self.copies = Copies(context, self.workflows, movements_shown, jobs.ask)
        self.outcomes = Outcomes(flux)
        self._failures = FailureReports(flux, self.workflows, jobs.scope)
        self._exclusion = Exclusion(
            context, self._planner, self.workflows, machine.nodes, jobs
        )
        self.staging = Staging(context, machine, self._planner, jobs)
        self.in_use = InUse(context, machine, jobs, self.workflows)
        self.keeping = keeping = Keeping(
            context,
            machine,
            jobs,
            self.workflows,
            self.in_use,
            self.outcomes,
        )
        self._procedures: dict[Step, Procedure] = {
            Step.CREATE: self._create,
            Step.LOOK_UP: lambda info, _: self.workflows.lookup(info),
            Step.PLAN: self._plan,
            Step.PLACE: self._place,
            Step.STAGE: self._stage,
            Step.ADD_NODES: self._add_nodes,
            Step.MOVE: self._move,
            Step.TOLERATE: lambda info, it: self._exclusion.tolerate(
                info, it.why, it.patience
            ),
            Step.RELEASE_PROLOG: self._release_prolog,
            Step.UNMOUNT: keeping.unmount,
            Step.CUT_OFF: lambda info, _: self.in_use.cut_off(info),
            Step.KEEP_FAILED: lambda info, it: keeping.keep_failed(info, it.why),
            Step.WARN: self._failures.warn,
            Step.WITHHOLD: self._withhold,
            Step.REPORT_DATA: lambda info, it: self.outcomes.report(info, it.note),
            Step.RELEASE_EPILOG: self._release_epilog,
            Step.REMOVE_FINALIZER: lambda info, _: self.workflows.remove_finalizer(
                info
            ),
            Step.DELETE: lambda info, _: self.workflows.delete(info),
            Step.FAIL: lambda info, it: self._failures.fail(info, it.why),
        }

    async def carry_out(self, info: WorkflowInfo, following: Next) -> None:
        """Carry out a step.

        Raises:
            StorageDenied: never: the job cannot have its storage.
            StepError: any other one: it is to be tried again.
        """
        carried_out = self._procedures[following.step](info, following)
        state = REQUESTS.get(following.step, following.to)
        if state is not None:
            carried_out = self.workflows.request_state(info, state, carried_out)
        await carried_out

    async def deny(
        self, info: WorkflowInfo, following: Next, error: StorageDenied
    ) -> None:
        """Fail a job for which a step has found that it cannot have its storage. More
        is to be said where DWS had a problem before."""
        if following.note is None:
            await self._failures.raise_failure(info, error.note)
        else:
            await self._failures.fail(info, error.note)

    def return_share(self, info: WorkflowInfo) -> None:
        """Free the job's share: the scheduler has taken back the job's resources."""
        view = info.view
        # Without a view the Workflow may not be known yet, as Kubernetes is away, or an
        # administrator may have deleted it before its storage was gone.
        torn_down = (
            view is not None and view.desired is State.Teardown and view.complete
        )
        self._ledger.return_share(info.jobid, torn_down)
        self.staging.queue.wake()

    def forget(self, info: WorkflowInfo) -> None:
        """Drop all that the steps keep for a job."""
        self._planner.forget(info)
        self.workflows.unlink_token(info)

    async def look_again(self, info: WorkflowInfo) -> dict[int, bool]:
        """Read what is there, before a step that cannot be undone: the watches may have
        been interrupted, or hang. Another program may have requested Teardown unseen,
        which deletes data movements: so the Workflow is read last.

        Returns:
            What became of the copies of which DWS says nothing, by the number of the
            directive, as far as that is found out.

        Raises:
            StepError: it is to be tried again.
        """
        view, listed = info.view, None
        if view is not None and (copies_unknown(info, view) or view.copying):
            listed = await self.copies.look(info)
        await self.workflows.lookup(info)
        known = info.view is None or not copies_unknown(info, info.view)
        return {} if known or listed is None else listed.copied()

    async def note_copies(self, info: WorkflowInfo, copied: dict[int, bool]) -> None:
        """Write down what became of copies before Teardown deletes what tells it."""
        await self.workflows.annotate(info, {COPIES: copies_note(copied)})

    async def _move(self, info: WorkflowInfo, following: Next) -> None:
        state = following.to
        assert state is not None
        await self._move_to(info, state)

    async def _move_to(self, info: WorkflowInfo, state: State) -> None:
        marks: Mapping[str, str] = {}
        if state in MOUNTING:
            self._check_mountable(info)
        if self._ledger.listed and not info.recording.rabbits:
            await self._record_rabbits(info)  # a module that was killed may not have
        if state is State.PreRun and info.allocation is not None:
            await self._system_status.enable(info.allocation.hosts)
        elif state is State.DataOut:
            await self._drain_unconfirmed(info)
            assert info.view is not None
            if info.view.releases_unmounted and self.keeping.may_end(info.view):
                marks = {NODES_RELEASED: "true"}
        elif state is State.Teardown and not await self._has_recorded(info):
            return
        await self.workflows.move(info, state, marks)

    async def _has_recorded(self, info: WorkflowInfo) -> bool:
        """Record the objects about data movement, which Teardown deletes, while the job
        waits. False if an abort comes first."""
        view = info.view
        if view is None or view.desired is None or not view.moves_data:
            return True
        ended_early = info.released and not info.nodes_released
        if view.desired < State.DataIn or ended_early:
            return True
        await self._data_records.record(info)
        return not info.aborted or info.released

    def _check_mountable(self, info: WorkflowInfo) -> None:
        """Check that the storage of a job may be mounted.

        Raises:
            StorageUnavailable: not yet.
            StorageDenied: the job has nodes, and has waited for it too long.
        """
        try:
            self.keeping.check_shared(info)
        except StorageUnavailable as error:
            if info.goal is Goal.READY:
                self._planner.check_patience(info, error)
            raise

    async def _drain_unconfirmed(self, info: WorkflowInfo) -> None:
        """Drain the nodes that still mount storage after PostRun, unless DWS has
        waited for all nodes. DWS does not wait for nodes that are Disabled in
        SystemStatus, nor for any node of a PostRun that was forced."""
        assert info.view is not None
        if info.mounts.found_at is not None:
            return  # it is known that none could write
        if info.view.forced or await self.in_use.passed_over(info):
            note = Note("DWS did not wait for it", Reason.UNMOUNT_FAILED)
            await self.in_use.drain_mounted(info, note)

    # Storage: planned before the job is scheduled, placed afterwards

    async def _create(self, info: WorkflowInfo, following: Next) -> None:
        if info.planned:
            self._planner.forget(info)
            await _lasting(read_jobspec(self._context, info))
        await self.workflows.create(info)

    async def _plan_again(self, info: WorkflowInfo) -> None:
        """Plan the storage of a job whose Workflow was made again. Flux was told before
        what the job needs, and may be about to give it that."""
        jobspec = await _lasting(read_jobspec(self._context, info))
        proposal = await _lasting(self._planner.plan(info))
        if not proposal.fits(jobspec.resources, jobspec.constraints):
            text = (
                f"{info.interference_note(DELETED).text}, and was made again: the job"
                " needs other resources now than Flux was asked for; please submit it"
                " again"
            )
            raise StorageDenied(text, Reason.WORKFLOW_DELETED)
        info.fits = True

    async def _plan(self, info: WorkflowInfo, following: Next) -> None:
        if info.planned:
            await self._plan_again(info)
            return
        if not info.announced:  # the answer to its creation was lost
            self.workflows.announce(info)
        self.keeping.check_shared(info)
        proposal = await _lasting(self._propose(info))
        payload: Json = {
            "id": info.jobid,
            "resources": proposal.resources,
            "exclude": proposal.exclude,
        }
        await request_plugin(self._flux, "resource-update", payload)
        info.answered |= {Goal.PLANNED}
        info.fits = True

    async def _propose(self, info: WorkflowInfo) -> Proposal:
        if info.is_staged:
            return self.staging.proposal(info)
        return await self._planner.plan(info)

    async def _place(self, info: WorkflowInfo, following: Next) -> None:
        placement = await _lasting(self._planner.place(info))
        await self._record_placement(info, placement)
        await self._move_to(info, State.Setup)

    async def _stage(self, info: WorkflowInfo, following: Next) -> None:
        """Make the storage of a job without nodes. If that is never possible, a job
        that did not ask for it gets nodes first."""
        try:
            placement, nodes = await _lasting(self.staging.stage(info))
        except StorageDenied as error:
            assert info.request is not None
            if info.request.stage is not None:
                raise
            await self.workflows.annotate(info, {STAGE: None})
            text = f"{info.f58}: not staged ahead: {error}"
            self._flux.log(syslog.LOG_INFO, text, error.reason)
            return
        await self._record_placement(info, placement)
        await self.workflows.move(info, State.Setup, {STAGED_FOR: nodes})

    async def _add_nodes(self, info: WorkflowInfo, following: Next) -> None:
        await _lasting(self._planner.add_nodes(info))
        await self._move_to(info, State.PreRun)
        self.staging.queue.wake()

    async def _record_placement(self, info: WorkflowInfo, placement: Placement) -> None:
        """Report and record where the job's storage is."""
        for wish in placement.unmet_wishes:
            text = f"{info.f58}: {wish}"
            self._flux.log(syslog.LOG_INFO, text, Reason.WISH_UNMET)
        if placement.excluded is not None:
            self._exclusion.report(info, *placement.excluded)
        rabbits = await self._record_rabbits(info)
        if rabbits:
            self._flux.post_memo(info.jobid, {"rabbits": rabbits})
        if placement.units:
            # The prolog and epilog scripts read them: a memo may be anybody's.
            text = json.dumps(placement.units, separators=(",", ":"))
            await call(self._flux.kvs_commit, info.jobid, "rabbit_units", text)

    async def _record_rabbits(self, info: WorkflowInfo) -> str:
        """Record where the job has storage, for accounting: a memo may be anybody's.
        Return its Rabbits as a hostlist."""
        found = self._ledger.rabbits_of(info.jobid)
        rabbits = hostlist.encode_sorted(found)
        if rabbits:
            put, usage = self._records.put, self._ledger.usage_of(info.jobid)
            await put(info, "rabbit_hostlist", rabbits, last=False)
            text = json.dumps(allocations(info, usage))
            await put(info, "rabbit_allocations", text, last=False)
        info.recording.rabbits = True
        return rabbits

    # Requests to Flux

    async def _release_prolog(self, info: WorkflowInfo, following: Next) -> None:
        """Let the job start: DWS has mounted its storage. DWS does not wait for nodes
        that are Disabled in SystemStatus, so such nodes are surveyed first. The job has
        the variables of the Workflow as it mounted: the watch may go back meanwhile."""
        view = info.view
        disabled = await self.in_use.passed_over(info)
        if view is None or info.view is None:
            return  # it was deleted meanwhile: next_step() has the job fail with that
        if disabled:
            text = (
                "nodes that are Disabled in SystemStatus may lack the storage, and"
                " Kubernetes does not say which nodes have mounted it"
            )
            unknown = Note(text, Reason.USE_UNKNOWN)
            survey = await self._exclusion.survey(info, unknown)
            if survey is None:
                return
            if survey.lost:
                problem = "passed over by DWS, as Disabled in SystemStatus"
                await self._exclusion.leave_out(info, survey, problem)
                return
        await self._give_environment(info, view)

    async def _give_environment(self, info: WorkflowInfo, view: WorkflowView) -> None:
        daemons = await _lasting(self._planner.daemons(info))
        variables: dict[str, str] = {}
        for daemon in daemons:
            variables.update(daemon.environment)
        # The variables of DWS come last: a site cannot change them.
        variables.update(view.environment)
        await self.workflows.give_token(info)
        # One that may be gone is looked up first.
        gone = info.view is None or info.doubtful
        if not gone:
            payload: Json = {"id": info.jobid, "variables": variables}
            if view.unsaved:
                copies = ", ".join(view.unsaved)
                payload["copy_out"] = printable(copies, SHOWN)
            await request_plugin(self._flux, "prolog-remove", payload)
            info.answered |= {Goal.READY}

    async def _withhold(self, info: WorkflowInfo, following: Next) -> None:
        """Have the scheduler keep the job's storage from others: a share that is given
        back is withheld as long as there is storage on it. The machine reports when
        that is done."""
        info.withheld = False
        self.return_share(info)
        done = partial(self._jobs.note_withheld, info.jobid)
        self._machine.when_withheld(info.jobid, done)

    async def _release_epilog(self, info: WorkflowInfo, following: Next) -> None:
        view = info.view
        if view is not None and view.is_of(info.jobid):
            await self._settle_mounts(info, view)
        self.workflows.unlink_token(info)
        self.return_share(info)
        payload: Json = {"id": info.jobid}
        moving = view is not None and view.desired is not State.Teardown
        if moving and view is not None and view.nodes_released:
            await self.outcomes.write_release(info)
            payload["data"] = "moving"
        else:
            await self.outcomes.record(info, data_loss(info))
            # Others may wait for a report on a job that has ended before, or was to.
            info.data_reported = not info.nodes_released
            self._failures.report_persistent(info)
        await request_plugin(self._flux, "epilog-remove", payload)
        info.answered |= {Goal.RELEASED}

    async def _settle_mounts(self, info: WorkflowInfo, view: WorkflowView) -> None:
        """See to the nodes that a job which is about to end leaves with its storage
        mounted: those that Teardown has not unmounted are drained. A module that comes
        after the job's end goes by the Workflow: whether the data is given up that is
        kept for them."""
        if info.aborted:
            return
        if view.desired is State.PostRun:
            given_up = info.abandoned or info.failed or not info.ran
            if view.kept_for and given_up and not view.given_up:
                await self.workflows.mark_given_up(info)
        elif view.desired is State.Teardown and view.complete:
            if view.may_be_mounted:
                late = Note("Teardown is complete", Reason.UNMOUNT_FAILED)
                await self.in_use.drain_mounted(info, late)
            if info.ran and not info.failed and losses(info, view):
                gone = Note("the storage is gone", cause_of(info))
                await self._failures.fail(info, with_losses(gone, info, view))


async def _lasting(planned: Awaitable[T]) -> T:
    """What is planned for a job.

    Raises:
        StorageDenied: for an error that will not pass.
    """
    try:
        return await planned
    except (StorageDenied, StorageUnavailable, NotReady):
        raise
    except DWSError as error:
        raise StorageDenied(str(error), error.reason) from error
    except KubeError as error:
        if not refused(error):
            raise
        raise StorageDenied(refusal(error), Reason.DWS_REFUSED) from error
