# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A guest who submits what nobody should, and who looks at what became of it.

usage: flux python hostile.py submit COUNT SEED FILE
       flux python hostile.py check FILE <LOG

"submit" submits COUNT jobs that SEED gives, many at a time, and writes the IDs of
those that were accepted to FILE. The jobs are held: one that gets its storage does not
run. "check" looks at the log, and at the notes and memos of these jobs: a control
character in them is an error, and so is a number where a format stood.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter, deque
from typing import Any, Callable

from flux.constants import FLUX_JOB_URGENCY_HOLD
from flux.job import event_watch, submit_async, submit_get_id

import flux

WINDOW = 64
"""Submissions in flight."""

XFS = "#DW jobdw type=xfs capacity=1GiB name=p1"
FLAGS = ("", "#", "0", "-", "+", " ", "10", ".5", "*", "2$", "1$*2$")
LENGTHS = ("", "hh", "h", "l", "ll", "j", "z", "t", "L")
CONVERSIONS = "diouxXeEfFgGaAcCsSpnm%"
CONTROLS = [chr(c) for c in (*range(1, 32), *range(127, 160))]
MARKS = list("\u00ad\u061c\u200b\u200e\u202e\u2028\u2029\u2066\ufeff\ue000\U000e0041")
WORDS = ("#DW", "jobdw", "copy_in", "name=", "name=a", "type=xfs", "capacity=9GiB", "=")
CAPACITIES = ("9" * 5000 + "GiB", "0" * 31 + "1GiB", "99999999TiB", "-1GiB", "1e9GiB")
COUNTS = (2**62, 2**31, 0, -1, "1-1000000", "0-4294967293", "1" * 5000, 1e300, None)


def printf(rng: random.Random) -> str:
    """A conversion of printf between marks that no job ID has."""
    parts = rng.choice(FLAGS), rng.choice(LENGTHS), rng.choice(CONVERSIONS)
    return f"Q-%{''.join(parts)}-Z"


def character(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(CONTROLS + MARKS)
    while True:
        code = rng.choice((rng.randrange(1, 128), rng.randrange(1, 0x110000)))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def nonsense(rng: random.Random) -> str:
    """A word or two of anything."""
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(printf(rng))
        elif kind < 0.6:
            parts.append(rng.choice(WORDS))
        else:
            parts.append(character(rng))
        parts.append(rng.choice(("", "", " ", "\n")))
    return "".join(parts)


def blanks(rng: random.Random) -> str:
    return "#DW" + rng.choice(" \t\v\u00a0\n") * rng.randrange(1, 65_000) + "x"


def in_a_directive(rng: random.Random) -> str:
    """A directive that is right but for one of its values."""
    evil = nonsense(rng)
    return rng.choice(
        (
            f"#DW jobdw type={evil} capacity=1GiB name=p1",
            f"#DW jobdw type=xfs capacity={evil} name=p1",
            f"#DW jobdw type=xfs capacity={rng.choice(CAPACITIES)} name=p1",
            f"#DW jobdw type=xfs capacity=1GiB name={evil}",
            f"#DW jobdw type=xfs capacity=1GiB name={'n' * rng.randrange(1, 60_000)}",
            f"{XFS} profile={evil}",
            f"{XFS} requires={evil}",
            f"{XFS} {evil}=x",
            f"{XFS}\n#DW copy_in source={evil} destination=$DW_JOB_p1/x",
            f"#DW persistentdw name={evil}",
            f"#DW destroy_persistent name={evil}",
            f"#DW container name=c profile={evil} DW_JOB_{evil}=p1",
            f"#DW {evil}",
            f"#DW{evil}",
        )
    )


def deep(rng: random.Random) -> Any:
    value: Any = XFS
    for _ in range(rng.choice((2, 100, 900))):
        value = [value]
    return value


DIRECTIVES: tuple[Callable[[random.Random], Any], ...] = (
    nonsense,
    nonsense,
    in_a_directive,
    in_a_directive,
    in_a_directive,
    in_a_directive,
    blanks,
    deep,
    lambda rng: [nonsense(rng) for _ in range(rng.randrange(1, 6))],
    lambda rng: (XFS + " ") * rng.choice((2, 64, 65, 1_000)),
    lambda rng: "#DW " * rng.choice((64, 65, 16_000)),
    lambda rng: XFS + " x=y" * rng.choice((1_000, 1_020, 16_000)),
    lambda rng: ["#DW"] * rng.choice((64, 65, 20_000)),
    lambda rng: f"{XFS} x={'y' * rng.choice((60_000, 65_536, 200_000))}",
    lambda rng: rng.choice((None, 7, 1e300, True, {}, {"a": XFS}, [None], "", [])),
)


def resources(rng: random.Random) -> list[Any]:
    """What the job asks for; more often than not, one node."""
    slot = {"type": "slot", "count": 1, "label": "task"}
    core = {"type": "core", "count": 1}
    node: dict[str, Any] = {"type": "node", "count": 1}
    node["with"] = [{**slot, "with": [core]}]
    kind = rng.random()
    if kind < 0.1:
        node["count"] = rng.choice(COUNTS)
    elif kind < 0.13:
        node["with"][0]["with"] = [core] * rng.choice((1_300, 1_400, 10_000))
    elif kind < 0.18:
        for _ in range(rng.choice((3, 40, 200))):
            count = rng.choice((1, 2**60))
            node = {"type": "rack", "count": count, "with": [node]}
    return [node]


def jobspec(rng: random.Random) -> str:
    system: dict[str, Any] = {
        "duration": 60,
        "cwd": "/",
        "environment": {},
        "dw": rng.choice(DIRECTIVES)(rng),
    }
    if rng.random() < 0.1:
        system["dw_failure_tolerance"] = rng.choice((1, -1, 2**40, "x", nonsense(rng)))
    if rng.random() < 0.2:
        system["job"] = {"name": nonsense(rng)}
    task = {"command": ["true"], "slot": "task", "count": {"per_slot": 1}}
    value = {
        "version": 1,
        "resources": resources(rng),
        "tasks": [task],
        "attributes": {"system": system},
    }
    return json.dumps(value)


def submit(count: int, seed: int, path: str) -> None:
    """Keep WINDOW submissions in flight."""
    rng = random.Random(seed)
    handle = flux.Flux()
    pending: deque[Any] = deque()
    outcomes: Counter[str] = Counter()
    with open(path, "w", encoding="ascii") as file:

        def take() -> None:
            try:
                print(int(submit_get_id(pending.popleft())), file=file)
                outcomes["accepted"] += 1
            except OSError as error:
                outcomes["refused"] += 1
                text = error.strerror or ""
                if text.startswith("attributes.system.dw") and not shows(text):
                    sys.exit(f"a refusal at submission: {text!r}")

        for _ in range(count):
            spec = jobspec(rng)
            pending.append(submit_async(handle, spec, urgency=FLUX_JOB_URGENCY_HOLD))
            if len(pending) == WINDOW:
                take()
        while pending:
            take()
    print(f"seed {seed}: {dict(outcomes)}")


WORD = re.compile(r"Q-(?:0x[0-9a-f]+|\(nil\)|\(null\)|-?[0-9][0-9a-fx.+]*)-Z")


def shows(text: str) -> bool:
    """Whether it shows no control character, and no word of the stack."""
    return text.isprintable() and WORD.search(text) is None


def check(path: str) -> None:
    for number, line in enumerate(sys.stdin.buffer.read().split(b"\n"), 1):
        if not shows(line.decode("utf-8")):
            sys.exit(f"line {number} of the log: {line!r}")
    handle = flux.Flux()
    found: Counter[str] = Counter()
    with open(path, encoding="ascii") as file:
        for jobid in map(int, file):
            for event in event_watch(handle, jobid):
                texts = {
                    "exception": [event.context.get("note", "")],
                    "memo": [str(v) for v in event.context.values()],
                }.get(event.name, [])
                for text in texts:
                    found[event.name] += 1
                    if not shows(text):
                        sys.exit(f"job {jobid}: {event.name}: {text!r}")
    print(f"looked at {dict(found)}")
    if not found["exception"]:
        sys.exit("no exception was found: nothing was tried")


if __name__ == "__main__":
    if sys.argv[1] == "submit":
        submit(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        check(sys.argv[2])
