# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim torture``. What it prints depends on its arguments only."""

from __future__ import annotations

import argparse

from rabbitsim.cli.errors import UsageError
from rabbitsim.torture import crashpoints
from rabbitsim.torture.plan import make_plan
from rabbitsim.torture.run import Outcome, run
from rabbitsim.torture.shrink import shrink
from rabbitsim.torture.troubles import KINDS

SHOWN = 80
"""The number of lines of a trace that are shown."""


def torture_command(args: argparse.Namespace) -> int:
    """Carry it out; 1 after a breach."""
    if args.crash_points:
        return crashpoints.print_tables()
    if args.jobs < 1 or args.seeds < 1:
        raise UsageError("--jobs and --seeds: expected at least 1")
    if args.minutes is not None and args.minutes <= 0:
        raise UsageError(f"--minutes: {args.minutes:g} is not a time, expected > 0")
    faults = read_faults(args.faults)
    for seed in range(args.seed, args.seed + args.seeds):
        outcome = run(make_plan(seed, args.jobs, args.minutes, faults))
        if args.trace:
            print("\n".join(outcome.trace))
        print(summary(outcome), flush=True)
        if outcome.breach is not None:
            whole = args.no_shrink
            more = "" if args.minutes is None else f" --minutes {args.minutes:g}"
            print(
                f"python -m rabbitsim torture --seed {seed} --jobs {args.jobs}"
                f" --faults {args.faults}{more} --trace: all that happens"
            )
            print(report(outcome if whole else shrink(outcome), whole), flush=True)
            return 1
    return 0


def read_faults(text: str) -> tuple[str, ...]:
    """The kinds of trouble that a list names."""
    if text in ("all", "none"):
        return tuple(KINDS) if text == "all" else ()
    kinds = tuple(text.split(","))
    for kind in kinds:
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise UsageError(f"--faults: '{kind}' is unknown, known: {known}")
    return kinds


def summary(outcome: Outcome) -> str:
    """A run in one line."""
    plan = outcome.plan
    ends = ", ".join(f"{count} {end}" for end, count in outcome.ends.items())
    verdict = "ok" if outcome.breach is None else "BREACH"
    return (
        f"seed {plan.seed}: {verdict}; {len(plan.jobs)} jobs ({ends}),"
        f" {len(plan.troubles)} troubles, {outcome.steps} steps,"
        f" {outcome.seconds:.0f} s of virtual time"
    )


def report(outcome: Outcome, whole: bool = False) -> str:
    """A breach, and the plan that leads to it."""
    plan = outcome.plan
    lines = [f"breach at step {outcome.steps} of seed {plan.seed}: {outcome.breach}"]
    lines += ["", "What leads to it:" if whole else "The least that leads to it:"]
    lines += [f"  {part}" for part in (plan.site, *plan.jobs, *plan.troubles)]
    lines += ["", f"The last {SHOWN} lines of its trace:"]
    lines += [f"  {line}" for line in outcome.trace[-SHOWN:]]
    return "\n".join(lines)
