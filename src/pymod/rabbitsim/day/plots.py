# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The plots of a day, as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

from dwscli.chart import AXIS, COLORS, GRID
from dwscli.picture import END, MIDDLE, Area, Picture, Rectangle, Text, svg
from dwscli.spans import RUN
from flux_k8s.ports import Json
from rabbitsim.day.idle import BY_DWS, CAUSES, FAILURES, OTHERS, OURS, OUTAGES
from rabbitsim.day.run import BIN

WIDTH, LEFT, RIGHT, TOP = 900, 70, 20, 44
HEIGHT, GAP = 150, 50
"""Pixels of a panel, and between two."""

GREY, DARK, RED, BLUE, WHITE = "#999999", "#222222", "#7f1d1d", "#0072b2", "#e8e8e8"
MORE = {OTHERS: "#b3b3b3", OURS: DARK, FAILURES: RED, OUTAGES: "#8a6fd1"}
TICKS = (1, 2, 3, 6, 12, 24)
MOST_TICKS = 12


@dataclass(frozen=True)
class Series:
    """One value for each quarter of an hour."""

    name: str
    color: str
    values: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """Values over the day, on top of each other."""

    title: str
    series: Sequence[Series]

    @property
    def highest(self) -> float:
        """The end of the axis: a round number that no value exceeds."""
        sums = map(sum, zip(*(each.values for each in self.series)))
        most = max(sums, default=0.0) or 1.0
        power = 10.0 ** math.floor(math.log10(most))
        return next(n * power for n in (1, 1.5, 2, 3, 4, 6, 8, 10) if n * power >= most)


def draw(panels: Sequence[Panel]) -> Picture:
    """Panels below each other, with one axis."""
    bottom = TOP + len(panels) * (HEIGHT + GAP) - GAP
    picture = Picture(WIDTH, bottom + 44)
    bins = max(len(each.values) for panel in panels for each in panel.series)
    for index, panel in enumerate(panels):
        _panel(picture, panel, TOP + index * (HEIGHT + GAP), bins)
    _hours(picture, bins, bottom)
    return picture


def _panel(picture: Picture, panel: Panel, top: float, bins: int) -> None:
    bottom, highest = top + HEIGHT, panel.highest
    picture.draw(Text(LEFT, top - 24, panel.title))
    if len(panel.series) > 1:
        legend(picture, {s.name: s.color for s in panel.series}, top - 18)
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * HEIGHT
        picture.draw(Rectangle(LEFT, y, WIDTH - LEFT - RIGHT, 1, GRID))
        picture.draw(Text(LEFT - 6, y + 4, short(highest * share), END))
    width = (WIDTH - LEFT - RIGHT) / bins
    under = [0.0] * bins
    for each in panel.series:
        upper = [low + value for low, value in zip(under, each.values)]
        if upper != under:
            edges = [
                [bottom - value / highest * HEIGHT for value in line]
                for line in (upper, under)
            ]
            picture.draw(Area(LEFT, width, list(zip(*edges)), each.color))
        under = upper
    picture.draw(Rectangle(LEFT, bottom, WIDTH - LEFT - RIGHT, 1, AXIS))


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def legend(picture: Picture, colors: Mapping[str, str], y: float) -> None:
    """Names beside their colors."""
    x = float(LEFT)
    for name, color in colors.items():
        picture.draw(Rectangle(x, y, 10, 10, color))
        picture.draw(Text(x + 14, y + 9, name))
        x += 34 + 6.2 * len(name)


def _hours(picture: Picture, bins: int, bottom: float) -> None:
    hours = bins * BIN / 60
    step = next((tick for tick in TICKS if hours / tick <= MOST_TICKS), 48)
    for hour in range(0, int(hours) + 1, step):
        x = LEFT + hour / hours * (WIDTH - LEFT - RIGHT)
        picture.draw(Rectangle(x, bottom, 1, 5, AXIS))
        picture.draw(Text(x, bottom + 18, f"{hour} h", MIDDLE))
    text = f"time since the first submission, in parts of {BIN} minutes"
    picture.draw(Text((WIDTH + LEFT - RIGHT) / 2, bottom + 34, text, MIDDLE))


def _values(rows: Sequence[Json], name: str) -> list[float]:
    return [row[name] for row in rows]


def _below(rows: Sequence[Json], group: str, name: str) -> list[float]:
    return [row[group].get(name, 0.0) for row in rows]


def nodes(rows: Sequence[Json]) -> list[Panel]:
    idle = [
        Series(cause, {**COLORS, **MORE}[cause], _below(rows, "idle", cause))
        for cause in CAUSES
    ]
    all_idle = [sum(row["idle"].values()) for row in rows]
    parts = [
        Series("jobs run", COLORS[RUN], _values(rows, "running")),
        Series("idle for storage", COLORS["Setup"], all_idle),
        Series("out of service", GREY, _values(rows, "out")),
        Series("without a job", WHITE, _values(rows, "free")),
    ]
    return [
        Panel("Nodes of the machine", parts),
        Panel("Nodes of jobs that are idle for storage, by cause", idle),
        Panel(
            f"Of these, nodes that are idle for {OURS}",
            [Series(OURS, DARK, _below(rows, "idle", OURS))],
        ),
    ]


def workflows(rows: Sequence[Json]) -> list[Panel]:
    states = ["Proposal", *BY_DWS]
    found = [
        Series(state, COLORS[state], _below(rows, "workflows", state))
        for state in states
    ]
    text = "Workflows, by the state that DWS was asked for (in PreRun, jobs run)"
    return [Panel(text, found)]


def rates(rows: Sequence[Json]) -> list[Panel]:
    return _single(
        rows,
        requests="Requests of the module to Kubernetes per second, mean",
        events="Messages of watches to the module per second, mean",
        writes="Writes of all clients to the API server per second, mean",
    )


def queues(rows: Sequence[Json]) -> list[Panel]:
    return _single(
        rows,
        queued="Jobs that wait for nodes, mean",
        waiting="Events, answers and requests that wait for the reactor, most",
        copies="Copies under way, mean",
        flow_gb="GB/s of all copies, mean",
    )


def _single(rows: Sequence[Json], **titles: str) -> list[Panel]:
    """A panel for each of these values, with its title."""
    return [
        Panel(title, [Series(name, BLUE, _values(rows, name))])
        for name, title in titles.items()
    ]


PLOTS: Mapping[str, Callable[[Sequence[Json]], list[Panel]]] = {
    "day-nodes.svg": nodes,
    "day-workflows.svg": workflows,
    "day-rates.svg": rates,
    "day-queues.svg": queues,
}


def plot(name: str, rows: Sequence[Json]) -> str:
    """One of :data:`PLOTS`, of the ``series`` of a day."""
    return svg(draw(PLOTS[name](rows)))
