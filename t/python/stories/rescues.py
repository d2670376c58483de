# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Data that could not be copied out: its storage is kept, and ``flux dws rescue`` has
it copied again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.ports import NNFDATAMOVEMENT, SERVERS, WORKFLOW, KubeError
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.topology import Topology
from rabbitsim.torture.deeds import (
    cancel,
    cancel_job,
    delete,
    give_up,
    rescue,
    rescue_each,
    submit,
    unload,
)
from rabbitsim.torture.outages import (
    fail_for,
    fail_next,
    lose_watches,
    silence_watches,
    slow_kube,
)
from rabbitsim.torture.story import (
    COPY_OUT,
    FOREVER,
    XFS,
    Job,
    Story,
    When,
    of,
)

BROKEN = DwsFault("DataOut", "copy", duration=600.0, message="no space")
"""Copies that fail in the first ten minutes."""

ALWAYS = replace(BROKEN, duration=0.0)
LATER = DwsFault("DataOut", "slow", duration=20.0)
KEEP = Config(keep_failed=1800.0)
ENDS = "Proposal..DataOut kept dws-failed! clean"
"""A job whose storage is kept."""

GONE = "Teardown gone"
GOES = f"{ENDS} {GONE}"
LOST = "Proposal..DataOut dws-failed! Teardown..gone"
"""A job whose storage is not kept."""

AFTER = "alloc..finish"
AT_ONCE = (
    "Proposal 2:Proposal 3:Proposal 4:Proposal alloc 2:alloc 3:alloc 4:alloc Setup "
    "2:Setup 3:Setup 4:Setup DataIn 2:DataIn 3:DataIn 4:DataIn PreRun 2:PreRun "
    "3:PreRun 4:PreRun start finish 2:start 2:finish 3:start 3:finish 4:start PostRun "
    "4:finish 2:PostRun 3:PostRun 4:PostRun DataOut 2:DataOut 3:DataOut 4:DataOut"
)
RESCUED = When("kept", rescue, 900.0)
ASKED = When("kept", submit(Job((), awaits=1)), 1.0)
BUSY = KubeError(500, "InternalError", "no leader")
SMALL = {"topology": Topology.regular(4, 2, capacity=200 * GIB)}
GUEST, OTHER = 1001, 1002


def of_size(gib: int, user: int = GUEST, **more: Any) -> Job:
    dw = XFS.replace("10GiB", f"{gib}GiB"), COPY_OUT
    return Job(dw, user=user, **{"nodes": 1, **more})


def story(name: str, course: str, data: str, *troubles: Any, **more: Any) -> Story:
    """A story in which storage is kept for half an hour."""
    return Story(name, course, data, troubles=troubles, **{"config": KEEP, **more})


def keep(limit: int, **more: Any) -> Config:
    return Config(keep_failed=1800.0, keep_failed_limit=limit, **more)


STORIES = (
    story(
        "storage is kept for as long as set, and goes then with the data",
        GOES,
        "dws-failed",
        ALWAYS,
        spans=(("kept", "Teardown", 1800.0),),
        log="dws-failed dws-failed",
    ),
    story(
        "time that is over while the module is away is over",
        GOES,
        "dws-failed",
        *(ALWAYS, When("clean", unload(3600.0), 5.0)),
        away=3600.0,
    ),
    story(
        "storage is kept while the module is away, and is rescued once that is back",
        GOES,
        "out",
        *(BROKEN, When("clean", unload(900.0), 5.0), When("clean", rescue, 100.0)),
        log="dws-failed rescue data-out",
    ),
    story(
        "a copy that fails again has the storage kept again",
        f"{ENDS} kept Teardown gone",
        "out",
        *(BROKEN, When("kept", rescue, 300.0), When("kept", rescue, 1900.0)),
        log="dws-failed rescue dws-failed rescue data-out",
    ),
    story(
        "a user whose copies fail again and again does not fill the log",
        f"{ENDS}{' kept' * 12} Teardown gone",
        "dws-failed",
        ALWAYS,
        When("clean", rescue_each(1.0), 1.0),
        *(When("clean", give_up, seconds) for seconds in (12.5, 32.5)),  # if need be
        log=" ".join(("dws-failed", *("rescue", "dws-failed") * 10, "dws-failed")),
    ),
    story(
        "storage goes at once when its data is given up",
        GOES,
        "dws-failed",
        *(BROKEN, *(When("kept", give_up, 60.0),) * 2),
        spans=(("kept", "Teardown", 60.0),),
        log="given-up",
    ),
    story(
        "data that is given up many times at once is given up once",
        GOES,
        "dws-failed",
        *(BROKEN, When("kept", slow_kube(60.0, 20.0, "patch", kind=WORKFLOW), 60.0)),
        *(When("kept", give_up, 61.0),) * 15,
        log="given-up",
    ),
    story(
        "a copy that is made again is given up",
        GOES,
        "dws-failed",
        *(ALWAYS, When("clean", rescue, 60.0), When("clean", give_up, 65.0)),
        spans=(("clean", "Teardown", 65.0),),
        latency={"DataOut": 30.0},
    ),
    story(
        "data is given up whose Workflow has gone unseen",
        f"{ENDS} gone",
        "workflow-deleted",
        *(ALWAYS, When("clean", silence_watches(WORKFLOW), 60.0)),
        *(When("clean", delete, 61.0), When("clean", give_up, 61.1)),
        When("clean", lose_watches, 62.0),
    ),
    *(
        story(
            f"a job that waits for data starts when it is rescued ({release})",
            f"Proposal..DataOut {ends} 3:cancel! 3:clean 2:alloc 2:start 2:finish "
            "2:clean Teardown gone",
            "out",
            *(BROKEN, LATER, ASKED, ASKED, When("kept", cancel_job(3), 60.0), RESCUED),
            job=Job(release=release),
        )
        for release, ends in (
            ("teardown", "kept dws-failed! clean"),
            ("unmounted", "clean kept"),
        )
    ),
    story(
        "a job that waits for data fails when it is given up",
        f"{ENDS} 2:dependency! 2:clean Teardown gone",
        "dws-failed",
        *(BROKEN, ASKED, When("kept", give_up, 60.0)),
    ),
    story(
        "nodes run other jobs, and storage that is kept goes to none",
        f"{ENDS} 2:alloc 2:start 2:finish 2:clean 3:Proposal Teardown gone "
        f"{of(3, AFTER)} {of(3, 'PostRun DataOut Teardown clean gone')}",
        "out",
        BROKEN,
        When("clean", submit(Job((), nodes=4))),
        When("clean", submit(Job((XFS.replace("10GiB", "90GiB"),), nodes=1))),
        RESCUED,
        job=of_size(90, nodes=4),
        machine=SMALL,
        config=keep(100),
    ),
    story(
        "a copy that succeeds after all needs no rescue",
        "Proposal..DataOut kept teardown-after! clean Teardown gone",
        "out",
        DwsFault("DataOut", "stall", duration=900.0),
        config=Config(keep_failed=1800.0, teardown_after=600.0),
        dws={"report_interval": 60.0},
        spared="teardown-after",
    ),
    *(
        story(
            f"{limit} counts anew from a rescue",
            f"Proposal..DataOut kept {limit}! clean kept Teardown gone",
            limit,
            *(DwsFault("DataOut", "stall"), When("kept", rescue, 60.0)),
            config=Config.parse({limit.replace("-", "_"): 600, "keep_failed": 1800}),
            dws={"report_interval": 60.0},
            spans=(("kept", "Teardown", 60.0 + 600.0 + 1800.0),),
        )
        for limit in ("stall-timeout", "teardown-after")
    ),
    *(
        story(
            f"a rescue in the last moment holds off the loss ({verb} is slow)",
            GOES,
            "out",
            BROKEN,
            When("kept", slow_kube(60.0, 20.0, verb, kind=kind), 1780.0),
            When("kept", rescue, 1790.0),
            may=("dws-failed",),  # where the module dies before it answers
        )
        for verb, kind in (
            ("list", NNFDATAMOVEMENT),
            ("patch_status", NNFDATAMOVEMENT),
            ("patch", WORKFLOW),
        )
    ),
    story(
        "storage that could not be kept from others is not kept",
        LOST,
        "dws-failed",
        ALWAYS,
        When("", fail_for(FOREVER, KubeError(403, "", ""), "watch", kind=SERVERS)),
        When("", lose_watches),
    ),
    story(
        "an instance without Fluxion keeps storage as well",
        GOES,
        "out",
        *(BROKEN, RESCUED),
        machine={"scheduler": False},
    ),
    story(
        "a job that is cancelled in its epilog keeps nothing",
        "Proposal..DataOut cancel! given-up! Teardown..gone",
        "given-up",
        *(DwsFault("DataOut", "slow", duration=600.0), When("DataOut", cancel, 30.0)),
    ),
    story(
        "a job that is cancelled while the module is away keeps nothing",
        "Proposal..DataOut cancel! dws-failed! Teardown..gone",
        "dws-failed",
        BROKEN,
        DwsFault("DataOut", "slow", duration=30.0),
        When("DataOut", unload(60.0), 1.0),
        When("DataOut", cancel, 2.0),
    ),
    story(
        "a job whose epilog is given up keeps nothing",
        "Proposal..DataOut dws-epilog-timeout! disable:rabbit-01 epilog-given-up! "
        "clean Teardown enable:rabbit-01 gone",
        "epilog-given-up",
        *(ALWAYS, DwsFault("DataOut", "slow", duration=30.0)),
        epilog_timeout=10.0,
    ),
    story(
        "a job without data to be copied keeps nothing",
        LOST,
        "out",
        DwsFault("DataOut", "error", message="it broke"),
        job=Job((XFS,)),
    ),
    story(
        "that data is not out is logged once though the mark is refused at first",
        GOES,
        "dws-failed",
        ALWAYS,
        When("DataOut", fail_next(3, BUSY, "patch", kind=WORKFLOW), 0.1),
        When("clean", give_up, 60.0),
        log="dws-failed given-up dws-failed",
    ),
    # The limit of what is kept
    story(
        "one user has no more storage kept than the limit",
        f"{ENDS} {of(2, LOST)} {of(3, ENDS)} Teardown gone {of(4, ENDS)} "
        f"{of(3, GONE)} {of(4, GONE)}",
        "dws-failed",
        ALWAYS,
        When("kept", submit(of_size(60)), 10.0),
        When("kept", submit(of_size(60, OTHER)), 20.0),
        When("kept", give_up, 30.0),
        When("kept", submit(of_size(60)), 40.0),
        job=of_size(60),
        machine=SMALL,
        config=keep(25),
    ),
    story(
        "jobs that end before their data is out are limited as well",
        "Proposal..DataOut clean kept 2:Proposal..DataOut 2:clean 2:Teardown 2:gone "
        "Teardown gone",
        "dws-failed",
        *(ALWAYS, LATER),
        When("kept", submit(of_size(60, release="unmounted")), 10.0),
        job=of_size(60, release="unmounted"),
        machine=SMALL,
        config=keep(25),
    ),
    story(
        "a copy that fails again does not count twice",
        f"{ENDS} kept kept kept Teardown gone",
        "dws-failed",
        *(ALWAYS, *(When("kept", rescue, after) for after in (100.0, 200.0, 300.0))),
        job=of_size(60),
        machine=SMALL,
        config=keep(25),
    ),
    *(
        story(
            f"jobs whose copies fail at once have no more kept than the limit{how}",
            f"{AT_ONCE} {end}",
            "dws-failed",
            *(ALWAYS, When("PostRun", slow_kube(100.0, delay, "patch", kind=WORKFLOW))),
            job=of_size(60),
            others=(of_size(60), of_size(60, OTHER), of_size(60)),
            machine=SMALL,
            config=keep(35),
        )
        for how, delay, end in (
            (
                "",
                0.0,
                "4:dws-failed! 4:Teardown kept 2:kept 3:kept dws-failed! 2:dws-failed! "
                "3:dws-failed! 3:clean clean 2:clean 4:clean 4:gone 3:Teardown "
                "Teardown 2:Teardown 3:gone gone 2:gone",
            ),
            (
                ", and requests are slow",
                5.0,
                "kept 2:kept 3:kept dws-failed! clean 4:dws-failed! 4:Teardown "
                "2:dws-failed! 3:dws-failed! 2:clean 3:clean 4:clean 4:gone "
                "Teardown gone 2:Teardown 3:Teardown 2:gone 3:gone",
            ),
        )
    ),
    story(
        "by default one user has a tenth of all storage kept at most",
        f"{ENDS} {of(2, LOST)} {of(3, ENDS)} {GONE} {of(3, GONE)}",
        "dws-failed",
        ALWAYS,
        When("kept", submit(of_size(35)), 10.0),
        When("kept", submit(of_size(35, OTHER)), 20.0),
        job=of_size(35),
        machine=SMALL,
    ),
    story(
        "one user has all storage kept where the limit allows that",
        f"{ENDS} {of(2, ENDS)} {of(3, ENDS)} {of(4, ENDS)} "
        f"{GONE} {of(2, GONE)} {of(3, GONE)} {of(4, GONE)}",
        "dws-failed",
        *(ALWAYS, *(When("kept", submit(of_size(90)), 10.0 * n) for n in (1, 2, 3))),
        job=of_size(90),
        machine=SMALL,
        config=keep(100),
    ),
)
