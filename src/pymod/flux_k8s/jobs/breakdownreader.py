# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reads the DirectiveBreakdowns and Servers of jobs from Kubernetes."""

from __future__ import annotations

from typing import Sequence

from flux_k8s.control.coroutines import gather
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.errors import NotReady
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.json_reader import read_string
from flux_k8s.objects.servers import Servers
from flux_k8s.ports import DIRECTIVEBREAKDOWN, SERVERS, Json, Kube
from flux_k8s.rules.directivebreakdown import (
    Breakdown,
    Reference,
)
from flux_k8s.rules.directivebreakdown import parse as parse_breakdown

Breakdowns = tuple[Breakdown, ...]


class BreakdownReader:
    """Reads DirectiveBreakdowns, and the Servers that go with them."""

    def __init__(self, kube: Kube) -> None:
        self._calls = KubeCalls(kube)
        self._breakdowns: dict[int, Breakdowns] = {}

    def forget(self, jobid: int) -> Breakdowns:
        """Drop the DirectiveBreakdowns that are kept for a job, and return them."""
        return self._breakdowns.pop(jobid, ())

    async def read(self, info: WorkflowInfo) -> Breakdowns:
        """A job's DirectiveBreakdowns. They do not change once they are ready.

        The Workflow names them from the end of Proposal on. The view may be of before
        that: a watch may go back, or show its end, while a step waits for an answer.

        Raises:
            KubeError: a request failed.
            DWSError: one is malformed, or not ready (NotReady).
        """
        known = self._breakdowns.get(info.jobid)
        if known is not None:
            return known
        view = info.view
        if view is None or not view.proposed:
            status = None if view is None else view.status
            name = f"Workflow {info.name}"
            raise NotReady(name, "status.status", status, "Completed")
        found = await gather(
            self._calls.get(DIRECTIVEBREAKDOWN, namespace, name, key=name)
            for namespace, name in view.breakdowns
        )
        breakdowns = tuple(map(parse_breakdown, found))
        self._breakdowns[info.jobid] = breakdowns
        return breakdowns

    async def servers(self, references: Sequence[Reference]) -> dict[Reference, Json]:
        """The Servers of storage that exists.

        Raises:
            KubeError: a request failed.
            NotReady: some are not ready: the storage may be made just now.
        """
        servers = await self._get(references)
        for found in map(Servers.read, servers.values()):
            if not found.ready:
                raise NotReady(found.name, "status.ready", False, "true")
        return servers

    async def versions(self, references: Sequence[Reference]) -> dict[Reference, str]:
        """The resource versions of Servers.

        Raises:
            KubeError: a request failed.
        """
        servers = await self._get(references)
        return {
            reference: read_string(found["metadata"], "resourceVersion")
            for reference, found in servers.items()
        }

    async def _get(self, references: Sequence[Reference]) -> dict[Reference, Json]:
        found = await gather(
            self._calls.get(
                SERVERS,
                reference.namespace,
                reference.name,
                key=f"servers/{reference.name}",
            )
            for reference in references
        )
        return dict(zip(references, found))
