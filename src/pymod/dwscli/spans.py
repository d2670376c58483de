# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When each state of a job's storage was, and when its data was moved."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Iterable, Optional, Sequence

from dwscli.reading import Fields, id_of, number, objects, text
from dwscli.units import f58
from flux_k8s.objects.workflowstate import STATES, State

RUN = "run"
"""The time between PreRun and PostRun, in which the tasks of a job run."""

Steps = Sequence[tuple[float, float]]
"""Each time (UNIX time) at which a rate changes, and the rate from then on."""

FRACTION = 2**40
"""The parts of a byte per second that rates are added in."""

MOVING = (State.DataIn.name, State.DataOut.name)


@dataclass(frozen=True)
class Span:
    """A time (UNIX time) with a name."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Transfer:
    """Bytes that were moved in a time (UNIX time)."""

    begin: float
    end: float
    bytes: float


@dataclass(frozen=True)
class JobSpans:
    """The states of a job in their order, and its data movement."""

    job: str
    spans: tuple[Span, ...]
    transfers: tuple[Transfer, ...]

    @property
    def begin(self) -> float:
        return min(span.begin for span in self.spans)

    @property
    def end(self) -> float:
        return max(span.end for span in self.spans)


def of_job(answer: Fields, now: float) -> Optional[JobSpans]:
    """The times in an answer of ``dws.job-show``, None where there are none. A row of
    ``dws.job-list`` has that of the last state."""
    spans = [*_states(answer, now)]
    if not spans:
        return None
    by_name = {span.name: span for span in spans}
    before, after = by_name.get(State.PreRun.name), by_name.get(State.PostRun.name)
    if before is not None:
        is_running = text(answer, "state") == before.name and answer.get("ready")
        until = now if is_running else before.end
        until = until if after is None else after.begin
        if until > before.end:
            spans.append(Span(RUN, before.end, until))
    spans.sort(key=lambda span: (span.begin, span.end))
    job = f58(id_of(answer))
    return JobSpans(job, tuple(spans), tuple(_transfers(answer, by_name)))


def _states(answer: Fields, now: float) -> Iterable[Span]:
    listed = objects(answer, "states")
    if not listed:
        listed = [{"state": text(answer, "state"), "begun": number(answer, "since")}]
    for state, later in zip_longest(listed, listed[1:]):
        name, begun = text(state, "state"), number(state, "begun")
        seconds = number(state, "seconds")
        if name in STATES and begun is not None:
            end = number(later or {}, "begun") or now
            if seconds is not None:
                end = begun + max(0.0, seconds)
            yield Span(name, begun, max(begun, end))


def data_moved(answer: Fields) -> list[dict[str, Any]]:
    """The data that was moved for a job, each part with its ``bytes``: of one that
    ended in each state, of an active one by each data movement of its state."""
    return objects(answer, "transfers") or objects(answer, "movements")


def _transfers(answer: Fields, by_name: dict[str, Span]) -> Iterable[Transfer]:
    """The data that was moved. What has no time took as long as its state."""
    states = [by_name[name] for name in MOVING if name in by_name]
    for found in data_moved(answer):
        moved = number(found, "bytes")
        state = text(found, "phase")
        span = by_name.get(state) or (states[-1] if states else None)
        if not moved or span is None:
            continue
        begin = number(found, "begun") or span.begin
        end = number(found, "ended") or span.end
        if end > begin:
            yield Transfer(begin, end, moved)


def rates(transfers: Iterable[Transfer]) -> list[tuple[float, float]]:
    """The bytes per second of all transfers together, as :data:`Steps`."""
    # In integers: a float would keep the error of a very high rate after its end.
    changes: dict[float, int] = {}
    for one in transfers:
        rate = round(one.bytes / (one.end - one.begin) * FRACTION)
        changes[one.begin] = changes.get(one.begin, 0) + rate
        changes[one.end] = changes.get(one.end, 0) - rate
    total = 0
    found = []
    for moment in sorted(changes):
        total += changes[moment]
        found.append((moment, total / FRACTION))
    return found


def averages(
    steps: Steps, begin: float, end: float, count: int
) -> list[tuple[float, float]]:
    """The averages of a rate in ``count`` equal parts of a time, as :data:`Steps`."""
    width = (end - begin) / count
    sums = [0.0] * count
    for (moment, rate), (later, _) in zip(steps, steps[1:]):
        moment, later = max(moment, begin), min(later, end)
        if not rate or moment >= later:
            continue
        first, last = int((moment - begin) / width), int((later - begin) / width)
        for index in range(first, min(last, count - 1) + 1):
            low = max(moment, begin + index * width)
            high = min(later, begin + (index + 1) * width)
            sums[index] += rate * max(0.0, high - low)
    found = [(begin + index * width, sum / width) for index, sum in enumerate(sums)]
    return [*found, (end, 0.0)]
