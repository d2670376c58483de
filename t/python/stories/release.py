# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs that end when their nodes have unmounted, and jobs that wait for their data."""

from __future__ import annotations

import errno
from typing import Any

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxion import FLUXION, RABBIT_MODULE
from flux_k8s.ports import SERVERS, WORKFLOW, KubeError
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.deeds import (
    ask_deletion,
    ask_late,
    ask_report,
    cancel,
    delete,
    purge,
    reload_fluxion,
    reload_manager,
    set_finalizers,
    strip,
    submit,
    take_over,
    tear_down,
    unload,
    unload_plugin,
    write_record,
)
from rabbitsim.torture.outages import (
    fail_flux,
    fail_for,
    slow_flux,
    slow_kube,
    slow_kvs,
)
from rabbitsim.torture.story import (
    COPY_OUT,
    FOREVER,
    LIFE,
    XFS,
    Job,
    Story,
    When,
)

COPY = 600.0
"""Seconds that DataOut takes."""

SLOW = {"DataOut": COPY, "Teardown": 30.0}
HOUR = 3600.0
FORBIDDEN = KubeError(403, "Forbidden", "no such role")

PLUGIN = "job-manager.dws"
"""The service that the plugin offers."""

ENDED = "Proposal..DataOut clean"
"""A job to its end, while its data goes out."""

EARLY = Job((XFS, COPY_OUT), release="unmounted")
WAITS = Job((), awaits=1)
ASKED = When("DataOut", submit(WAITS), after=1.0)
RUNS = "2:alloc 2:start 2:finish 2:clean"
FAILS = "2:dependency! 2:clean"
ONE_OF_TWO = "Proposal 2:Proposal alloc..DataOut"


def sized(size: int, *more: str, release: str = "unmounted") -> Job:
    """A job of a node with so many GiB."""
    storage = XFS.replace("10GiB", f"{size}GiB")
    return Job((storage, *more), nodes=1, release=release)


def early(name: str, course: str, data: str, *troubles: Any, **more: Any) -> Story:
    """The story of a job whose data goes out after its end."""
    given = {"job": EARLY, "latency": SLOW, **more}
    return Story(name, f"{ENDED} {course}", data, troubles=troubles, **given)


def awaited(name: str, course: str, data: str, *troubles: Any, **more: Any) -> Story:
    """The story of such a job, whose data another job waits for."""
    return early(name, course, data, ASKED, *troubles, **more)


def crowded(name: str, course: str, *troubles: Any, **more: Any) -> Story:
    """The story of such a job, and of others, on one node and a Rabbit of 100 GiB."""
    machine = {"topology": Topology.regular(1, 1, capacity=100 * GIB)}
    full = {"job": sized(90, COPY_OUT), "others": (sized(90, release=""),)}
    given = {"data": "out", "latency": SLOW, "machine": machine, **full, **more}
    return Story(name, course, troubles=troubles, **given)


STORIES = (
    Story(
        "a site has all jobs end before their data is out that do not say otherwise",
        "Proposal 2:Proposal alloc 2:alloc Setup 2:Setup DataIn 2:DataIn PreRun "
        "2:PreRun start finish 2:start 2:finish PostRun 2:PostRun DataOut 2:DataOut "
        "clean 2:Teardown Teardown 2:clean 2:gone gone",
        job=Job((XFS, COPY_OUT), nodes=1, release=""),
        others=(Job((XFS, COPY_OUT), nodes=1),),
        latency=SLOW,
        config=Config(release="unmounted"),
    ),
    early(
        "a job ends before its data is out though the module goes as it asks for that",
        "Teardown gone",
        "out",
        When("DataOut", unload(1.0)),
    ),
    crowded(
        "no job gets the storage of one that has ended, but its nodes",
        f"3:alloc 3:start 3:finish 3:clean {ONE_OF_TWO} clean Teardown gone "
        "2:alloc..gone",
        others=(sized(90, release=""), Job((), nodes=1)),
    ),
    crowded(
        "a job gets what is left of the Rabbit while the data of another goes out",
        f"{ONE_OF_TWO} clean 2:alloc..DataOut Teardown 2:Teardown gone 2:clean 2:gone",
        job=sized(10, COPY_OUT),
        others=(sized(10, release=""),),
    ),
    *(
        crowded(
            f"jobs of any size fit on a Rabbit of {chunks} ssd",
            f"Proposal 2:Proposal 3:Proposal alloc..DataOut clean {course} "
            "3:Teardown..gone",
            job=sized(34, COPY_OUT),
            others=(sized(31, COPY_OUT), sized(33, release="")),
            machine={
                "topology": Topology.regular(1, 1, capacity=100 * GIB),
                "chunks": chunks,
            },
        )
        for chunks, course in (
            (
                1,
                "Teardown gone 2:alloc..DataOut 2:clean 2:Teardown 2:gone "
                "3:alloc..DataOut",
            ),
            (
                33,
                "2:alloc..DataOut 2:clean Teardown 2:Teardown gone 3:alloc..DataOut "
                "2:gone",
            ),
        )
    ),
    crowded(
        "a Fluxion that is loaded anew gives no job the storage of one that has ended",
        f"{ONE_OF_TWO} clean 2:alloc Teardown gone 2:Setup..gone",
        When("clean", reload_fluxion),
    ),
    *(
        crowded(
            f"a module that is shown the {kind.plural} late gives no job the storage "
            f"of one that has ended{how}",
            f"{ONE_OF_TWO} clean Teardown gone 2:alloc..gone",
            When("clean", slow_kube(60.0, 20.0, "watch", kind=kind)),
            When("clean", unload(1.0)),
            *then,
        )
        for kind, how, then in (
            (WORKFLOW, "", ()),
            (SERVERS, "", ()),
            (
                WORKFLOW,
                ", while there is no plugin",
                (When("clean", unload_plugin(40.0)),),
            ),
        )
    ),
    crowded(
        "no job gets the storage of one that has ended whose Workflow others take over",
        f"{ONE_OF_TWO} clean gone 2:alloc..gone",
        When("clean", take_over, after=10.0),
        When("clean", delete, after=COPY / 2),
        data="name-taken",
    ),
    Story(
        "a job keeps its nodes where its storage is not visible",
        LIFE,
        job=EARLY,
        troubles=(
            When("", fail_for(FOREVER, FORBIDDEN, "watch", kind=SERVERS)),
            When("", unload(1.0)),
        ),
    ),
    Story(
        "a job keeps its nodes while Fluxion does not answer",
        LIFE,
        job=EARLY,
        troubles=(When("start", slow_flux(FLUXION, FOREVER, FOREVER)),),
    ),
    *(
        early(
            f"a job keeps its nodes until {module} does not fail any more",
            "Teardown gone",
            "out",
            When("alloc", fail_flux(module, 60.0)),
            machine={"scheduler": module == FLUXION},
            spans=(("DataOut", "clean", 61.0),),
        )
        for module in (FLUXION, RABBIT_MODULE)
    ),
    Story(
        "a job is cancelled in its prolog that was to end before its data is out",
        "Proposal..Setup cancel! Teardown..gone",
        "not-run",
        job=EARLY,
        troubles=(When("Setup", cancel),),
    ),
    Story(
        "a job is cancelled in its epilog that was to end before its data is out",
        "Proposal..PostRun cancel! given-up! Teardown..gone",
        job=EARLY,
        troubles=(When("PostRun", cancel),),
        latency={"PostRun": 100.0},
    ),
    Story(
        "an epilog is given up before its job may end",
        "Proposal..PostRun dws-epilog-timeout! drain:compute-01 drain:compute-02 "
        "disable:rabbit-01 epilog-given-up! clean Teardown disable:compute-01 "
        "disable:compute-02 enable:rabbit-01 gone",
        "epilog-given-up",
        job=EARLY,
        latency={"PostRun": 20.0, "DataOut": COPY},
        epilog_timeout=5.0,
        may=("use-unknown",),
    ),
    Story(
        "an epilog is given up whose job may end, but Fluxion fails",
        "Proposal..DataOut dws-epilog-timeout! disable:rabbit-01 epilog-given-up! "
        "clean Teardown enable:rabbit-01 gone",
        "epilog-given-up",
        job=EARLY,
        troubles=(When("start", fail_flux(FLUXION)),),
        latency={"PostRun": 20.0, "DataOut": COPY},
        epilog_timeout=60.0,
        may=("use-unknown",),
    ),
    Story(
        "an epilog is given up when the data is out",
        "Proposal..Teardown dws-epilog-timeout! disable:rabbit-01 epilog-given-up "
        "clean enable:rabbit-01 gone",
        "out",
        latency={"Teardown": 100.0},
        epilog_timeout=20.0,
        may=("epilog-given-up",),
    ),
    *(
        Story(
            f"a job with {what} cannot end before its data is out",
            "bad-request! clean",
            job=Job(directives, release="unmounted"),
        )
        for what, directives in (
            ("a container", ("#DW container name=c profile=p",)),
            ("a daemon", (f"{XFS} requires=copy-offload",)),
        )
    ),
    # Jobs that wait for data
    Story(
        "a job that waits for data is submitted with the one whose data it waits for",
        f"{ENDED} {RUNS} Teardown gone",
        "out",
        job=EARLY,
        others=(WAITS,),
        latency=SLOW,
        spans=(("clean", "2:alloc", COPY),),
    ),
    awaited(
        "a job that waits for data runs when it is out, after its job",
        "2:alloc 3:alloc 2:start 3:start 2:finish 2:clean 3:finish 3:clean Teardown "
        "gone",
        "out",
        When("clean", submit(WAITS)),
        spans=(("clean", "2:alloc", COPY),),
    ),
    Story(
        "a job that waits for data runs when it is out, with its job",
        f"Proposal..clean {RUNS} gone 3:alloc 3:start 3:finish 3:clean",
        troubles=(ASKED, When("gone", submit(WAITS))),
        latency=SLOW,
    ),
    awaited(
        "a new job manager knows which job waits for data",
        f"{RUNS} Teardown gone",
        "out",
        When("clean", reload_manager, after=60.0),
    ),
    awaited(
        "a job that waits for data fails when it is lost, after its job",
        f"{FAILS} Teardown gone 3:dependency! 3:clean",
        "teardown-after",
        When("gone", submit(WAITS)),
        config=Config(teardown_after=100.0),
    ),
    Story(
        "a module that is loaded in Teardown knows why data was lost",
        "Proposal..DataOut teardown-after! Teardown..gone",
        "teardown-after",
        troubles=(When("Teardown", unload(1.0), after=10.0),),
        latency=SLOW,
        config=Config(teardown_after=100.0),
    ),
    Story(
        "a job that waits for data fails when it is lost, with its job",
        f"Proposal..DataOut teardown-after! Teardown clean {FAILS} gone 3:dependency! "
        "3:clean",
        "teardown-after",
        troubles=(ASKED, When("gone", submit(WAITS))),
        latency=SLOW,
        config=Config(teardown_after=100.0),
    ),
    Story(
        "a job that waits for data fails when the other does not run",
        f"Proposal..Setup cancel! Teardown clean {FAILS} gone",
        "not-run",
        troubles=(
            When("Setup", submit(WAITS), after=10.0),
            When("Setup", cancel, after=20.0),
        ),
        latency={"Setup": 60.0},
    ),
    *(
        Story(
            f"who waits for data finds its record however slow the KVS is ({release})",
            f"Proposal..DataOut {course}",
            job=Job((XFS, COPY_OUT), release=release),
            troubles=(When("", slow_kvs(5.0)), ASKED),
            latency=SLOW,
        )
        for release, course in (
            ("teardown", f"Teardown clean {RUNS} gone"),
            ("unmounted", f"clean {RUNS} Teardown gone"),
        )
    ),
    # The loss of data after the end of its job
    early(
        "data cannot be copied after the end of its job",
        "Teardown gone",
        "dws-failed",
        DwsFault("DataOut", "slow", duration=20.0),
        DwsFault("DataOut", "copy", message="no space"),
        log="dws-failed",
    ),
    early(
        "somebody deletes the Workflow of a job that has ended",
        "gone",
        "workflow-deleted",
        When("clean", ask_deletion, after=60.0),
    ),
    early(
        "somebody moves the Workflow of a job that has ended to Teardown",
        "Teardown gone",
        "workflow-moved",
        When("clean", tear_down, after=60.0),
    ),
    awaited(
        "a Workflow whose data is awaited is deleted while the module is away",
        f"gone {FAILS} 3:dependency! 3:clean 4:dependency! 4:clean",
        "workflow-deleted",
        When("clean", unload(60.0)),
        When("clean", submit(WAITS), after=10.0),
        When("clean", delete, after=20.0),
        When("clean", submit(WAITS), after=120.0),
    ),
    *(
        early(
            f"a Workflow{what} is being deleted, which only others hold up",
            course,
            "workflow-deleted",
            *waits,
            When("clean", unload(20.0)),
            *more,
            When("clean", set_finalizers("theirs"), after=10.0),
            When("clean", ask_deletion, after=11.0),
            When("clean", set_finalizers(), after=100.0),
            log="workflow-deleted",
        )
        for what, course, waits, more in (
            ("", "gone", (), ()),
            (" that tells nothing", "gone", (), (When("clean", strip, after=9.0),)),
            (" whose data is awaited", f"{FAILS} gone", (ASKED,), ()),
        )
    ),
    early(
        "a Workflow is deleted before it is known that its job has ended",
        "gone",
        "workflow-deleted",
        When("clean", unload(1.0)),
        When("clean", slow_flux("job-info", 60.0, 20.0)),
        When("clean", delete, after=15.0),
    ),
    awaited(
        "a Workflow whose data is awaited is deleted before it is known that its job "
        "has ended",
        f"gone {FAILS}",
        "workflow-deleted",
        When("clean", unload(1.0)),
        When("clean", fail_flux("job-info", 60.0, errno.ENOSYS)),
        When("clean", delete, after=45.0),
    ),
    awaited(
        "a report waits for job-info, and the log says so once",
        f"gone {FAILS}",
        "workflow-deleted",
        When("clean", unload(30.0)),
        When("clean", delete, after=10.0),
        When("clean", fail_flux("job-info", HOUR, errno.ENOSYS)),
        When("clean", ask_report, after=60.0),
        spans=(("clean", "2:clean", HOUR + 3.0),),
        log="flux-error",
    ),
    awaited(
        "the Workflow of a job that has ended loses its annotations unseen",
        f"{RUNS} Teardown gone",
        "out",
        When("clean", unload(60.0)),
        When("clean", strip, after=10.0),
    ),
    early(
        "somebody has written what is no record of data that is lost",
        "gone",
        "workflow-deleted",
        When("clean", unload(20.0)),
        When("clean", delete, after=10.0),
        When("clean", write_record("[]"), after=60.0),
        When("clean", ask_report, after=70.0),
    ),
    *(
        Story(
            f"the module dies when a job whose data is awaited is about to end{then}",
            f"Proposal..DataOut dws-epilog-timeout! dws clean {course}",
            data,
            job=EARLY,
            troubles=(
                ASKED,
                When("DataOut", fail_flux(PLUGIN, 10.0)),
                When("DataOut", unload(200.0), after=1.0),
                *troubles,
            ),
            latency=SLOW,
            epilog_timeout=60.0,
        )
        for then, course, data, troubles in (
            (
                "",
                f"disable:rabbit-01 {FAILS} Teardown enable:rabbit-01 gone",
                "epilog-given-up",
                (),
            ),
            (
                ", and its Workflow is deleted",
                f"gone {FAILS}",
                "epilog-given-up",
                (When("clean", delete, after=1.0),),
            ),
        )
    ),
    # Data that is out
    *(
        Story(
            f"dws.{method} comes when the storage is gone, and the record stands",
            LIFE,
            "out",
            job=Job((XFS, COPY_OUT), nodes=1),
            troubles=(When("gone", ask_late(method), 5.0),),
        )
        for method in ("teardown", "abort")
    ),
    Story(
        "it is asked what became of the data of a job that has none, and runs",
        "alloc start finish clean",
        job=Job((), seconds=10.0),
        troubles=(When("start", ask_report),),
    ),
    *(
        early(
            f"data is out, which {whom} not told, and its Workflow is {what}",
            course,
            "out",
            # (A module that is loaded while the plugin is deaf does not see the data.)
            When("clean", fail_flux(service, COPY + 10.0, errno.EAGAIN)),
            When("clean", unload(30.0), after=COPY + 5.0),
            When("clean", meddle, after=COPY + 20.0),
            *waits,
            may=("dependency",),
        )
        for whom, service, waits, run in (
            ("who waits is", PLUGIN, (ASKED,), f" {RUNS}"),
            ("others are", "event", (), ""),
        )
        for what, meddle, course in (
            ("being deleted", ask_deletion, f"{run} gone".lstrip()),
            ("gone", delete, f"gone{run}"),
            ("moved to Teardown", tear_down, f"Teardown{run} gone"),
        )
    ),
    early(
        "data is out, which the plugin is not told, and others take its Workflow over",
        "gone",
        "out",
        When("clean", fail_flux(PLUGIN, COPY + 10.0, errno.EAGAIN)),
        When("clean", take_over, after=COPY + 5.0),
        When("clean", delete, after=2 * COPY),
    ),
    *(
        Story(
            f"data comes to be out without a module, and its Workflow is {what}",
            f"Proposal..DataOut {course}",
            "out",
            job=Job((XFS, COPY_OUT), release=release),
            troubles=(
                When("DataOut", unload(COPY), after=10.0),
                When("DataOut", meddle, after=COPY + 5.0),
            ),
            latency=SLOW,
        )
        for what, meddle, release, course in (
            ("being deleted after its job", ask_deletion, "unmounted", "clean gone"),
            ("torn down", tear_down, "teardown", "Teardown..gone"),
            ("torn down after its job", tear_down, "unmounted", "clean Teardown gone"),
        )
    ),
    *(
        awaited(
            f"the plugin is away when data comes to be out{how}",
            f"Teardown gone {course}",
            "out",
            When("clean", unload_plugin(200.0), after=COPY - 50.0),
            *purged,
        )
        for how, course, purged in (
            ("", RUNS, ()),
            (
                ", and the job is purged",
                FAILS,
                (When("clean", purge, after=COPY + 100.0),),
            ),
        )
    ),
    early(
        "a job is purged while its data goes out",
        "Teardown gone",
        "none",
        When("clean", purge, after=1.0),
    ),
    early(
        "a job is purged while its data goes out, and the module is loaded anew",
        "Teardown gone",
        "none",
        When("clean", purge, after=1.0),
        When("clean", unload(5.0), after=2.0),
    ),
    *(
        early(
            f"data is out, which cannot be reported as {service} fails",
            "Teardown gone",
            "out",
            When("clean", fail_flux(service, COPY + 300.0, errno.ENOSYS)),
            log="data-out",
        )
        for service in ("event", "job-info")
    ),
    *(
        early(
            f"somebody has written {text[:20]!r} as the record of a job's data",
            "Teardown gone",
            "out",
            When("clean", write_record(text)),
        )
        for text in ("", "[" * 100_000, "[]", "{}", '{"success": "yes"}')
    ),
)
