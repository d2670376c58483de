# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Epilogs that are given up, at ``epilog-timeout`` or by a person: what a job still
uses goes out of service before others get it."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.jobs.work import Work
from flux_k8s.ports import (
    CLIENTMOUNT,
    SECRET,
    SERVERS,
    WORKFLOW,
    Json,
    KubeError,
    Request,
)
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.deeds import (
    abort,
    cancel,
    delete,
    disable,
    submit,
    undrain,
    unlink,
    unload,
    unload_plugin,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import (
    fail_flux,
    hide,
    outage,
    refuse_drains,
    slow_flux,
    slow_kube,
)
from rabbitsim.torture.story import COPY_OUT, NODE, XFS, Job, Story, When


def take_place(system: StorySystem) -> None:
    """Another program's Workflow takes the place of that of the job."""
    stored = system.workflow
    if stored is not None:
        delete(system)
        spec = {"wlmID": "another", "jobID": "another", "desiredState": "Proposal"}
        spec = {**stored["spec"], **spec, "dwDirectives": []}
        body: Json = {"metadata": {"name": stored["metadata"]["name"]}, "spec": spec}
        system.store.create(WORKFLOW, "default", body)


HOUR = 3600.0
FOUR = Job((XFS, COPY_OUT), nodes=4)
STUCK = DwsFault("PostRun", "mount", node=NODE)
LONG = DwsFault("Teardown", "never", duration=HOUR)
GIVEN_UP = "Proposal..PostRun dws-epilog-timeout!"
DISABLED = "disable:rabbit-01 disable:rabbit-02"
OUT = f"{DISABLED} epilog-given-up! clean"
"""Rabbits go out of service, then the job ends."""

BACK = "enable:rabbit-01 enable:rabbit-02 gone"
"""An administrator puts the Rabbits back."""

END = f"Teardown disable:compute-02 {BACK}"
DRAINED = "drain:compute-01 drain:compute-02 drain:compute-03 drain:compute-04"
UNKNOWN = f"{GIVEN_UP} {DRAINED} use-unknown! dws clean"
"""The job ends while nobody knows what is mounted."""

OTHERS = "undrain:compute-01 undrain:compute-03 undrain:compute-04"
MOUNTED = f"{BACK} undrain:compute-02 enable:compute-02"
SEEN = f"{UNKNOWN} {OTHERS} {DISABLED} Teardown disable:compute-02 {MOUNTED}"
SEEN_LATER = f"{UNKNOWN} {DISABLED} Teardown {OTHERS} disable:compute-02"
ALL = "disable:compute-01 disable:compute-02 disable:compute-03 disable:compute-04"
AGAIN = "enable:compute-01 enable:compute-03 enable:compute-04"
SEEN_BY_NEXT = f"{UNKNOWN} {DISABLED} Teardown {ALL} {OTHERS} {AGAIN}"
"""A module that is new disables drained nodes before it looks what is mounted."""


def aborted(
    name: str, course: str, *troubles: Any, stuck: DwsFault = STUCK, **more: Any
) -> Story:
    """The story of a job on four nodes and two Rabbits, one of which does not
    unmount."""
    given = {"job": FOUR, "epilog_timeout": 60.0, **more}
    given["freed"] = given["epilog_timeout"] is None
    given["may"] = ("epilog-given-up", "use-unknown", *given.get("may", ()))
    return Story(name, course, troubles=(stuck, *troubles), harm=True, **given)


def bar(system: StorySystem) -> None:
    """Services have died of giving the job storage."""
    system.barred.add(Work(system.first.id, False))


def hide_before_teardown(system: StorySystem) -> None:
    """Lists of mounts are empty by mistake as long as Teardown is not asked for."""
    hide(CLIENTMOUNT, 8)(system)
    hidden = system.api_fault

    def fault(request: Request) -> Optional[Fault]:
        workflow = system.workflow
        asked = workflow is not None and workflow["spec"]["desiredState"] == "Teardown"
        return None if asked else hidden(request)

    system.api_fault = fault


def end_outage_at(kind: str) -> Any:
    """Kubernetes answers nothing until something of a kind is asked for after ten
    minutes, or for twenty."""

    def deed(system: StorySystem) -> None:
        since = system.loop.now()

        def fault(request: Request) -> Fault:
            lasts = system.loop.now() - since
            if lasts > 1200.0 or lasts > 600.0 and request.kind.plural == kind:
                system.api_fault = lambda request: None
            return Fault(error=KubeError(0, "Timeout", "no answer in time"))

        system.api_fault = fault

    return deed


STORIES = (
    aborted(
        "at epilog-timeout nodes and Rabbits that are in use go out of service",
        f"{GIVEN_UP} drain:compute-02 {OUT} {END}",
        LONG,
        data="epilog-given-up",
        spans=(("PostRun", "clean", 60.0),),
    ),
    aborted(
        "a list that lacks all Servers leaves no Rabbit in service",
        f"{GIVEN_UP} drain:compute-02 epilog-given-up! {DISABLED} clean Teardown "
        f"disable:compute-02 {BACK}",
        LONG,
        When("finish", hide(SERVERS), 59.9),
        data="epilog-given-up",
        may=("dws",),  # by the plugin: the module has just died
        spared="epilog-given-up",
    ),
    aborted(
        "a person gives up an epilog",
        f"{GIVEN_UP} drain:compute-02 {OUT} {END}",
        LONG,
        When("PostRun", abort, 5.0),
        data="epilog-given-up",
        spans=(("PostRun", "clean", 5.0),),
        epilog_timeout=None,
    ),
    aborted(
        "a node that is still mounted stays drained when its connection is back",
        f"Proposal..PostRun drain:compute-02 dws-epilog-timeout! {OUT} {END}",
        LONG,
        When("PostRun", unlink(200.0), 1.0),
    ),
    aborted(
        "a drain that fails is sent again, and keeps no Rabbit in service",
        f"{GIVEN_UP} {DISABLED} disable:compute-02 {DRAINED} use-unknown! {OTHERS} "
        f"clean Teardown {MOUNTED}",
        LONG,
        When("PostRun", refuse_drains(62.5)),
        data="epilog-given-up",
    ),
    aborted(
        "Rabbits that an administrator puts back are not taken out again",
        f"{GIVEN_UP} drain:compute-02 {OUT} {END}",
        LONG,
        When("clean", StorySystem.enable_rabbits, 5.0),
        When("clean", unload(1.0), 10.0),
    ),
    # Outages
    *(
        aborted(
            f"an abort is carried out after an outage{what}",
            course,
            LONG,
            When("PostRun", outage(1000.0), 40.0),
            *lost,
            data="none" if lost else "",
            away=1000.0,
            spans=(("PostRun", "drain:compute-01", 60.0),),
            log="use-unknown",
        )
        for what, lost, course in (
            ("", (), SEEN),
            (
                ", without the module",
                (When("clean", unload(5.0), 10.0),),
                f"{SEEN_BY_NEXT} {MOUNTED}",
            ),
            (
                ", without the plugin",
                (When("clean", unload_plugin(5.0), 10.0),),
                SEEN,
            ),
            (
                ", though services have died of the job",
                (
                    When("clean", bar, 9.0),
                    When("clean", unload(5.0), 10.0),
                    When("clean", unload_plugin(4.0), 10.0),
                ),
                f"{SEEN_BY_NEXT} {MOUNTED}",
            ),
        )
    ),
    *(
        aborted(
            f"an outage ends when an abort asks for {kind.plural}",
            course,
            LONG,
            When("PostRun", end_outage_at(kind.plural), 40.0),
            data="epilog-given-up",
            away=1000.0,
        )
        for kind, course in (
            (
                CLIENTMOUNT,
                f"{SEEN_LATER} {MOUNTED}",
            ),
            (
                SERVERS,
                f"{UNKNOWN} {OTHERS} disable:compute-02 {DISABLED} Teardown {MOUNTED}",
            ),
        )
    ),
    Story(
        "nodes that Flux names too late are not drained",
        "Proposal..DataOut dws-epilog-timeout! dws clean disable:rabbit-01 Teardown "
        "enable:rabbit-01 gone",
        job=Job((XFS,)),
        troubles=(
            When("DataOut", unload(0.0)),
            When("DataOut", slow_flux("job-list", 600.0, 100.0)),
            When("DataOut", outage(90.0)),
        ),
        latency={"DataOut": 1.0},
        epilog_timeout=60.0,
        unlogged="use-unknown",
        away=90.0,
    ),
    aborted(
        "an abort that the module knows nothing of drains all nodes",
        f"{SEEN_BY_NEXT} {MOUNTED}",
        LONG,
        When("PostRun", unload(1.0), 1.0),
        When("PostRun", outage(100.0), 1.0),
        When("PostRun", fail_flux("job-info", 50.0), 9.0),
        When("PostRun", abort, 10.0),
        data="epilog-given-up",
        epilog_timeout=None,
        away=100.0,
    ),
    aborted(
        "nodes that Flux names when Kubernetes has answered are not drained",
        "Proposal..DataOut dws-epilog-timeout! dws clean disable:rabbit-01 "
        f"disable:rabbit-02 Teardown {BACK}",
        When("DataOut", unload(0.0), 1.0),
        When("DataOut", slow_flux("job-list", 60.0, 100.0), 1.0),
        When("DataOut", outage(90.0), 2.0),
        stuck=DwsFault("DataOut", "never"),
        away=90.0,
    ),
    # Nodes
    aborted(
        "a node that unmounts long after an outage is given back",
        f"{SEEN_LATER} undrain:compute-02 enable:compute-02 {BACK}",
        LONG,
        When("PostRun", outage(150.0), 40.0),
        data="epilog-given-up",
        stuck=replace(STUCK, duration=HOUR),
        spans=(("PostRun", "undrain:compute-02", HOUR + 192.1),),
        away=150.0,
    ),
    aborted(
        "a list that lacks a mount gives no node back",
        f"{SEEN_LATER} undrain:compute-02 enable:compute-02 {BACK}",
        LONG,
        When("PostRun", outage(150.0), 40.0),
        When("undrain:compute-04", unload(1.0), 60.0),
        When("undrain:compute-04", hide(CLIENTMOUNT), 60.5),
        data="epilog-given-up",
        stuck=replace(STUCK, duration=HOUR),
        spans=(("PostRun", "undrain:compute-02", HOUR + 193.1),),
        away=150.0,
    ),
    aborted(
        "lists that lack all mounts give no node back before Teardown",
        f"{UNKNOWN} {DISABLED} Teardown {OTHERS} disable:compute-02 {MOUNTED}",
        LONG,
        When("PostRun", outage(100.0), 40.0),
        When("PostRun", hide_before_teardown, 140.0),
        data="epilog-given-up",
    ),
    aborted(
        "a node that unmounts while no module is there is given back",
        f"{UNKNOWN} gone {ALL} undrain:compute-01 undrain:compute-02 "
        "undrain:compute-03 undrain:compute-04 2:alloc 2:start 2:finish 2:clean "
        "enable:compute-01 enable:compute-02 enable:compute-03 enable:compute-04",
        When("PostRun", outage(150.0), 40.0),
        When("clean", unload(30.0)),
        When("clean", delete, 1.0),
        When("clean", submit(Job((), nodes=3)), 2.0),
        data="none",
        away=150.0,
        log="node-back",
    ),
    aborted(
        "a node that may be mounted goes to no other job",
        "Proposal..PostRun cancel! given-up! Teardown disable:compute-02 "
        "drain:compute-02 unmount-failed clean gone undrain:compute-02 2:alloc "
        "2:start 2:finish 2:clean",
        replace(STUCK, state="Teardown"),
        When("PostRun", cancel, 1.0),
        When("Teardown", disable()),
        When("clean", submit(Job((), nodes=4)), 2.0),
        When("gone", undrain(), 60.0),
        data="given-up",
        epilog_timeout=None,
    ),
    # What job-list says
    *(
        aborted(
            f"an abort in an outage when job-list {what}",
            f"{GIVEN_UP} dws clean {course}",
            LONG,
            When("PostRun", unload(1.0), 1.0),
            When("PostRun", outage(300.0), 1.5),
            When("PostRun", fail_flux("job-list", seconds, number), 1.6),
            *more,
            data="none" if course == "gone" else "",
            log="drain-failed",
            away=300.0,
        )
        for what, seconds, number, more, course in (
            *(
                (
                    f"is away for a while ({number})",
                    100.0,
                    number,
                    (),
                    f"{DRAINED} {DISABLED} Teardown disable:compute-01 "
                    "disable:compute-02 disable:compute-03 disable:compute-04 "
                    f"{OTHERS} enable:compute-01 enable:compute-03 enable:compute-04 "
                    f"{MOUNTED}",
                )
                for number in (errno.ENOSYS, errno.EHOSTUNREACH)
            ),
            (
                "is away until the storage is gone",
                600.0,
                errno.EIO,
                (When("PostRun", delete, 100.0),),
                "gone",
            ),
            (
                "does not know the job",
                600.0,
                errno.ENOENT,
                (),
                f"drain:compute-02 {DISABLED} {END}",
            ),
        )
    ),
    Story(
        "an abort of a job that never had nodes has none to drain",
        "Proposal cancel! dws-epilog-timeout! dws clean Teardown gone",
        "epilog-given-up",
        troubles=(
            When("Proposal", outage(600.0)),
            When("Proposal", cancel, 5.0),
        ),
        latency={"Proposal": 5.0},
        epilog_timeout=60.0,
        away=600.0,
    ),
    Story(
        "an abort takes the token back, though the Workflow is deleted unseen",
        "Proposal..PostRun dws-epilog-timeout! drain:compute-01 drain:compute-02 "
        "use-unknown! dws clean gone",
        data="none",
        job=Job((f"{XFS} requires=copy-offload", COPY_OUT)),
        troubles=(
            When("PostRun", outage(600.0), 1.0),
            When("PostRun", unload(100.0), 80.0),
            When("PostRun", delete, 100.0),
        ),
        config=Config.parse({"daemons": {"copy-offload": {}}}),
        latency={"PostRun": 5.0},
        epilog_timeout=60.0,
        may=("use-unknown",),
        away=600.0,
    ),
    Story(
        "a token does not stay where another program takes the Workflow's place",
        "Proposal..start gone Proposal name-taken! finish clean",
        data="workflow-deleted",
        job=Job((f"{XFS} requires=copy-offload", COPY_OUT), seconds=30.0),
        troubles=(When("start", take_place, 1.5),),
        config=Config.parse({"daemons": {"copy-offload": {}}}),
        may=("name-taken", "workflow-deleted"),
        spared="name-taken",
    ),
    Story(
        "a token that is read when the epilog was given up does not come back",
        "Proposal..PreRun cancel! dws-epilog-timeout! drain:compute-01 "
        "drain:compute-02 use-unknown dws clean gone",
        data="none",
        job=Job((f"{XFS} requires=copy-offload", COPY_OUT)),
        troubles=(
            When("PreRun", slow_kube(60.0, 100.0, "get", kind=SECRET)),
            When("PreRun", cancel, 20.0),
            When("PreRun", outage(600.0), 15.0),
            When("PreRun", unload(100.0), 130.0),
            When("PreRun", delete, 150.0),
        ),
        config=Config.parse({"daemons": {"copy-offload": {}}}),
        latency={"PreRun": 5.0},
        epilog_timeout=60.0,
        away=600.0,
        may=("use-unknown",),
    ),
    Story(
        "a job is let go before its tasks have ended",
        "Proposal..start cancel! dws-epilog-timeout! drain:compute-01 "
        "drain:compute-02 disable:rabbit-01 epilog-given-up! Teardown "
        "disable:compute-01 disable:compute-02 finish clean enable:rabbit-01 gone",
        "epilog-given-up",
        Job(attributes={"exec": {"test": {"run_duration": "100s", "deaf": True}}}),
        (When("start", cancel, 5.0), When("start", abort, 10.0)),
    ),
)
