# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Nodes that do not unmount. With ``unmount_failure = "keep"`` one of them is one bad
node: the storage is kept until it cannot write any more, and no file system is mounted
twice."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from flux_k8s.config.table import KEEP, Config, Daemon
from flux_k8s.objects.workflowmarks import KEPT_FOR
from flux_k8s.ports import SERVERS, SYSTEMSTATUS, WORKFLOW, KubeError
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import (
    annotate,
    cancel,
    cancel_job,
    configure,
    delete,
    disable,
    down,
    drain,
    fence,
    force,
    submit,
    switch_off,
    switch_on,
    tear_down,
    undrain,
    unlink,
    unload,
    up,
)
from rabbitsim.torture.outages import (
    begin,
    fail_flux,
    fail_for,
    mount,
    pause_dws,
    report,
    slow_kube,
)
from rabbitsim.torture.story import (
    COPY_IN,
    COPY_OUT,
    LIFE,
    NODE,
    XFS,
    Job,
    Story,
    When,
    of,
)
from rabbitsim.torture.troubles.dws import FENCE

LONG = 600.0
"""Seconds: longer than each limit."""

READS = ("list", "watch")
ALL_VERBS = ("get", "list", "watch", "create", "patch", "delete")
KEPT = Config(unmount_failure=KEEP, postrun_timeout=60.0)
FENCING = replace(KEPT, fence_command=(FENCE,))
STUCK = DwsFault("PostRun", "mount", node=NODE)
LATE = replace(STUCK, duration=LONG)
OFF = When("clean", switch_off(), after=LONG)
SOON = When("clean", switch_off(), after=100.0)
BROKEN = DwsFault("PostRun", "error", message="it broke")

HELD = "Proposal..PostRun drain:compute-02 unmount-failed clean"
"""A job that ends while its storage is kept for ``NODE``."""

GOES = "DataOut Teardown gone"
LEFT = f"down:compute-02 disable:compute-02 {GOES}"
"""What follows when the node is off."""

ALL = "#DW jobdw type=xfs capacity=90GiB name=p1"
"""Nearly half of a Rabbit of ``SMALL``, on each node."""

SMALL = {"topology": Topology.regular(4, 2, capacity=200 * 2**30)}

SECOND = XFS.replace("p1", "p2")
TWO = (XFS, SECOND, COPY_OUT)
"""Two file systems. DWS has the nodes unmount the second one after the first."""

DIMM = Job((XFS, COPY_OUT), nodes=4, seconds=30.0)
UNMOUNTABLE = "Rabbit storage could not be unmounted"

CREATE = "#DW create_persistent type=xfs capacity=1GiB name=keep"
USE = "#DW persistentdw name=keep"
SAVE = "#DW copy_out source=$DW_PERSISTENT_keep/ destination=/lustre/saved"

PLAIN = Job((), nodes=3)
FIRST, ODD, EVEN = (
    {"constraints": {"hostlist": [f"compute-{hosts}"]}}
    for hosts in ("01", "0[1,3]", "0[2,4]")
)

AFTER = "alloc..gone"
LIFE_2, LIFE_3 = of(2, LIFE), of(3, LIFE)
AFTER_3 = of(3, AFTER)
RUN_2 = "2:Proposal..finish"
HELD_2 = f"{RUN_2} 2:PostRun drain:compute-02 2:unmount-failed 2:clean"
LEFT_2 = f"down:compute-02 disable:compute-02 {of(2, GOES)}"
TOLD = "2:unmount-failed 2:teardown-late"
ABORTED = "2:dws-epilog-timeout! drain:compute-02 2:epilog-given-up"


def kept(
    name: str, course: str, *troubles: Any, config: Config = KEPT, **more: Any
) -> Story:
    """A story in which ``NODE`` does not unmount."""
    troubles = (STUCK, *troubles)
    return Story(name, course, troubles=troubles, config=config, **more)


LET_GO = (
    # A node that others have drained
    Story(
        "a node that others have drained does not hold up the job",
        "Proposal alloc Setup DataIn PreRun start drain:compute-02 finish PostRun "
        "unmount-failed postrun-timeout! Teardown disable:compute-02 clean gone",
        "postrun-timeout",
        DIMM,
        (STUCK, When("start", drain())),
        config=Config(postrun_timeout=60.0),
        harm=True,
        spared="postrun-timeout",
        freed=True,
    ),
    *(
        kept(
            f"a node that was drained {why} has its storage kept, and is told of once",
            "Proposal alloc Setup DataIn PreRun start drain:compute-02 finish PostRun "
            f"unmount-failed clean {LEFT}",
            When("start", deed),
            When("clean", switch_off(), 6 * LONG),
            data="unmount-failed",
            job=DIMM,
        )
        for why, deed in (
            ("by others", drain()),
            (
                "for another job",
                lambda system: system.instance.drain(NODE, f"fABC: {UNMOUNTABLE}"),
            ),
        )
    ),
    Story(
        "a node that is fenced is passed over, whatever it was drained for",
        f"{HELD} undrain:compute-02 drain:compute-02 disable:compute-02 {GOES}",
        "unmount-failed",
        DIMM,
        (
            STUCK,
            When("clean", undrain(), 10.0),
            When("clean", drain(), 20.0),
            When("clean", fence(NODE), 6 * LONG),
        ),
        config=FENCING,
    ),
    kept(
        "only the bad node is drained, and the others return to service",
        f"{HELD} 2:alloc 2:start 2:finish 2:clean {LEFT}",
        When("clean", submit(PLAIN)),
        OFF,
        data="unmount-failed",
        spans=(("PostRun", "unmount-failed", 60.0), ("clean", "DataOut", LONG)),
        log="unmount-failed unmount-failed",
    ),
    kept(
        "a node that is down, and has its Rabbit, keeps the storage",
        f"{HELD} down:compute-02 disable:compute-02 {GOES}",
        When("clean", down(), 10.0),
        When("clean", unlink(), LONG),
        data="unmount-failed",
        spans=(("clean", "DataOut", LONG),),
    ),
    kept(
        "a link that is lost is not enough while the broker lives",
        f"{HELD} {LEFT}",
        When("clean", unlink(), 10.0),
        When("clean", down(), LONG),
        spans=(("clean", "DataOut", LONG),),
    ),
    kept(
        "a broker that comes back before the link is lost keeps the storage",
        f"{HELD} down:compute-02 up:compute-02 {LEFT}",
        When("clean", down(), 10.0),
        When("clean", up(), 70.0),
        When("clean", unlink(), 70.0),
        When("clean", down(), LONG),
        spans=(("clean", "DataOut", LONG),),
    ),
    Story(
        "which nodes could write is found again if DWS goes on while storage is marked",
        "Proposal..finish down:compute-01 PostRun drain:compute-01 disable:compute-01 "
        "unmount-failed drain:compute-02 unmount-failed clean DataOut Teardown gone",
        job=Job(seconds=30.0),
        troubles=(
            replace(STUCK, duration=75.0),
            When("finish", down("compute-01")),
            When("finish", unlink(64.0, "compute-01")),
            When("PostRun", slow_kube(30.0, 40.0, "patch", kind=WORKFLOW), 55.0),
            When("clean", switch_off("compute-01"), LONG),
        ),
        config=KEPT,
        spared="unmount-failed",  # the next service finds compute-02 unmounted
        spans=(("PostRun", "clean", 100.0), ("clean", "DataOut", 660.0)),
    ),
    Story(
        "a node that unmounts late has its data copied",
        f"{HELD} {GOES}",
        "out",
        troubles=(LATE,),
        config=KEPT,
        spans=(("PostRun", "DataOut", LONG),),
        log="unmounted-late",
    ),
    kept(
        "storage without copies is not deleted under the node",
        f"{HELD} {LEFT}",
        OFF,
        data="out",
        job=Job((XFS,)),
        spans=(("clean", "DataOut", LONG),),
    ),
    kept(
        "a node is switched off while the module is away",
        f"{HELD} {LEFT}",
        When("clean", unload(300.0), 10.0),
        SOON,
        data="unmount-failed",
    ),
    kept(
        "other storage of the Rabbit stays in use",
        f"{HELD} 2:Proposal 3:Proposal 2:alloc..gone {LEFT} {AFTER_3}",
        When("clean", submit(Job((XFS,), nodes=1, attributes=FIRST))),
        When("clean", submit(Job((ALL,), nodes=1, attributes=FIRST))),
        OFF,
        job=Job((ALL, COPY_OUT), nodes=4),
        machine=SMALL,
    ),
    kept(
        "a person who undrains the node gets it for other jobs only",
        f"{HELD} undrain:compute-02 2:alloc 2:start 2:finish 2:clean "
        f"down:compute-02 drain:compute-02 disable:compute-02 {GOES}",
        When("clean", undrain(), 10.0),
        When("clean", submit(Job((), nodes=4)), 20.0),
        OFF,
        spans=(("clean", "DataOut", LONG),),
    ),
    Story(
        "two bad nodes are two bad nodes",
        "Proposal..PostRun drain:compute-02 drain:compute-04 unmount-failed clean "
        f"down:compute-02 disable:compute-02 down:compute-04 disable:compute-04 {GOES}",
        "unmount-failed",
        job=Job(nodes=4),
        troubles=(
            DwsFault("PostRun", "mount", node="compute-0[24]"),
            SOON,
            When("clean", switch_off("compute-04"), LONG),
        ),
        config=KEPT,
        spans=(("clean", "DataOut", LONG),),
    ),
    kept(
        "of two bad nodes one unmounts late, and the other is off",
        "Proposal..PostRun drain:compute-02 drain:compute-04 unmount-failed clean "
        f"{LEFT}",
        replace(LATE, node="compute-04", duration=300.0),
        OFF,
        data="unmount-failed",
        job=Job(nodes=4),
    ),
    kept(
        "an annotation that is no hostlist tells of no late node",
        f"{HELD} {LEFT}",
        When("clean", annotate(KEPT_FOR, "compute-[02")),
        OFF,
        data="unmount-failed",
    ),
    kept(
        "without Fluxion a job ends as well",
        f"{HELD} {LEFT}",
        OFF,
        machine={"scheduler": False},
    ),
    kept(
        "persistent storage may lack what the node wrote",
        f"Proposal..gone {HELD_2} {LEFT_2}",
        When("gone", submit(Job((USE,)))),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
    kept(
        "a job with a container keeps its nodes until its storage is gone",
        "Proposal..PostRun drain:compute-02 unmount-failed down:compute-02 "
        "disable:compute-02 DataOut Teardown unmount-failed! clean gone",
        When("PostRun", switch_off(), LONG),
        job=Job((f"{XFS} requires=copy-offload", COPY_OUT)),
        config=replace(KEPT, daemons={"copy-offload": Daemon()}),
        spans=(("PostRun", "DataOut", LONG),),
    ),
)

FENCED = (
    kept(
        "a node that the site has fenced does not keep the storage",
        f"{HELD} disable:compute-02 {GOES}",
        When("", fence()),
        When("clean", fence(NODE), LONG),
        data="unmount-failed",
        config=FENCING,
        log="fenced",
        spans=(("clean", "DataOut", LONG + 60.0),),
    ),
    kept(
        "a fenced node that serves again is asked for again",
        "Proposal..PostRun drain:compute-02 unmount-failed postrun-timeout! Teardown "
        f"disable:compute-02 clean gone undrain:compute-02 enable:compute-02 {HELD_2} "
        f"{LEFT_2}",
        When("PostRun", fence(NODE)),
        When("gone", fence(), 10.0),
        When("gone", undrain(), 10.0),
        When("gone", submit(Job()), 100.0),
        When("2:clean", switch_off(), LONG),
        config=FENCING,
        log="fenced node-back",
    ),
    kept(
        "a module that is loaded in Teardown asks which nodes are fenced",
        "Proposal..PostRun drain:compute-02 unmount-failed postrun-timeout! Teardown "
        "disable:compute-02 clean gone",
        When("PostRun", fence(NODE)),
        When("Teardown", unload(1.0)),
        config=FENCING,
        spans=(("Teardown", "gone", 2.0),),
    ),
    kept(
        "nodes that were not asked for, and no nodes at all, are no answer",
        f"{HELD} {LEFT}",
        When("", fence("compute-01", "elsewhere")),
        When("clean", fence(""), 120.0),
        When("clean", fence("compute-["), 240.0),
        When("clean", fence("a b,c"), 360.0),
        When("clean", fence("\x1b[0m"), 480.0),
        OFF,
        config=FENCING,
        log="fence-failed fence-failed",
    ),
    kept(
        "a fence_command that fails keeps the storage, and is logged once",
        f"{HELD} {LEFT}",
        OFF,
        config=FENCING,
        log="fence-failed",
    ),
    Story(
        "of two bad nodes the one that is fenced stays so",
        "Proposal..PostRun drain:compute-04 unmount-failed drain:compute-02 "
        f"unmount-failed clean disable:compute-04 {LEFT}",
        job=Job(nodes=4),
        troubles=(
            DwsFault("PostRun", "mount", node="compute-0[24]"),
            When("PostRun", fence("compute-04")),
            OFF,
        ),
        config=FENCING,
        log="fenced",
    ),
)

CANCELLED = (
    kept(
        "a cancel in the epilog gives up the data, and not the storage",
        "Proposal..PostRun cancel! drain:compute-02 unmount-failed given-up! clean "
        "down:compute-02 disable:compute-02 Teardown gone",
        When("PostRun", cancel, 5.0),
        OFF,
    ),
    kept(
        "a job that is cancelled while it runs unmounts first",
        "Proposal..start exec! finish PostRun cancel! drain:compute-02 "
        "unmount-failed given-up! clean down:compute-02 disable:compute-02 Teardown "
        "gone",
        When("start", cancel, 1.0),
        OFF,
        job=Job(seconds=inf),
    ),
    kept(
        "a job that has mounted and not run loses nothing by two cancels",
        "Proposal..PreRun cancel! PostRun cancel! drain:compute-02 unmount-failed "
        "clean down:compute-02 disable:compute-02 Teardown gone",
        When("PreRun", unload(10.0)),
        When("PreRun", cancel, 5.0),
        When("PreRun", cancel, 20.0),
        OFF,
        data="given-up",
    ),
    kept(
        "data that is given up is told once",
        "Proposal..PostRun drain:compute-02 unmount-failed dws-failed! clean "
        "down:compute-02 disable:compute-02 Teardown gone",
        BROKEN,
        OFF,
        data="dws-failed",
    ),
)

FAILING = (
    kept(
        "a limit that is over while the module is away is kept when it is back",
        f"Proposal..PostRun drain:compute-02 unmount-failed clean {LEFT}",
        When("PostRun", unload(LONG)),
        OFF,
    ),
    kept(
        "teardown_after keeps the storage as well",
        f"{HELD} {LEFT}",
        OFF,
        data="unmount-failed",
        config=Config(unmount_failure=KEEP, teardown_after=90.0),
        spans=(("PostRun", "unmount-failed", 90.0),),
    ),
    kept(
        "a node that was told to unmount before DWS failed keeps the storage",
        "Proposal..PostRun drain:compute-02 unmount-failed dws-failed! clean "
        "down:compute-02 disable:compute-02 Teardown gone",
        When("PostRun", report("Error"), 5.0),
        OFF,
        data="dws-failed",
        config=Config(unmount_failure=KEEP),
    ),
    kept(
        "a node that DWS cannot unmount costs the others no data",
        f"{HELD} {LEFT}",
        When("PostRun", report("TransientCondition"), 5.0),
        OFF,
        data="unmount-failed",
        spans=(("PostRun", "unmount-failed", 15.0),),
    ),
    kept(
        "a state that a person forced does not mount twice",
        f"Proposal..PostRun force drain:compute-02 unmount-failed clean {LEFT}",
        When("PostRun", force, 5.0),
        OFF,
        config=Config(unmount_failure=KEEP),
    ),
    kept(
        "an abort keeps the storage",
        "Proposal..PostRun dws-epilog-timeout! drain:compute-02 disable:rabbit-01 "
        "epilog-given-up! clean down:compute-02 disable:compute-02 Teardown "
        "enable:rabbit-01 gone",
        When("PostRun", switch_off(), LONG),
        epilog_timeout=30.0,
    ),
    kept(
        "a node that loses its power while the job runs holds up nothing",
        "Proposal..start down:compute-02 node-failure! finish PostRun "
        "drain:compute-02 disable:compute-02 unmount-failed DataOut Teardown "
        "unmount-failed! clean gone",
        When("start", switch_off(), 10.0),
        When("clean", switch_off(), LONG),  # of one that is cancelled before
        job=Job(seconds=100.0),
    ),
    Story(
        "a node that the job goes on without may have mounted all the same",
        "Proposal..PreRun drain:compute-04 nodes-excluded start disable:compute-04 "
        f"finish PostRun clean down:compute-04 {GOES}",
        data="unmount-failed",
        job=Job((XFS, SECOND, COPY_OUT), nodes=4, tolerance=1, seconds=10.0),
        troubles=(
            DwsFault("PreRun", "mount", node="compute-04"),
            When("start", mount("compute-04")),
            When("clean", switch_off("compute-04"), LONG),
        ),
        config=replace(KEPT, prerun_timeout=30.0),
    ),
    Story(
        "a node that failed to mount holds up no data",
        "Proposal..PreRun drain:compute-04 nodes-excluded force start..DataOut "
        "disable:compute-04 Teardown..gone",
        "out",
        job=Job(nodes=4, tolerance=1),
        troubles=(DwsFault("PreRun", "mount", node="compute-04"),),
        config=replace(KEPT, prerun_timeout=30.0),
    ),
    Story(
        "nor does it when it was put back while the module was away",
        "Proposal..PreRun drain:compute-04 nodes-excluded force start..PostRun "
        "disable:compute-04 drain:compute-02 unmount-failed clean undrain:compute-02 "
        f"undrain:compute-04 enable:compute-04 {GOES}",
        "out",
        job=Job(nodes=4, tolerance=1),
        troubles=(
            DwsFault("PreRun", "mount", node="compute-04"),
            LATE,
            When("clean", unload(60.0)),
            When("clean", undrain(), 30.0),
            When("clean", undrain("compute-04"), 30.0),
        ),
        config=replace(KEPT, prerun_timeout=30.0),
    ),
    kept(
        "a person deletes the Workflow",
        f"{HELD} gone",
        When("clean", delete, 10.0),
        data="workflow-deleted",
        harm=True,
    ),
    kept(
        "a person who does not wait moves to Teardown, and disables the node",
        f"{HELD} Teardown disable:compute-02 gone",
        When("clean", tear_down, 10.0),
        When("clean", disable(), LONG),
        data="workflow-moved",
        harm=True,
    ),
)

SHARED = (
    kept(
        "persistent storage is not mounted for others while a node has it",
        f"Proposal..gone {HELD_2} 3:Proposal {LEFT_2} {AFTER_3}",
        When("gone", submit(Job((USE,), nodes=4))),
        When("2:clean", submit(Job((USE, SAVE), nodes=3))),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
    kept(
        "persistent storage is not mounted for others while DWS does without a node "
        "that has it",
        f"Proposal..gone {HELD_2} disable:compute-02 3:Proposal down:compute-02 "
        f"{of(2, GOES)} {AFTER_3}",
        When("gone", submit(Job((USE,), nodes=4))),
        When("2:clean", disable()),
        When("2:clean", submit(Job((USE, SAVE), nodes=3)), 60.0),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
    kept(
        "persistent storage is not mounted for others before a module that was just "
        "loaded knows whether the job has ended whose node has it",
        f"Proposal..gone {HELD_2} 3:Proposal {LEFT_2} {AFTER_3}",
        When("gone", submit(Job((USE,), nodes=4))),
        When("2:clean", fail_flux("job-info", 120.0), 5.0),
        When("2:clean", unload(1.0), 6.0),
        When("2:clean", submit(Job((USE, SAVE), nodes=3)), 20.0),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
    kept(
        "a job that runs waits before its data goes out",
        "Proposal..gone 2:Proposal 3:Proposal 2:alloc 3:alloc 2:Setup 3:Setup "
        "2:DataIn 3:DataIn 2:PreRun 3:PreRun 2:start 2:finish 3:start 2:PostRun "
        f"drain:compute-02 2:unmount-failed 2:clean 3:finish 3:PostRun {LEFT_2} "
        "3:DataOut..gone",
        When("gone", submit(Job((USE,), attributes=EVEN))),
        When("gone", submit(Job((USE, SAVE), seconds=300.0, attributes=ODD))),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
    kept(
        "a file system on the network is mounted for others meanwhile",
        f"Proposal..gone {HELD_2} {LIFE_3} {LEFT_2}",
        When("gone", submit(Job((USE,), nodes=4))),
        When("2:clean", submit(Job((USE,), nodes=3))),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE.replace("xfs", "lustre"),), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
)

TOLD_LATER = (
    kept(
        "the nodes that DWS has not told to unmount yet return to service",
        f"{HELD} 2:alloc 2:start 2:finish 2:clean {LEFT}",
        When("clean", submit(PLAIN)),
        OFF,
        data="unmount-failed",
        job=Job(TWO, nodes=4),
    ),
    kept(
        "they are waited for when the bad node is off before the time is over",
        "Proposal..PostRun down:compute-02 drain:compute-02 disable:compute-02 "
        "unmount-failed DataOut Teardown unmount-failed! clean gone",
        When("PostRun", switch_off(), 45.0),
        data="unmount-failed",
        job=Job(TWO, nodes=4),
        latency={"PostRun": 0.5},
    ),
    kept(
        "a node that is told later, and does not unmount, is drained as well",
        f"{HELD} down:compute-02 disable:compute-02 drain:compute-03 "
        f"undrain:compute-03 {GOES}",
        When(
            "clean",
            begin(replace(STUCK, node="compute-03", duration=2 * LONG)),
            5.0,
        ),
        When("clean", switch_off(), 10.0),
        When("drain:compute-03", undrain("compute-03"), 120.0),
        job=Job(TWO, nodes=4),
    ),
    kept(
        "without keep only the node that was told to unmount is drained",
        "Proposal..PostRun drain:compute-02 unmount-failed postrun-timeout! Teardown "
        "disable:compute-02 clean gone",
        job=Job(TWO),
        config=Config(postrun_timeout=60.0),
        harm=True,
        spared="postrun-timeout",
        freed=True,
    ),
    Story(
        "a node that DWS passes over is drained when the storage is gone",
        "Proposal..PostRun disable:compute-03 drain:compute-02 unmount-failed "
        "postrun-timeout! Teardown disable:compute-02 drain:compute-03 "
        "unmount-failed clean gone",
        job=Job(TWO, nodes=4),
        troubles=(
            DwsFault("PostRun", "mount", node="compute-0[23]"),
            When("PostRun", disable("compute-03")),
        ),
        config=Config(postrun_timeout=60.0),
        harm=True,
        spared="postrun-timeout",
        freed=True,
    ),
)

MOUNTING = (When("PreRun", mount(), 1.0), When("PreRun", cancel, 1.0))
"""The job is cancelled while its nodes mount."""

NO_ANSWER = KubeError(503, "ServiceUnavailable", "the lights are out")

TORN_DOWN = (
    Story(
        "storage that goes late is not given to others before",
        "Proposal..PreRun cancel! Teardown drain:compute-02 unmount-failed "
        "teardown-late clean 2:Proposal gone 2:alloc..gone",
        job=Job((ALL,), nodes=4),
        troubles=(
            *MOUNTING,
            replace(LATE, duration=2 * LONG),
            When("clean", submit(Job((ALL,), nodes=1, attributes=FIRST)), LONG),
        ),
        config=KEPT,
        latency={"PreRun": 5.0},
        machine=SMALL,
    ),
    Story(
        "a job that is cancelled while it mounts does not wait for its storage to go",
        "Proposal..PreRun cancel! Teardown teardown-late clean gone",
        troubles=(*MOUNTING, DwsFault("Teardown", "slow", duration=LONG)),
        config=KEPT,
        latency={"PreRun": 5.0},
        spans=(("Teardown", "clean", 60.0),),
    ),
    *(
        Story(
            f"a node that failed to mount is drained at the end of a job on {nodes}",
            f"Proposal..PreRun nodes-failed! Teardown {drained} unmount-failed "
            "teardown-late clean gone",
            job=Job((XFS,), nodes=nodes),
            troubles=(
                DwsFault("PreRun", "mount", node="compute-01", duration=LONG),
                When("PreRun", pause_dws(LONG), 9.0),
            ),
            config=replace(KEPT, tc_timeout=10.0),
            latency={"PreRun": 5.0},
        )
        for nodes, drained in (
            (1, "drain:compute-01"),
            (2, "drain:compute-01 drain:compute-02"),
        )
    ),
    Story(
        "without keep a job that is cancelled while it mounts waits for all nodes",
        "Proposal..PreRun cancel! Teardown teardown-late clean gone",
        troubles=(*MOUNTING, LATE),
        config=Config(postrun_timeout=60.0),
        latency={"PreRun": 5.0},
        freed=True,
    ),
    *(
        Story(
            f"persistent storage of a job that was let go is not mounted twice{how}",
            f"Proposal..gone 2:Proposal..PreRun 2:cancel! 2:Teardown {how_it_ends} "
            f"2:clean 3:Proposal {then} {AFTER_3}",
            job=Job((CREATE,), nodes=4, seconds=1.0),
            troubles=(
                When("gone", submit(Job((USE,), nodes=4))),
                When("2:PreRun", mount(), 1.0),
                When("2:PreRun", cancel_job(2), 1.0),
                LATE,
                When("2:clean", submit(Job((USE, SAVE), nodes=3)), 60.0),
                When("2:clean", fence(*fenced), 200.0),
            ),
            config=replace(FENCING, postrun_timeout=limit),
            latency={"PreRun": 5.0},
            epilog_timeout=timeout,
            may=("dws-refused", "epilog-given-up"),
            freed=True,
        )
        for how, limit, timeout, fenced, how_it_ends, then in (
            ("", 60.0, None, (), f"drain:compute-02 {TOLD}", "2:gone"),
            (", by an abort", None, 30.0, (), ABORTED, "2:gone"),
            (
                *(", by an abort, and a fence", None, 30.0, (NODE,)),
                *(ABORTED, "disable:compute-02 2:gone"),
            ),
        )
    ),
    Story(
        "Teardown does without a node that the site has fenced",
        "Proposal..PreRun cancel! Teardown drain:compute-02 unmount-failed "
        "teardown-late clean disable:compute-02 gone",
        job=Job((XFS,)),
        troubles=(*MOUNTING, LATE, When("clean", fence(NODE), 200.0)),
        config=FENCING,
        latency={"PreRun": 5.0},
        spared="teardown-late",
        log="fenced",
    ),
    kept(
        "what an older program has answered does not count",
        "Proposal..PreRun cancel! Teardown drain:compute-02 unmount-failed "
        "teardown-late clean disable:compute-02 gone",
        *MOUNTING,
        When("clean", fence(NODE)),
        When("disable:compute-02", configure(KEPT)),
        job=Job((XFS,)),
        config=FENCING,
        latency={"PreRun": 5.0},
        log="fenced node-back",
    ),
    kept(
        "without keep a node that DWS passes over in Teardown is drained",
        "Proposal..PostRun drain:compute-02 unmount-failed Teardown down:compute-03 "
        "disable:compute-02 disable:compute-03 drain:compute-03 unmount-failed clean "
        "gone",
        When("Teardown", begin(replace(STUCK, node="compute-03"))),
        When("Teardown", down("compute-03")),
        data="out",
        job=Job((XFS, SECOND), nodes=4),
        config=Config(postrun_timeout=60.0),
        harm=True,
        freed=True,
        spared="unmount-failed",
    ),
    Story(
        "a module that is loaded in Teardown knows that the nodes have unmounted",
        "Proposal..Teardown teardown-late clean gone",
        "out",
        troubles=(
            DwsFault("Teardown", "slow", duration=LONG),
            When("Teardown", unload(1.0), 120.0),
        ),
        config=KEPT,
    ),
)

AWAY = (
    kept(
        "a job whose storage is kept ends when Servers are listed",
        f"{HELD} {LEFT}",
        When("PostRun", unload(LONG)),
        When("PostRun", fail_for(LONG + 30.0, NO_ANSWER, *READS, kind=SERVERS)),
        SOON,
        spans=(("PostRun", "clean", LONG + 31.6),),
    ),
    Story(
        "a job that is let go waits until Servers are listed",
        "Proposal..PreRun cancel! Teardown teardown-late drain:compute-02 "
        "unmount-failed clean gone",
        troubles=(
            LATE,
            *MOUNTING,
            When("Teardown", unload(60.0), 30.0),
            When("Teardown", fail_for(120.0, NO_ANSWER, *READS, kind=SERVERS), 30.0),
        ),
        config=KEPT,
        latency={"PreRun": 5.0},
    ),
    Story(
        "a job that releases its nodes waits until Servers are listed",
        "Proposal..DataOut clean Teardown gone",
        "out",
        job=Job(release=""),
        troubles=(
            When("PostRun", unload(60.0)),
            When("PostRun", fail_for(90.0, NO_ANSWER, *READS, kind=SERVERS)),
        ),
        config=replace(KEPT, release="unmounted"),
        latency={"PostRun": 10.0, "DataOut": 60.0},
        spans=(("PostRun", "DataOut", 91.5),),
    ),
    kept(
        "a node that comes back before it is disabled keeps the storage",
        f"Proposal..gone {HELD_2} down:compute-02 up:compute-02 3:Proposal {LEFT_2} "
        f"{AFTER_3}",
        When("gone", submit(Job((USE,), nodes=4))),
        When("2:clean", fail_for(65.0, NO_ANSWER, *ALL_VERBS, kind=SYSTEMSTATUS)),
        When("2:clean", switch_off()),
        When("2:clean", switch_on(), 61.0),
        When("2:clean", submit(Job((USE, SAVE), nodes=3)), 70.0),
        When("2:clean", switch_off(), LONG),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        may=("dws-refused",),
    ),
    kept(
        "a node that is fenced before it is drained is asked for again",
        f"{HELD} undrain:compute-02 drain:compute-04 {LEFT}",
        When("", fence()),
        When("clean", fence(NODE), 10.0),
        When("clean", undrain(), 10.0),
        When("clean", fail_for(65.0, NO_ANSWER, *ALL_VERBS, kind=SYSTEMSTATUS), 10.0),
        When("clean", lambda s: s.instance.drain("compute-04", "another"), 71.0),
        When("clean", down(), 72.0),
        data="unmount-failed",
        config=FENCING,
        log="node-back",
    ),
    kept(
        "a node that DWS does not wait for is drained at once",
        f"{HELD} disable:compute-02 disable:compute-03 drain:compute-03 "
        f"down:compute-02 down:compute-03 {GOES}",
        When("clean", begin(replace(LATE, node="compute-03"))),
        When("clean", disable()),
        When("clean", disable("compute-03")),
        When("drain:compute-03", switch_off(), 10.0),
        When("drain:compute-03", switch_off("compute-03"), 20.0),
        data="unmount-failed",
        job=Job(TWO, nodes=4),
        harm=True,
    ),
    kept(
        "a job that waits for shared storage fails before its prolog does",
        "Proposal..gone 2:Proposal..start 3:Proposal..DataIn 2:finish 2:PostRun "
        "drain:compute-02 2:unmount-failed 2:clean 3:prolog-timeout! "
        f"3:Teardown..gone {LEFT_2}",
        When("gone", submit(Job((USE,), seconds=100.0, attributes=EVEN))),
        When("2:start", begin(DwsFault("DataIn", "slow", duration=1000.0))),
        When("2:start", submit(Job((USE, XFS, COPY_IN), attributes=ODD))),
        When("2:clean", switch_off(), 1300.0),
        job=Job((CREATE,), nodes=4, seconds=1.0),
        config=replace(KEPT, prolog_timeout=1200.0),
        may=("dws-refused", "unmount-failed"),
    ),
)

STORIES = (
    *LET_GO,
    *FENCED,
    *CANCELLED,
    *FAILING,
    *SHARED,
    *TOLD_LATER,
    *TORN_DOWN,
    *AWAY,
)
