# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The tables of ``doc/scale.md`` about one day."""

from __future__ import annotations

from typing import Callable, Iterable

from flux_k8s.ports import Json
from rabbitsim.day.idle import BY_DWS, CAUSES, FAILURES, OTHERS, OURS, OUTAGES
from rabbitsim.day.page import (
    NUMBERS,
    Numbers,
    Row,
    counts,
    number,
    significant,
    table,
)
from rabbitsim.day.reactor import RECEIVE
from rabbitsim.day.site import EVENTS, HOUR

KINDS = {
    "workflows": "Workflow",
    "servers": "Servers",
    "storages": "Storage",
    "clientmounts": "ClientMount",
    "nnfdatamovements": "NnfDataMovement",
}

MEANINGS = {
    **{state: f"DWS works on {state}" for state in BY_DWS},
    "DataIn": "DWS copies in",
    "DataOut": "DWS copies out",
    OTHERS: "the Rabbits of the job have no place beside the storage of others",
    OURS: "DWS is done, and the next state is not requested, or the job waits for us",
    FAILURES: "DWS has an error, or a node or Rabbit has failed",
    OUTAGES: "the API server, the controllers of DWS or the module are away",
}
WORK = {
    "parse": "parsing of JSON, of watches and requests",
    RECEIVE: "the cache of the watches",
    "answer": "steps of jobs, after an answer of Kubernetes",
    "timer": "steps of jobs and others that were due at a time",
    "request": "requests of the plugin and of users",
    "rpc": "answers of Flux",
    **{kind: f"messages about {name}" for kind, name in KINDS.items()},
}


def simulations(found: Numbers) -> str:
    def row(name: str, text: Callable[[Json], str]) -> Row:
        return [name, text(found.day), text(found.ten)]

    def nodes(of: Json) -> str:
        of = of["jobs"]["nodes"]
        return (
            f"median {of['median']}, mean {of['mean']}, largest {number(of['largest'])}"
        )

    return table(
        ["", "the day", "ten times"],
        [
            row("compute nodes", lambda of: number(of["site"]["nodes"])),
            row("Rabbits", lambda of: number(of["site"]["rabbits"])),
            row("jobs", lambda of: number(of["jobs"]["submitted"])),
            row("submitted within", lambda of: f"{of['site']['hours']:g} h"),
            row("jobs with copies", lambda of: number(of["jobs"]["with_copies"])),
            row("jobs by storage", lambda of: counts(of["jobs"]["by_storage"])),
            row("nodes of a job", nodes),
            row("ends of jobs", lambda of: counts(of["jobs"]["ends"])),
            row(
                "until all had ended",
                lambda of: f"{of['jobs']['hours_until_all_had_ended']} h",
            ),
            row("failures", lambda of: counts(of["failures"])),
            row("stuck", lambda of: ", ".join(of["stuck"]) or "nothing"),
            row("seed", lambda of: str(of["site"]["seed"])),
            row("flux-dws", lambda of: str(of["flux-dws"])),
            row("Python", lambda of: str(of["measured"]["python"])),
            row("processor", lambda of: str(of["measured"]["processor"])),
            row(
                "processor time of the simulation",
                lambda of: f"{number(of['measured']['simulation_processor_s'])} s",
            ),
            [
                "numbers, and the start of their SHA-256",
                *(f"`{n}` {c}" for n, c in zip(NUMBERS, found.checksums)),
            ],
        ],
    )


def node_hours(found: Numbers) -> str:
    hours = found.day["node_hours"]
    idle, by_dws = hours["idle"], hours["needed_by_dws"]
    of_jobs = hours["run"] + sum(idle.values())

    def row(name: str, value: float, meaning: str) -> Row:
        return [name, number(value, 1), f"{100 * value / of_jobs:.3f} %", meaning]

    def causes(names: Iterable[str]) -> list[Row]:
        return [row(name, idle[name], MEANINGS[name]) for name in names]

    return table(
        ["nodes of jobs", "node hours", "part", "meaning"],
        [
            row("work", hours["run"], "tasks run"),
            *causes(BY_DWS),
            row("**needed by DWS**", by_dws, "the sum of these states"),
            *causes(cause for cause in CAUSES if cause not in BY_DWS),
            [
                "**flux-dws, of what DWS needs**",
                "",
                f"**{hours['ours_per_cent_of_dws']} %**",
                "the target is 1 %",
            ],
        ],
    )


def delays(found: Numbers) -> str:
    return table(
        ["our delays", "median", "p99", "p99.9", "most"],
        [
            [name, *(f"{number(value)} ms" for value in of.values())]
            for name, of in (
                ("the day", found.day["node_hours"]["our_delays_ms"]),
                ("ten times", found.ten["node_hours"]["our_delays_ms"]),
            )
        ],
    )


def traffic(found: Numbers) -> str:
    day = found.day
    calls, jobs = day["requests"]["by_verb"], day["jobs"]["submitted"]

    def rates(name: str, of: Json) -> Row:
        return [name, significant(of["mean"]), significant(of["peak"])]

    text = table(
        [f"in {day['site']['hours']:g} hours", "mean", "peak"],
        [
            rates("Workflows in flight", day["workflows"]),
            rates("requests of the module a second", day["requests"]["per_second"]),
            rates("messages of watches a second", day["events"]["per_second"]),
            rates(
                "writes of all clients a second, by the minute",
                day["requests"]["writes_of_all_per_second"],
            ),
        ],
    )
    of_job = (f"{verb} {count / jobs:.1f}" for verb, count in calls.items())
    return f"{text}\n\nRequests for each job: {', '.join(of_job)}."


def messages(found: Numbers) -> str:
    by_kind = found.day["events"]["by_kind"]
    total = sum(by_kind.values())
    each = found.day["measured"]["microseconds_each"]
    return table(
        ["messages about", "in all", "part", "for each job", "to handle one"],
        [
            [
                KINDS[kind],
                number(by_kind[kind]),
                f"{100 * by_kind[kind] / total:.1f} %",
                number(by_kind[kind] / found.day["jobs"]["submitted"], 1),
                f"{each[kind]:.0f} µs",
            ]
            for kind in EVENTS
        ],
    )


def queues(found: Numbers) -> str:
    day = found.day
    waits, reactor = day["reactor"]["waits_ms"], day["reactor"]

    def row(what: str, name: str) -> Row:
        of = day["queues"][name]
        return [what, significant(of["mean"]), significant(of["peak"])]

    text = table(
        ["waiting at a time", "mean", "peak"],
        [
            row("jobs for nodes", "jobs_for_nodes"),
            row("jobs for Proposal", "jobs_for_proposal"),
            row("work for the reactor (the most in each minute)", "reactor"),
            row("copies under way, which share bandwidth", "copies"),
        ],
    )
    ms = ", ".join(f"{name} {number(value)} ms" for name, value in waits.items())
    return (
        f"{text}\n\nThe reactor is busy for {reactor['busy_per_cent']} % of the time. "
        f"Work waits for it: {ms}.\nThe longest reading of R takes "
        f"{reactor['longest_reading_of_R_s']} s, in a process of its own."
    )


def cost(found: Numbers) -> str:
    measured = found.day["measured"]
    seconds = measured["module_processor_s"]
    total = sum(seconds.values())
    rows = [
        [WORK[name], number(value, 1), f"{100 * value / total:.1f} %"]
        for name, value in sorted(seconds.items(), key=lambda item: -item[1])
        if name in WORK
    ]
    share = 100 * total / (found.day["site"]["hours"] * HOUR)
    return (
        table(["work of the module", "processor time, s", "part"], rows)
        + f"\n\nIn all {number(total)} s, {share:.2f} % of one processor, or "
        f"{measured['module_processor_ms_of_a_job']} ms for each job. The data of the "
        f"module take {measured['module_data_mib']} MiB at most."
    )
