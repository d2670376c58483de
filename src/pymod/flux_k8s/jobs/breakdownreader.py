# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reads the DirectiveBreakdowns and Servers of jobs from Kubernetes."""

from __future__ import annotations

from typing import Sequence

from flux_k8s.control.coroutines import gather
from flux_k8s.control.kubecalls import KubeCalls, absent
from flux_k8s.dws.directivebreakdown import (
    Breakdown,
    Reference,
    existing_servers,
    with_network_access,
)
from flux_k8s.dws.directivebreakdown import parse as parse_breakdown
from flux_k8s.dws.directivebreakdown.breakdown import check_ready
from flux_k8s.errors import NotReady
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.json_reader import Reader, read_string
from flux_k8s.ports import DIRECTIVEBREAKDOWN, PERSISTENTSTORAGE, SERVERS, Json, Kube

NETWORKED = ("lustre",)
"""The types of persistent storage that every node reaches over the network."""

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
        breakdowns = await self._correct_access(tuple(map(parse_breakdown, found)))
        self._breakdowns[info.jobid] = breakdowns
        return breakdowns

    async def _correct_access(self, breakdowns: Breakdowns) -> Breakdowns:
        """NNF says of every ``persistentdw`` that its nodes need a PCIe
        connection, since that directive has no type. For a file system that
        nodes reach over the network this is not so; the type that the storage
        was created with stands in its PersistentStorageInstance, which has the
        name of its Servers."""
        references = existing_servers(breakdowns)
        storages = await gather(
            self._calls.find(
                PERSISTENTSTORAGE,
                reference.namespace,
                reference.name,
                key=f"servers/{reference.name}",
                missing=absent,
            )
            for reference in references
        )
        types = [(storage.get("spec") or {}).get("fsType") for storage in storages]
        networked = {r for r, type in zip(references, types) if type in NETWORKED}
        return with_network_access(breakdowns, networked)

    async def servers(self, references: Sequence[Reference]) -> dict[Reference, Json]:
        """The Servers of storage that exists.

        Raises:
            KubeError: a request failed.
            NotReady: some are not ready: the storage may be made just now.
        """
        servers = await self._get(references)
        for reference in references:
            check_ready(Reader(f"Servers {reference}", servers[reference]))
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
