# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Excludes nodes that fail file system creation or mounting from their job.

The steps may be repeated without harm, as all of :mod:`flux_k8s.jobs.steps`.
"""

from __future__ import annotations

import syslog
from dataclasses import replace
from typing import Callable, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call, gather
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.errors import BadObject, DWSError, NotReady
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs.planning import Planner
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.machine.nodes import Nodes
from flux_k8s.objects import cleanup
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    SERVERS,
    STORAGE,
    Json,
    Kind,
    KubeError,
)
from flux_k8s.reasons import NODE_FAILURE, WARNING, Note, Reason
from flux_k8s.rules import nodefailure
from flux_k8s.rules.directivebreakdown.breakdown import Reference
from flux_k8s.rules.drainreason import NOT_SERVED, drain_reason
from flux_k8s.rules.nodefailure import Survey
from flux_k8s.text import NOTE, printable

FORBIDDEN = (403, 404)
"""The answers to a request that the credentials do not allow, or about a kind that is
not there."""


class Exclusion:
    """Finds the failed nodes of a job, and excludes them from its storage."""

    def __init__(
        self,
        context: Context,
        planner: Planner,
        workflows: WorkflowRequests,
        nodes: Nodes,
    ) -> None:
        self._nodes = nodes
        self._flux = context.flux
        self._calls = KubeCalls(context.kube)
        self._settings = context.settings
        self._planner = planner
        self._workflows = workflows

    # Nodes that failed

    async def inspect(self, info: WorkflowInfo) -> None:
        """Read from Kubernetes which of the job's nodes have their storage.

        The Workflow is read first: the state may have become complete, or another one,
        while the watch hangs.

        A survey that names no node is made where Kubernetes has not answered for
        ``PERSISTENCE`` seconds, though it answers other
        requests; at once where it refuses the requests, and the state has failed for a
        job that tolerates no failure: the job fails all the same, and nodes would only
        have been named.

        Raises:
            KubeError: a request failed, and is to be repeated.
            NotReady: DWS is not ready.
        """
        assert info.view is not None and info.view.state is not None
        state, requested_at = info.view.state, self._flux.now()
        lost = not (info.failure_tolerance or info.view.complete)
        try:
            await self._workflows.lookup(info)
            if info.view is None or info.view.state is not state:
                info.survey = None
            elif state is State.Setup:
                await self._inspect_storage(info)
            else:
                await self._inspect_mounts(info, info.view)
        except KubeError as error:
            refused = lost and error.status in FORBIDDEN
            if not (refused or await self._workflows.has_persisted(info)):
                raise
            info.survey = Survey(state, requested_at, (), (), served=False, known=False)

    async def _inspect_storage(self, info: WorkflowInfo) -> None:
        try:
            breakdowns = await self._planner.read_breakdowns(info)
        except NotReady:
            raise
        except DWSError as error:
            info.failure = error.note
            return
        making = [b for b in breakdowns if b.servers is not None]
        calls = [self._find(SERVERS, b.servers) for b in making if b.servers]

        def survey(
            requested_at: float, computes: Json, servers: Sequence[Json]
        ) -> Survey:
            holdings = zip(making, servers)
            mapping = self._settings.mapping
            return nodefailure.survey_storage(requested_at, computes, holdings, mapping)

        await self._make_survey(info, calls, survey)

    async def _inspect_mounts(self, info: WorkflowInfo, view: WorkflowView) -> None:
        selector = cleanup.workflow_selector(info.name)
        namespace = self._settings.namespace
        calls = [
            self._calls.list(
                CLIENTMOUNT,
                None,
                key=info.name,
                label_selector=selector,
                some=view.has_clientmounts,
                certain=True,
            ),
            self._calls.list(STORAGE, namespace, key=info.name, some=True),
        ]

        def survey(
            requested_at: float, computes: Json, lists: Sequence[Json]
        ) -> Survey:
            clientmounts, storages = (found.get("items", []) for found in lists)
            mapping = self._settings.mapping
            return nodefailure.survey_mounts(
                requested_at, computes, clientmounts, storages, view.mounts, mapping
            )

        await self._make_survey(info, calls, survey)

    async def _make_survey(
        self,
        info: WorkflowInfo,
        calls: Sequence[Call[Json]],
        survey: Callable[[float, Json, Sequence[Json]], Survey],
    ) -> None:
        """Send the requests of a survey.

        Args:
            survey: makes the survey from the time of the requests, Computes, and the
                answers to ``calls``.
        """
        requested_at = self._flux.now()
        computes, *others = await gather(
            [self._find(COMPUTES, self._computes(info)), *calls]
        )
        try:
            found = survey(requested_at, computes, others)
            if found.excluded is not None:
                found = replace(found, excluded=min(found.excluded, requested_at))
            info.survey = found
        except BadObject as error:
            info.failure = error.note

    async def leave_out(self, info: WorkflowInfo, survey: Survey, problem: str) -> None:
        """Exclude the failed nodes of ``survey``, or fail the job if they are too
        many."""
        assert info.allocation is not None
        hosts, tolerance = info.allocation.hosts, info.failure_tolerance
        goes_on, note = nodefailure.verdict(hosts, survey, tolerance, problem)
        if goes_on:
            await self.notify_of_node_failure(info, note)
        else:
            info.failure = Note(note, Reason.NODES_FAILED)

    async def notify_of_node_failure(self, info: WorkflowInfo, note: str) -> None:
        """Exclude the failed nodes from the job's storage, and drain them.

        The order of the writes makes a crash harmless. The drain and the exception come
        first: if the service dies before it writes Computes, the next service finds the
        failed nodes again, and repeats both. Servers come last. Without that write DWS
        would wait in later states for the Rabbits that failed.
        """
        survey = info.survey
        assert survey is not None
        self.report(info, survey, note)
        if survey.lost:
            body = nodefailure.computes_patch(survey, self._flux.now())
            await self._write(COMPUTES, self._computes(info), body)
        for servers, patch in survey.patches:
            await self._write(SERVERS, servers, patch)
        info.survey = survey.without_lost(self._flux.now())

    def report(self, info: WorkflowInfo, survey: Survey, note: str) -> None:
        """Drain the failed nodes, and raise an exception about them, once for each
        node."""
        news = [host for host in survey.lost if host not in info.reported_nodes]
        if not news:
            return
        info.reported_nodes |= frozenset(news)
        note = printable(note, NOTE)
        text, reason = f"{f58(info.jobid)}: {note}", Reason.NODES_EXCLUDED
        self._flux.log(syslog.LOG_NOTICE, text, reason)
        self._nodes.drain(news, drain_reason(info.jobid, NOT_SERVED[survey.state]))
        self._flux.raise_exception(info.jobid, NODE_FAILURE, WARNING, note, reason)

    # Requests

    def _computes(self, info: WorkflowInfo) -> Reference:
        """The Workflow's Computes."""
        if info.view is not None and info.view.computes is not None:
            return Reference(*info.view.computes)
        return Reference(self._settings.namespace, info.name)

    def _find(self, kind: Kind, reference: Reference) -> Call[Json]:
        """The request for an object. The answer is {} if the object does not exist."""
        key = f"{kind.plural}/{reference.name}"
        return self._calls.find(kind, reference.namespace, reference.name, key=key)

    def _write(self, kind: Kind, reference: Reference, body: Json) -> Call[Json]:
        namespace, name = reference.namespace, reference.name
        key = f"{kind.plural}/{reference.name}"
        return self._calls.patch(kind, namespace, name, body, key=key)
