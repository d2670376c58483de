# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When Kubernetes counts as out of reach, before the first lists."""

from __future__ import annotations

from typing import cast

import pytest

from flux_k8s.jobs.outage import LISTED_FIRST, PATIENCE, SILENCE, Outage
from flux_k8s.jobs.reporter import Reporter
from flux_k8s.jobs.step import (
    Delete,
    Fail,
    ReleaseEpilog,
    ReleaseProlog,
    ReportData,
    Step,
    Withhold,
)
from flux_k8s.ports import Flux
from flux_k8s.reasons import Note, Reason
from rabbitsim.loop import VirtualLoop


class LoggingLoop(VirtualLoop):
    """The part of Flux that an :class:`Outage` needs."""

    def log(self, level: int, message: str, reason: Reason) -> None:
        pass


def started(loop: LoggingLoop) -> Outage:
    outage = Outage(cast(Flux, loop), lambda: None)
    outage.start()
    return outage


def test_nothing_is_checked_any_more_once_all_lists_are_known() -> None:
    loop = LoggingLoop()
    outage = started(loop)
    for kind in LISTED_FIRST:
        outage.note_watch(kind, None)
    loop.run(timeout=2 * PATIENCE)
    assert outage.reason is None
    assert loop.next_due() is None


def test_nothing_is_checked_any_more_after_the_end_of_the_service() -> None:
    loop = LoggingLoop()
    outage = started(loop)
    outage.stop()
    loop.run(timeout=2 * PATIENCE)
    assert outage.reason is None
    assert loop.next_due() is None


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Delete(), None),
        (Fail(Note("no space", Reason.DWS_FAILED)), SILENCE),
        (ReleaseProlog(), SILENCE),
        (ReleaseEpilog(), SILENCE),
        (ReportData(), SILENCE),
        (Withhold(), SILENCE),
    ],
)
def test_a_step_without_an_answer_of_kubernetes_ends_no_outage(
    step: Step, reason: object
) -> None:
    loop = LoggingLoop()
    outage = started(loop)
    loop.run(timeout=2 * PATIENCE)
    assert outage.reason == SILENCE
    Reporter(cast(Flux, loop), outage).step_ended(step, None)
    assert outage.reason == reason
