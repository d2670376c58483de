# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A cluster with the stand-in controllers, and a workload manager that takes orders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Optional

from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    NNFDATAMOVEMENT,
    PERSISTENTSTORAGE,
    SECRET,
    SERVERS,
    STORAGE,
    WORKFLOW,
    Json,
    Kind,
)
from rabbitsim.dws import (
    Controllers,
    Options,
    Topology,
    admission,
    install,
)
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.files import FileSystems
from rabbitsim.kube.direct import DirectKube
from rabbitsim.kube.store import Event, Store
from rabbitsim.loop import VirtualLoop

FLUX = "flux-framework.readthedocs.io/workflow"
OWNED = (CLIENTMOUNT, COMPUTES, DIRECTIVEBREAKDOWN, NNFDATAMOVEMENT, SERVERS, SECRET)
KINDS = (WORKFLOW, *OWNED[:-1], PERSISTENTSTORAGE)
TIMEOUT = 600.0


class System:
    """A store, controllers on it, and a workload manager that takes orders."""

    def __init__(
        self,
        options: Optional[Options] = None,
        topology: Optional[Topology] = None,
        files: Optional[FileSystems] = None,
        seed: int = 1,
        **kube: Any,
    ) -> None:
        self.loop = VirtualLoop()
        self.store = Store(self.loop.now, random.Random(seed))
        self.kube = DirectKube(self.store, self.loop, **kube)
        self.options = options or Options()
        self.topology = topology or Topology.regular(4, 2)
        self.files = files
        self.rng = random.Random(seed)
        self.troubles: list[str] = []
        self.events: list[tuple[float, str, Json]] = []
        self.store.admission.append(admission(self.options.rules))
        done: list[object] = []
        faults, self.kube.faults = self.kube.faults, None
        install(self.kube, self.topology, self.options.rules, done.append)
        assert self.loop.run(lambda: bool(done)) and done == [None]
        self.kube.faults = faults
        for kind in (*KINDS, STORAGE):
            version = str(self.store.version)
            self.store.watch(kind, None, self._see, resource_version=version)
        self.controllers = self.start()

    def _see(self, event: Event) -> None:
        self.events.append((self.loop.now(), event.type, event.object))

    def start(self) -> Controllers:
        controllers = Controllers(
            self.kube,
            self.loop,
            topology=self.topology,
            options=self.options,
            rng=self.rng,
            files=self.files,
            log=self.troubles.append,
        )
        controllers.start()
        return controllers

    def restart(self) -> None:
        self.controllers.stop()
        self.controllers = self.start()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        over: list[bool] = []
        self.loop.call_later(seconds, lambda: over.append(True))
        self.loop.run(lambda: bool(over))

    # The requests of a workload manager

    def submit(self, *directives: str, name: str = "job", user: int = 0) -> None:
        body = {
            "metadata": {"name": name, "finalizers": [FLUX]},
            "spec": {
                "desiredState": "Proposal",
                "dwDirectives": list(directives),
                "groupID": user,
                "jobID": f"f{name}",
                "userID": user,
                "wlmID": "flux",
            },
        }
        self.store.create(WORKFLOW, "default", body)

    def workflow(self, name: str = "job") -> Json:
        return self.store.get(WORKFLOW, "default", name)

    def status(self, name: str = "job") -> Json:
        found: Json = self.workflow(name).get("status") or {}
        return found

    def patch(self, spec: Json, name: str = "job") -> None:
        self.store.merge_patch(WORKFLOW, "default", name, {"spec": spec})

    def settled(self, name: str = "job") -> bool:
        """Whether the Workflow is where it should be, or in Error."""
        status = self.status(name)
        if status.get("state") != self.workflow(name)["spec"]["desiredState"]:
            return False
        return bool(status.get("ready")) or status.get("status") == "Error"

    def wait(self, name: str = "job") -> Json:
        assert self.loop.run(lambda: self.settled(name), TIMEOUT), self.status(name)
        return self.status(name)

    def go(self, state: str, name: str = "job") -> Json:
        self.patch({"desiredState": state}, name)
        return self.wait(name)

    def breakdowns(self, name: str = "job") -> list[Json]:
        return [
            self.store.get(DIRECTIVEBREAKDOWN, "default", ref["name"])
            for ref in self.status(name).get("directiveBreakdowns", ())
        ]

    def assign(
        self,
        computes: Sequence[str] = ("compute-01", "compute-04"),
        name: str = "job",
        **changes: Any,
    ) -> None:
        """Give the job nodes, and storage on their Rabbits; ``changes`` replace
        fields of each allocation set."""
        data = {"data": [{"name": compute} for compute in computes]}
        self.store.merge_patch(COMPUTES, "default", name, data)
        for breakdown in self.breakdowns(name):
            storage = breakdown["status"].get("storage")
            if storage is not None:
                sets = [
                    {**self._allocation(entry, computes), **changes}
                    for entry in storage["allocationSets"]
                ]
                patch = {"spec": {"allocationSets": sets}}
                servers = storage["reference"]["name"]
                self.store.merge_patch(SERVERS, "default", servers, patch)

    def _allocation(self, wanted: Json, computes: Sequence[str]) -> Json:
        rabbits = [self.topology.rabbit_of[compute] for compute in computes]
        counts = {rabbit: rabbits.count(rabbit) for rabbit in rabbits}
        strategy, size = wanted["allocationStrategy"], wanted["minimumCapacity"]
        if strategy == "AllocateSingleServer":
            counts = {rabbits[0]: 1}
        elif strategy != "AllocatePerCompute":
            counts = dict.fromkeys(counts, 1)
        if strategy == "AllocateAcrossServers":
            size = -(-size // len(counts))
        return {
            "label": wanted["label"],
            "allocationSize": size,
            "storage": [
                {"name": rabbit, "allocationCount": count}
                for rabbit, count in counts.items()
            ],
        }

    def remove(self, name: str = "job") -> None:
        """Tear down and delete, from wherever the Workflow is."""
        if self.workflow(name)["spec"]["desiredState"] != "Teardown":
            self.go("Teardown", name)
        self.release(name)

    def release(self, name: str = "job") -> None:
        finalizers = self.workflow(name)["metadata"].get("finalizers", [])
        patch = {"metadata": {"finalizers": [f for f in finalizers if f != FLUX]}}
        self.store.merge_patch(WORKFLOW, "default", name, patch)
        self.store.delete(WORKFLOW, "default", name)
        assert self.loop.run(lambda: self.gone(name), TIMEOUT), self.workflow(name)

    def gone(self, name: str = "job") -> bool:
        return self.store.find(WORKFLOW, "default", name) is None

    def run(self, *directives: str, name: str = "job", user: int = 0) -> None:
        """A Workflow's whole life."""
        self.submit(*directives, name=name, user=user)
        assert self.wait(name)["ready"], self.status(name)
        self.assign(name=name)
        for state in STATES[1:]:
            assert self.go(state, name)["ready"], self.status(name)
        self.remove(name)

    # The objects that are left

    def items(self, kind: Kind) -> list[Json]:
        found: list[Json] = self.store.list(kind)["items"]
        return found

    def free(self) -> dict[str, int]:
        self.sleep(1.0)
        return {
            storage["metadata"]["name"]: storage["status"]["capacity"]
            for storage in self.items(STORAGE)
        }

    def full(self) -> dict[str, int]:
        return {name: r.capacity for name, r in self.topology.rabbits.items()}

    def check_clean(self) -> None:
        assert self.free() == self.full()
        left = {kind.name: len(self.items(kind)) for kind in OWNED}
        assert left == dict.fromkeys(left, 0)


XFS = "#DW jobdw type=xfs capacity=10GiB name=project1"
