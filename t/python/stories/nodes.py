# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Nodes and Rabbits that fail before a job runs, which it tolerates, or not."""

from __future__ import annotations

from dataclasses import replace

from flux_k8s.config.table import Config
from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    STORAGE,
    WORKFLOW,
    Kind,
    KubeError,
)
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import break_rabbit, disable, enable, unlink, unload
from rabbitsim.torture.outages import begin, fail_for, fail_next, outage, pause_dws
from rabbitsim.torture.story import (
    COPY_IN,
    COPY_OUT,
    FOREVER,
    LIFE,
    NODE,
    XFS,
    Job,
    Story,
    When,
)

LAST = "compute-04"
MOUNT = DwsFault("PreRun", "mount", node=LAST, message="no such device")
NO_MOUNT = DwsFault("PreRun", "error", node=LAST)
NO_STORAGE = DwsFault("Setup", "error", node="rabbit-02", message="it broke")
SLOW_SETUP = DwsFault("Setup", "transient", node="rabbit-02", duration=15.0)

WITHOUT = f"Proposal..PreRun drain:{LAST} nodes-excluded"
"""A job to the moment at which it goes on without its last node."""

RUNS = f"start disable:{LAST} finish..gone"
"""What follows where that node may mount yet."""

LEFT_OUT = f"{WITHOUT} force {RUNS}"
FAILED = "Proposal..PreRun nodes-failed! Teardown..gone"
HALF = "drain:compute-03 drain:compute-04 nodes-excluded"
"""The job goes on without the nodes of its last Rabbit."""

NO_SETUP = "Proposal..Setup nodes-failed! Teardown..gone"
ALL = [f"compute-0{number}" for number in (1, 2, 3, 4)]
DRAINED = " ".join(f"drain:{host}" for host in ALL)
UNKNOWN = f"Teardown {DRAINED} use-unknown clean gone"
"""The end of a job of which Kubernetes never says what has mounted its storage."""

DISABLED = " ".join(f"disable:{host}" for host in ALL[:-1])

LUSTRE = "#DW jobdw type=lustre capacity=20GiB name=p1"
GFS2 = "#DW jobdw type=gfs2 capacity=5GiB name=p2"
KINDS = {
    "xfs": (XFS,),
    "xfs that is copied": (XFS, COPY_IN, COPY_OUT),
    "raw": ("#DW jobdw type=raw capacity=1GiB name=p1",),
    "gfs2": ("#DW jobdw type=gfs2 capacity=1GiB name=p1",),
    "xfs and raw": (XFS, "#DW jobdw type=raw capacity=1GiB name=p2"),
}

REFUSED = KubeError(403, "Forbidden", "no")
BROKEN = KubeError(500, "InternalError", "no")
OUTAGE = KubeError(503, "Outage", "dark")


def four(tolerance: int = 1, *directives: str) -> Job:
    """A job that runs long enough for the duration of its PreRun to be written: one
    that was forced can be recorded by no later service."""
    directives = directives or (XFS, COPY_IN, COPY_OUT)
    return Job(directives, nodes=4, tolerance=tolerance, seconds=2.0)


def _unseen(kind: Kind, tolerance: int) -> str:
    """The end of a job of which Kubernetes does not say what has mounted, and why."""
    told = "use-unknown!" if tolerance else "transient-condition!"
    if kind != CLIENTMOUNT:
        return f"{told} Teardown..gone"
    return f"{told} {UNKNOWN} {DISABLED} disable:{LAST}"


STORIES = (
    *(
        Story(
            f"{hosts} nodes cannot mount, and the job tolerates {tolerance}",
            FAILED,
            job=four(tolerance),
            troubles=(DwsFault("PreRun", "mount", node=node),),
            # An answer that shows no ClientMounts shows none that failed.
            may=("transient-condition",),
            spared="nodes-failed",
        )
        for hosts, node, tolerance in (
            ("two", "compute-0[34]", 1),
            ("all", "*", 4),
            ("more than all", "*", 5),
        )
    ),
    Story(
        "a node cannot mount, and the job tolerates none",
        FAILED,
        job=four(0),
        troubles=(MOUNT,),
        may=("transient-condition",),
        spared="nodes-failed",
    ),
    *(
        Story(
            f"Kubernetes does not show {kind.plural} ({status}) where a node cannot "
            f"mount, and the job tolerates {tolerance}",
            f"Proposal..PreRun {_unseen(kind, tolerance)}",
            job=four(tolerance),
            troubles=(
                MOUNT,
                When(
                    "PreRun",
                    fail_for(
                        FOREVER, KubeError(status, "No", "no"), "get", "list", kind=kind
                    ),
                ),
            ),
            may=("nodes-failed",),
        )
        for row, kind in enumerate((CLIENTMOUNT, STORAGE, COMPUTES))
        for column, status in enumerate((403, 404, 500))
        for tolerance in (0, 1)
        if (row + column) % 2 == tolerance
    ),
    Story(
        "what Kubernetes did not show in Setup does not count when it fails again",
        LEFT_OUT,
        job=four(),
        troubles=(
            SLOW_SETUP,
            DwsFault("DataIn", "slow", duration=150.0),
            MOUNT,
            When("Setup", fail_for(15.0, BROKEN, "get", "list", kind=COMPUTES)),
            When("PreRun", fail_next(1, BROKEN, "get", "list", kind=CLIENTMOUNT)),
        ),
    ),
    Story(
        "the time that other nodes have is no failure for a module that comes later",
        f"Proposal..PreRun drain:{NODE} nodes-excluded start disable:{NODE} "
        "finish..gone",
        job=Job((XFS, GFS2), nodes=4, tolerance=2, seconds=1.0),
        troubles=(
            replace(MOUNT, node=NODE, duration=300.0),
            When("PreRun", unload(5.0), after=2.0),
        ),
        latency={"PreRun": 4.0},
        unlogged="not-ready",
    ),
    *(
        Story(
            "a node is disabled while it mounts, and Kubernetes does not show which "
            f"have; the job tolerates {tolerance}",
            f"Proposal..PreRun disable:{LAST} use-unknown! {UNKNOWN} {DISABLED}",
            job=four(tolerance),
            troubles=(
                MOUNT,
                When("PreRun", disable(LAST)),
                When("PreRun", fail_for(FOREVER, REFUSED, "list", kind=CLIENTMOUNT)),
            ),
        )
        for tolerance in (0, 1)
    ),
    *(
        Story(
            "a node is disabled while it mounts, which it does, as Kubernetes shows "
            f"after a while ({status}); the job tolerates {tolerance}",
            f"Proposal..PreRun disable:{LAST} enable:{LAST} start..gone",
            job=four(tolerance),
            troubles=(
                When("PreRun", disable(LAST)),
                When("PreRun", enable(LAST), after=0.1),
                When(
                    "PreRun",
                    fail_for(
                        5.0, KubeError(status, "No", "no"), "list", kind=CLIENTMOUNT
                    ),
                ),
            ),
        )
        for status, tolerance in ((403, 1), (404, 0), (500, 0))
    ),
    Story(
        "a node mounts within tc_timeout",
        LIFE,
        job=four(),
        troubles=(DwsFault("PreRun", "mount", duration=8.0, node=LAST),),
    ),
    Story(
        "a node mounts later than another fails, within tc_timeout",
        LEFT_OUT,
        job=four(),
        troubles=(
            NO_MOUNT,
            DwsFault("PreRun", "never", duration=5.0, node="compute-03"),
        ),
    ),
    *(
        Story(
            f"{hosts} nothing until prerun_timeout, and the job tolerates {tolerance}",
            course,
            job=four(tolerance),
            troubles=(DwsFault("PreRun", "never", node=node),),
            config=Config(prerun_timeout=60.0),
            spans=(("PreRun", told, 60.0),),
        )
        for hosts, node, tolerance, told, course in (
            ("a node says", LAST, 1, "nodes-excluded", LEFT_OUT),
            ("a node says", LAST, 0, "nodes-failed!", FAILED),
            ("two nodes say", "compute-0[34]", 1, "nodes-failed!", FAILED),
        )
    ),
    Story(
        "an Error after nodes were left out for a limit has its own time",
        "Proposal..PreRun drain:compute-03 nodes-excluded dws-failed! Teardown "
        "disable:compute-03 clean gone",
        job=Job((XFS, "#DW jobdw type=raw capacity=1GiB name=p2"), 4, 2),
        troubles=(
            DwsFault("PreRun", "never", node="compute-03"),
            When("PreRun", begin(NO_MOUNT), 59.0),
        ),
        config=Config(prerun_timeout=60.0, tc_timeout=10.0),
        spans=(("PreRun", "dws-failed!", 70.0),),
    ),
    Story(
        "PreRun has trouble of which no node is the reason",
        "Proposal..PreRun transient-condition! Teardown..gone",
        job=four(3),
        troubles=(DwsFault("PreRun", "transient", message="it broke"),),
    ),
    *(
        Story(
            "two nodes lose their Rabbit one after the other, and each time the others "
            f"have a limit of their own; the job tolerates {tolerance}",
            f"Proposal..Setup drain:{LAST} DataIn PreRun nodes-excluded "
            f"drain:compute-03 {then}",
            job=four(tolerance),
            troubles=(
                When("alloc", unlink(host=LAST)),
                When("nodes-excluded", unlink(host="compute-03")),
            ),
            config=Config(prerun_timeout=60.0),
            spans=(("nodes-excluded", next_word, 60.0),),
        )
        for tolerance, next_word, then in (
            (1, "nodes-failed!", "nodes-failed! Teardown..gone"),
            (2, "start", "nodes-excluded start..gone"),
        )
    ),
    Story(
        "the limit that the others have does not run in an outage",
        f"Proposal..Setup drain:{LAST} DataIn PreRun nodes-excluded "
        "drain:compute-03 nodes-failed! Teardown..gone",
        job=four(),
        troubles=(
            When("alloc", unlink(host=LAST)),
            When("nodes-excluded", unlink(host="compute-03")),
            When("nodes-excluded", outage(40.0), after=5.0),
        ),
        config=Config(prerun_timeout=60.0),
        # Nothing was heard for the last pause of the outage.
        spans=(("nodes-excluded", "nodes-failed!", 121.5),),
        away=40.0,
    ),
    Story(
        "Kubernetes does not show once, and long after once more, which nodes have "
        "mounted",
        f"Proposal..Setup drain:{LAST} DataIn PreRun nodes-excluded "
        "drain:compute-03 nodes-excluded start..gone",
        job=four(2),
        troubles=(
            When("alloc", unlink(host=LAST)),
            When("PreRun", fail_next(1, BROKEN, "list", kind=CLIENTMOUNT)),
            When("nodes-excluded", unlink(host="compute-03")),
            When("nodes-excluded", fail_next(1, BROKEN, "list", kind=CLIENTMOUNT)),
        ),
        config=Config(prerun_timeout=150.0),
    ),
    Story(
        "DWS takes a while to see that a state counts as reached",
        LEFT_OUT,
        job=four(),
        troubles=(NO_MOUNT, When("nodes-excluded", pause_dws(30.0))),
    ),
    Story(
        "DWS does not see that a state counts as reached",
        f"{WITHOUT} force dws-failed! Teardown disable:{LAST} clean gone",
        job=four(),
        troubles=(
            NO_MOUNT,
            When("nodes-excluded", pause_dws(160.0)),
        ),
        spans=(("force", "dws-failed!", 120.0),),
    ),
    Story(
        "a state that is forced late, after errors of Kubernetes, has its own time",
        LEFT_OUT,
        job=four(),
        troubles=(
            NO_MOUNT,
            When("nodes-excluded", fail_for(150.0, BROKEN, "patch", kind=WORKFLOW)),
            When("force", pause_dws(3.0)),
        ),
    ),
    Story(
        "a node cannot mount the first of two file systems",
        f"{WITHOUT} {RUNS}",
        job=four(1, XFS, "#DW jobdw type=lustre capacity=1GiB name=p2"),
        troubles=(MOUNT,),
    ),
    Story(
        "a node that did not mount need not unmount",
        LEFT_OUT,
        job=four(),
        troubles=(MOUNT, DwsFault("PostRun", "mount", node=LAST)),
        freed=True,
    ),
    Story(
        "a node that cannot unmount is none that the job tolerates",
        f"Proposal..PostRun drain:{LAST} unmount-failed postrun-timeout! Teardown "
        f"disable:{LAST} clean gone",
        job=four(3),
        troubles=(DwsFault("PostRun", "mount", node=LAST),),
        config=Config(postrun_timeout=60.0),
        spared="postrun-timeout",
        harm=True,
        freed=True,
    ),
    *(
        Story(
            f"a Rabbit makes no storage ({name}, {kind})",
            f"Proposal..Setup {HALF} force DataIn..gone",
            job=four(2, *directives),
            troubles=(DwsFault("Setup", kind, node="rabbit-02"),),
        )
        for row, (name, directives) in enumerate(KINDS.items())
        for kind in (("error", "transient")[row % 2],)
    ),
    Story(
        "a Rabbit makes no storage for more nodes than the job tolerates",
        NO_SETUP,
        job=four(1),
        troubles=(NO_STORAGE,),
    ),
    Story(
        "a Rabbit makes no storage, and the job tolerates no failure",
        "Proposal..Setup dws-failed! Teardown..gone",
        job=four(0),
        troubles=(NO_STORAGE,),
    ),
    Story(
        "a Rabbit makes no storage, and setup_timeout is over",
        "Proposal..Setup setup-timeout! Teardown..gone",
        job=four(2),
        troubles=(DwsFault("Setup", "never", node="rabbit-02"),),
        config=Config(setup_timeout=60.0),
    ),
    Story(
        "a Rabbit makes no storage for a file system that is spread over all",
        NO_SETUP,
        job=four(3, LUSTRE),
        troubles=(DwsFault("Setup", "transient", node="rabbit-02"),),
    ),
    Story(
        "a node cannot mount a file system that is spread over all Rabbits",
        LEFT_OUT,
        job=four(1, LUSTRE),
        troubles=(MOUNT,),
    ),
    Story(
        "a Rabbit makes no storage that outlives the job",
        NO_SETUP,
        job=four(3, "#DW create_persistent type=xfs capacity=1GiB name=keep"),
        troubles=(DwsFault("Setup", "error", node="rabbit-02"),),
    ),
    *(
        Story(
            "a Rabbit makes no storage, and one more node cannot mount; the job "
            f"tolerates {tolerance}",
            f"Proposal..Setup {HALF} force DataIn PreRun {then}",
            job=four(tolerance),
            troubles=(NO_STORAGE, DwsFault("PreRun", "mount", node=NODE)),
        )
        for tolerance, then in (
            (2, "nodes-failed! Teardown..gone"),
            (
                3,
                f"drain:{NODE} nodes-excluded force " + RUNS.replace(LAST, NODE),
            ),
        )
    ),
    *(
        Story(
            "a job gets nodes of a Rabbit that has just gone Offline, and tolerates "
            f"{tolerance}",
            f"Proposal alloc {then}",
            job=four(tolerance),
            troubles=(
                When("alloc", break_rabbit("rabbit-02", status="Offline")),
                When("alloc", unload(1.0)),
            ),
        )
        for tolerance, then in (
            (0, "no-room! Teardown..gone"),
            (1, "nodes-failed! Teardown..gone"),
            (2, f"{HALF} Setup..gone"),
        )
    ),
    Story(
        "a Rabbit that was Offline when its job got nodes is back when Kubernetes shows"
        " the Workflow again",
        LIFE,
        job=four(1),
        troubles=(
            When("alloc", break_rabbit("rabbit-02", 60.0, "Offline")),
            When("alloc", fail_for(300.0, OUTAGE, "get", kind=WORKFLOW)),
            When("alloc", unload(1.0)),
        ),
        may=("nodes-failed",),  # where that GET is not the last look
    ),
    *(
        Story(
            f"Kubernetes does not show {kind.plural} for a while when a node is to be "
            "left out",
            LEFT_OUT,
            job=four(),
            troubles=(
                MOUNT,
                When(
                    "PreRun",
                    fail_for(
                        *(60.0, OUTAGE, "get", "list", "watch", "patch"), kind=kind
                    ),
                    after=9.9,
                ),
            ),
        )
        for kind in (CLIENTMOUNT, COMPUTES)
    ),
)
