# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits: their free capacity, and their health.

The free capacity of a Rabbit is its size less the storage that Servers objects hold on
it; it is kept up to date as those change, and published in the Storage objects.
"""

from __future__ import annotations

import fnmatch
import functools
from typing import Callable, Optional

from flux_k8s.ports import STORAGE, Json, Timer
from rabbitsim.dws.cluster import Cluster, Key
from rabbitsim.dws.topology import Topology, storage_status

AVAILABLE = ("Ready", "Degraded")


class Rabbits:
    """The state of the hardware.

    Args:
        interval: seconds between two publications of the free capacity.
        later: calls a function after some seconds.
        freed: called when a Rabbit has more space, or is back.
        now: returns the UNIX time.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        interval: float,
        later: Callable[[float, Callable[[], None]], Timer],
        freed: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._topology = topology
        self._cluster = cluster
        self._interval = interval
        self._later = later
        self._freed = freed
        self._now = now
        self._cut_at: dict[str, float] = {}
        self._usage: dict[Key, dict[str, int]] = {}
        self._free = {name: r.capacity for name, r in topology.rabbits.items()}
        self._status = {name: "Ready" for name in topology.rabbits}
        self._lost: dict[str, set[str]] = {}
        self._stale: dict[str, None] = {}
        self._timer: Optional[Timer] = None

    @property
    def used(self) -> int:
        """The bytes on all Rabbits that Servers hold."""
        return sum(
            rabbit.capacity - self._free[name]
            for name, rabbit in self._topology.rabbits.items()
        )

    def free(self, rabbit: str, servers: Key) -> int:
        held = self._usage.get(servers, {}).get(rabbit, 0)
        return self._free.get(rabbit, 0) + held

    def reserve(self, servers: Key, usage: dict[str, int]) -> None:
        before = self._usage.get(servers, {})
        if usage == before:
            return
        more = False
        for rabbit in {**before, **usage}:
            change = usage.get(rabbit, 0) - before.get(rabbit, 0)
            if change and rabbit in self._free:
                self._free[rabbit] -= change
                more = more or change < 0
                self._publish(rabbit)
        self._usage[servers] = usage
        if not any(usage.values()):
            del self._usage[servers]
        if more:
            self._freed()

    def down(self, rabbit: str) -> bool:
        return self._shown(rabbit) not in AVAILABLE

    def set_status(self, rabbit: str, status: str) -> None:
        """Change the condition of a Rabbit (an enum of ``Storage.status``)."""
        self._status[rabbit] = status
        self._publish(rabbit)
        self._freed()

    def fail(self, rabbits: str, duration: float) -> None:
        for name in fnmatch.filter(self._status, rabbits or "*"):
            self.set_status(name, "Offline")
            if duration:
                self._later(duration, functools.partial(self._restore, name))

    def _restore(self, rabbit: str) -> None:
        self.set_status(rabbit, "Ready")

    def set_link(self, compute: str, up: bool) -> None:
        """Cut or restore the PCIe connection of a compute node."""
        rabbit = self._topology.rabbit_of[compute]
        lost = self._lost.setdefault(rabbit, set())
        if up:
            lost.discard(compute)
        else:
            lost.add(compute)
            self._cut_at[compute] = self._now()
        self._publish(rabbit)
        self._freed()

    def fence(self, compute: str) -> None:
        """Keep a compute node from all that it has mounted, in ways that the Storage
        does not show."""
        self._cut_at[compute] = self._now()

    def linked(self, compute: str) -> bool:
        rabbit = self._topology.rabbit_of.get(compute, "")
        return compute not in self._lost.get(rabbit, ())

    def reaches(self, compute: str, since: float) -> bool:
        # A cut in the second of a timestamp counts as later.
        return self.linked(compute) and self._cut_at.get(compute, -1.0) < since

    def reconcile(self, key: Key) -> None:
        """A Storage object changed: it may have been disabled or enabled."""
        if key.name in self._status:
            self._publish(key.name)
            self._freed()

    def _shown(self, rabbit: str) -> str:
        """The condition as the Storage object should show it."""
        obj = self._cluster.get(STORAGE, "default", rabbit)
        if obj is not None and (obj.get("spec") or {}).get("state") == "Disabled":
            return "Disabled"
        return self._status.get(rabbit, "NotPresent")

    def _publish(self, rabbit: str) -> None:
        self._stale[rabbit] = None
        if self._timer is None:
            self._timer = self._later(self._interval, self._write)

    def _write(self) -> None:
        self._timer = None
        stale, self._stale = self._stale, {}
        for name in stale:
            key = Key(STORAGE, "default", name)
            obj = self._cluster.get(*key)
            patch = {} if obj is None else self._difference(name, obj)
            if patch and self._cluster.busy(key):
                self._publish(name)
            elif patch:
                self._cluster.patch_status(key, patch)

    def _difference(self, name: str, obj: Json) -> Json:
        """What of a Storage's status must change. Other fields stay as they
        are, so that a site's own survive."""
        current = obj.get("status") or {}
        rabbit = self._topology.rabbits[name]
        lost = sorted(self._lost.get(name, ()))
        full = storage_status(rabbit, self._free[name], self._shown(name), lost)
        if not current:
            return full
        if name not in self._lost:  # what was written there by hand may stay
            shown = (current.get("access") or {}).get("computes")
            full["access"]["computes"] = shown or full["access"]["computes"]
        keys = ("capacity", "status", "access")
        return {key: full[key] for key in keys if current.get(key) != full[key]}
