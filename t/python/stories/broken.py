# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rabbits that are broken when a job needs what they store, or that the mapping or
Kubernetes lacks for a while, and nodes for which DWS does not wait."""

from __future__ import annotations

from functools import partial
from typing import Any

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import STORAGE, SYSTEMSTATUS, KubeError
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import (
    break_rabbit,
    disable,
    down,
    enable,
    force,
    submit,
    unload,
    up,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_for, silence_watches
from rabbitsim.torture.story import (
    COPY_IN,
    FOREVER,
    LIFE,
    NODE,
    XFS,
    Job,
    Story,
    When,
    deed,
    of,
)

TORN_DOWN = "Teardown..gone"
SMALL = {"topology": Topology.regular(4, 2, capacity=64 * GIB)}


def below(name: str, course: str, *troubles: Any, on: int = 1, **more: Any) -> Story:
    """The story of persistent storage for so many nodes, whose first Rabbit is Offline
    for an hour later, and of jobs that use it."""
    dw = "#DW create_persistent type=xfs capacity=10GiB name=keep"
    create = Job((dw,), nodes=on, seconds=2.0)
    given = {"machine": SMALL, "may": ("dws-refused",), **more}
    return Story(
        name, f"Proposal..gone {course}", job=create, troubles=troubles, **given
    )


def used(nodes: int, after: float = 10.0) -> When:
    """A job uses that storage."""
    job = Job(("#DW persistentdw name=keep",), nodes, seconds=2.0)
    return When("gone", submit(job), after)


OFFLINE = break_rabbit("rabbit-01", 3600.0, "Offline")
BROKEN_BEFORE = When("gone", OFFLINE)
WAITED = ("gone", "2:alloc", 3602.1)
"""The job gets nodes when its Rabbit serves again."""

BROKEN_LATER = (
    When("gone", submit(Job((), nodes=4, exclusive=True, seconds=60.0))),
    used(1),
    When("gone", OFFLINE, 30.0),
)
"""A job is planned when the Rabbit of its storage serves, and gets nodes when it does
not."""

PLANNED = "2:alloc 2:start 3:Proposal 2:finish 2:clean 3:alloc"
MADE_LATER = of(3, "Setup..gone")

BELOW = (
    *(
        below(
            f"a job waits for the Rabbit of its persistent storage ({how})",
            of(2, LIFE),
            BROKEN_BEFORE,
            used(nodes),
            on=on,
            machine={**SMALL, "scheduler": scheduler},
            spans=(WAITED,),
        )
        for how, scheduler, on, nodes in (
            ("with Fluxion", True, 1, 1),
            ("without", False, 1, 1),
            ("with an allocation for each node", True, 3, 2),
        )
    ),
    below(
        "a job fails that needs more nodes than reach its persistent storage",
        "2:Proposal 2:unsatisfiable! 2:Teardown..gone",
        used(3),
    ),
    below(
        "a job runs where serving Rabbits reach its persistent storage",
        "2:Proposal..gone 3:Proposal..gone",
        BROKEN_BEFORE,
        used(2),
        used(3, 100.0),
        on=4,
        spans=(("gone", "2:alloc", 10.0), ("gone", "3:alloc", 3602.1)),
    ),
    *(
        below(
            f"a job gets nodes below a broken Rabbit, and prolog_timeout is {limit}",
            f"{PLANNED} {course}",
            *BROKEN_LATER,
            config=Config.parse({"prolog_timeout": limit}),
            spans=(("3:alloc", *span),),
        )
        for limit, course, span in (
            ("3h", MADE_LATER, ("3:Setup", 3572.1)),
            ("0", MADE_LATER, ("3:Setup", 3572.1)),
            (
                "10m",
                "3:prolog-timeout! 3:Teardown..gone",
                ("3:prolog-timeout!", 320.1),
            ),
        )
    ),
)


@deed
def remap(system: StorySystem, hosts_of: dict[str, str]) -> None:
    """The module has another mapping for a minute."""

    def load(mapping: RabbitMapping) -> None:
        system.mapping = mapping
        system.unload_for(0.0)

    system.loop.call_later(60.0, partial(load, system.mapping))
    known = {name: tuple(hosts.split()) for name, hosts in hosts_of.items()}
    load(rabbitmapping.assemble(known, dict.fromkeys(known, 64 * GIB)))


@deed
def lose_rabbit(system: StorySystem, seconds: float) -> None:
    """Kubernetes lacks the first Rabbit for some seconds."""
    storage = system.store.get(STORAGE, "default", "rabbit-01")
    labels = storage["metadata"]["labels"]
    back = {**storage, "metadata": {"name": "rabbit-01", "labels": labels}}
    system.store.delete(STORAGE, "default", "rabbit-01")
    create = system.store.create
    system.loop.call_later(seconds, lambda: create(STORAGE, "default", back))


ONE = Job((XFS,), nodes=1)
USE = "#DW persistentdw name=keep"
AHEAD = Job((XFS.replace("10", "1"), COPY_IN), nodes=4, stage="ahead")
SECOND = {"rabbit-02": "compute-03 compute-04"}
LACKS_ONE = {"rabbit-01": "compute-01 compute-02", "rabbit-02": "compute-03"}
HALF = {"rabbit-01": "compute-03", "rabbit-02": "compute-04"}
MOVED = {"rabbit-01": "compute-01", "rabbit-02": "compute-02 compute-03 compute-04"}
OF_OTHERS = {"rabbit-01": "other-01", "rabbit-02": "other-02"}

LACKING = (
    *(
        below(
            f"a job waits while the rabbit mapping {what}",
            of(2, LIFE if job != AHEAD else "Proposal Setup DataIn alloc PreRun..gone"),
            When("gone", submit(job), 10.0),
            When(word, remap(hosts_of)),
            on=job.nodes,
            spans=((word, waits, 60.5),),
        )
        for what, job, hosts_of, word, waits in (
            ("is of another machine", ONE, OF_OTHERS, "gone", "2:alloc"),
            ("lacks a Rabbit that it has got", ONE, SECOND, "2:alloc", "2:Setup"),
            ("lacks that of its storage", Job((USE,), 1), SECOND, "gone", "2:alloc"),
            ("lacks a node of it", Job((XFS, USE), 4), LACKS_ONE, "gone", "2:alloc"),
            ("lacks a node before it has some", AHEAD, LACKS_ONE, "gone", "2:Setup"),
        )
    ),
    *(
        Story(
            f"a job whose data is staged waits while the rabbit mapping {what}",
            "Proposal 2:Proposal alloc..start 2:Setup 2:DataIn finish..clean 2:alloc "
            f"gone {of(2, 'PreRun..gone')}",
            job=Job((XFS,), nodes=4, seconds=100.0),
            others=(AHEAD,),
            troubles=(When("2:alloc", remap(hosts_of)),),
            spans=(("2:alloc", "2:PreRun", 60.0),),
        )
        for what, hosts_of in (
            ("lacks nodes of it", HALF),
            ("has its nodes below other Rabbits", MOVED),
        )
    ),
    *(
        Story(
            f"Kubernetes lacks a Rabbit for {seconds:g} s, and the job tolerates "
            f"{tolerance}",
            f"Proposal alloc {course} Setup..gone",
            job=Job((XFS,), nodes=4, tolerance=tolerance),
            troubles=(When("alloc", unload(5.0)), When("alloc", lose_rabbit(seconds))),
            config=Config.parse({"prolog_timeout": 600}),
            spans=(("alloc", "Setup", later),),
        )
        for tolerance, seconds, later, course in (
            (0, 60.0, 62.1, ""),
            (2, 60.0, 62.1, ""),
            (2, 1000.0, 325.1, "drain:compute-01 drain:compute-02 nodes-excluded"),
        )
    ),
)

READS = ("get", "list", "watch")
FORBIDDEN = KubeError(403, "Forbidden", "no")
LATER = KubeError(429, "TooManyRequests", "wait")
STARTING = KubeError(500, "InternalError", "starting")


@deed
def show_as(system: StorySystem, host: str) -> None:
    """The watch shows once more the SystemStatus before a node was disabled."""
    old = system.store.get(SYSTEMSTATUS, "default", "default")
    disable(host)(system)
    if system.service_kube is not None:
        kube = system.service_kube
        system.loop.call_later(10.0, partial(kube.show, SYSTEMSTATUS, "MODIFIED", old))


ENABLED_LATE = (
    Story(
        "DWS waits for a node that is back before it mounts storage",
        f"down:{NODE} alloc start finish clean disable:{NODE} up:{NODE} 2:Proposal "
        f"2:alloc 2:Setup 2:DataIn enable:{NODE} {of(2, 'PreRun..gone')}",
        job=Job((), nodes=1),
        troubles=(
            When("", down()),
            When("", fail_for(200.0, LATER, "patch", kind=SYSTEMSTATUS), 20.0),
            When("", up(), 20.0),
            When("", submit(Job((XFS,), nodes=4)), 220.0),
            When("", fail_for(20.0, FORBIDDEN, "patch", kind=SYSTEMSTATUS), 220.0),
        ),
    ),
    Story(
        "no job waits for a SystemStatus that the service may not read",
        "alloc start finish clean 2:Proposal..gone",
        job=Job((), nodes=1),
        troubles=(
            When("", fail_for(10.0, STARTING, *READS, kind=SYSTEMSTATUS)),
            When("", unload(0.0)),
            When("", fail_for(FOREVER, FORBIDDEN, *READS, kind=SYSTEMSTATUS), 10.0),
            When("", submit(Job((XFS,), nodes=1)), 70.0),
        ),
        log="objects-unseen",
    ),
    Story(
        "a node is Disabled though the watch does not show what another program wrote",
        f"alloc start finish clean disable:compute-01 down:{NODE} disable:{NODE} "
        f"2:Proposal up:{NODE} 2:alloc 2:Setup 2:DataIn enable:{NODE} "
        f"{of(2, 'PreRun..gone')}",
        job=Job((), nodes=1),
        troubles=(
            When("", silence_watches(SYSTEMSTATUS), 1.0),
            When("", disable("compute-01"), 2.0),
            When("", down(), 3.0),
            When("", submit(Job((XFS,), nodes=3)), 60.0),
            When("", up(), 200.0),
        ),
        spans=(("2:Proposal", "2:alloc", 140.0),),
        may=("nodes-failed",),  # where the watch is late
    ),
    Story(
        "a late answer does not hide a newer SystemStatus",
        "alloc start finish clean disable:compute-01 2:Proposal enable:compute-01 "
        "2:alloc..gone",
        job=Job((), nodes=1),
        troubles=(
            When("", show_as("compute-01"), 2.0),
            When("", submit(Job((XFS,), nodes=4)), 20.0),
            When("", enable("compute-01"), 100.0),
        ),
        may=("nodes-failed",),  # where the watch is late
    ),
)

NOTICED = {
    "which is not seen": (
        f"disable:{NODE}",
        (silence_watches(SYSTEMSTATUS), 1.0),
        (disable(), 2.0),
    ),
    "and enabled again": (f"disable:{NODE}", (disable(), 2.0), (enable(), 2.1)),
    "and enabled again while the module is away": (
        f"disable:{NODE} enable:{NODE}",
        (unload(3.0), 1.0),
        (disable(), 2.0),
        (enable(), 3.0),
    ),
}
"""How a node is disabled for which DWS waits, and what is in the course of it."""

PASSED_OVER = (
    *(
        Story(
            f"DWS does not wait for a node that is disabled for a moment, {how}",
            f"Proposal..PreRun disable:{NODE} enable:{NODE} nodes-failed! {TORN_DOWN}",
            troubles=(
                DwsFault("PreRun", "mount", node=NODE),
                *(When("PreRun", deed, 1.0) for deed in deeds),
                When("PreRun", disable(), 3.0),
                When("PreRun", enable(), 3.05),
            ),
            config=Config(tc_timeout=3600.0),
            machine={"kube_latency": 0.3},
        )
        for how, deeds in (
            ("unseen", (silence_watches(SYSTEMSTATUS),)),
            ("before Kubernetes has said so", ()),
        )
    ),
    *(
        Story(
            f"DWS does not wait for a node in {state} that is disabled, {how}",
            " ".join(f"{before} {state} {words} {then} {end}".split()),
            data="out" if state == "PostRun" else "",
            troubles=(
                DwsFault(state, "mount", node=NODE),
                *(When(state, *each) for each in deeds),
            ),
            config=Config(tc_timeout=3600.0),
            harm=state == "PostRun",
            freed=state == "PostRun",
        )
        for before, state, then, ends in (
            (
                "Proposal..DataIn",
                "PreRun",
                "nodes-failed!",
                (TORN_DOWN, f"Teardown enable:{NODE} clean gone", TORN_DOWN),
            ),
            (
                "Proposal..finish",
                "PostRun",
                f"drain:{NODE} unmount-failed DataOut",
                (
                    TORN_DOWN,
                    f"enable:{NODE} disable:{NODE} Teardown..gone",
                    f"disable:{NODE} Teardown..gone",
                ),
            ),
        )
        for (how, (words, *deeds)), end in zip(NOTICED.items(), ends)
    ),
    Story(
        "a person has DWS do without a node in PostRun",
        f"Proposal..PostRun force drain:{NODE} unmount-failed DataOut disable:{NODE} "
        f"{TORN_DOWN}",
        data="out",
        troubles=(
            DwsFault("PostRun", "mount", node=NODE),
            When("PostRun", force, 2.0),
        ),
        config=Config(tc_timeout=3600.0),
        harm=True,
        freed=True,
    ),
    *(
        Story(
            f"a node is disabled before it is to mount; the job tolerates {tolerance}",
            f"Proposal alloc disable:{NODE} Setup..PreRun {course}",
            job=Job(tolerance=tolerance, seconds=2.0),
            troubles=(When("alloc", disable()),),
        )
        for tolerance, course in (
            (0, "nodes-failed! Teardown..gone"),
            (1, f"drain:{NODE} nodes-excluded start..gone"),
        )
    ),
)

STORIES = (*BELOW, *LACKING, *ENABLED_LATE, *PASSED_OVER)
