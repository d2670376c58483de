# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests to Kubernetes for what DWS says of a job's storage."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from flux_k8s.control.gather import gather
from flux_k8s.dws.directivebreakdown import (
    Breakdown,
    Reference,
    existing_servers,
    with_network_access,
)
from flux_k8s.dws.directivebreakdown import parse as parse_breakdown
from flux_k8s.dws.directivebreakdown.breakdown import check_ready
from flux_k8s.errors import DWSError
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.json_reader import Reader
from flux_k8s.ports import (
    DIRECTIVEBREAKDOWN,
    PERSISTENTSTORAGE,
    SERVERS,
    Json,
    Kube,
    KubeDone,
    KubeError,
)

NETWORKED = ("lustre",)
"""The types of persistent storage that every node reaches over the network."""

Breakdowns = tuple[Breakdown, ...]
Failure = Union[KubeError, DWSError]


class BreakdownReader:
    """Reads DirectiveBreakdowns, and the Servers that go with them."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._breakdowns: dict[int, Breakdowns] = {}

    def forget(self, jobid: int) -> Breakdowns:
        """Drop what is kept for a job, and return it."""
        return self._breakdowns.pop(jobid, ())

    def read(
        self, info: WorkflowInfo, done: Callable[[Union[Breakdowns, Failure]], None]
    ) -> None:
        """A job's DirectiveBreakdowns. They do not change once they are ready."""
        known = self._breakdowns.get(info.jobid)
        if known is not None:
            done(known)
            return
        assert info.view is not None

        def read(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                done(results)
                return
            try:
                breakdowns = tuple(parse_breakdown(result) for result in results)
            except DWSError as error:
                done(error)
                return
            self._correct_access(breakdowns, corrected)

        def corrected(breakdowns: Union[Breakdowns, Failure]) -> None:
            if not isinstance(breakdowns, Exception):
                self._breakdowns[info.jobid] = breakdowns
            done(breakdowns)

        def get(namespace: str, name: str, answer: KubeDone) -> None:
            self._kube.get(DIRECTIVEBREAKDOWN, namespace, name, answer, key=name)

        gather([partial(get, *reference) for reference in info.view.breakdowns], read)

    def _correct_access(
        self,
        breakdowns: Breakdowns,
        done: Callable[[Union[Breakdowns, Failure]], None],
    ) -> None:
        """NNF says of every ``persistentdw`` that its nodes need a PCIe
        connection, since that directive has no type. For a file system that
        nodes reach over the network this is not so; the type that the storage
        was created with stands in its PersistentStorageInstance, which has the
        name of its Servers."""
        references = existing_servers(breakdowns)

        def get(reference: Reference, answer: KubeDone) -> None:
            def got(result: Union[Json, KubeError]) -> None:
                missing = isinstance(result, KubeError) and result.status == 404
                answer({} if missing else result)

            self._kube.get(
                PERSISTENTSTORAGE,
                reference.namespace,
                reference.name,
                got,
                key=f"servers/{reference.name}",
            )

        def with_storage(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                done(results)
                return
            types = [(result.get("spec") or {}).get("fsType") for result in results]
            networked = {r for r, type in zip(references, types) if type in NETWORKED}
            done(with_network_access(breakdowns, networked))

        gather([partial(get, reference) for reference in references], with_storage)

    def servers(
        self,
        references: Sequence[Reference],
        done: Callable[[Union[Mapping[Reference, Json], Failure]], None],
    ) -> None:
        """The Servers of storage that exists, which must be ready: it may be made
        just now."""

        def get(reference: Reference, answer: KubeDone) -> None:
            key = f"servers/{reference.name}"
            self._kube.get(
                SERVERS, reference.namespace, reference.name, answer, key=key
            )

        def got(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                done(results)
                return
            servers = dict(zip(references, results))
            try:
                for reference in references:
                    check_ready(Reader(f"Servers {reference}", servers[reference]))
            except DWSError as error:
                done(error)
            else:
                done(servers)

        gather([partial(get, reference) for reference in references], got)

    def others(
        self,
        breakdowns: Breakdowns,
        done: Callable[[Union[list[Json], KubeError]], None],
    ) -> None:
        """All Servers but the job's own."""
        own = {breakdown.servers for breakdown in breakdowns}

        def got(result: Union[Json, KubeError]) -> None:
            if isinstance(result, KubeError):
                done(result)
                return
            done([item for item in result.get("items", []) if _name(item) not in own])

        self._kube.list(SERVERS, None, got, key="servers")


def _name(item: Any) -> Optional[Reference]:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return None
    return Reference(str(metadata.get("namespace")), str(metadata.get("name")))
