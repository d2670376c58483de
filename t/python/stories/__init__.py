# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stories of jobs, by what they are about. What a row can say is in
:mod:`rabbitsim.torture.story`."""

from __future__ import annotations

from rabbitsim.torture.scenarios import SCENARIOS
from stories import (
    aborts,
    answers,
    broken,
    cancels,
    clocks,
    copies,
    copyfailures,
    faults,
    limits,
    lives,
    losses,
    nodes,
    orphans,
    outages,
    queries,
    records,
    release,
    rescues,
    room,
    stage,
    turns,
    unmount,
)

STORIES = (
    *SCENARIOS,
    *aborts.STORIES,
    *answers.STORIES,
    *broken.STORIES,
    *cancels.STORIES,
    *clocks.STORIES,
    *copies.STORIES,
    *copyfailures.STORIES,
    *faults.STORIES,
    *limits.STORIES,
    *lives.STORIES,
    *losses.STORIES,
    *nodes.STORIES,
    *orphans.STORIES,
    *outages.STORIES,
    *records.STORIES,
    *queries.STORIES,
    *release.STORIES,
    *rescues.STORIES,
    *room.STORIES,
    *stage.STORIES,
    *turns.STORIES,
    *unmount.STORIES,
)
