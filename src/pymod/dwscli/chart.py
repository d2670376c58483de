# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Pictures of jobs over time: a bar for each job, and the rate at which data was moved.
That of ``flux dws timeline`` has both."""

from __future__ import annotations

from typing import Iterator, Sequence

from dwscli.picture import END, MIDDLE, Picture, Rectangle, Text
from dwscli.spans import RUN, JobSpans, Steps, rates
from dwscli.units import duration, size, timestamp

COLORS = {
    "Proposal": "#b3b3b3",
    "Setup": "#e69f00",
    "DataIn": "#56b4e9",
    "PreRun": "#f0e442",
    RUN: "#009e73",
    "PostRun": "#cc79a7",
    "DataOut": "#0072b2",
    "Teardown": "#d55e00",
}
"""The colours of Okabe and Ito, which colour-blind readers can tell apart."""

AXIS, GRID, RATE = "#222222", "#dddddd", "#0072b2"

WIDTH = 1100
LEFT, RIGHT, TOP = 130, 20, 40
MARGIN = 6
"""Pixels above a picture without a legend."""

HIGHEST = 16
"""Pixels of a bar at most."""

BARS = 1200
"""Pixels of all bars at most."""

TICK = 80
"""Pixels between two ticks at least."""

LABELLED = 9
"""Pixels of a bar with the ID of its job."""

RATES = 90
"""Pixels of the rate of data movement."""

STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)
DAY = 86400


class Axis:
    """Times as places on a picture of so many pixels."""

    def __init__(self, begin: float, end: float, width: int = WIDTH) -> None:
        self.begin = begin
        self.length = max(end - begin, 1.0)
        self.width = width
        self.right = width - RIGHT

    def x(self, moment: float) -> float:
        share = min(1.0, max(0.0, (moment - self.begin) / self.length))
        return LEFT + share * (self.right - LEFT)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Some round times, and how each is written."""
        most = max(2, min(10, (self.right - LEFT) // TICK))
        days = max(1, round(self.length / most / DAY)) * DAY
        step = next((one for one in STEPS if self.length / one <= most), days)
        format = "%b%d %R" if self.length > DAY else "%T" if step < 60 else "%R"
        moment = (self.begin // step + 1) * step
        while moment <= self.begin + self.length:
            yield moment, timestamp(moment, format)
            moment += step


def draw(jobs: Sequence[JobSpans]) -> Picture:
    """The picture of some jobs, from the first at the top."""
    axis = Axis(min(job.begin for job in jobs), max(job.end for job in jobs))
    bottom = TOP + _height(jobs) * len(jobs)
    picture = Picture(WIDTH, round(bottom + RATES + 60))
    _legend(picture)
    _ticks(picture, axis, TOP, bottom + RATES + 20)
    _bars(picture, axis, jobs, TOP)
    transfers = [transfer for job in jobs for transfer in job.transfers]
    moved = sum(transfer.bytes for transfer in transfers)
    _rates(picture, axis, rates(transfers), moved, bottom + 20)
    return picture


def draw_bars(jobs: Sequence[JobSpans], axis: Axis) -> Picture:
    """The picture of some jobs, without a legend."""
    bottom = MARGIN + _height(jobs) * len(jobs)
    picture = Picture(axis.width, round(bottom + 24))
    _ticks(picture, axis, MARGIN, bottom)
    _bars(picture, axis, jobs, MARGIN)
    return picture


def draw_rates(steps: Steps, moved: float, axis: Axis) -> Picture:
    """The picture of the rate of data movement.

    Args:
        steps: as of :func:`~dwscli.spans.rates`.
        moved: the bytes in all.
    """
    picture = Picture(axis.width, RATES + MARGIN + 24)
    _ticks(picture, axis, MARGIN, MARGIN + RATES)
    _rates(picture, axis, steps, moved, MARGIN)
    return picture


def _height(jobs: Sequence[JobSpans]) -> float:
    """Pixels of the bar of one of these jobs."""
    return min(HIGHEST, BARS / len(jobs))


def _ticks(picture: Picture, axis: Axis, top: float, bottom: float) -> None:
    for moment, label in axis.ticks():
        x = axis.x(moment)
        picture.draw(Rectangle(x, top, 1, bottom - top, GRID))
        picture.draw(Text(x, bottom + 16, label, MIDDLE))


def _bars(picture: Picture, axis: Axis, jobs: Sequence[JobSpans], top: float) -> None:
    height = _height(jobs)
    for index, job in enumerate(jobs):
        _bar(picture, axis, job, top + index * height, height)


def _legend(picture: Picture) -> None:
    x = float(LEFT)
    for name, color in COLORS.items():
        picture.draw(Rectangle(x, 12, 12, 12, color))
        picture.draw(Text(x + 16, 22, name))
        x += 100


def _bar(picture: Picture, axis: Axis, job: JobSpans, y: float, height: float) -> None:
    if height >= LABELLED:
        picture.draw(Text(LEFT - 8, y + height / 2 + 4, job.job, END))
    gap = 2 if height >= LABELLED else 0
    for span in job.spans:
        begin, end = axis.x(span.begin), axis.x(span.end)
        title = f"{job.job} {span.name}: {duration(span.end - span.begin)}"
        width = max(0.5, end - begin)
        color = COLORS[span.name]
        picture.draw(Rectangle(begin, y, width, height - gap, color, title))


def _rates(picture: Picture, axis: Axis, steps: Steps, moved: float, y: float) -> None:
    """The rate of data movement over time, from ``y`` down."""
    highest = max((rate for _, rate in steps), default=0.0)
    bottom = y + RATES
    picture.draw(Rectangle(LEFT, bottom, axis.right - LEFT, 1, AXIS))
    picture.draw(Text(LEFT - 8, bottom, "0", END))
    if not highest:
        picture.draw(Text(LEFT + 8, bottom - 8, "no data movement is recorded"))
        return
    picture.draw(Text(LEFT - 8, y + 10, f"{size(highest)}/s", END))
    picture.draw(Text(LEFT - 8, y + 26, f"{size(moved)} in all", END))
    for (moment, rate), (later, _) in zip(steps, steps[1:]):
        height = rate / highest * (RATES - 4)
        begin, end = axis.x(moment), axis.x(later)
        title = f"{size(rate)}/s"
        picture.draw(
            Rectangle(begin, bottom - height, end - begin, height, RATE, title)
        )
