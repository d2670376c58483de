# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Days on which nodes do not wait for data, beside the usual one: the numbers, tables
and plots of ``doc/saving.md``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping

from dwscli.chart import COLORS
from dwscli.picture import Picture, svg
from flux_k8s.objects.storagerequest import AHEAD, PROLOG, TEARDOWN, UNMOUNTED
from flux_k8s.ports import Json
from rabbitsim.day.bars import Bar, draw
from rabbitsim.day.idle import CAUSES, FAILURES, OUTAGES
from rabbitsim.day.page import Row, counts, number, table
from rabbitsim.day.plots import BLUE, GREY, MORE
from rabbitsim.day.starts import ALL, LUSTRE, ONE_RABBIT, OTHERS, SEVERAL

NUMBERS = "saving.json"

MODES: Mapping[str, str] = {
    f"{PROLOG}-{TEARDOWN}": "the default",
    f"{PROLOG}-{UNMOUNTED}": f"release {UNMOUNTED}",
    f"{AHEAD}-{TEARDOWN}": f"stage {AHEAD}",
    f"{AHEAD}-{UNMOUNTED}": "both",
}
"""The days, by ``stage`` and ``release``, and what they are called."""

USUAL, *_ = MODES

USED = (
    "flux-dws",
    "site",
    "jobs",
    "node_hours",
    "starts_after_s",
    "storage_tib",
    "queues",
    "failures",
    "stuck",
)
MEASURED = ("simulation_processor_s", "processor", "python")
"""What the page needs of each day; the latter of ``measured``."""

GROUPS = {
    ALL: "all jobs",
    ONE_RABBIT: "copy_in to xfs or gfs2, nodes that one Rabbit has",
    SEVERAL: "copy_in to xfs or gfs2, more nodes",
    LUSTRE: "copy_in to lustre",
    OTHERS: "no copy_in",
}
PHASES = {
    "depend": "before it may get nodes",
    "nodes": "for nodes",
    "prolog": "with nodes",
}
PHASE_COLORS = dict(zip(PHASES.values(), (COLORS["DataIn"], GREY, COLORS["Setup"])))

STORAGE = {"used": "made", "kept": "kept from other jobs"}
ROUNDED = "the rest of its ssd, and before it is made"


@dataclass(frozen=True)
class Saving:
    """The numbers of each of :data:`MODES`, and the checksum of the file."""

    days: Mapping[str, Json]
    checksum: str

    @classmethod
    def read(cls, folder: Path) -> Saving:
        text = (folder / NUMBERS).read_bytes()
        return cls(json.loads(text), hashlib.sha256(text).hexdigest()[:16])

    @property
    def usual(self) -> Json:
        return self.days[USUAL]

    def row(self, name: str, text: Callable[[Json], str]) -> Row:
        """A row of a table, with a column for each day."""
        return [name, *(text(self.days[mode]) for mode in MODES)]


def collect(folder: Path) -> str:
    """The text of :data:`NUMBERS`, from the directories of this one that ``rabbitsim
    day`` wrote, which are named as :data:`MODES`."""
    days = {}
    for mode in MODES:
        day = json.loads((folder / mode / "day.json").read_text("utf-8"))
        measured = {name: day["measured"][name] for name in MEASURED}
        days[mode] = {name: day[name] for name in USED} | {"measured": measured}
    return json.dumps(days, indent=1) + "\n"


def _head(first: str) -> Row:
    return [first, *MODES.values()]


# Tables


def simulations(found: Saving) -> str:
    usual = found.usual
    site, jobs, measured = usual["site"], usual["jobs"], usual["measured"]
    text = (
        f"{number(site['nodes'])} compute nodes with {site['rabbits']} Rabbits,"
        f" {number(jobs['submitted'])} jobs within {site['hours']:g} h, of which"
        f" {number(jobs['with_copies'])} copy. Seed {site['seed']}; flux-dws:"
        f" {usual['flux-dws']}; Python {measured['python']}; {measured['processor']};"
        f" `{NUMBERS}`, whose SHA-256 starts with {found.checksum}."
    )
    rows = [
        found.row("`stage`", lambda day: f"`{day['site']['stage']}`"),
        found.row("`release`", lambda day: f"`{day['site']['release']}`"),
        found.row(
            "jobs that started",
            lambda day: number(day["starts_after_s"][ALL]["jobs"]),
        ),
        found.row("ends of jobs", lambda day: counts(day["jobs"]["ends"])),
        found.row(
            "until all had ended",
            lambda day: f"{day['jobs']['hours_until_all_had_ended']} h",
        ),
        found.row("stuck", lambda day: ", ".join(day["stuck"]) or "nothing"),
        found.row(
            "processor time of the simulation",
            lambda day: f"{number(day['measured']['simulation_processor_s'])} s",
        ),
    ]
    return f"{text}\n\n{table(_head(''), rows)}"


def _needed(day: Json) -> float:
    """The node hours for which nodes are idle, but for what is broken."""
    idle: Mapping[str, float] = day["node_hours"]["idle"]
    return sum(idle.values()) - idle[FAILURES] - idle[OUTAGES]


def node_hours(found: Saving) -> str:
    def hours(cause: str) -> Row:
        return found.row(cause, lambda day: number(day["node_hours"]["idle"][cause], 1))

    def part(day: Json) -> str:
        return f"**{100 * _needed(day) / _needed(found.usual):.1f} %**"

    return table(
        _head("node hours"),
        [
            *map(hours, CAUSES),
            found.row(
                "**but for failures and outages**", lambda d: number(_needed(d), 1)
            ),
            found.row("**of the default**", part),
            found.row("tasks run", lambda d: number(d["node_hours"]["run"], 1)),
            found.row(
                "nodes without a job",
                lambda d: number(d["node_hours"]["without_job"], 1),
            ),
        ],
    )


def starts(found: Saving) -> str:
    rows: list[Row] = []
    for group, name in GROUPS.items():
        count = found.usual["starts_after_s"][group]["jobs"]
        rows.append([f"**{name}** ({number(count)})", *[""] * len(MODES)])
        rows.append(found.row("mean", _seconds(group, "mean")))
        rows += [
            found.row(f"of that, {text}", _seconds(group, "mean_of", phase))
            for phase, text in PHASES.items()
        ]
        rows.append(found.row("median", _seconds(group, "p50")))
        rows.append(found.row("99 % within", _seconds(group, "p99")))
    return table(_head("seconds until the tasks start"), rows)


def _seconds(group: str, *keys: str) -> Callable[[Json], str]:
    def text(day: Json) -> str:
        value = day["starts_after_s"][group]
        for key in keys:
            value = value[key]
        return number(value, 1)

    return text


def storage(found: Saving) -> str:
    def row(key: str, of: str) -> Row:
        return found.row(
            f"{STORAGE[key]}, {of}", lambda day: number(day["storage_tib"][key][of])
        )

    rows = [row(key, of) for key in STORAGE for of in ("mean", "peak")]
    return table(_head("TiB of storage"), rows)


TABLES: Mapping[str, Callable[[Saving], str]] = {
    "simulations": simulations,
    "node hours": node_hours,
    "starts": starts,
    "storage": storage,
}

# Plots


def plot_node_hours(found: Saving) -> Picture:
    bars = [
        Bar(name, found.days[mode]["node_hours"]["idle"])
        for mode, name in MODES.items()
    ]
    colors = {**COLORS, **MORE}
    return draw(
        "Node hours idle for storage, by cause",
        bars,
        {cause: colors[cause] for cause in CAUSES},
    )


def plot_starts(found: Saving) -> Picture:
    bars: list[Bar] = []
    for group, name in GROUPS.items():
        if group != ALL:
            bars.append(Bar(name, {}))
            for mode, label in MODES.items():
                means = found.days[mode]["starts_after_s"][group]["mean_of"]
                bars.append(Bar(label, {PHASES[key]: means[key] for key in PHASES}))
    return draw("Mean seconds until the tasks of a job start", bars, PHASE_COLORS)


def plot_storage(found: Saving) -> Picture:
    bars = []
    for mode, name in MODES.items():
        used, kept = (found.days[mode]["storage_tib"][key]["mean"] for key in STORAGE)
        bars.append(Bar(name, {"made": used, ROUNDED: kept - used}))
    return draw(
        "TiB of storage kept from other jobs, mean", bars, {"made": BLUE, ROUNDED: GREY}
    )


PLOTS: Mapping[str, Callable[[Saving], Picture]] = {
    "saving-idle.svg": plot_node_hours,
    "saving-starts.svg": plot_starts,
    "saving-storage.svg": plot_storage,
}


def plot(name: str, found: Saving) -> str:
    """One of :data:`PLOTS`, as SVG."""
    return svg(PLOTS[name](found))
