# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The output of ``flux dws wait`` and ``flux dws show --follow`` while time passes.

On a terminal that is a page or a line that is written again and again, else one plain
line for each change.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Callable, Optional

from dwscli.page import (
    data_line,
    heard_of,
    lacks_jobs,
    mounts_line,
    movement_rate,
    old_line,
    page,
)
from dwscli.reading import id_of, number, objects, part, text, texts
from dwscli.terminal import Screen, write
from dwscli.units import duration, f58, timestamp
from dwscli.width import cut, gauge
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Json
from flux_k8s.text import SHOWN, columns, printable

STEP = 10
"""The per cent of data movement that make a plain line."""

GAUGE = 24
"""The columns of the bar in the line of ``flux dws wait``, where there is room."""

TO_BEGINNING, TO_END, TO_ALL = "\r\033[K", "\033[J", "\033[H\033[2J"
"""Erase: the line, all below, the whole screen (ECMA-48)."""

ScreenNow = Callable[[], Screen]
Clock = Callable[[], float]


def summary(answer: Json) -> str:
    """The state of a job's storage in one line, without the amount of data."""
    state, status = text(answer, "state"), text(answer, "status")
    words = f"{state} complete" if answer.get("ready") is True else state
    if status in ("Error", "TransientCondition"):
        words = f"{words}, {status}"
    waits, mounts = text(answer, "waits"), mounts_line(part(answer, "mounts"))
    parts = [] if mounts.partition(" ")[0] in waits or not mounts else [mounts]
    is_old, reason = old_line(answer), text(answer, "kubernetes")
    parts += [waits] if waits and not (is_old and waits.endswith(reason)) else []
    failed = text(answer, "failed")
    parts += [f"failed: {failed}"] if failed else []
    if is_old:
        away = f"Kubernetes was {heard_of(answer)}"
        since = "Flux" if lacks_jobs(answer) else away
        parts.append(f"{since}: {reason}")
    line = f"{words}: {'; '.join(parts)}" if parts else words
    return printable(line, SHOWN)


def fate(answer: Json) -> str:
    """The last line about a job that ended."""
    if text(answer, "failed"):
        return "ended"
    lines = texts(answer, "directives")
    copies = any("copy_out" in line.split()[1:2] for line in lines)
    states = [text(state, "state") for state in objects(answer, "states")]
    if copies and State.DataOut.name in states:
        return "storage is gone, data was copied out"
    return "storage is gone"


class Painter:
    """Shows a job that is followed."""

    def show(self, answer: Json) -> None:
        """Show an answer of ``dws.job-show``."""

    def tick(self) -> None:
        """Show that time passes: about a second has, without an answer."""

    def finish(self, answer: Json) -> None:
        """Show the last answer, of a job that ended."""
        self.show(answer)

    def stop(self) -> None:
        """A message follows."""


class Plain(Painter):
    """Writes a line for each change."""

    def __init__(self) -> None:
        self._last: Optional[tuple[str, int]] = None

    def show(self, answer: Json) -> None:
        percent = number(answer, "percent")
        line, mark = summary(answer), summary({**answer, "age": 0})
        key = mark, -1 if percent is None else int(percent) // STEP
        if key == self._last:
            return
        self._last = key
        data = data_line(answer)
        self._write(answer, f"{line} {data}" if data else line)

    def finish(self, answer: Json) -> None:
        self._write(answer, fate(answer))

    @staticmethod
    def _write(answer: Json, line: str) -> None:
        moment = number(answer, "now") or number(answer, "gone") or 0
        write([f"{timestamp(moment)} {line}".strip()])


class JsonLines(Painter):
    """Writes each answer that has news as JSON on a line."""

    def __init__(self) -> None:
        self._last: Json = {}

    def show(self, answer: Json) -> None:
        news = {key: answer[key] for key in answer if key not in ("now", "age")}
        if news != self._last:
            self._last = news
            write([to_json(answer)])


def to_json(answer: Json) -> str:
    """An answer as JSON, with the job ID as Flux's users write it."""
    return json.dumps({**answer, "jobid": f58(id_of(answer))})


class Live(Painter):
    """Shows on a terminal the last answer, whose time goes on, again and again."""

    def __init__(self, screen: ScreenNow, clock: Clock = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._answer: Json = {}
        self._begun = 0.0

    def show(self, answer: Json) -> None:
        self._answer, self._begun = answer, self._clock()
        self.tick()

    def _now(self) -> Json:
        """The last answer with the time of now."""
        told = number(self._answer, "now")
        if told is None:
            return self._answer
        return {**self._answer, "now": told + self._clock() - self._begun}


class StatusLine(Live):
    """A line at the bottom that is written again and again; the states of the job stay
    above it."""

    def __init__(self, screen: ScreenNow, clock: Clock = time.monotonic) -> None:
        super().__init__(screen, clock)
        self._above = Plain()

    def show(self, answer: Json) -> None:
        self._erase()
        self._above.show({**answer, "percent": None, "moved": None, "total": None})
        super().show(answer)

    def tick(self) -> None:
        self._erase()
        sys.stdout.write(status_line(self._now(), self._screen()))
        sys.stdout.flush()

    def finish(self, answer: Json) -> None:
        self._erase()
        self._above.finish(answer)

    def stop(self) -> None:
        self._erase()
        sys.stdout.flush()

    @staticmethod
    def _erase() -> None:
        sys.stdout.write(TO_BEGINNING)


def status_line(answer: Json, screen: Screen) -> str:
    """A job's storage in one line that fits on the screen, with a bar for data."""
    now, since = number(answer, "now"), number(answer, "since")
    line = f"{f58(id_of(answer))} {text(answer, 'state')}"
    if now is not None and since is not None:
        line += f" {duration(max(0.0, now - since))}"
    percent = number(answer, "percent")
    if percent is not None:
        room = screen.width - columns(line) - len("  100% ")
        frame = gauge(percent / 100, min(GAUGE, room), screen.has_unicode)
        line += f" {frame} {percent:.0f}%" if frame else f" {percent:.0f}%"
    rates = [movement_rate(found) for found in objects(answer, "movements")]
    if percent is not None and len(rates) == 1 and rates[0]:
        line += f" {rates[0]}"
    rest = next_limit(answer)
    line = printable(line)
    return cut(f"{line} ({rest})" if rest else line, max(1, screen.width - 1))


def next_limit(answer: Json) -> str:
    """The limit that is over first, and when."""
    now = number(answer, "now") or 0.0
    limits = [
        (at, text(limit, "name"))
        for limit in objects(answer, "limits")
        for at in [number(limit, "at")]
        if at is not None
    ]
    if not limits:
        return ""
    at, name = min(limits)
    return f"{name} in {duration(max(0.0, at - now))}"


class Page(Live):
    """The page of ``flux dws show``, written again in its place."""

    def __init__(self, screen: ScreenNow, clock: Clock = time.monotonic) -> None:
        super().__init__(screen, clock)
        self._drawn = 0
        self._size: Optional[tuple[int, int]] = None

    def tick(self) -> None:
        screen = self._screen()
        lines = page(self._now(), screen)
        room = max(1, screen.height - 1)
        if len(lines) > room:
            rest = f"... {len(lines) - room + 1} more lines: flux dws show"
            lines = [*lines[: room - 1], cut(rest, screen.width)]
        self._draw(lines, screen)

    def finish(self, answer: Json) -> None:
        screen = self._screen()
        self._draw(page(answer, screen), screen)

    def stop(self) -> None:
        """The last page stays, and the next one is below the message."""
        self._drawn = 0

    def _draw(self, lines: list[str], screen: Screen) -> None:
        size = screen.width, screen.height
        if self._size not in (None, size):
            sys.stdout.write(TO_ALL)
        elif self._drawn:
            sys.stdout.write(f"\033[{self._drawn}F{TO_END}")
        self._size, self._drawn = size, len(lines)
        write(lines)
