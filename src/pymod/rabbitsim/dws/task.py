# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The data on which the parts of the stand-in NNF driver work.

A :class:`TrackedWorkflow` is the state that the controllers keep of a Workflow, a
:class:`Task` is one of its directives in one state. The functions that do the work take
a Task and return an :class:`Outcome`. They are called again after every change, and do
the rest of the work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Callable, Optional, Protocol

from flux_k8s.ports import (
    COMPUTES,
    SYSTEMSTATUS,
    Clock,
    Json,
    Timer,
)
from rabbitsim.dws.breakdown import UserError
from rabbitsim.dws.cluster import Cluster, Key
from rabbitsim.dws.directive import Directive
from rabbitsim.dws.files import Copy, FileSystems
from rabbitsim.dws.options import Options
from rabbitsim.dws.topology import Topology

_INSTANT = 1e-6


@dataclass(frozen=True)
class Outcome:
    """The progress of a directive in a state: the driver's entry in the Workflow."""

    status: str
    message: str = ""
    error: str = ""


DONE = Outcome("Completed")

GONE = Outcome("Gone")
"""The outcome of an object that is not there any more."""


def running(message: str) -> Outcome:
    return Outcome("Running", message)


def transient(message: str, debug: str = "") -> Outcome:
    return _trouble("TransientCondition", "Internal", message, debug)


def failed(error: UserError) -> Outcome:
    return _trouble("Error", error.type, error.message, error.debug)


def _trouble(status: str, type: str, message: str, debug: str) -> Outcome:
    return Outcome(
        status, f"{type} error: {message}", f"{type.lower()} error: {debug or message}"
    )


class Ledger(Protocol):
    """The storage that is in use on each Rabbit, and the state of the Rabbits."""

    def free(self, rabbit: str, servers: Key) -> int:
        """Bytes that a Servers object may have on a Rabbit."""

    def reserve(self, servers: Key, usage: dict[str, int]) -> None:
        """Count storage as taken from now on."""

    def down(self, rabbit: str) -> bool: ...

    def fail(self, rabbits: str, duration: float) -> None:
        """Let Rabbits (a name with ``*`` and ``?``) go offline, and come back
        after ``duration`` seconds (0: never)."""

    def linked(self, compute: str) -> bool:
        """Whether a compute node reaches its Rabbit over PCIe."""

    def reaches(self, compute: str, since: float) -> bool:
        """Whether a compute node has reached its Rabbit ever since a UNIX time: else
        what it had mounted then is gone."""


@dataclass(frozen=True)
class Moving:
    """Objects of a Workflow that are on their way to where they should be.

    A change of one of them concerns that one only, as with the controllers of DWS that
    run on each node. The Workflow is looked at when none is left: a look takes as long
    as there are objects.

    Attributes:
        advance: does the next thing for an object. Returns None when there is nothing
            left to do for it. The Workflow is looked at for any other outcome that is
            not Running.
        left: the objects that are not yet where they should be.
    """

    advance: Callable[[Key], Optional[Outcome]]
    left: set[Key]


@dataclass
class TrackedWorkflow:
    """The state that the controllers keep of a Workflow, besides its object.

    The controllers can go on without it after a restart.
    """

    key: Key
    directives: tuple[Directive, ...] = ()
    children: dict[Key, None] = field(default_factory=dict)
    state: str = ""
    since: str = ""
    began: float = 0.0
    due: float = 0.0
    timer: Optional[Timer] = None
    wake_at: float = 0.0
    copies: dict[int, Copy] = field(default_factory=dict)
    next_steps: dict[int, float] = field(default_factory=dict)
    refreshed: set[Key] = field(default_factory=set)
    moving: dict[Key, Moving] = field(default_factory=dict)

    def follow(
        self, keys: Iterable[Key], advance: Callable[[Key], Optional[Outcome]]
    ) -> None:
        """Have objects go on one by one as they change, until the next look at the
        Workflow. See :class:`Moving`."""
        group = Moving(advance, set(keys))
        self.moving.update(dict.fromkeys(group.left, group))


@dataclass
class World:
    """The state that all parts of the controllers share."""

    cluster: Cluster
    clock: Clock
    topology: Topology
    options: Options
    rng: Random
    files: FileSystems
    ledger: Ledger
    mark: Callable[[Key], None]
    is_active: Callable[[str], bool]
    """Whether the job of a Workflow (by its name) is active."""
    waiting: dict[Key, None] = field(default_factory=dict)
    """Workflows that wait for a Rabbit, or for space on one."""
    harm: dict[tuple[str, str], str] = field(default_factory=dict)
    """The Workflows and nodes whose file system was mounted a second time, or deleted,
    while the node could write to it, and which of the two."""

    def disabled(self, node: str) -> bool:
        """Whether the SystemStatus says that a node is out of service."""
        status = self.cluster.get(SYSTEMSTATUS, "default", "default") or {}
        nodes = (status.get("data") or {}).get("nodes") or {}
        return bool(nodes.get(node) == "Disabled")

    def wake(self, tracked: TrackedWorkflow, at: float) -> None:
        """Look at the Workflow again at a certain time, at the latest."""
        if tracked.timer is not None and tracked.wake_at <= at:
            return
        if tracked.timer is not None:
            tracked.timer.cancel()

        def wake() -> None:
            tracked.timer = None
            self.mark(tracked.key)

        tracked.wake_at = at
        # Time must move on, or rounding could make this loop for ever.
        delay = max(_INSTANT, at - self.clock.now())
        tracked.timer = self.clock.call_later(delay, wake)


@dataclass
class Task:
    """One directive of a Workflow in the state that the Workflow is in.

    Attributes:
        status: the fields to be set in the Workflow's status besides the driver.
    """

    world: World
    tracked: TrackedWorkflow
    workflow: Json
    index: int
    status: Json

    @property
    def cluster(self) -> Cluster:
        return self.world.cluster

    @property
    def directive(self) -> Directive:
        return self.tracked.directives[self.index]

    @property
    def name(self) -> str:
        """The Workflow's name."""
        return str(self.workflow["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.workflow["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.workflow["metadata"]["uid"])

    @property
    def base(self) -> str:
        """The name of the objects that are made for this directive."""
        return f"{self.name}-{self.index}"

    @property
    def path(self) -> str:
        """The path at which the job finds the storage of this directive."""
        return self.world.files.mount_path(self.uid, self.index)

    @property
    def elapsed(self) -> float:
        return self.world.clock.now() - self.tracked.began

    @property
    def due(self) -> bool:
        """Whether the time that the state takes by itself is over."""
        if self.world.clock.now() >= self.tracked.due or self.workflow["spec"].get(
            "hurry"
        ):
            return True
        self.world.wake(self.tracked, self.tracked.due)
        return False

    @property
    def slow(self) -> bool:
        """Whether it takes so long that the objects should say why."""
        at = self.tracked.began + self.world.options.progress_after
        if self.world.clock.now() >= at:
            return True
        self.world.wake(self.tracked, at)
        return False

    def computes(self) -> tuple[str, ...]:
        """The job's compute nodes."""
        found = self.cluster.get(COMPUTES, self.namespace, self.name) or {}
        return tuple(entry["name"] for entry in found.get("data") or ())

    def wait_for_rabbits(self) -> None:
        self.world.waiting[self.tracked.key] = None

    def fresh(self, key: Key) -> bool:
        """Whether an object was read anew in this state. If not, it will be."""
        refreshed = self.tracked.refreshed
        if key in refreshed:
            return not self.cluster.busy(key)
        self.cluster.refresh(key, lambda: refreshed.add(key))
        return False
