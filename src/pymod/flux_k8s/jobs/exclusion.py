# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Excludes nodes that fail file system creation or mounting from their job.

The steps may be repeated without harm, as all of :mod:`flux_k8s.jobs.steps`.
"""

from __future__ import annotations

import syslog
from typing import Optional

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call, gather
from flux_k8s.control.kubecalls import absent_or_forbidden
from flux_k8s.errors import DWSError, NotReady, StorageDenied
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.planning import Planner
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.machine.nodes import Nodes
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import COMPUTES, SERVERS, STORAGE, Json, Kind, KubeError
from flux_k8s.reasons import NODE_FAILURE, WARNING, Note, Reason
from flux_k8s.rules import nodefailure
from flux_k8s.rules.directivebreakdown.breakdown import Reference
from flux_k8s.rules.drainreason import NOT_SERVED, drain_reason
from flux_k8s.rules.nodefailure import Survey
from flux_k8s.text import NOTE, printable


def _situation(info: WorkflowInfo) -> object:
    """What must stay as it is while a job's nodes are surveyed."""
    view = info.view
    if view is None:
        return None
    job = (info.goal, info.failed, info.doubtful)
    shown = (view.uid, view.deleting, view.desired, view.complete, view.trouble)
    return job, view.state, shown


def _may_be_forced(info: WorkflowInfo, survey: Survey) -> bool:
    """Whether DWS may take a state for reached in which nodes were left out."""
    return survey.may_be_forced(() if info.view is None else info.view.outstanding)


class Exclusion:
    """Finds the failed nodes of a job, and excludes them from its storage."""

    def __init__(
        self,
        context: Context,
        planner: Planner,
        workflows: WorkflowRequests,
        nodes: Nodes,
        jobs: JobTable,
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._flux = context.flux
        self._calls = context.kube
        self._settings = context.settings
        self._planner = planner
        self._workflows = workflows

    # Nodes that failed

    async def tolerate(self, info: WorkflowInfo, why: Note, patience: float) -> None:
        """Go on without the nodes that may be the cause of a problem, or fail the job.
        DWS is to take the state for reached once the others are served. If they are
        not, that is looked at again.

        Args:
            patience: the seconds that DWS may take for the state without these nodes.

        Raises:
            KubeError: a request failed, and is to be repeated.
            NotReady: DWS is not ready, or has not served the others yet.
        """
        unknown = why
        if info.failure_tolerance:
            text = f"{why.text}; Kubernetes does not say which nodes failed"
            unknown = Note(text, Reason.USE_UNKNOWN)
        survey = await self.survey(info, unknown)
        if survey is None:
            return
        before, until = _situation(info), self._deadline(survey, patience)
        late = until is None or survey.requested_at >= until
        if until is not None and survey.patches and not survey.lost:
            await self._exclude(info, survey, "")  # Servers were not written
            survey = survey.without_lost(self._flux.now())
        elif late and not _may_be_forced(info, survey):
            if not survey.lost:
                raise StorageDenied(why.text, why.reason)
            await self.leave_out(info, survey, why.text)
            survey = survey.without_lost(self._flux.now())
        if _situation(info) != before:
            return
        until = self._deadline(survey, patience)
        if _may_be_forced(info, survey):
            await self._workflows.force(info)
        elif until is not None:
            waits = NotReady(f"Workflow {info.name}", "status.ready", False, "true")
            waits.retry_after = until - self._flux.now()
            raise waits

    def _deadline(self, survey: Survey, patience: float) -> Optional[float]:
        """When (UNIX time) DWS has had ``patience`` seconds without the nodes that were
        left out last; None if none were."""
        if survey.excluded is None:
            return None
        return self._jobs.moment().deadline(survey.excluded, patience)

    async def survey(self, info: WorkflowInfo, unknown: Note) -> Optional[Survey]:
        """Read from Kubernetes which of the job's nodes have their storage. None if the
        job is not as it was any more.

        The Workflow is read last: the state may have become complete, or another one,
        while the watch hangs.

        Args:
            unknown: why the job fails if Kubernetes does not say that.

        Raises:
            KubeError: a request failed, and is to be repeated.
            NotReady: DWS is not ready.
            StorageDenied: an object is malformed, or Kubernetes has not answered for
                ``PERSISTENCE`` seconds, though it answers other requests; at once where
                it refuses the requests, and the state has failed for a job that
                tolerates no failure: nodes would only have been named.
        """
        view, before = info.view, _situation(info)
        assert view is not None and view.state is not None
        fails = not (info.failure_tolerance or view.complete)
        survey: Optional[Survey] = None
        try:
            if view.state is State.Setup:
                survey = await self._survey_storage(info)
            else:
                survey = await self._survey_mounts(info, view)
        except NotReady:
            raise
        except DWSError as error:
            raise StorageDenied(str(error), error.reason) from error
        except KubeError as error:
            refused = fails and absent_or_forbidden(error)
            if not (refused or await self._workflows.has_persisted(info)):
                raise
        await self._workflows.lookup(info)
        if _situation(info) != before:
            return None
        if survey is None:
            raise StorageDenied(unknown.text, unknown.reason)
        return survey

    async def _survey_storage(self, info: WorkflowInfo) -> Survey:
        breakdowns = await self._planner.read_breakdowns(info)
        making = [b for b in breakdowns if b.servers is not None]
        requested_at = self._flux.now()
        calls = [self._find(SERVERS, b.servers) for b in making if b.servers]
        computes, *servers = await gather([self._find_computes(info), *calls])
        return nodefailure.survey_storage(
            requested_at, computes, zip(making, servers), self._settings.mapping
        )

    async def _survey_mounts(self, info: WorkflowInfo, view: WorkflowView) -> Survey:
        requested_at = self._flux.now()
        clientmounts = self._workflows.list_mounts(info)
        namespace = self._settings.namespace
        storages = self._calls.list(STORAGE, namespace, some=True)
        computes, *lists = await gather(
            [self._find_computes(info), clientmounts, storages]
        )
        mounts, links = (found.get("items", []) for found in lists)
        return nodefailure.survey_mounts(
            requested_at, computes, mounts, links, view.mounts, self._settings.mapping
        )

    async def leave_out(self, info: WorkflowInfo, survey: Survey, problem: str) -> None:
        """Exclude the failed nodes of ``survey``.

        Raises:
            StorageDenied: they are too many.
        """
        assert info.allocation is not None
        hosts, tolerance = info.allocation.hosts, info.failure_tolerance
        goes_on, note = nodefailure.verdict(hosts, survey, tolerance, problem)
        if not goes_on:
            raise StorageDenied(note, Reason.NODES_FAILED)
        await self._exclude(info, survey, note)

    async def _exclude(self, info: WorkflowInfo, survey: Survey, note: str) -> None:
        """Exclude the failed nodes from the job's storage, and drain them.

        The order of the writes makes a crash harmless. The drain and the exception come
        first: if the service dies before it writes Computes, the next service finds the
        failed nodes again, and repeats both. Servers come last. Without that write DWS
        would wait in later states for the Rabbits that failed.
        """
        self.report(info, survey, note)
        if survey.lost:
            body = nodefailure.computes_patch(survey, self._flux.now())
            await self._write(COMPUTES, self._planner.computes_of(info), body)
        for servers, patch in survey.patches:
            await self._write(SERVERS, servers, patch)

    def report(self, info: WorkflowInfo, survey: Survey, note: str) -> None:
        """Drain the failed nodes, and raise an exception about them, once for each
        node."""
        news = [host for host in survey.lost if host not in info.reported_nodes]
        if not news:
            return
        info.reported_nodes |= frozenset(news)
        note = printable(note, NOTE)
        text, reason = f"{info.f58}: {note}", Reason.NODES_EXCLUDED
        self._flux.log(syslog.LOG_NOTICE, text, reason)
        self._nodes.drain(news, drain_reason(info.jobid, NOT_SERVED[survey.state]))
        self._flux.raise_exception(info.jobid, NODE_FAILURE, WARNING, note, reason)

    # Requests

    def _find_computes(self, info: WorkflowInfo) -> Call[Json]:
        return self._find(COMPUTES, self._planner.computes_of(info))

    def _find(self, kind: Kind, reference: Reference) -> Call[Json]:
        """The request for an object. The answer is {} if the object does not exist."""
        return self._calls.find(kind, reference.namespace, reference.name)

    def _write(self, kind: Kind, reference: Reference, body: Json) -> Call[Json]:
        namespace, name = reference.namespace, reference.name
        return self._calls.patch(kind, namespace, name, body)
