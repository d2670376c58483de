# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in DWS and NNF controllers, put together."""

from __future__ import annotations

from random import Random
from typing import Callable, Optional

from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    NNFDATAMOVEMENT,
    PERSISTENTSTORAGE,
    SERVERS,
    STORAGE,
    SYSTEMSTATUS,
    WORKFLOW,
    Clock,
    Json,
    Kube,
)
from rabbitsim.dws import objects, persistent, workflow
from rabbitsim.dws.cluster import Cluster, Key
from rabbitsim.dws.files import FileSystems, NoFiles
from rabbitsim.dws.ledger import Rabbits
from rabbitsim.dws.options import Options
from rabbitsim.dws.separatewrites import SeparateWrites
from rabbitsim.dws.storage import follow_spec, remove_all, usage
from rabbitsim.dws.task import TrackedWorkflow, World
from rabbitsim.dws.topology import Topology

WATCHED = (
    WORKFLOW,
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    SERVERS,
    CLIENTMOUNT,
    PERSISTENTSTORAGE,
    NNFDATAMOVEMENT,
    STORAGE,
    SYSTEMSTATUS,
)


class Controllers:
    """Everything that DWS and NNF do, on any Kubernetes API.

    What is to be done is found out from the objects, so controllers may be
    stopped at any moment, and others started in their place.

    Args:
        kube: the API; besides :class:`flux_k8s.ports.Kube` it must be able to
            write the status subresource.
        topology: the hardware; :mod:`rabbitsim.dws.install` makes its objects.
        rng: for latencies and tokens.
        files: where storage is; without it, storage exists on paper only.
        is_active: whether the job of a Workflow (by its name) is active. Active jobs
            share persistent storage as their users have it.
        log: gets a line about each trouble with the API.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        topology: Topology,
        options: Optional[Options] = None,
        rng: Optional[Random] = None,
        files: Optional[FileSystems] = None,
        is_active: Callable[[str], bool] = lambda workflow: False,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        options = options or Options()
        self._clock = clock
        if options.full_events:
            kube = SeparateWrites(kube)
        self._cluster = Cluster(kube, clock, WATCHED, self._changed, log)
        self.rabbits = Rabbits(
            topology,
            self._cluster,
            options.capacity_interval,
            clock.call_later,
            self._freed,
            clock.now,
        )
        """The hardware, for who wants something to happen to it."""
        self._world = World(
            self._cluster,
            clock,
            topology,
            options,
            rng or Random(0),
            files or NoFiles(),
            self.rabbits,
            self._mark,
            is_active,
        )
        self._tracked: dict[Key, TrackedWorkflow] = {}
        self._users: dict[Key, dict[Key, None]] = {}
        self._dirty: dict[Key, None] = {}
        self._moved: dict[Key, TrackedWorkflow] = {}
        self._draining = False
        self._paused = False
        self._stopped = False

    @property
    def requests(self) -> int:
        """The number of requests that were sent, without watches."""
        return self._cluster.requests

    @property
    def harm(self) -> dict[tuple[str, str], str]:
        """The Workflows and nodes whose file system was mounted a second time, or
        deleted, while the node could write to it, and which of the two."""
        return self._world.harm

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        """Stop where they are, as a crash would. Nothing is cleaned up."""
        self._stopped = True
        self._cluster.stop()
        for tracked in self._tracked.values():
            if tracked.timer is not None:
                tracked.timer.cancel()

    def pause(self) -> None:
        """Do nothing any more, until :meth:`resume`."""
        self._paused = True

    def resume(self) -> None:
        """Go on with all that has changed since :meth:`pause`."""
        self._paused = False
        self._drain_soon()

    def _changed(self, key: Key, old: Optional[Json], new: Optional[Json]) -> None:
        if key.kind == WORKFLOW:
            self._mark(key)
        elif key.kind == STORAGE:
            self._mark(key)
        elif key.kind == SYSTEMSTATUS:
            for owner in self._tracked:
                self._mark(owner)
        else:
            self._child_changed(key, old, new)

    def _child_changed(
        self, key: Key, old: Optional[Json], new: Optional[Json]
    ) -> None:
        if key.kind == SERVERS:
            if not self._cluster.busy(key):
                self.rabbits.reserve(key, usage(new))
            self._mark(key)
        if key.kind in (PERSISTENTSTORAGE, SERVERS):
            name = Key(PERSISTENTSTORAGE, key.namespace, key.name)
            self._mark(name)
            for user in self._users.get(name, ()):
                self._mark(user)
        labels = ((new or old or {}).get("metadata") or {}).get("labels") or {}
        if objects.WORKFLOW_NAME in labels:
            namespace = labels[objects.WORKFLOW_NAMESPACE]
            owner = Key(WORKFLOW, namespace, labels[objects.WORKFLOW_NAME])
            tracked = self._track(owner)
            if new is None:
                tracked.children.pop(key, None)
            elif key.kind in workflow.CHILDREN:
                tracked.children[key] = None
            if key in tracked.moving:
                self._moved[key] = tracked
                self._drain_soon()
            else:
                self._mark(owner)

    def _track(self, key: Key) -> TrackedWorkflow:
        tracked = self._tracked.get(key)
        if tracked is None:
            tracked = self._tracked[key] = TrackedWorkflow(key)
        return tracked

    def _freed(self) -> None:
        waiting, self._world.waiting = self._world.waiting, {}
        for key in waiting:
            self._mark(key)

    def _mark(self, key: Key) -> None:
        """Look at an object soon; once, however often it is marked."""
        self._dirty[key] = None
        self._drain_soon()

    def _drain_soon(self) -> None:
        idle = self._stopped or self._paused or self._draining
        if self._cluster.synced and not idle:
            self._draining = True
            self._clock.call_later(0.0, self._drain)

    def _drain(self) -> None:
        self._draining = False
        if self._stopped or self._paused:
            return
        moved, self._moved = self._moved, {}
        for key, tracked in moved.items():
            self._advance(key, tracked)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            self._reconcile(key)

    def _advance(self, key: Key, tracked: TrackedWorkflow) -> None:
        """Do the next thing for an object that is on its way."""
        group = tracked.moving.get(key)
        if group is None or self._cluster.busy(key):
            return  # the Workflow was looked at meanwhile, or an answer is to come
        outcome = group.advance(key)
        if outcome is None:
            del tracked.moving[key]
            group.left.discard(key)
        if not group.left or (outcome is not None and outcome.status != "Running"):
            self._dirty[tracked.key] = None

    def _reconcile(self, key: Key) -> None:
        obj = self._cluster.get(*key)
        if key.kind == WORKFLOW:
            self._reconcile_workflow(key, obj)
        elif key.kind == STORAGE:
            self.rabbits.reconcile(key)
        elif key.kind == SERVERS and obj is not None:
            if not self._cluster.busy(key):
                now = self._clock.now()
                follow_spec(self._cluster, key, obj, now)
        elif key.kind == PERSISTENTSTORAGE and obj is not None:
            persistent.reconcile(self._world, key, obj)

    def _reconcile_workflow(self, key: Key, obj: Optional[Json]) -> None:
        tracked = self._track(key)
        if obj is not None:
            workflow.reconcile(self._world, tracked, obj)
            self._note_users(tracked)
            return
        remove_all(self._cluster, tracked, tuple(tracked.children))
        if not tracked.children and not self._cluster.busy(key):
            self._forget(tracked)

    def _note_users(self, tracked: TrackedWorkflow) -> None:
        """Remember whose business a PersistentStorageInstance is."""
        for directive in tracked.directives:
            if "persistent" in directive.command:
                name = Key(PERSISTENTSTORAGE, tracked.key.namespace, directive.name)
                self._users.setdefault(name, {})[tracked.key] = None

    def _forget(self, tracked: TrackedWorkflow) -> None:
        if tracked.timer is not None:
            tracked.timer.cancel()
        for directive in tracked.directives:
            name = Key(PERSISTENTSTORAGE, tracked.key.namespace, directive.name)
            users = self._users.get(name, {})
            users.pop(tracked.key, None)
            if not users:
                self._users.pop(name, None)
        self._world.waiting.pop(tracked.key, None)
        self._tracked.pop(tracked.key, None)
