# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that fight for the room of Rabbits of which no scheduler gives out shares."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.machine.fluxion import FLUXION
from flux_k8s.ports import SERVERS, STORAGE, WORKFLOW, Json, KubeError, Request
from rabbitsim.dws import Topology
from rabbitsim.flux.broker import Offered, Respond
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.deeds import (
    break_rabbit,
    cancel,
    cancel_job,
    delete,
    reload_fluxion,
    submit,
    unload,
    unload_plugin,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_flux, fail_for, outage, pause_dws, slow_kube
from rabbitsim.torture.story import COPY_OUT, FOREVER, LIFE, XFS, Job, Story, When

LARGE = "#DW jobdw type=xfs capacity=40GiB name=p1"
"""More than half of a Rabbit."""

HOUR = 3600.0
ERROR = KubeError(500, "InternalError")
SMALL = Topology.regular(4, 2, capacity=64 * GIB)
UNSCHEDULED = {"topology": SMALL, "scheduler": False, "dynamic_properties": False}


def on(host: str, *directives: str, **more: Any) -> Job:
    """A job that must run on a certain node."""
    attributes = {"constraints": {"hostlist": [host]}}
    given = {"directives": directives or (LARGE,), "seconds": 60.0, **more}
    return Job(nodes=1, attributes=attributes, **given)


PLAIN = Job((), nodes=1)
KEEP = "#DW create_persistent type=xfs capacity=10GiB name=keep"
DESTROY = "#DW destroy_persistent name=keep"
SMALLEST = XFS.replace("10", "1")
FEW = Topology.regular(4, 2, capacity=2 * GIB)
UNSEEN = fail_for(300.0, ERROR, "watch", kind=SERVERS)
ONE, TWO, THREE = map(on, ("compute-01", "compute-02", "compute-03"))
"""Jobs on two nodes of the first Rabbit, and on one of the second."""


def room(name: str, course: str, *troubles: Any, job: Job = ONE, **more: Any) -> Story:
    """A story of jobs on two small Rabbits of which only DWS keeps count."""
    given = {"machine": UNSCHEDULED, **more}
    return Story(name, course, troubles=troubles, job=job, **given)


def fail_watches(system: StorySystem) -> None:
    """Servers cannot be watched, and for a while Storages neither."""
    until = system.loop.now() + 20.0

    def fault(request: Request) -> Optional[Fault]:
        fails = {SERVERS, *((STORAGE,) if system.loop.now() < until else ())}
        met = request.verb == "watch" and request.kind in fails
        return Fault(error=ERROR) if met else None

    system.api_fault = fault


MGT = "#DW jobdw type=lustre capacity=10GiB name=p1 profile=standalone-mgt"
"""Only one of these can be on a Rabbit: it has a colocation key."""

SHARE = "#DW jobdw type=xfs capacity=60GiB name=p1"
PIECE = Job(("#DW jobdw type=lustre capacity=4GiB name=p1",), nodes=4)
"""It has an MDT of 5 GiB in one piece, which is more than a share of a node."""

KEYED = Job((MGT,), nodes=1, seconds=600.0)
BOTH_WAIT = "Proposal 2:Proposal alloc 2:alloc Setup..start"
GIVES_UP = "2:prolog-timeout! 2:Teardown..gone"


TOGETHER = (
    "Setup 2:Setup DataIn 2:DataIn PreRun 2:PreRun start 2:start finish 2:finish "
    "PostRun 2:PostRun DataOut 2:DataOut Teardown 2:Teardown clean 2:clean gone 2:gone"
)


def keyed(name: str, course: str, *troubles: Any, **more: Any) -> Story:
    """A story of two jobs that need the only Rabbit for themselves."""
    machine = {"topology": Topology.regular(2, 1)}
    given = {"job": KEYED, "others": (KEYED,), "machine": machine, **more}
    return Story(name, f"{BOTH_WAIT} {course}", troubles=troubles, **given)


def fail_servers(system: StorySystem) -> None:
    """Nobody knows whether the first job's Servers were written."""

    def fault(request: Request) -> Optional[Fault]:
        written = (request.verb, request.kind) == ("patch", SERVERS)
        mine = str(request.name).startswith(workflow_name(system.first.id))
        return Fault(error=ERROR) if written and mine else None

    system.api_fault = fault


def make_theirs(system: StorySystem) -> None:
    """Another workload manager has storage made on the first Rabbit."""
    spec: Json = {
        "desiredState": "Proposal",
        "dwDirectives": [LARGE],
        "forceReady": False,
        "groupID": 7,
        "jobID": "7",
        "userID": 7,
        "wlmID": "another",
    }
    body: Json = {"metadata": {"name": "theirs"}, "spec": spec}
    system.store.create(WORKFLOW, "default", body)
    system.loop.call_later(1.0, lambda: _fill_theirs(system))


def _fill_theirs(system: StorySystem) -> None:
    storage = [{"name": "rabbit-01", "allocationCount": 1}]
    sets = [{"label": "xfs", "allocationSize": 44 * GIB, "storage": storage}]
    patch = {"spec": {"allocationSets": sets}}
    system.store.merge_patch(SERVERS, "default", "theirs-0", patch)


def delete_theirs(system: StorySystem) -> None:
    """It tears that down."""
    end = {"spec": {"desiredState": "Teardown"}}
    system.store.merge_patch(WORKFLOW, "default", "theirs", end)
    delete = system.store.delete
    system.loop.call_later(5.0, lambda: delete(WORKFLOW, "default", "theirs"))


def fill(gib: int) -> Any:
    """Storage that no Workflow made comes to be on the first Rabbit."""
    storage = [{"name": "rabbit-01", "allocationCount": 1}]
    sets = [{"label": "xfs", "allocationSize": gib * GIB, "storage": storage}]
    body: Json = {"metadata": {"name": "system"}, "spec": {"allocationSets": sets}}
    return lambda system: system.store.create(SERVERS, "default", body)


def empty(system: StorySystem) -> None:
    """It goes, if it is there yet."""
    if system.store.find(SERVERS, "default", "system") is not None:
        system.store.delete(SERVERS, "default", "system")


def refuse_ssds(system: StorySystem) -> None:
    """Fluxion does not know the paths of the ``ssd`` of the first Rabbit that goes."""
    chassis: list[str] = []

    def refusing(before: Offered) -> Offered:
        def answer(method: str, payload: Json, user: int, respond: Respond) -> None:
            path, ssd, _ = str(payload.get("resource_path")).rpartition("/ssd")
            if method == "set_status" and ssd and path in (chassis or [path]):
                chassis[:] = [path]
                respond(errno.EINVAL, "could not find path", None)
            else:
                before(method, payload, user, respond)

        return answer

    system.instance.broker.stand_in(FLUXION, refusing)


STORIES = (
    room(
        "a job waits until other jobs leave room for its storage",
        "Proposal..start 2:Proposal 2:alloc finish..gone 2:Setup..gone",
        When("start", submit(TWO), 10.0),
        spans=(("gone", "2:Setup", 27.7),),
    ),
    *(
        room(
            f"two jobs at once are not given the same room ({seed})",
            "Proposal 2:Proposal alloc 2:alloc Setup..gone 2:Setup..gone",
            others=(TWO,),
            machine={**UNSCHEDULED, "kube_latency": 0.2, "seed": seed},
        )
        for seed in (0, 3)
    ),
    room(
        "a new module sees the storage of others before it gives storage out",
        "Proposal..start 2:Proposal 2:alloc finish..gone 2:Setup..gone",
        When("start", slow_kube(60.0, 20.0, "watch", kind=SERVERS), 10.0),
        When("start", unload(5.0), 10.0),
        When("start", submit(TWO), 16.0),
        job=replace(ONE, seconds=100.0),
    ),
    *(
        room(
            f"no job waits for a watch of Servers that fails ({error.status})",
            "Proposal..start 2:Proposal..gone finish..gone 3:Proposal..gone",
            When("start", fail_for(FOREVER, error, "watch", kind=SERVERS), 10.0),
            When("start", unload(5.0), 10.0),
            When("start", submit(THREE), 16.0),
            When("gone", submit(TWO), 10.0),
            job=replace(ONE, seconds=100.0),
        )
        for error in (ERROR, KubeError(403, "Forbidden"))
    ),
    room(
        "no job waits for a watch of Servers that fails while Storages are not known",
        LIFE,
        When("start", fail_watches, 10.0),
        When("start", unload(5.0), 10.0),
        job=replace(ONE, seconds=100.0),
    ),
    room(
        "Servers that may have been written take room until their job is over",
        "Proposal alloc 2:Proposal 2:alloc cancel! Teardown..gone 2:Setup..gone",
        When("Proposal", fail_servers),
        When("alloc", submit(TWO), 10.0),
        When("alloc", cancel, 60.0),
    ),
    room(
        "a job waits for storage of another workload manager",
        "alloc start finish clean 2:Proposal..gone",
        When("", make_theirs),
        When("", submit(ONE), 10.0),
        When("", delete_theirs, 300.0),
        job=PLAIN,
    ),
    room(
        "a job does not wait for its own storage",
        LIFE,
        machine={**UNSCHEDULED, "kube_latency": 0.05},
    ),
    # Where a scheduler gives out shares
    room(
        "a Rabbit of a job is full, and another one is broken",
        "Proposal alloc no-room! Teardown..gone",
        When("alloc", fill(100)),
        When("alloc", break_rabbit("rabbit-02", 600.0, "Offline")),
        When("clean", empty),
        job=Job((XFS,), nodes=4),
        machine={"topology": SMALL},
        may=("transient-condition",),  # where the watch that would tell is lost
        spared="no-room",
    ),
    room(
        "jobs wait for a Rabbit that others fill after they got their nodes",
        "Proposal 2:Proposal alloc..start cancel! finish gone workflow-deleted! clean "
        "2:alloc 2:Setup..gone",
        When("start", unload(60.0), 10.0),
        When("start", cancel, 10.0),
        When("start", fill(40), 11.0),
        When("start", delete, 11.0),
        When("start", empty, 600.0),
        job=replace(ONE, seconds=600.0),
        others=(TWO,),
        machine={"topology": SMALL},
        spans=(("start", "2:Setup", 655.7),),
    ),
    room(
        "storage counts after its job was released",
        "Proposal..Teardown dws-epilog-timeout! disable:rabbit-01 epilog-given-up "
        "clean enable:rabbit-01 2:Proposal gone 2:alloc..Teardown "
        "2:dws-epilog-timeout! disable:rabbit-01 2:epilog-given-up 2:clean "
        "enable:rabbit-01 2:gone",
        When("clean", StorySystem.enable_rabbits, 5.0),
        When("clean", unload(5.0), 10.0),
        When("clean", submit(TWO), 20.0),
        data="epilog-given-up",
        machine={"topology": SMALL},
        latency={"Teardown": 600.0},
        epilog_timeout=60.0,
    ),
    room(
        "no job fails for what another one takes beyond its share",
        "Proposal 2:Proposal 3:Proposal 4:Proposal alloc..clean 2:alloc 3:alloc "
        "2:Setup 3:Setup gone 2:DataIn 3:DataIn 2:PreRun 3:PreRun 2:start 3:start "
        "2:finish 3:finish 2:PostRun 3:PostRun 2:DataOut 3:DataOut 2:Teardown "
        "3:Teardown 2:clean 3:clean 4:alloc 4:Setup 2:gone 3:gone 4:DataIn..gone",
        job=PIECE,
        others=(
            on("compute-01", SHARE),
            on("compute-02", SHARE),
            PIECE,
        ),
        machine={"topology": Topology.regular(4, 4, capacity=64 * GIB)},
    ),
    # While Servers cannot be seen
    room(
        "persistent storage counts in a new Fluxion when Servers can be seen",
        "Proposal..gone 2:Proposal 3:Proposal..gone 2:alloc..gone",
        When("gone", UNSEEN, 5.0),
        When("gone", unload(1.0), 5.0),
        When("gone", reload_fluxion, 5.5),
        When("gone", submit(on("compute-02", SHARE)), 350.0),
        When("gone", submit(on("compute-03", DESTROY, urgency=31)), 400.0),
        job=on("compute-01", KEEP),
        machine={"topology": SMALL},
        may=("dws-refused",),
    ),
    room(
        "a Rabbit that was broken is used again when Servers can be seen",
        "alloc start finish clean 2:Proposal..gone",
        When("", break_rabbit("rabbit-01", 30.0, "Offline")),
        When("", UNSEEN, 10.0),
        When("", unload(1.0), 10.0),
        When("", submit(ONE), 100.0),
        job=PLAIN,
        machine={"topology": SMALL},
        may=("no-room", "transient-condition"),
        spans=(("2:Proposal", "2:alloc", 212.6),),
    ),
    room(
        "a Rabbit that breaks before Servers can be seen gets no job",
        "alloc start finish clean 2:Proposal..gone",
        When("", UNSEEN, 10.0),
        When("", unload(1.0), 10.0),
        When("", break_rabbit("rabbit-02", 600.0, "Offline"), 60.0),
        When("", submit(on("compute-03", SMALLEST)), 100.0),
        job=PLAIN,
        machine={"topology": SMALL},
        spans=(("2:Proposal", "2:alloc", 562.1),),
    ),
    room(
        "no job gets a node below a Rabbit in use before Servers can be seen",
        "Proposal..start 2:Proposal finish..gone 2:alloc..gone",
        When("start", UNSEEN, 10.0),
        When("start", unload(1.0), 10.0),
        When("start", submit(TWO), 20.0),
        machine={"topology": SMALL, "scheduler": False},
        spans=(("start", "2:alloc", 312.6),),
    ),
    room(
        "a job does not end before its storage is kept from others",
        "Proposal..DataOut clean Teardown gone",
        When("DataOut", fail_flux(FLUXION, 15.0)),
        When("DataOut", UNSEEN, 10.0),
        When("DataOut", unload(1.0), 10.0),
        job=replace(ONE, directives=(XFS, COPY_OUT), release="unmounted"),
        latency={"DataOut": 1000.0},
        machine={"topology": SMALL},
        spans=(("DataOut", "clean", 312.6),),
    ),
    # What Fluxion is told
    room(
        "few ssd are in service again when a new module sees their Rabbit serve",
        "alloc start finish clean 2:Proposal..gone",
        When("", break_rabbit("rabbit-01", 60.0, "Offline")),
        When("", submit(on("compute-01", SMALLEST)), 20.0),
        When("", unload(30.0), 45.0),
        job=PLAIN,
        machine={"topology": FEW},
        spans=(("2:Proposal", "2:alloc", 55.1),),
        may=("no-room", "transient-condition"),
    ),
    Story(
        "what Fluxion refuses it is asked for again",
        "alloc start finish clean 2:Proposal..gone",
        job=PLAIN,
        troubles=(
            When("", fail_flux(FLUXION, 20.0)),
            When("", fail_flux(FLUXION, 20.0), 99.0),
            When("", break_rabbit("rabbit-01", 200.0, "Offline"), 100.0),
            When("", submit(ONE), 160.0),
            When("", fail_flux(FLUXION, 60.0), 299.0),
        ),
        spans=(("2:Proposal", "2:alloc", 204.1),),
        log="fluxion-error fluxion-error fluxion-error",
        may=("no-room", "transient-condition"),
    ),
    Story(
        "a Rabbit whose ssd Fluxion refuses to set down holds up no other",
        "alloc start finish clean 2:Proposal 3:Proposal 2:alloc..gone 3:alloc..gone",
        job=PLAIN,
        troubles=(
            When("", refuse_ssds),
            When("", break_rabbit("rabbit-01", 200.0, "Offline"), 1.0),
            When("", break_rabbit("rabbit-02", 300.0, "Offline"), 1.0),
            When("", submit(on("compute-01", SMALLEST)), 100.0),
            When("", submit(on("compute-03", SMALLEST)), 100.0),
        ),
        machine={"topology": FEW},
        spans=(("3:Proposal", "2:alloc", 103.1), ("3:Proposal", "3:alloc", 203.1)),
        may=("no-room", "transient-condition"),
    ),
    # Without a scheduler of storage
    room(
        "no job gets a node below a Rabbit that another one uses",
        "Proposal..start 2:Proposal finish..gone 2:alloc..gone",
        When("start", submit(TWO), 10.0),
        machine={"topology": SMALL, "scheduler": False},
    ),
    room(
        "a job gets no node below a Rabbit that is broken",
        "alloc start finish clean 2:Proposal..gone",
        When("", break_rabbit("rabbit-01", FOREVER, "Offline")),
        When("clean", submit(Job((XFS,), nodes=1)), 10.0),
        job=PLAIN,
        may=("no-room", "transient-condition"),  # where a watch is late
    ),
    room(
        "a job waits where Fluxion is to schedule no storage",
        "alloc start finish clean 2:Proposal 2:cancel! 2:Teardown..gone",
        When("clean", submit(Job((XFS,), nodes=1)), 10.0),
        When("clean", reload_fluxion, 60.0),
        When("clean", cancel_job(2), 120.0),
        job=PLAIN,
        machine={"scheduler": False, "scheduler_module": FLUXION},
        log="config-wrong config-wrong config-wrong",
    ),
    room(
        "a job fails for the room that persistent storage leaves",
        "Proposal..gone 2:Proposal 2:alloc 2:no-room! 2:Teardown..gone "
        "3:Proposal..gone 4:Proposal..gone",
        When("gone", submit(TWO), 10.0),
        When("2:gone", submit(on("compute-03", DESTROY)), 10.0),
        When("3:gone", submit(TWO), 10.0),
        job=on("compute-01", KEEP.replace("10", "40")),
        may=("dws-refused",),
        spans=(("2:alloc", "2:no-room!", 1.0),),
    ),
    # Colocation keys
    Story(
        "two jobs at once that need a Rabbit for themselves each get one",
        f"Proposal 2:Proposal alloc 2:alloc {TOGETHER}",
        job=KEYED,
        troubles=(When("alloc", slow_kube(60.0, 1.0, "patch", kind=SERVERS)),),
        others=(KEYED,),
        machine={"topology": Topology.regular(4, 2)},
    ),
    Story(
        "a job does not wait for a colocation key of persistent storage",
        "Proposal..gone 2:Proposal 2:alloc 2:no-room! 2:Teardown..gone",
        job=Job((MGT.replace("jobdw", "create_persistent"),), nodes=1),
        troubles=(When("gone", submit(KEYED), 10.0),),
        machine={"topology": Topology.regular(2, 1)},
    ),
    keyed(
        "a job waits in its prolog for a Rabbit without its colocation key",
        "finish..gone 2:Setup..gone",
    ),
    keyed(
        "a job that ended has its key before its Workflow is seen",
        "cancel! finish clean PostRun..Teardown gone 2:Setup..gone",
        When("start", outage(200.0), 1.0),
        When("start", unload(0.0), 1.0),
        When("start", unload_plugin(60.0), 2.0),
        When("start", cancel, 3.0),
        data="out",
        latency={"Teardown": 50.0},
    ),
    keyed(
        "a key is in use until the storage of a Workflow that was wiped out is gone",
        "gone workflow-deleted! finish clean 2:Setup..gone",
        When("start", pause_dws(700.0), 30.0),
        When("start", delete, 31.0),
        spans=(("gone", "2:Setup", 702.6),),
    ),
    *(
        keyed(
            f"a job that waits for a key gives up before its prolog would{what}",
            f"{GIVES_UP} finish..gone",
            *troubles,
            job=replace(KEYED, seconds=3000.0),
            config=Config.parse({"prolog_timeout": "20m"}),
            spans=(("2:alloc", "2:prolog-timeout!", seconds),),
        )
        for what, seconds, troubles in (
            ("", 625.0, ()),
            (" after an outage", 624.8, (When("2:alloc", outage(500.0)),)),
            (
                ", however often the module is loaded again",
                610.4,
                tuple(When("2:alloc", unload(20.0), 10.0 + n) for n in (0, 200, 400)),
            ),
        )
    ),
)
