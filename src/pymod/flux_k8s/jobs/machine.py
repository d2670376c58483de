# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The interfaces that jobs need of the machine: its Rabbits, its nodes, and the
SystemStatus.

:mod:`flux_k8s.rabbits` has all of it. Neither of the two folders imports the other.
"""

from __future__ import annotations

from typing import (
    AbstractSet,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Optional,
    Protocol,
)

from flux_k8s.dws.directivebreakdown import Reference
from flux_k8s.dws.storageusage import StorageUsage
from flux_k8s.ports import Json, Kind, KubeError
from flux_k8s.rfc.resourcestatus import NodeStates

Labels = Mapping[str, Mapping[str, str]]
"""The labels of each Rabbit."""


class Rabbits(Protocol):
    """:class:`flux_k8s.rabbits.storage.RabbitManager`."""

    @property
    def complete(self) -> bool: ...
    @property
    def labels(self) -> Labels: ...
    @property
    def all_labels(self) -> Labels: ...
    @property
    def broken(self) -> Mapping[str, str]: ...


class FreeStorage(Protocol):
    """:class:`flux_k8s.rabbits.freestorage.FreeStorage`."""

    @property
    def sizes(self) -> Mapping[str, int]: ...
    @property
    def bytes_in_use(self) -> int: ...
    @property
    def listed(self) -> bool: ...
    def usage_of(self, jobid: int) -> Mapping[str, StorageUsage]: ...
    def note_share(self, jobid: int, sizes: Mapping[str, int]) -> None: ...
    def left(
        self, own: Collection[Reference], lasting: bool = False
    ) -> Mapping[str, int]: ...
    def assume(self, servers: Reference, object: Json) -> None: ...
    def withdraw(self, servers: Reference) -> None: ...
    def release_share(self, jobid: int, torn_down: bool) -> None: ...
    def forget(self, jobid: int) -> None: ...


class Nodes(Protocol):
    """:class:`flux_k8s.rabbits.nodes.Nodes`."""

    @property
    def states(self) -> Optional[NodeStates]: ...
    def drain(
        self, hosts: Iterable[str], reason: str, done: Callable[[None], None] = ...
    ) -> None: ...


class SystemStatus(Protocol):
    """:class:`flux_k8s.rabbits.systemstatus.SystemStatus`."""

    async def was_any_disabled(
        self, hosts: Optional[Iterable[str]], since: Optional[float], key: str
    ) -> bool: ...
    async def enable(self, hosts: Iterable[str]) -> None: ...


class Machine(Protocol):
    """:class:`flux_k8s.rabbits.availability.Availability`."""

    @property
    def rabbits(self) -> Rabbits: ...
    @property
    def free_storage(self) -> FreeStorage: ...
    @property
    def nodes(self) -> Nodes: ...
    @property
    def system_status(self) -> SystemStatus: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def config_changed(self) -> None: ...
    def jobs_changed(self) -> None: ...
    def workflows_listed(self) -> None: ...
    def withhold(self, jobid: int) -> None: ...
    def constraint(self) -> Json: ...
    def may_write(self, host: str) -> bool: ...
    def is_rabbit(self, name: str) -> bool: ...
    def rabbit_rows(self) -> Iterator[Json]: ...
    def ssds_of_job(self, jobid: int) -> Mapping[str, int]: ...
    async def disable(self, names: Iterable[str], by: str, reason: str) -> None: ...
    async def enable(self, names: Iterable[str]) -> list[str]: ...
    def stats(self) -> Json: ...


class MakeMachine(Protocol):
    """Makes the machine for the service that it works with.

    Args:
        watched: a watch of a kind is complete, or has failed.
        awaited: returns the nodes of jobs that wait for their storage to be mounted;
            None as long as they are not known.
        may_mount: returns whether a job's storage may be mounted; True if that is not
            known.
        recovered: is called when steps that failed may succeed.
        withheld: is called with a job that :meth:`Machine.withhold` was called with,
            when the scheduler keeps its storage from others.
    """

    def __call__(
        self,
        watched: Callable[[Kind, Optional[KubeError]], None],
        awaited: Callable[[], Optional[AbstractSet[str]]],
        may_mount: Callable[[int], bool],
        recovered: Callable[[], None],
        withheld: Callable[[int], None],
    ) -> Machine: ...
