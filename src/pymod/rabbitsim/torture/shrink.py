# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The least that still breaks a rule in the same way."""

from __future__ import annotations

from typing import Sequence, Union

from rabbitsim.torture.jobs import PlannedJob
from rabbitsim.torture.plan import Plan
from rabbitsim.torture.run import Outcome, run
from rabbitsim.torture.trouble import Trouble

Part = Union[PlannedJob, Trouble]

RUNS = 300
"""Runs that shrinking may take."""


def shrink(outcome: Outcome, runs: int = RUNS) -> Outcome:
    """Leave out jobs and troubles while there is a breach of the same kind; the last
    outcome in which there was.

    First as many as possible at once, then fewer, one by one in the end (the
    method of delta debugging).
    """
    if outcome.breach is None:
        return outcome
    best = outcome
    size = (len(best.plan.jobs) + len(best.plan.troubles) + 1) // 2
    while size >= 1 and runs > 0:
        smaller = False
        for chunk in _chunks(best.plan, size):
            if runs == 0:
                break
            plan = _without(best.plan, chunk)
            if plan == best.plan:
                continue
            runs -= 1
            again = run(plan)
            if again.breach is not None and again.breach.kind == outcome.breach.kind:
                best, smaller = again, True
        if not smaller or size > 1:
            size //= 2
    return best


def _chunks(plan: Plan, size: int) -> list[list[Part]]:
    """Jobs first: their troubles go with them."""
    parts: list[Part] = [*plan.jobs, *plan.troubles]
    return [parts[i : i + size] for i in range(0, len(parts), size)]


def _without(plan: Plan, parts: Sequence[Part]) -> Plan:
    jobs = [part for part in parts if isinstance(part, PlannedJob)]
    troubles = [part for part in parts if isinstance(part, Trouble)]
    return plan.without(jobs, troubles)
