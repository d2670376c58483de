# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Records of what Teardown deletes: data movements, and the logs of containers. No job
waits long for them, or fails, where they cannot be read."""

from __future__ import annotations

from typing import Any

from flux_k8s.config.table import Config
from flux_k8s.jobs.copies import PAGE
from flux_k8s.jobs.datarecords import CONTAINERS
from flux_k8s.ports import NNFDATAMOVEMENT, POD, Kind, KubeError
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_for, slow_kube
from rabbitsim.torture.story import (
    COPY_OUT,
    FOREVER,
    LIFE,
    XFS,
    Job,
    Story,
    When,
    deed,
)
from support.records import labels, pod

INCOMPLETE = "record-incomplete"
NO_LOG = "log", 404

READS: tuple[tuple[str, Kind], ...] = (
    ("list", NNFDATAMOVEMENT),
    ("list", POD),
    ("log", POD),
)
ERRORS = (
    KubeError(403, "Forbidden", "you may not"),
    KubeError(404, "KindNotFound", "is the CRD installed?"),
    KubeError(422, "Invalid", "what?"),
    KubeError(0, "Timeout", "no answer in time"),
    KubeError(500, "InternalError", "conversion webhook failed"),
    KubeError(429, "TooManyRequests", "please wait", retry_after=1.0),
)
NEXT_HOUR = KubeError(429, "TooManyRequests", "in an hour", retry_after=3600.0)
SAVING = Config.parse({"save_datamovements": 10, "daemons": {"copy-offload": {}}})
OFFLOAD = Job((f"{XFS} requires=copy-offload", COPY_OUT))


@deed
def run_containers(system: StorySystem, count: int) -> None:
    """The job's containers have written something."""
    for number in range(count):
        pod(system, system.first.id, f"p{number}", {"one": "x"})


@deed
def list_without_end(system: StorySystem, delay: float) -> None:
    """Data movements are listed in ever more portions, each of which takes some
    seconds."""
    items = [{"metadata": {"name": "m", "namespace": "x"}}]
    kind, more = f"{NNFDATAMOVEMENT.name}List", {"continue": "more"}
    portion = Fault(delay, answer={"kind": kind, "items": items, "metadata": more})
    system.disturb(portion, ("list",), NNFDATAMOVEMENT)


def make_many(system: StorySystem) -> None:
    """The job has asked for many data movements."""
    namespace = "rabbit-01"
    for number in range(2 * PAGE):
        meta = {"name": f"m{number}", "namespace": namespace}
        body = {"metadata": {**meta, "labels": labels(system.first.id)}}
        system.store.create(NNFDATAMOVEMENT, namespace, body)


def reading(
    name: str,
    *troubles: When,
    course: str = LIFE,
    job: Job = OFFLOAD,
    containers: int = 1,
    config: Config = SAVING,
    **more: Any,
) -> Story:
    troubles = (When("start", run_containers(containers)), *troubles)
    return Story(name, course, job=job, troubles=troubles, config=config, **more)


STORIES = (
    reading(
        "what a job leaves behind is recorded",
        records="container_log datamovements moved",
    ),
    reading(
        "what a job leaves behind is listed in portions",
        When("start", make_many),
        records="container_log datamovements moved",
    ),
    *(
        reading(
            f"one cannot {verb} {kind.plural} ({error.status}), which costs one record",
            When("start", fail_for(FOREVER, error, verb, kind=kind)),
            data="out",
            records="datamovements moved" if kind == POD else "container_log",
            # (A container without a log may be gone.)
            **{"unlogged" if (verb, error.status) == NO_LOG else "log": INCOMPLETE},
            spans=(("DataOut", "Teardown", 1.0),),
        )
        for row, (verb, kind) in enumerate(READS)
        for column, error in enumerate(ERRORS)
        if (row + column) % 3 == 0
    ),
    reading(
        "a server that has the service wait for an hour is not asked again",
        When("start", fail_for(FOREVER, NEXT_HOUR, "list", kind=NNFDATAMOVEMENT)),
        records="container_log",
        log="record-incomplete",
        spans=(("DataOut", "Teardown", 0.2),),
    ),
    reading(
        "a list of data movements has no end",
        When("start", list_without_end(1.0)),
        records="container_log datamovements",
        log="record-incomplete",
        spans=(("DataOut", "Teardown", 60.0),),
    ),
    reading(
        "logs of containers take long",
        When("start", slow_kube(FOREVER, 9.0, "log")),
        containers=CONTAINERS,
        records="container_log datamovements moved",
        log="record-incomplete",
        spans=(("DataOut", "Teardown", 63.0),),
    ),
    reading(
        "an epilog is given up while data movements are listed",
        When("start", list_without_end(3.0)),
        course="Proposal..DataOut dws-epilog-timeout! disable:rabbit-01"
        " epilog-given-up clean Teardown enable:rabbit-01 gone",
        data="out",
        job=Job((XFS, COPY_OUT)),
        config=Config(),
        epilog_timeout=20.0,
        records="",
        log="record-incomplete",
        may=("epilog-given-up",),
    ),
)
