# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A cluster with the stand-in controllers, and Workflows that go through it."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any, Optional

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
    KubeError,
)
from rabbitsim.dws import (
    Controllers,
    Options,
    Topology,
    admission,
    install,
    recorded,
)
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.files import FileSystems
from rabbitsim.kube import direct
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

    # What a workload manager does

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

    # What is left

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
LIVES = (
    (XFS,),
    ("#DW jobdw type=gfs2 capacity=10GiB name=project1",),
    ("#DW jobdw type=raw capacity=1TB name=project1",),
    ("#DW jobdw type=lustre capacity=50GiB name=project1",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=high-performance",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=exclusive-mdt",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=single-mgtmdt",),
    ("#DW jobdw type=gfs2 capacity=1TiB name=aa profile=shared",),
    (XFS, "#DW jobdw type=lustre capacity=1TiB name=scratch-2"),
    (
        "#DW jobdw type=xfs capacity=1GiB name=aa requires=copy-offload",
        "#DW copy_in source=/lustre/in destination=$DW_JOB_aa/",
        "#DW copy_out source=$DW_JOB_aa/out destination=/lustre/out",
    ),
)


@pytest.mark.parametrize("directives", LIVES, ids=lambda d: d[0][4:].replace(" ", "-"))
def test_a_workflow_goes_through_all_its_states_and_leaves_nothing(
    directives: tuple[str, ...],
) -> None:
    system = System()
    system.run(*directives)
    system.check_clean()
    assert system.troubles == []


def test_a_job_finds_its_storage_in_its_environment() -> None:
    system = System()
    system.submit(
        "#DW jobdw type=xfs capacity=1GiB name=fast-one",
        "#DW jobdw type=lustre capacity=1GiB name=two",
    )
    status = system.wait()
    assert status["env"] == {
        "DW_WORKFLOW_NAME": "job",
        "DW_WORKFLOW_NAMESPACE": "default",
    }
    system.assign()
    for state in STATES[1:4]:
        status = system.go(state)
    uid = system.workflow()["metadata"]["uid"]
    assert status["env"] == {
        "DW_WORKFLOW_NAME": "job",
        "DW_WORKFLOW_NAMESPACE": "default",
        "DW_JOB_fast_one": f"/mnt/nnf/{uid}-0",
        "DW_JOB_XFS": f"/mnt/nnf/{uid}-0",
        "DW_JOB_two": f"/mnt/nnf/{uid}-1",
        "DW_JOB_LUSTRE": f"/mnt/nnf/{uid}-1",
        "DW_JOBS": f"fast-one:/mnt/nnf/{uid}-0,two:/mnt/nnf/{uid}-1",
    }
    assert {m["metadata"]["namespace"] for m in system.items(CLIENTMOUNT)} == {
        "compute-01",
        "compute-04",
        "rabbit-01",
        "rabbit-02",
    }


def test_a_workflow_takes_no_more_requests_than_the_real_controllers_wrote() -> None:
    system = System()
    before = system.controllers.requests
    system.run(XFS)
    assert system.controllers.requests - before < 85


def test_the_same_seed_gives_the_same_events() -> None:
    def run(seed: int) -> str:
        rng = random.Random(seed)
        options = Options(latency=recorded())
        system = System(options, seed=seed, latency=lambda: rng.random() / 100)
        for number, directives in enumerate(LIVES):
            system.submit(*directives, name=f"job{number}")
        for number in range(len(LIVES)):
            system.wait(f"job{number}")
            system.assign(name=f"job{number}")
            system.go("Setup", f"job{number}")
            system.remove(f"job{number}")
        return json.dumps(system.events)

    first = run(1)
    assert run(1) == first
    assert run(2) != first


STEP = st.sampled_from(
    ["go", "go", "go", "restart", "drop", "teardown", "delete", "wait"]
)


@settings(max_examples=40, deadline=None)
@given(
    life=st.sampled_from(LIVES),
    steps=st.lists(STEP, max_size=12),
    events=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_whatever_happens_on_the_way_nothing_is_left(
    life: tuple[str, ...], steps: list[str], events: int, seed: int
) -> None:
    rng = random.Random(seed)
    system = System(seed=seed, latency=lambda: rng.random() / 1000)
    system.submit(*life)
    for step in steps:
        if system.gone():
            break
        for _ in range(rng.randrange(events + 1)):
            system.loop.step()
        _random_step(system, step)
    if not system.gone():
        system.wait()
        system.remove()
    system.check_clean()


def _random_step(system: System, step: str) -> None:
    deleting = "deletionTimestamp" in system.workflow()["metadata"]
    state = system.workflow()["spec"]["desiredState"]
    if step == "restart":
        system.restart()
    elif step == "drop":
        system.kube.drop_watches()
    elif deleting:
        pass
    elif step == "wait":
        system.wait()
    elif step == "delete":
        system.release()
    elif step == "teardown":
        system.patch({"desiredState": "Teardown"})
    elif state != "Teardown" and system.wait()["ready"]:
        if state == "Proposal":
            system.assign()
        system.patch({"desiredState": STATES[STATES.index(state) + 1]})


@settings(max_examples=25, deadline=None)
@given(life=st.sampled_from(LIVES), seed=st.integers(0, 2**32 - 1))
@example(life=LIVES[0], seed=17248)
def test_an_api_server_with_trouble_only_delays(
    life: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)

    def trouble(request: direct.Request) -> Optional[direct.Fault]:
        dice = rng.random()
        if dice < 0.1:
            return direct.Fault(error=KubeError(500, "InternalError"))
        if dice < 0.2 and request.verb != "watch":
            lost = KubeError(0, "Lost")
            return direct.Fault(error=lost, carried_out=True)
        if dice < 0.25:
            return direct.Fault(delay=rng.random())
        return None

    system = System(seed=seed, faults=trouble)
    system.run(*life)
    system.sleep(60.0)
    system.check_clean()


def test_a_workflow_that_no_webhook_saw_is_checked_all_the_same() -> None:
    system = System()
    system.store.admission.clear()
    system.submit("#DW jobdw type=zfs capacity=1GiB name=aa", name="bad")
    assert system.loop.run(lambda: "message" in system.status("bad"), TIMEOUT)
    assert system.status("bad")["message"] == "argument 'type' invalid string 'zfs'"
    system.remove("bad")
    system.run(XFS)
    system.check_clean()


def test_workflows_at_once_do_not_get_in_each_others_way() -> None:
    system = System(dataclasses.replace(Options(), capacity_interval=0.01))
    names = [f"job{number}" for number in range(40)]
    for name in names:
        system.submit(XFS, name=name)
    for name in names:
        system.wait(name)
        system.assign(name=name)
    for state in STATES[1:]:
        for name in names:
            system.patch({"desiredState": state}, name)
        for name in names:
            assert system.wait(name)["ready"]
    for name in names:
        system.remove(name)
    system.check_clean()
