# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How each step of :mod:`flux_k8s.jobs.workflow` is carried out.

A step is a few requests to Kubernetes and to Flux. When it is done, what it
achieved stands in the :class:`~flux_k8s.jobs.workflow.WorkflowInfo`; when it fails,
nothing is lost by doing it again.
"""

from __future__ import annotations

import errno
import json
import syslog
from functools import partial
from typing import Callable, Optional, Union

from flux_k8s.config.settings import Settings
from flux_k8s.config.table import Daemon
from flux_k8s.dws.workflowview import (
    OUT_OF_REACH,
    TROUBLE,
    WARNED,
    State,
    WorkflowView,
)
from flux_k8s.errors import DWSError, NotReady
from flux_k8s.jobs.answers import refusal, refused
from flux_k8s.jobs.exclusion import Exclusion
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.jobexception import DWS, FATAL, WARNING
from flux_k8s.jobs.machine import Machine
from flux_k8s.jobs.planning import Failure, Placed, Planner
from flux_k8s.jobs.proposal import Proposal
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.tokens import Tokens
from flux_k8s.jobs.workflow import (
    Advance,
    Allocate,
    Create,
    CutOff,
    Delete,
    DrainMounted,
    Exclude,
    Fail,
    Force,
    Inspect,
    Lookup,
    NoteOutage,
    NoteTrouble,
    Plan,
    Record,
    ReleaseEpilog,
    ReleaseProlog,
    RemoveFinalizer,
    Step,
    Warn,
)
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.jobs.workflowrequests import StepDone, StepError, WorkflowRequests
from flux_k8s.ports import (
    WORKFLOW,
    Flux,
    Json,
    Kube,
    KubeError,
    RpcError,
)
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.timestamps import format_timestamp
from flux_k8s.text import NOTE, printable


class Steps:
    """Carries out steps, through the two interfaces to the world."""

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        settings: Settings,
        machine: Machine,
        bind: Callable[[Callable[..., None]], Callable[..., None]],
    ) -> None:
        """
        Args:
            bind: makes a callback one of the job for which a step is carried out.
        """
        self.flux = flux
        self.kube = kube
        self.settings = settings
        self._bind = bind
        self.records = Records(flux, kube, settings)
        self.tokens = Tokens(flux, kube)
        self._planner = Planner(
            kube,
            settings,
            machine.rabbits,
            machine.constraint,
            flux.now,
            bind,
        )
        self._system_status = machine.system_status
        self.workflows = WorkflowRequests(
            flux, kube, settings, self.records, self.tokens
        )
        self._exclusion = Exclusion(
            flux, kube, settings, self._planner, self.records, machine.nodes
        )
        self.in_use = InUse(flux, kube, settings, machine.nodes, bind)

    def run(self, info: WorkflowInfo, step: Step, done: StepDone) -> None:
        """Carry out a step; ``done`` is called once."""
        state = requested_state(step)
        if state is not None:
            done = self.workflows.watch_request(info, state, done)
        if isinstance(step, Create):
            self.workflows.create(info, done)
        elif isinstance(step, Lookup):
            self.workflows.lookup(info, done)
        elif isinstance(step, Plan):
            self._plan(info, done)
        elif isinstance(step, Allocate):
            self._allocate(info, done)
        elif isinstance(step, Advance):
            self._advance(info, step, done)
        elif isinstance(step, ReleaseProlog):
            self._release_prolog(info, done)
        elif isinstance(step, Inspect):
            self._exclusion.inspect(info, done)
        elif isinstance(step, Exclude):
            self._exclusion.notify_of_node_failure(info, step.note, done)
        elif isinstance(step, Force):
            self.workflows.patch(
                info, {"spec": {"forceReady": True}}, self.workflows.see(info, done)
            )
        elif isinstance(step, DrainMounted):
            self.in_use.drain_mounted(info, step.note, done)
        elif isinstance(step, CutOff):
            self.in_use.cut_off(info, done)
        elif isinstance(step, ReleaseEpilog):
            self._release_epilog(info, done)
        elif isinstance(step, NoteTrouble):
            self.workflows.annotate(info, TROUBLE, info.trouble_note or None, done)
        elif isinstance(step, NoteOutage):
            self.workflows.annotate(
                info, OUT_OF_REACH, f"{info.out_of_reach:.3f}", done
            )
        elif isinstance(step, Warn):
            self._warn(info, step, done)
        elif isinstance(step, Record):
            self.records.record(info, done)
        elif isinstance(step, RemoveFinalizer):
            self.workflows.remove_finalizer(info, done)
        elif isinstance(step, Delete):
            self.workflows.delete(info, done)
        elif isinstance(step, Fail):
            self._fail(info, step.note, done)
        else:
            raise AssertionError(f"{step} is not carried out")

    def broke(self, info: WorkflowInfo) -> None:
        """What was done for the job has ended by an exception."""
        self._planner.leave_turn(info.jobid)

    def let_go(self, info: WorkflowInfo) -> None:
        """The job has nothing of the scheduler any more."""
        self._planner.let_go(info)

    def forget(self, info: WorkflowInfo) -> None:
        """Drop what is kept for a job."""
        self._planner.forget(info.jobid)
        if info.token:
            self.tokens.unlink(info)

    def _advance(self, info: WorkflowInfo, step: Advance, done: StepDone) -> None:
        if step.state is State.DataOut:
            self._advance_unmounted(info, step, done)
            return
        if step.state is not State.PreRun or info.allocation is None:
            self.workflows.move(info, step, done)
            return

        def enabled(error: Optional[KubeError]) -> None:
            if error is None:
                self.workflows.move(info, step, done)
            else:
                done(error)

        self._system_status.enable(info.allocation.hosts, self._bind(enabled))

    def _advance_unmounted(
        self, info: WorkflowInfo, step: Advance, done: StepDone
    ) -> None:
        """PostRun is complete. Of nodes that were Disabled in SystemStatus, or where
        it was forced, that does not say that they have unmounted."""
        assert info.view is not None

        def drained(error: Optional[KubeError]) -> None:
            if error is None:
                self.workflows.move(info, step, done)
            else:
                done(error)

        def found(disabled: Union[bool, KubeError]) -> None:
            if isinstance(disabled, KubeError):
                done(disabled)
            elif disabled:
                note = "DWS did not wait for it"
                self.in_use.drain_mounted(info, note, drained)
            else:
                info.unmounted = True
                self.workflows.move(info, step, done)

        if info.view.forced:
            found(True)
        else:
            self._ask_disabled(info, found)

    def _ask_disabled(
        self, info: WorkflowInfo, done: Callable[[Union[bool, KubeError]], None]
    ) -> None:
        """Whether DWS may have passed over nodes of the job in the state that was
        reached."""
        hosts = None if info.allocation is None else info.allocation.hosts
        since = None if info.view is None else info.view.since
        self._system_status.was_any_disabled(hosts, since, info.name, self._bind(done))

    # Storage: planned before the job is scheduled, placed afterwards

    def _plan(self, info: WorkflowInfo, done: StepDone) -> None:
        if not info.announced:  # the answer to its creation was lost
            self.workflows.announce(info)

        def told() -> None:
            info.planned = True

        def planned(result: Union[Proposal, Failure]) -> None:
            if isinstance(result, Exception):
                self._failed(info, result, done)
                return
            payload: Json = {
                "id": info.jobid,
                "resources": result.resources,
                "exclude": result.exclude,
            }
            self._tell("resource-update", payload, told, done)

        self._planner.plan(info, planned)

    def _allocate(self, info: WorkflowInfo, done: StepDone) -> None:
        def placed(result: Union[Placed, Failure]) -> None:
            if isinstance(result, Exception):
                self._failed(info, result, done)
                return
            for wish in result.unmet:
                self.flux.log(syslog.LOG_INFO, f"{f58(info.jobid)}: {wish}")
            if result.left_out is not None:
                self._exclusion.tell(info, *result.left_out)
            if result.rabbits:
                self.flux.post_memo(info.jobid, {"rabbits": result.rabbits})
            advance = partial(self._advance, info, Advance(State.Setup), done)
            if not result.units:
                advance()
                return

            def recorded(error: Optional[RpcError]) -> None:
                if error is None:
                    advance()
                else:
                    done(error)

            # The prolog and epilog scripts read them: a memo may be anybody's.
            text = json.dumps(result.units, separators=(",", ":"))
            self.flux.kvs_commit(info.jobid, "rabbit_units", text, recorded)

        self._planner.place(info, placed)

    def _failed(self, info: WorkflowInfo, error: Failure, done: StepDone) -> None:
        """The job cannot have its storage, or cannot have it yet."""
        if isinstance(error, DWSError) and not isinstance(error, NotReady):
            info.failure = str(error)
            done(None)
        elif isinstance(error, KubeError) and refused(error):
            info.failure = refusal(error)
            done(None)
        else:
            done(error)

    # What Flux is told

    def _tell(
        self, method: str, payload: Json, told: Callable[[], None], done: StepDone
    ) -> None:
        """Send an RPC to the plugin. A job that it does not know (ENOENT) has
        ended, and needs to be told nothing."""

        def answer(result: Union[Json, RpcError]) -> None:
            if isinstance(result, RpcError) and result.errnum != errno.ENOENT:
                done(result)
                return
            told()
            done(None)

        self.flux.rpc(f"job-manager.dws.{method}", payload, answer)

    def _release_prolog(self, info: WorkflowInfo, done: StepDone) -> None:
        """DWS says that all is mounted; of nodes that were Disabled in SystemStatus it
        does not know."""

        def found(disabled: Union[bool, KubeError]) -> None:
            if isinstance(disabled, KubeError):
                done(disabled)
            elif disabled:
                self._exclusion.inspect(info, inspected)
            else:
                self._give_environment(info, done)

        def inspected(error: Union[None, KubeError, NotReady]) -> None:
            survey = info.survey
            if error is not None or info.failure is not None or survey is None:
                done(error)
            elif not survey.lost:
                self._give_environment(info, done)
            else:
                problem = "passed over by DWS, as Disabled in SystemStatus"
                self._exclusion.leave_out(info, survey, problem, done)

        self._ask_disabled(info, found)

    def _give_environment(self, info: WorkflowInfo, done: StepDone) -> None:
        assert info.view is not None
        workflow = info.view.environment

        def with_daemons(result: Union[tuple[Daemon, ...], Failure]) -> None:
            if isinstance(result, Exception):
                self._failed(info, result, done)
                return
            variables: dict[str, str] = {}
            for daemon in result:
                variables.update(daemon.environment)
            # What DWS says about the job's storage is not for a site to change.
            variables.update(workflow)
            self.tokens.give(info, partial(with_token, variables))

        def with_token(variables: dict[str, str], error: Optional[StepError]) -> None:
            if error is None and info.failure is None:
                self._send_environment(info, variables, done)
            else:
                done(error)

        self._planner.daemons(info, with_daemons)

    def _send_environment(
        self, info: WorkflowInfo, variables: dict[str, str], done: StepDone
    ) -> None:
        def told() -> None:
            info.mounted = True

        self._tell(
            "prolog-remove", {"id": info.jobid, "variables": variables}, told, done
        )

    def _release_epilog(self, info: WorkflowInfo, done: StepDone) -> None:
        def told() -> None:
            info.released = True

        self.tokens.unlink(info)
        self.let_go(info)
        self._tell("epilog-remove", {"id": info.jobid}, told, done)

    def _fail(self, info: WorkflowInfo, note: str, done: StepDone) -> None:
        """Raise a fatal exception, in the answer that the job's dependency
        waits for when there is one."""
        info.failure = note = printable(note, NOTE)

        def told() -> None:
            info.failed = True

        if info.view is not None and info.owns(info.view):
            self._save(info)
        if info.goal is Goal.PLANNED and not info.planned and info.request is not None:
            payload: Json = {
                "id": info.jobid,
                "resources": info.request.resources,
                "exclude": None,
                "errmsg": note,
            }
            self._tell("resource-update", payload, told, done)
            return
        self.flux.raise_exception(info.jobid, DWS, FATAL, note)
        told()
        done(None)

    def _save(self, info: WorkflowInfo) -> None:
        """Keep what DWS says of a job that fails. Nobody waits for that."""

        def answer(result: Union[Json, KubeError]) -> None:
            if not isinstance(result, KubeError):
                self.records.fail(info, WorkflowView.parse(result), result)

        self.kube.get(
            WORKFLOW, self.settings.namespace, info.name, answer, key=info.name
        )

    def _warn(self, info: WorkflowInfo, step: Warn, done: StepDone) -> None:
        """Tell that Teardown does not get on, once: the annotation is for the next
        module. A job that was let go takes no exceptions."""
        note = printable(step.note, NOTE)
        self.flux.log(syslog.LOG_ERR, f"{f58(info.jobid)}: {note}")
        if not info.released:
            severity = FATAL if step.fatal else WARNING
            self.flux.raise_exception(info.jobid, DWS, severity, note)
        info.failed = info.failed or step.fatal
        info.warned = True
        self.workflows.annotate(info, WARNED, format_timestamp(self.flux.now()), done)


def requested_state(step: Step) -> Optional[State]:
    """The state that a step requests, if it does."""
    if isinstance(step, Create):
        return State.Proposal
    if isinstance(step, Allocate):
        return State.Setup
    return step.state if isinstance(step, Advance) else None
