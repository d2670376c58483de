# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs whose data is copied in before they have nodes."""

from __future__ import annotations

from typing import Any

from flux_k8s.config.table import KEEP, Config
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.machine.fluxion import FLUXION
from flux_k8s.ports import Json, KubeError
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.deeds import (
    break_rabbit,
    cancel_job,
    constrain,
    disable_rabbit,
    drain,
    reload_fluxion,
    set_urgency,
    submit,
    switch_off,
    undrain,
    unlink,
    unload,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import pause_dws, slow_flux
from rabbitsim.torture.story import (
    COPY_IN,
    COPY_OUT,
    FOREVER,
    XFS,
    Job,
    Story,
    When,
    of,
)

COPY = 600.0
"""Seconds that DataIn takes."""

HOUR = 3600.0
LUSTRE = "#DW jobdw type=lustre capacity=10GiB name=p1"
GUEST, OTHER = 4711, 4712

FIRST, SECOND = "compute-[01-02]", "compute-[03-04]"
"""The nodes below each Rabbit."""

LEFT, RIGHT = "compute-[01-04]", "compute-[05-08]"
"""The same where there are four."""

WAITS = "Proposal Setup DataIn"
"""A job whose data is copied in."""

RUNS = "alloc PreRun..finish"


REST = f"{RUNS} PostRun..gone"
LIFE = f"{WAITS} {REST}"
MADE = f"Setup DataIn {REST}"
IN_PROLOG = "alloc..gone"


TWO_TOGETHER = (
    "2:Setup 3:Setup 2:DataIn 3:DataIn 2:alloc 2:PreRun 3:alloc 3:PreRun "
    "2:start..DataOut 3:start..DataOut 2:Teardown 3:Teardown 2:clean 2:gone 3:clean "
    "3:gone"
)


WITH_FOURTH = (
    "2:finish 2:clean alloc 4:alloc PreRun 4:PreRun start finish 4:start 4:finish "
    "PostRun 4:PostRun DataOut 4:DataOut Teardown 4:Teardown clean 4:clean gone 4:gone"
)
REFUSED = "bad-request! clean"
TOO_MUCH = "Proposal bad-request! Teardown..gone"
TOO_LONG = "Proposal bad-object! Teardown..gone"


def sized(size: int, nodes: int = 1, **more: Any) -> Job:
    """A job with nodes of its own, and so many GiB for each of them."""
    storage = XFS.replace("10GiB", f"{size}GiB")
    given = {"stage": "ahead", "directives": (storage, COPY_IN), **more}
    return Job(nodes=nodes, exclusive=True, **given)


def on(hosts: str) -> Json:
    """The attributes of a job that may have these nodes only."""
    return {"constraints": {"hostlist": [hosts]}}


def busy(nodes: int, seconds: float = 1200.0, hosts: str = "", **more: Any) -> Job:
    """A job without storage. ``more``: attributes."""
    attributes = {**(on(hosts) if hosts else {}), **more}
    return Job((), nodes, seconds=seconds, exclusive=True, attributes=attributes)


def limits(**table: Any) -> Config:
    return Config.parse({"stage_limit": 100, "stage_user_limit": 100, **table})


def ahead(
    name: str,
    course: str,
    job: Job,
    *troubles: Any,
    rabbits: int = 2,
    nodes: int = 2,
    **more: Any,
) -> Story:
    """The story of such a job, with so many Rabbits of 100 GiB, and nodes below
    each."""
    topology = Topology.regular(rabbits * nodes, rabbits, capacity=100 * GIB)
    given = {
        "latency": {"DataIn": COPY},
        "machine": {"topology": topology},
        "config": limits(),
        **more,
    }
    return Story(name, course, job=job, troubles=troubles, **given)


def soonest(name: str, course: str, *jobs: Job) -> Story:
    """The story of jobs on two Rabbits with four nodes each, of which the second has
    less room."""
    full = sized(
        40,
        stage="prolog",
        seconds=5000.0,
        directives=(XFS.replace("10G", "40G"),),
        attributes=on("compute-08"),
    )
    troubles = (
        When("DataIn", submit(job), after=number) for number, job in enumerate(jobs, 1)
    )
    return ahead(name, course, full, *troubles, nodes=4)


def filled(
    name: str, course: str, *jobs: Job, more: tuple[When, ...] = (), **given: Any
) -> Story:
    """The story of jobs of which the first has much of the first Rabbit."""
    full = sized(60, stage="prolog", user=GUEST, seconds=3000.0, attributes=on(FIRST))
    troubles = (
        When("start", submit(job), after=number) for number, job in enumerate(jobs, 1)
    )
    return ahead(name, course, full, *troubles, *more, **given)


def delay_first(system: StorySystem) -> None:
    """Kubernetes takes its time with the answers about the first job, for a while."""
    disturb_first(system, "get", Fault(delay=50.0))


def refuse_first(system: StorySystem) -> None:
    """A webhook fails for what is written to the first job's Workflow."""
    error = KubeError(500, "InternalError", "a webhook of the site is away")
    disturb_first(system, "patch", Fault(error=error))


def disturb_first(system: StorySystem, verb: str, how: Fault) -> None:
    name = workflow_name(system.first.id)
    until = system.loop.now() + HOUR
    system.api_fault = lambda request: (
        how
        if request.verb == verb
        and name in (request.name or "")
        and system.loop.now() < until
        else None
    )


STORIES = (
    ahead(
        "data is copied in while the nodes run another job",
        f"2:alloc 2:start {WAITS} 2:finish 2:clean {RUNS} PostRun..gone",
        sized(10, 4),
        others=(busy(4),),
        spans=(("2:clean", "start", 1.0),),
    ),
    *(
        ahead(
            f"a job gets its {nodes} nodes where its storage is",
            LIFE,
            sized(10, nodes),
            rabbits=3,
        )
        for nodes in range(1, 7)
    ),
    ahead(
        "a Lustre file system is made for any nodes",
        f"2:alloc 2:start {LIFE} 2:finish 2:clean",
        sized(10, 2, directives=(LUSTRE, COPY_IN)),
        others=(busy(2, 3000.0),),
    ),
    ahead(
        "a scheduler that does not answer is no outage of Kubernetes",
        LIFE,
        sized(10, 2),
        When("", slow_flux(FLUXION, 60.0, 30.0), after=0.2),
        unlogged="kubernetes-away",
    ),
    ahead(
        "no job gets the storage that was made for another",
        f"2:alloc 2:start {WAITS} 2:cancel! 2:finish 2:clean alloc PreRun 3:Proposal "
        f"start..gone {of(3, IN_PROLOG)}",
        sized(45, 4),
        When("DataIn", cancel_job(2), after=COPY + 10.0),
        When("DataIn", submit(sized(45, 2, stage="prolog")), after=COPY + 10.0),
        others=(busy(4),),
    ),
    ahead(
        "a Fluxion that is loaded anew gives no job the storage of one without nodes",
        f"2:alloc 2:start {WAITS} 3:Proposal 2:finish 2:clean {RUNS} PostRun..gone "
        f"{of(3, IN_PROLOG)}",
        sized(45, 4),
        When("DataIn", reload_fluxion, after=COPY + 5.0),
        When("DataIn", submit(sized(45, 2, stage="prolog")), after=COPY + 10.0),
        others=(busy(4),),
    ),
    ahead(
        "no storage is made ahead of what another job has",
        f"Proposal..start 2:Proposal finish..gone {of(2, MADE)}",
        sized(60, 2, stage="prolog", seconds=2000.0),
        When("start", submit(sized(60, 2))),
    ),
    ahead(
        "storage is made in the order of urgency, then of submission",
        f"Proposal 2:Proposal 3:Proposal 4:Proposal {of(5, LIFE)} Setup DataIn {RUNS} "
        f"PostRun..gone {of(3, MADE)} {of(4, MADE)} {of(2, MADE)}",
        sized(90),
        others=tuple(sized(90, urgency=urgency) for urgency in (10, 16, 16, 20)),
        rabbits=1,
    ),
    ahead(
        "a change of urgency changes the order",
        f"Proposal 2:Proposal 3:Proposal Setup DataIn {RUNS} PostRun..gone "
        f"{of(3, MADE)} {of(2, MADE)}",
        sized(90),
        When("DataIn", set_urgency(20, 3), after=10.0),
        others=(sized(90), sized(90)),
        rabbits=1,
    ),
    ahead(
        "no storage is made for a job that is held",
        LIFE,
        sized(10, urgency=0),
        When("", set_urgency(16), after=HOUR),
        spans=(("Proposal", "Setup", HOUR),),
    ),
    ahead(
        "no storage is made for a job that waits for the data of another",
        f"Proposal 2:Proposal Setup DataIn {RUNS} PostRun..gone {of(2, MADE)}",
        sized(10, directives=(XFS, COPY_IN, COPY_OUT), seconds=3000.0),
        others=(sized(10, awaits=1),),
    ),
    ahead(
        "no storage is made on a Rabbit that does not work",
        f"{WAITS} 2:Proposal 3:Proposal 3:Setup 3:DataIn {RUNS} PostRun..clean "
        f"3:alloc 3:PreRun gone 3:start..gone {of(2, MADE)}",
        sized(10, 2),
        When("", break_rabbit("rabbit-01", HOUR, "Offline")),
        When("DataIn", submit(sized(10, 4))),
        When("DataIn", submit(sized(10, 2))),
        may=("rabbit-broken",),  # where that is seen late
    ),
    ahead(
        "no storage is made for a node that is drained",
        f"drain:compute-01 {LIFE}",
        sized(10, 3),
        When("", drain("compute-01")),
    ),
    ahead(
        "no storage is made for a node that has lost its Rabbit",
        LIFE,
        sized(10, 3),
        When("", unlink(FOREVER, "compute-01")),
        config=limits(drain_compute_nodes=False, stage_timeout=1000.0),
        # A watch of Storages that comes late shows too late that it has.
        may=("stage-timeout",),
    ),
    *(
        ahead(
            f"storage is made where a job may run ({key})",
            LIFE,
            sized(10, 2, attributes={"constraints": {key: [value]}}),
        )
        for key, value in (("hostlist", SECOND), ("ranks", "2-3"))
    ),
    *(
        ahead(
            f"jobs without nodes have at most {limit}, and keep their order",
            f"5:alloc 5:start Proposal 2:Proposal 3:Proposal 4:Proposal {course}",
            sized(40),
            others=(sized(40), sized(10), sized(10, user=GUEST), busy(4, 3000.0)),
            config=limits(**{limit: 30}),
        )
        for limit, course in (
            (
                "stage_limit",
                f"Setup DataIn 5:finish 5:clean {RUNS} PostRun..gone {TWO_TOGETHER} "
                f"{of(4, MADE)}",
            ),
            (
                "stage_user_limit",
                "Setup 4:Setup DataIn 4:DataIn 5:finish 5:clean alloc 4:alloc PreRun "
                "4:PreRun start finish 4:start 4:finish PostRun 4:PostRun DataOut "
                "4:DataOut Teardown 4:Teardown clean 4:clean gone 4:gone "
                f"{TWO_TOGETHER}",
            ),
        )
    ),
    ahead(
        "a site has all storage made ahead that can be",
        "Proposal 2:Proposal 3:Proposal 2:alloc..DataIn Setup 3:alloc 3:Setup DataIn "
        "3:DataIn 2:PreRun..gone alloc 3:PreRun PreRun 3:start 3:finish start finish "
        "3:PostRun PostRun 3:DataOut DataOut 3:Teardown Teardown 3:clean clean "
        "3:gone gone",
        sized(10, stage=""),
        others=(
            sized(10, stage="", directives=(XFS,)),
            sized(40, 2, stage=""),
        ),
        config=limits(stage="ahead", stage_limit=30),
    ),
    *(
        ahead(f"a job cannot have its storage made ahead {why}", course, job, **more)
        for why, job, course, more in (
            (
                "beyond a limit",
                sized(40, 2),
                TOO_MUCH,
                {"config": limits(stage_limit=30)},
            ),
            (
                "where there is no room",
                sized(80, 2, attributes=on(FIRST)),
                TOO_MUCH,
                {},
            ),
            (
                "without Fluxion",
                sized(10),
                REFUSED,
                {"machine": {"scheduler": False}},
            ),
            ("without copy_in", sized(10, directives=(XFS,)), REFUSED, {}),
            (
                "with too many ranks",
                sized(10, attributes={"constraints": {"ranks": ["0-1000000"]}}),
                TOO_LONG,
                {},
            ),
            (
                "with too large a constraint",
                sized(10, attributes={"constraints": {"properties": ["^a"] * 10_000}}),
                TOO_LONG,
                {},
            ),
        )
    ),
    ahead(
        "jobs whose data is copied in ahead end before their data is out",
        f"Proposal 2:Proposal Setup 2:Setup DataIn 2:DataIn {RUNS} PostRun DataOut "
        "clean 2:alloc 2:PreRun Teardown 2:start..DataOut gone 2:clean 2:Teardown "
        "2:gone",
        sized(10, 4, directives=(XFS, COPY_IN, COPY_OUT), release="unmounted"),
        others=(
            sized(10, 4, directives=(XFS, COPY_IN, COPY_OUT), release="unmounted"),
        ),
    ),
    # Where nodes are free soonest
    soonest(
        "storage is made where nodes are free if more room is elsewhere",
        "Proposal..DataIn 2:alloc 2:start 3:Proposal 3:Setup 3:DataIn PreRun start "
        "3:alloc 3:PreRun..gone 2:finish 2:clean finish..gone",
        busy(4, 5000.0, LEFT),
        sized(10, 3),
    ),
    soonest(
        "storage is made where nodes are free soonest",
        "Proposal..DataIn 2:alloc 2:start 3:alloc 3:start 4:Proposal 4:Setup "
        "4:DataIn PreRun start 3:finish 3:clean 4:alloc 4:PreRun..gone 2:finish "
        "2:clean finish..gone",
        busy(4, 4990.0, LEFT, duration=5000.0),
        busy(3, 1990.0, RIGHT, duration=2000.0),
        sized(10, 3),
    ),
    soonest(
        "two jobs do not have storage made for the same nodes",
        "Proposal..DataIn 2:alloc 2:start 3:alloc 3:start 4:Proposal 4:Setup "
        "4:DataIn 5:Proposal 5:Setup 5:DataIn PreRun start 2:finish 2:clean 4:alloc "
        "4:PreRun 4:start 3:finish 3:clean 5:alloc 5:PreRun 5:start finish..gone "
        "4:finish..gone 5:finish..gone",
        busy(4, 1990.0, LEFT, duration=2000.0),
        busy(3, 2490.0, RIGHT, duration=2500.0),
        sized(1, 3, seconds=4000.0),
        sized(1, 3, seconds=4000.0),
    ),
    # Users
    filled(
        "who waits for a full Rabbit holds up no other user",
        "Proposal..start 2:Proposal 3:Proposal 3:Setup 3:DataIn 4:Proposal 3:alloc "
        f"3:PreRun..gone {of(4, MADE)} finish..gone {of(2, MADE)}",
        sized(60, user=GUEST, attributes=on(FIRST)),
        sized(90, user=OTHER),
        sized(10, user=OTHER),
    ),
    filled(
        "a Rabbit is kept for who waits for it",
        f"Proposal..start 2:Proposal 3:Proposal finish..gone {TWO_TOGETHER}",
        sized(60, user=GUEST, attributes=on(FIRST)),
        sized(20, user=OTHER, attributes=on(FIRST)),
    ),
    filled(
        "who waits for a full Rabbit holds up no other user by the limit of all",
        "Proposal..start 2:Proposal 2:Setup 2:DataIn 3:Proposal 4:Proposal 4:Setup "
        "4:DataIn 2:alloc 2:PreRun..gone 4:alloc 4:PreRun..gone finish..gone "
        f"{of(3, MADE)}",
        sized(30, user=OTHER),
        sized(50, user=GUEST, attributes=on(FIRST)),
        sized(10, user=OTHER),
        config=limits(stage_limit=30),
    ),
    ahead(
        "who has enough holds up no other user by the limit of all",
        f"2:alloc 2:start {WAITS} 3:Proposal 3:Setup 3:DataIn 4:Proposal 5:Proposal "
        "5:Setup 5:DataIn 2:finish 2:clean alloc 3:alloc 5:alloc PreRun 3:PreRun "
        "5:PreRun start finish 3:start 3:finish 5:start 5:finish PostRun 3:PostRun "
        "5:PostRun DataOut 3:DataOut 5:DataOut Teardown 3:Teardown 5:Teardown clean "
        f"3:clean 5:clean gone 3:gone 5:gone {of(4, MADE)}",
        sized(20, user=GUEST),
        When("DataIn", submit(sized(30)), after=1.0),
        When("DataIn", submit(sized(35, user=GUEST)), after=2.0),
        When("DataIn", submit(sized(10, user=OTHER)), after=3.0),
        others=(busy(4, 3000.0),),
        config=limits(stage_limit=35, stage_user_limit=20),
    ),
    ahead(
        "who waits for nodes that do not serve holds up no other user by the limit",
        f"drain:compute-01 drain:compute-02 2:alloc 2:start {WAITS} 3:Proposal "
        "4:Proposal 4:Setup 4:DataIn 2:finish 2:clean alloc 4:alloc PreRun 4:PreRun "
        "start finish 4:start 4:finish PostRun 4:PostRun DataOut 4:DataOut Teardown "
        f"4:Teardown clean 4:clean gone 4:gone undrain:compute-01 {of(3, MADE)}",
        sized(30),
        When("", drain("compute-01")),
        When("", drain("compute-02")),
        When("DataIn", submit(sized(40, user=GUEST, attributes=on(FIRST))), after=1.0),
        When("DataIn", submit(sized(10, user=OTHER)), after=2.0),
        When("DataIn", undrain("compute-01"), after=5000.0),
        others=(busy(2, 3000.0, SECOND),),
        config=limits(stage_limit=30),
    ),
    filled(
        "who waits for a full Rabbit holds up the user's own jobs",
        "Proposal..start 2:Proposal 3:Proposal 2:cancel! 2:Teardown 3:Setup 2:clean "
        f"2:gone 3:DataIn {of(3, REST)} finish..gone",
        sized(60, user=GUEST, attributes=on(FIRST)),
        sized(10, user=GUEST),
        more=(When("start", cancel_job(2), after=HOUR / 2),),
        spans=(("start", "3:Setup", HOUR / 2),),
    ),
    *(
        filled(
            f"a Rabbit is kept no longer for who {what}",
            f"Proposal..start 2:Proposal 3:Proposal {end}",
            sized(60, user=GUEST, attributes=on(FIRST)),
            sized(20, user=OTHER, attributes=on(FIRST)),
            more=(When("start", deed, after=600.0), *later),
            spans=(("start", "3:Setup", 601.0),),
        )
        for what, deed, later, end in (
            (
                "is held",
                set_urgency(0, 2),
                (When("gone", set_urgency(16, 2), after=700.0),),
                f"{of(3, MADE)} finish..gone {of(2, MADE)}",
            ),
            (
                "is cancelled",
                cancel_job(2),
                (),
                "2:cancel! 2:Teardown 3:Setup 2:clean 2:gone 3:DataIn "
                f"{of(3, REST)} finish..gone",
            ),
        )
    ),
    filled(
        "no Rabbit is kept from who is more urgent",
        f"Proposal..start 2:Proposal 3:Proposal {of(3, MADE)} finish..gone "
        f"{of(2, MADE)}",
        sized(60, user=GUEST, attributes=on(FIRST), urgency=10),
        sized(20, user=OTHER, attributes=on(FIRST)),
        spans=(("3:Proposal", "3:Setup", 0.0),),
    ),
    filled(
        "no Rabbit is kept for who is held meanwhile",
        f"Proposal..start 2:Proposal 3:Proposal {of(3, MADE)} finish..gone "
        f"{of(2, MADE)}",
        sized(60, user=GUEST, attributes=on(FIRST)),
        more=(
            When("start", slow_flux("job-list", 60.0, 5.0)),
            When("start", set_urgency(0, 2), after=1.4),
            When("start", submit(sized(20, user=OTHER, attributes=on(FIRST))), 70.0),
            When("start", set_urgency(16, 2), 3000.4),
        ),
        spans=(("start", "3:Setup", 70.0),),
    ),
    *(
        ahead(
            f"the next job has its storage made when the first one {what}",
            f"2:alloc 2:start {WAITS} 3:Proposal 4:Proposal {end}",
            sized(40),
            When("DataIn", submit(sized(50, user=GUEST)), after=1.0),
            When("DataIn", submit(sized(10, user=OTHER)), after=2.0),
            When("DataIn", deed, after=600.0),
            *later,
            others=(busy(4, 3000.0),),
            config=limits(stage_limit=30),
            spans=(("DataIn", "4:Setup", 600.0),),
        )
        for what, deed, later, end in (
            (
                "is held",
                set_urgency(0, 3),
                (When("DataIn", set_urgency(16, 3), 2999.3),),
                f"4:Setup 4:DataIn {WITH_FOURTH} {of(3, MADE)}",
            ),
            (
                "gets less urgent",
                set_urgency(10, 3),
                (),
                f"4:Setup 4:DataIn {WITH_FOURTH} {of(3, MADE)}",
            ),
            (
                "is cancelled",
                cancel_job(3),
                (),
                f"3:cancel! 3:Teardown 4:Setup 3:clean 3:gone 4:DataIn {WITH_FOURTH}",
            ),
        )
    ),
    ahead(
        "who is held when its storage is about to be made holds up nobody",
        "Proposal 2:Proposal 2:Setup 2:DataIn Setup DataIn 2:alloc 2:PreRun..gone "
        "alloc PreRun..gone",
        sized(40, user=GUEST),
        When("Proposal", delay_first),
        When("Proposal", set_urgency(0), after=0.4),
        When("2:gone", set_urgency(16)),
        others=(sized(10, user=OTHER),),
        spans=(("Proposal", "2:Setup", 0.4),),
    ),
    ahead(
        "who has a Workflow that Kubernetes does not take holds up nobody",
        f"Proposal {of(2, LIFE)} {MADE}",
        sized(10, user=GUEST),
        When("Proposal", refuse_first),
        When("Proposal", submit(sized(10, user=OTHER)), after=600.0),
    ),
    ahead(
        "storage counts for its user until it is gone",
        f"2:alloc 2:start {WAITS} cancel! Teardown 3:Proposal teardown-late clean gone "
        "3:Setup 3:DataIn 2:finish 2:clean 3:alloc 3:PreRun..Teardown 3:teardown-late "
        "3:clean 3:gone",
        sized(20, user=GUEST),
        When("DataIn", cancel_job(1), after=10.0),
        When("DataIn", submit(sized(20, user=GUEST)), after=20.0),
        others=(busy(4, 6000.0),),
        latency={"DataIn": 60.0, "Teardown": HOUR},
        config=limits(stage_user_limit=15),
    ),
    ahead(
        "a job gets any nodes below its Rabbits",
        f"2:alloc 3:alloc 4:alloc 2:start 3:start 4:start {LIFE} 2:finish 2:clean "
        "3:finish 3:clean 4:finish 4:clean",
        sized(10, 6),
        others=tuple(
            busy(1, 9000.0, host) for host in ("compute-01", "compute-05", "compute-09")
        ),
        rabbits=3,
        nodes=4,
    ),
    # Trouble
    ahead(
        "a Rabbit breaks where data waits while the module is away",
        f"2:alloc 2:start {WAITS} rabbit-broken! Teardown..gone 2:finish 2:clean",
        sized(10, 4),
        When("DataIn", unload(20.0), after=COPY + 5.0),
        When("DataIn", break_rabbit("rabbit-02", 60.0), after=COPY + 10.0),
        others=(busy(4),),
    ),
    ahead(
        "a Rabbit breaks where data is copied in",
        f"{WAITS} rabbit-broken! Teardown..gone",
        sized(10, 4),
        When("DataIn", break_rabbit("rabbit-01", 30.0), after=10.0),
    ),
    ahead(
        "a Rabbit breaks before storage is made there",
        LIFE,
        sized(10),
        When("Proposal", slow_flux(FLUXION, 10.0, 2.0)),
        When("Proposal", break_rabbit("rabbit-01", HOUR), after=1.0),
    ),
    *(
        ahead(
            f"data waits on a Rabbit that new jobs do not get by {whom}",
            f"2:alloc 2:start {WAITS} 2:finish 2:clean {RUNS} PostRun..gone",
            sized(10, 4),
            When("DataIn", deed, after=COPY + 10.0),
            others=(busy(4),),
        )
        for whom, deed in (
            ("Flux", disable_rabbit("rabbit-01", HOUR)),
            ("DWS", break_rabbit("rabbit-01", HOUR, "Disabled")),
        )
    ),
    ahead(
        "a Rabbit breaks that new jobs do not get",
        f"2:alloc 2:start {WAITS} rabbit-broken! Teardown teardown-late 2:finish "
        "2:clean clean gone",
        sized(10, 4),
        When("DataIn", disable_rabbit("rabbit-01", HOUR), after=COPY + 10.0),
        When("DataIn", break_rabbit("rabbit-01", HOUR), after=COPY + 40.0),
        others=(busy(4),),
    ),
    ahead(
        "storage that gets no nodes in time is given back",
        "3:alloc 3:start Proposal 2:Proposal Setup DataIn stage-timeout! "
        "Teardown..gone 2:Setup 2:DataIn 2:stage-timeout! 2:Teardown..gone 3:finish "
        "3:clean",
        sized(45, 4),
        When("DataIn", unload(10.0), after=COPY + 600.0),
        others=(sized(45, 4), busy(4, 5000.0)),
        config=limits(stage_timeout="20m"),
        spans=(
            ("DataIn", "stage-timeout!", COPY + 1200.0),
            ("2:DataIn", "2:stage-timeout!", COPY + 1200.0),
        ),
    ),
    ahead(
        "the limit counts from when data was copied",
        f"2:alloc 2:start {WAITS} stage-timeout! Teardown..gone 2:finish 2:clean",
        sized(10, 4),
        When("Setup", pause_dws(HOUR)),
        others=(busy(4, 6000.0),),
        config=limits(stage_timeout="20m"),
        spans=(("DataIn", "stage-timeout!", COPY + 1200.0),),
    ),
    ahead(
        "a job gets other nodes than its storage was made for",
        f"2:alloc 2:start {WAITS} 2:finish 2:clean alloc prolog-timeout! "
        "Teardown..gone",
        sized(10, 2),
        When("DataIn", constrain({"hostlist": [SECOND]}), after=COPY + 10.0),
        others=(busy(4),),
    ),
    ahead(
        "a job may have other nodes before its storage is made",
        LIFE,
        sized(10, 2, urgency=0),
        When("", constrain({"hostlist": [SECOND]}), after=5.0),
        When("", set_urgency(16), after=6.0),
    ),
    ahead(
        "a job may have other nodes when its data is copied in",
        f"{WAITS} other-nodes! Teardown..gone",
        sized(10, 2),
        When("DataIn", constrain({"hostlist": [SECOND]}), after=10.0),
    ),
    *(
        ahead(
            f"storage that was made ahead is kept for a node ({release})",
            f"{WAITS} {RUNS} PostRun drain:compute-02 unmount-failed clean 2:Proposal "
            f"3:Proposal {of(2, MADE)} down:compute-02 disable:compute-02 DataOut "
            f"Teardown gone {of(3, MADE)}",
            sized(
                45,
                4,
                directives=(XFS.replace("10GiB", "45GiB"), COPY_IN, COPY_OUT),
                release=release,
            ),
            DwsFault("PostRun", "mount", node="compute-02"),
            When("clean", submit(sized(4, 2))),
            When("clean", submit(sized(45, 2))),
            When("clean", switch_off(), after=HOUR),
            config=limits(unmount_failure=KEEP, postrun_timeout=60.0),
        )
        for release in ("teardown", "unmounted")
    ),
)
