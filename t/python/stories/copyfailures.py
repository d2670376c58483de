# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A copy_out that fails costs no other copy its data. NNF begins all of them at once,
and reports on none after one that has failed."""

from __future__ import annotations

from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.jobs.workflowrequests import PERSISTENCE
from flux_k8s.objects.workflowmarks import COPIES
from flux_k8s.ports import NNFDATAMOVEMENT, WORKFLOW, Json, Kind, KubeError, Request
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.deeds import cancel, give_up, rescue_each, tear_down
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import (
    empty_next,
    fail_for,
    lose_watches,
    silence_watches,
    slow_kube,
)
from rabbitsim.torture.story import COPY_IN, FOREVER, XFS, Job, Story, When

GOES_ON = 600.0
"""Seconds that copies take which do not fail at once."""

DAY = 86400.0
HOUR = 3600.0

OUT = tuple(f"#DW copy_out source=$DW_JOB_p1/ destination=/lustre/{x}" for x in "xyz")
JOB = Job((XFS, *OUT), nodes=1)
FAILS = "Proposal..DataOut dws-failed! Teardown..gone"
KEPT = "Proposal..DataOut kept dws-failed! clean Teardown gone"
NO = KubeError(403, "Forbidden", "no")
UNSEEN = When("", fail_for(FOREVER, NO, "watch", kind=NNFDATAMOVEMENT))
"""No watch shows copies."""


def failing(files: str, **more: Any) -> tuple[DwsFault, ...]:
    """The copies of these files fail, at once."""
    return tuple(
        DwsFault("DataOut", "copy", directive=1 + "xyz".index(file), **more)
        for file in files
    )


def going(files: str, seconds: float = GOES_ON) -> tuple[DwsFault, ...]:
    """The copies of these files go on for some time, or for ever (0), and show no
    progress."""
    return tuple(
        DwsFault("DataOut", "stall", duration=seconds, directive=1 + "xyz".index(file))
        for file in files
    )


def copying(
    name: str,
    *troubles: DwsFault | When,
    course: str = FAILS,
    data: str = "dws-failed",
    lasts: Optional[float] = None,
    config: Optional[Config] = None,
    **more: Any,
) -> Story:
    """The story of a job with three copies, whose DataOut lasts so many seconds."""
    spans = () if lasts is None else (("DataOut", "Teardown", lasts),)
    given = {"job": JOB, "spans": spans, **more}
    return Story(
        name,
        course,
        data,
        troubles=troubles,
        config=config or Config(),
        dws={"report_interval": 60.0},
        copied=2**30,
        **given,
    )


def strip_copies(system: StorySystem) -> None:
    """A webhook removes what becomes of each copy from Workflows."""

    def strip(operation: str, kind: Kind, new: Optional[Json], old: object) -> None:
        annotations = ((new or {}).get("metadata") or {}).get("annotations") or {}
        if new is not None and COPIES in annotations:
            rest = {key: annotations[key] for key in annotations if key != COPIES}
            new["metadata"] = {**new["metadata"], "annotations": rest}

    system.store.admission.append(strip)


def tear_down_in_list(system: StorySystem) -> None:
    """Somebody asks for Teardown when data movements are listed, while the watch hangs.
    DWS has deleted those that failed by then, and no others."""
    silence_watches(WORKFLOW)(system)

    def fault(request: Request) -> Optional[Fault]:
        if (request.verb, request.kind) == ("list", NNFDATAMOVEMENT):
            system.api_fault = lambda request: None
            tear_down(system)
            for movement in system.store.list(NNFDATAMOVEMENT, None)["items"]:
                if movement.get("status", {}).get("status") == "Failed":
                    meta = movement["metadata"]
                    system.store.delete(
                        NNFDATAMOVEMENT, meta["namespace"], meta["name"]
                    )
        return None

    system.api_fault = fault


STORIES = (
    copying(
        "one list of copies is empty by mistake",
        *failing("x", message="no space"),
        *going("y"),
        When("DataOut", empty_next(NNFDATAMOVEMENT)),
        lasts=GOES_ON,
    ),
    *(
        copying(
            f"a job waits for the copies that go on ({goes_on}), and loses the others "
            f"({fails})",
            *failing(fails, message="no space"),
            *going(goes_on),
            lasts=GOES_ON,
        )
        for fails, goes_on in (
            ("x", "yz"),
            ("x", "z"),
            ("x", "y"),
            ("xz", "y"),
            ("xy", "z"),
        )
    ),
    copying(
        "copies that were over before another failed are not lost",
        *going("x", seconds=60.0),
        *failing("y"),
        lasts=60.0,
    ),
    copying(
        "copies that are over when one has failed take no time",
        *failing("x"),
        lasts=0.0,
    ),
    copying(
        "a long message of DWS leaves room for what is lost",
        *failing("x", message="no space " * 1000),
    ),
    *(
        copying(
            f"data that is copied is not lost when DWS fails otherwise ({release}, "
            f"{config.keep_failed})",
            DwsFault("DataOut", "error", message="no such device"),
            course=course,
            data="out",
            job=Job((XFS, OUT[0]), nodes=1, release=release),
            config=config,
            may=("dws-failed",),  # where it has not ended
        )
        for release, course in (
            ("teardown", FAILS),
            ("unmounted", "Proposal..DataOut clean Teardown gone"),
        )
        for config in (Config(), Config(keep_failed=HOUR))
    ),
    copying(
        "a copy that ends while the list of copies is on its way is not lost",
        DwsFault("DataOut", "error", message="no such device"),
        When("DataOut", slow_kube(60.0, 10.0, "list", kind=NNFDATAMOVEMENT)),
        data="out",
        job=Job((XFS, OUT[0]), nodes=1),
        may=("dws-failed",),  # where it has not ended
    ),
    copying(
        "nodes are given back while copies go on of which another has failed",
        *failing("x"),
        *going("y"),
        course="Proposal..DataOut clean Teardown gone",
        job=Job((XFS, *OUT), nodes=1, release="unmounted"),
        lasts=GOES_ON,
    ),
    # Limits, and others who end the wait
    *(
        copying(
            f"{key} is that of copies of which none has failed",
            *failing("x"),
            *going("y", seconds=0.0),
            config=Config.parse({key: 300}),
            lasts=lasts,
        )
        for key, lasts in (("teardown_after", 300.0), ("stall_timeout", 360.0))
    ),
    *(
        copying(
            f"a copy that is over is not lost with one that takes too long ({key})",
            *going("x", seconds=0.0),
            course=f"Proposal..DataOut {reason}! Teardown..gone",
            data=reason,
            config=Config.parse({key: 300}),
        )
        for key, reason in (
            ("teardown_after", "teardown-after"),
            ("stall_timeout", "stall-timeout"),
        )
    ),
    copying(
        "a cancel ends the wait for copies at once",
        *failing("x"),
        *going("yz"),
        When("DataOut", cancel, 10.0),
        course="Proposal..DataOut cancel! dws-failed! Teardown..gone",
        lasts=10.0,
    ),
    # What Kubernetes shows, or not
    copying(
        "the end of copies is seen where no watch shows it",
        UNSEEN,
        *failing("x"),
        *going("yz"),
        lasts=GOES_ON,
    ),
    Story(
        "a list from before a copy failed says nothing about the copies",
        FAILS,
        "dws-failed",
        job=Job((XFS, COPY_IN, *OUT[:2]), nodes=1),
        troubles=(
            UNSEEN,
            DwsFault("DataIn", "stall", duration=25.0, directive=1),
            DwsFault("DataOut", "copy", message="no space", directive=2),
            DwsFault("DataOut", "stall", duration=15.0, directive=3),
        ),
        config=Config(stall_timeout=20.0),
        dws={"report_interval": 10.0},
        copied=2**30,
        spans=(("DataOut", "Teardown", 20.2),),
    ),
    copying(
        "a copy is not done since Teardown has deleted what failed",
        DwsFault("DataOut", "copy", message="no", directive=1, node="rabbit-01"),
        *going("y"),
        When("DataOut", tear_down_in_list, GOES_ON - 10.0),
        When("DataOut", lose_watches, HOUR),
        course="Proposal..Teardown workflow-moved! clean gone",
        data="workflow-moved",
        may=("dws-failed",),
        job=Job((XFS, *OUT), nodes=4),
    ),
    *(
        copying(
            "what became of copies is not kept on the Workflow, which holds no job "
            f"({config.keep_failed})",
            *failing("x"),
            When("", strip_copies),
            course=course,
            job=Job((XFS, OUT[0]), nodes=1),
            config=config,
        )
        for config, course in ((Config(), FAILS), (Config(keep_failed=HOUR), KEPT))
    ),
    *(
        copying(
            f"data is given up where Kubernetes does not list its movements ({status})",
            When(
                "PostRun",
                fail_for(
                    *(FOREVER, KubeError(status, "No", "no list"), "list"),
                    kind=NNFDATAMOVEMENT,
                ),
            ),
            *failing("x"),
            *going("yz", seconds=0.0),
            lasts=PERSISTENCE + 15.5,
        )
        for status in (403, 404, 500)
    ),
    *(
        copying(
            "copies that go on are waited for though a server that starts does not "
            f"list them at first ({status})",
            When(
                "PostRun",
                fail_for(
                    *(60.0, KubeError(status, "No", "not yet"), "list"),
                    kind=NNFDATAMOVEMENT,
                ),
            ),
            *failing("x"),
            *going("y"),
            lasts=GOES_ON,
        )
        for status in (403, 404)
    ),
    # Storage that is kept
    copying(
        "what became of each copy is known when the data is given up",
        *failing("x"),
        *going("y"),
        When("clean", give_up, 60.0),
        course=KEPT,
        config=Config(keep_failed=DAY),
        lasts=GOES_ON + 60.0,
    ),
    copying(
        "copies are looked at anew after a rescue",
        *failing("xy", duration=HOUR, message="no"),
        When("clean", rescue_each(HOUR / 2 + 60.0), 60.0),
        course=KEPT.replace("clean", "clean kept kept"),
        data="out",
        config=Config(keep_failed=DAY),
    ),
)
