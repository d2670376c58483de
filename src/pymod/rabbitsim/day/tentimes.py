# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The tables of ``doc/scale.md`` about a machine that is ten times as large: what
limits the design there, and what to change then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

from flux_k8s.jobs.optionalwatches import OBJECTS
from flux_k8s.ports import Json
from rabbitsim.day.page import Numbers, Row, number, significant, size, table
from rabbitsim.day.reactor import RECEIVE
from rabbitsim.day.site import DAY, HOUR

ETCD_LIMIT = 1_572_864
"""Bytes of a request to etcd at most, unless its ``--max-request-bytes`` says more."""

STALL_MS = 10.0
MEMORY_MIB = 120.0
WORKFLOWS = "10,000"
"""The targets of the module: for how long it may hold its reactor, the memory that it
may take, and the Workflows with which ``make bench`` measures it."""

READING = ("parse", RECEIVE)
"""The work that :data:`~rabbitsim.day.site.COSTS` has with that of the events."""

READS = 2
"""How often SystemStatus is read for each job: before PreRun and before PostRun."""

INTERVAL = 30.0
"""Seconds between two reports of a data movement that would do."""

LIMITS = ["", "the day", "ten times", "limit"]
SCALED = " (scaled)"
MOUNTING = ("PreRun", "PostRun")
"""The states in which mounts come and go."""


def status_parse_ms(of: Json) -> float:
    """Milliseconds to parse SystemStatus, by its length, at the mean rate."""
    measured = of["measured"]
    rate = measured["microseconds_each"]["parse"] / measured["event_bytes"]
    return float(rate * of["largest_objects"]["systemstatuses"] / 1e3)


def change_ms(of: Json) -> float:
    """Milliseconds in the reactor for each change of SystemStatus."""
    return float(of["measured"]["microseconds_each"]["systemstatuses"] / 1e3)


def processor_part(jobs: float, ms: float) -> str:
    """What so many jobs a day, of so many milliseconds, take of one processor."""
    return f"{100 * jobs * ms / 1e3 / DAY:.2f} %"


@dataclass(frozen=True)
class Cost:
    """Milliseconds of processor time of the module for each job.

    Attributes:
        reactor: of the reactor; ``cache``: of the cache of the watches.
        status: to parse SystemStatus.
        lists: to parse the objects in lists.
        rest: to parse all else.
    """

    reactor: float
    cache: float
    status: float
    lists: float
    rest: float

    @property
    def total(self) -> float:
        return self.reactor + self.cache + self.status + self.lists + self.rest


def costs(found: Numbers) -> tuple[Cost, Cost]:
    """The costs of both machines. How much of the time to parse is for lists and the
    rest follows, on the larger one, from the day: lists have all that is in flight."""
    day, ten = found.day, found.ten

    def seconds(of: Json, *names: str) -> float:
        times = of["measured"]["module_processor_s"]
        return float(1e3 * sum(times[n] for n in names) / of["jobs"]["submitted"])

    def own(of: Json) -> tuple[float, float, float]:
        times = of["measured"]["module_processor_s"]
        reactor = seconds(of, *(name for name in times if name not in READING))
        return reactor, seconds(of, RECEIVE), READS * status_parse_ms(of)

    small, large = own(day), own(ten)
    parsed = seconds(day, "parse")
    measured = day["measured"]
    objects = measured["module_processor_s"]["parse"] * 1e6
    objects /= measured["microseconds_each"]["parse"]
    part = sum(day["requests"]["objects_in_lists"].values()) / objects
    lists = (parsed - small[2]) * part
    rest = parsed - small[2] - lists
    return Cost(*small, lists, rest), Cost(*large, lists * found.factor, rest)


def in_flight(of: Json, *causes: str) -> float:
    """The nodes, on average, that have mounts: those that work, and those that are idle
    for these causes."""
    hours = of["node_hours"]
    idle = sum(hours["idle"][cause] for cause in causes)
    return float((hours["run"] + idle) / of["site"]["hours"])


def object_limits(found: Numbers) -> str:
    """The objects that grow with the machine."""
    day, ten = found.day, found.ten

    def largest(kind: str, plural: str) -> Row:
        at = ETCD_LIMIT / day["largest_objects"][plural] * day["site"]["nodes"]
        sizes = [size(of["largest_objects"][plural]) for of in (day, ten)]
        return [kind, *sizes, f"{size(ETCD_LIMIT)}, at {number(round(at, -3))} nodes"]

    def times(what: str, value: Callable[[Json], float]) -> Row:
        ms = [f"{significant(value(of))} ms" for of in (day, ten)]
        return [what, *ms, f"{STALL_MS:.0f} ms"]

    return table(
        LIMITS,
        [
            largest("SystemConfiguration", "systemconfigurations"),
            largest("SystemStatus", "systemstatuses"),
            times("parsing of SystemStatus", status_parse_ms),
            times("a change of SystemStatus, in the reactor", change_ms),
        ],
    )


def processor_limits(found: Numbers) -> str:
    """The processor time that grows with the machine."""
    day, ten = costs(found)

    def row(what: str, values: Sequence[float], derived: str = "") -> Row:
        few, many = (f"{significant(value)} ms" for value in values)
        return [what, few, many + derived, ""]

    jobs = found.jobs_of_day
    used = [processor_part(jobs, day.total)]
    used += [processor_part(jobs * found.factor, ten.total)]
    return table(
        LIMITS,
        [
            row("in the reactor", (day.reactor, ten.reactor)),
            row("in the cache of the watches", (day.cache, ten.cache)),
            row("parsing of SystemStatus", (day.status, ten.status)),
            row("parsing of lists", (day.lists, ten.lists), SCALED),
            row("other parsing", (day.rest, ten.rest), " (as before)"),
            row("**processor time for each job**", (day.total, ten.total)),
            ["of all jobs of a day, of one processor", *used, "100 %"],
        ],
    )


def amount_limits(found: Numbers) -> str:
    """What there is more of on a larger machine."""
    day, ten = found.day, found.ten

    def scaled(what: str, value: float, unit: str = "", limit: str = "") -> Row:
        more = f"{significant(value * found.factor)}{unit}{SCALED}"
        return [what, f"{significant(value)}{unit}", more, limit]

    data = [f"{of['measured']['module_data_mib']} MiB" for of in (day, ten)]
    workflows = day["workflows"]
    reading = day["reactor"]["longest_reading_of_R_s"]
    mounts = in_flight(day, *MOUNTING)
    return table(
        LIMITS,
        [
            scaled("ClientMounts at a time, mean", mounts, "", number(OBJECTS)),
            scaled("Workflows in flight, mean", workflows["mean"]),
            scaled("Workflows in flight, peak", workflows["peak"], "", WORKFLOWS),
            scaled("requests a second, mean", day["requests"]["per_second"]["mean"]),
            scaled("messages a second, mean", day["events"]["per_second"]["mean"]),
            scaled("messages a second, peak", day["events"]["per_second"]["peak"]),
            ["data of the module", *data, f"{MEMORY_MIB:.0f} MiB"],
            scaled("reading of R, if jobs are as much larger, too", reading, " s"),
        ],
    )


def changes(found: Numbers) -> str:
    """What to change, and the number that each change changes."""
    day, ten, factor = found.day, found.ten, found.factor
    small, large = costs(found)
    own = small.reactor - (large.reactor - small.reactor) / (factor - 1)
    mounts = in_flight(day, *MOUNTING)
    mounting = mounts - in_flight(day)
    reports = day["events"]["by_kind"]["nnfdatamovements"] * factor
    reports /= day["site"]["hours"] * HOUR

    def parts(plural: str) -> Row:
        value = ten["largest_objects"][plural]
        return ["largest object", size(value), size(value / ten["site"]["rabbits"])]

    def times(what: str, before: float, after: float) -> Row:
        return [what, f"{significant(before)} ms", f"{significant(after)} ms"]

    rows = [
        ["SystemConfiguration is in parts, by chassis", *parts("systemconfigurations")],
        ["SystemStatus is in parts, by chassis", *parts("systemstatuses")],
        [
            "SystemStatus is read for a job only if its metadata have changed",
            *times("parsing of it, for each job", large.status, 0.0),
        ],
        [
            "a step of a job takes time for the nodes of the job only",
            *times("in the reactor, for each job", large.reactor, own),
        ],
        [
            "mounts are watched by label, for jobs in PreRun and PostRun",
            "ClientMounts at a time",
            number(mounts * factor),
            number(mounting * factor),
        ],
        [
            f"data movements report every {INTERVAL:.0f} s",
            "messages about them a second",
            significant(reports),
            significant(reports * day["site"]["report_interval"] / INTERVAL),
        ],
    ]
    left = large.total - large.status - (large.reactor - own)
    text = table(
        ["", "change", "number", "from", "to"],
        [[str(index), *row] for index, row in enumerate(rows, 1)],
    )
    used = processor_part(found.jobs_of_day * factor, left)
    return (
        f"{text}\n\nWith the third and the fourth, a job takes {significant(left)} "
        f"ms, and all jobs of a day {used} of one processor."
    )
