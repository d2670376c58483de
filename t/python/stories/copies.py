# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Data that moves, and data that does not any more: stall_timeout."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.ports import NNFDATAMOVEMENT, Json, KubeError
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.api import ERRORS
from rabbitsim.torture.deeds import configure, unload
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_for, outage, pause_dws, silence_watches
from rabbitsim.torture.story import (
    COPY_OUT,
    LIFE,
    XFS,
    Deed,
    Job,
    Story,
    When,
)

LIMIT = 60.0
SIZE = 10 * 2**30
STEPS = 32
"""A copy has so many steps, one each LIMIT / 2: it takes sixteen times the limit."""

HALF = STEPS / 2 * LIMIT / 2
"""Seconds after which a copy stops that stalls."""

STALLED_IN = "Proposal..DataOut stall-timeout! Teardown..gone"
STALL = DwsFault("DataOut", "stall")
MAY_NOT = KubeError(403, "Forbidden", "you may not")
HOUR = 3600.0


def copying(
    name: str,
    course: str,
    *troubles: DwsFault | When,
    config: Optional[Config] = None,
    **more: Any,
) -> Story:
    """A story whose copies get on in time, unless a trouble keeps them."""
    return Story(
        name,
        course,
        troubles=troubles,
        config=config or Config(stall_timeout=LIMIT),
        dws={
            "copy_rate": SIZE / STEPS / (LIMIT / 2),
            "copy_step": SIZE // STEPS,
            "report_interval": 15.0,
        },
        copied=SIZE,
        **more,
    )


def while_it_goes_out(deed: Deed, after: float) -> When:
    return When("DataOut", deed, after)


def begin_another(system: StorySystem) -> None:
    """Another data movement of the job begins, and gets on fifty times, unless the job
    was cancelled."""
    found = system.store.list(NNFDATAMOVEMENT, None)["items"]
    if not found:
        return
    metadata = {"name": "other", "namespace": "rabbit-01"}
    labels = found[-1]["metadata"]["labels"]
    body: Json = {"metadata": {**metadata, "labels": labels}}
    system.store.create(NNFDATAMOVEMENT, "rabbit-01", body)
    for percent in range(50):
        status = {"state": "Running", "commandStatus": {"progress": percent}}
        later = partial(_get_on, system, {"status": status})
        system.loop.call_later((percent + 1) * LIMIT / 2, later)


def _get_on(system: StorySystem, body: Json) -> None:
    if system.store.find(NNFDATAMOVEMENT, "rabbit-01", "other") is not None:
        system.store.merge_patch(
            NNFDATAMOVEMENT, "rabbit-01", "other", body, subresource="status"
        )


STORIES = (
    copying(
        "a copy that moves data takes many times the limit",
        LIFE,
        spans=(("DataIn", "PreRun", 15.5 * LIMIT),),
    ),
    copying(
        "a copy into the storage moves no data any more",
        "Proposal..DataIn stall-timeout! Teardown..gone",
        DwsFault("DataIn", "stall"),
        data="not-run",
        spans=(("DataIn", "stall-timeout!", HALF + LIMIT / 2),),
    ),
    copying(
        "a copy out of the storage moves no data any more",
        STALLED_IN,
        STALL,
        data="stall-timeout",
        spans=(("DataOut", "stall-timeout!", HALF + LIMIT / 2),),
    ),
    copying(
        "a copy stalls, and another data movement of the job gets on",
        STALLED_IN,
        STALL,
        while_it_goes_out(begin_another, 10.0),
        spans=(("DataOut", "stall-timeout!", 10.0 + 51 * LIMIT / 2 + LIMIT / 2),),
    ),
    *(
        copying(
            f"without the limit a copy in {state} stalls for long ({limit})",
            LIFE,
            DwsFault(state, "stall", duration=2 * HOUR),
            config=Config.parse({} if limit is None else {"stall_timeout": limit}),
        )
        for state, limit in (("DataIn", None), ("DataOut", 0))
    ),
    copying(
        "a copy stalls, and goes on in time",
        LIFE,
        DwsFault("DataOut", "stall", duration=HALF + LIMIT / 4),
    ),
    copying(
        "a copy of which nothing is reported",
        "Proposal..DataIn stall-timeout! Teardown..gone",
        DwsFault("DataIn", "slow", duration=HOUR),
        spans=(("DataIn", "stall-timeout!", LIMIT + 3.0),),
    ),
    *(
        copying(
            f"DWS does not begin with {state}, which is no stalled copy",
            LIFE,
            When(state, pause_dws(10 * LIMIT)),
        )
        for state in ("DataIn", "DataOut")
    ),
    copying(
        "DataIn takes long without a copy",
        LIFE,
        DwsFault("DataIn", "never", duration=10 * LIMIT),
        job=Job((XFS, COPY_OUT)),
    ),
    copying(
        "a copy stalls, and the limit is set later",
        STALLED_IN,
        STALL,
        while_it_goes_out(configure(Config(stall_timeout=LIMIT)), 2 * HOUR),
        config=Config(),
        spans=(("DataOut", "stall-timeout!", 2 * HOUR),),
    ),
    copying(
        "teardown_after is over while data moves",
        "Proposal..DataOut teardown-after! Teardown..gone",
        config=Config(stall_timeout=LIMIT, teardown_after=5 * LIMIT),
    ),
    copying(
        "the limit stands still while Kubernetes is out of reach",
        STALLED_IN,
        STALL,
        while_it_goes_out(pause_dws(HOUR), HALF + 100.0),
        while_it_goes_out(outage(HOUR), HALF + 100.0),
        config=Config(stall_timeout=600.0),
        away=HOUR,
    ),
    *(
        copying(
            f"an outage gives up no data ({kind})",
            LIFE,
            while_it_goes_out(
                outage(HOUR / 4, ERRORS[kind], hangs=kind == "hang"), 45.0
            ),
            away=HOUR / 4,
        )
        for kind in ("503", "403", "hang")
    ),
    copying(
        "a copy stalls, and each new module starts the time again",
        STALLED_IN,
        STALL,
        *(while_it_goes_out(unload(1.0), HALF + 15.0 * n) for n in (1, 2, 3)),
        spans=(("DataOut", "stall-timeout!", HALF + 49.0 + LIMIT),),
        away=300.0,
    ),
    copying(
        "a module that starts late in a copy does not give it up",
        LIFE,
        while_it_goes_out(unload(4 * LIMIT), 4 * LIMIT),
    ),
    copying(
        "data moves while the watch is silent",
        LIFE,
        while_it_goes_out(silence_watches(NNFDATAMOVEMENT), 45.0),
    ),
    copying(
        "data does not move while the watch is silent",
        STALLED_IN,
        STALL,
        while_it_goes_out(silence_watches(NNFDATAMOVEMENT), 45.0),
    ),
    *(
        copying(
            f"the module may not {' and '.join(verbs)} data movements",
            STALLED_IN,
            STALL,
            When("", fail_for(HALF + HOUR, MAY_NOT, *verbs, kind=NNFDATAMOVEMENT)),
            away=HOUR,
            log=" ".join("objects-unseen" for _ in verbs),
        )
        for verbs in (("list",), ("list", "watch"))
    ),
    copying(
        "a list of data movements that fails holds up no other limit",
        "Proposal..DataOut teardown-after! Teardown..gone",
        STALL,
        while_it_goes_out(
            fail_for(2 * HOUR, MAY_NOT, "list", kind=NNFDATAMOVEMENT), 0.0
        ),
        config=Config(stall_timeout=LIMIT, teardown_after=HOUR),
    ),
    copying(
        "data stalls after the end of its job",
        "Proposal..DataOut clean Teardown gone",
        STALL,
        job=Job((XFS, COPY_OUT), release="unmounted"),
        data="stall-timeout",
    ),
)
