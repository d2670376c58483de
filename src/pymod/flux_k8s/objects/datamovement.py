# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""NnfDataMovements: the copies of files for jobs, and how far they are.

``NnfDataMovement.status.commandStatus`` has the percentage of the copy, and the last
line of ``dcp``::

    Copied 10.000 MiB (10%) in 0.200 secs (50.000 MiB/s) 2 secs left ...

Its ``data`` and ``rate`` are there when the copy is over. A field that is missing or
malformed is unknown, and no error: nothing depends on it but what users are shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, Optional

from msgspec import Struct, field

from flux_k8s.errors import BadObject
from flux_k8s.formats.directives import UNITS
from flux_k8s.formats.timestamps import parse_go_duration, parse_timestamp
from flux_k8s.json_reader import INT64_MAX, decimal, is_number
from flux_k8s.objects.decoding import decode
from flux_k8s.objects.metadata import Metadata, names_of
from flux_k8s.objects.workflowstate import STATES
from flux_k8s.ports import NNF_GROUP, Encoded, Json
from flux_k8s.text import SHOWN, printable

STATE_LABEL = f"{NNF_GROUP}/teardown_state"
"""The label with the state of the Workflow that an object belongs to."""

DIRECTIVE_LABEL = f"{NNF_GROUP}/directive_index"
"""The label with the number of the directive that an object belongs to."""

FINISHED = "Finished"
SUCCESS = "Success"

_BYTES: Mapping[str, int] = MappingProxyType({**UNITS, "B": 1})
_SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]i?B|B)"
_DATA = re.compile(_SIZE)
_RATE = re.compile(_SIZE + "/s")
_COPIED = re.compile("Copied " + _SIZE)
_WRITTEN_AT = re.compile(r"^\[[^]]*\] *")
_TIME_BEGINS = " in "
_LEFT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) secs left")


@dataclass(frozen=True)
class Movement:
    """One NnfDataMovement.

    Attributes:
        name: its namespace and name.
        phase: the state of the Workflow in which it runs.
        source, destination: paths.
        state: ``Running``, ..., and at its end ``Success`` or the kind of failure.
        percent: 0 to 100.
        bytes: that were copied; None if that is not known.
        rate: bytes per second; None if that is not known.
        left: seconds until its end; None if that is not known.
        message: the last output of the copy, or the reason of its failure.
        directive: the number of the directive; None if that is not known.
        begun, ended: UNIX times; None if they are not known.
    """

    name: str
    phase: str
    source: str
    destination: str
    state: str
    percent: int
    bytes: Optional[int]
    rate: Optional[int]
    left: Optional[float]
    message: str
    directive: Optional[int] = None
    begun: Optional[float] = None
    ended: Optional[float] = None

    def to_json(self) -> Json:
        """As in the answers to ``dws.job-show``, which are about one state."""
        return {
            "name": self.name,
            "source": self.source,
            "destination": self.destination,
            "state": self.state,
            "percent": self.percent,
            "bytes": self.bytes,
            "rate": self.rate,
            "left": self.left,
            "message": self.message,
        }

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not, or has copied everything."""
        return self.percent == 100 or self.over

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state not in ("", "Starting", "Running")

    @property
    def failed(self) -> bool:
        """Whether it has ended without success."""
        return self.over and self.state != SUCCESS

    @property
    def achieved(self) -> tuple[str, int, Optional[int], str]:
        """What changes when it gets on, and only then: neither the rate nor the time,
        which ``dcp`` writes without getting on as well. Any other message than that of
        before counts: other programs than ``dcp`` say in their own way how far they
        are."""
        message = _WRITTEN_AT.sub("", self.message).partition(_TIME_BEGINS)[0]
        return self.state, self.percent, self.bytes, message

    @property
    def total(self) -> Optional[int]:
        """About how many bytes it copies, by its percentage; None if that is not
        known."""
        if self.bytes is None or self.percent <= 0:
            return None
        return self.bytes * 100 // self.percent


@dataclass(frozen=True)
class Progress:
    """How far the data movements of one state are, together.

    Attributes:
        moved, total: bytes; None if that is not known of all of them.
        percent: 0 to 100.
        left: seconds until the last one ends; None if that is not known.
    """

    moved: Optional[int]
    total: Optional[int]
    percent: int
    left: Optional[float]


def key_of(object: Json) -> tuple[str, str]:
    """Namespace and name of an object that was listed."""
    metadata = object["metadata"]
    return str(metadata.get("namespace")), str(metadata.get("name"))


class _Place(Struct):
    path: Any = None


class _Spec(Struct):
    source: Optional[_Place] = None
    destination: Optional[_Place] = None


class _Command(Struct, rename="camel"):
    last_message: Any = None
    progress: Any = None
    data: Any = None
    rate: Any = None
    elapsed_time: Any = None


class _Status(Struct, rename="camel"):
    state: Any = None
    status: Any = None
    message: Any = None
    start_time: Any = None
    end_time: Any = None
    command_status: Optional[_Command] = None


class _NnfDataMovement(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    spec: Optional[_Spec] = None
    status: Optional[_Status] = None


def parse(object: Encoded) -> Movement:
    """Read an NnfDataMovement."""
    try:
        found = decode(_NnfDataMovement, object, "NnfDataMovement {reference}")
    except BadObject:
        found = _NnfDataMovement(names_of(object))
    spec, status = found.spec or _Spec(), found.status or _Status()
    command = status.command_status or _Command()
    last, state, result = map(
        _text, (command.last_message, status.state, status.status)
    )
    over = state == FINISHED
    percent = 100 if over and result == SUCCESS else _percent(command)
    said = _size(_COPIED.match(last))
    data = _size(_DATA.fullmatch(_text(command.data)))
    moved = data if said is None or (over and data is not None) else said
    failure = _text(status.message) if over and result != SUCCESS else ""
    return Movement(
        name=printable(found.metadata.reference, SHOWN),
        phase=_text(found.metadata.label(STATE_LABEL)),
        source=_text(spec.source and spec.source.path),
        destination=_text(spec.destination and spec.destination.path),
        state=(result or state) if over else state,
        percent=percent,
        bytes=moved,
        rate=_size(_RATE.search(last) or _RATE.fullmatch(_text(command.rate))),
        left=0.0 if over else _left(last, command, percent),
        message=failure or last,
        directive=decimal(_text(found.metadata.label(DIRECTIVE_LABEL))),
        begun=parse_timestamp(_text(status.start_time)),
        ended=parse_timestamp(_text(status.end_time)),
    )


class Totals:
    """The data movements of a job together, by the state of the Workflow in which they
    ran."""

    def __init__(self) -> None:
        self._of: dict[str, Json] = {}

    def add(self, object: Json) -> None:
        """Add an NnfDataMovement."""
        movement = parse(object)
        phase = movement.phase if movement.phase in STATES else ""
        sofar = self._of.get(phase, {"movements": 0})
        self._of[phase] = {
            "phase": phase,
            "movements": sofar["movements"] + 1,
            "bytes": _together(sum, sofar.get("bytes"), movement.bytes),
            "begun": _together(min, sofar.get("begun"), movement.begun),
            "ended": _together(max, sofar.get("ended"), movement.ended),
        }

    def to_json(self) -> list[Json]:
        """For each state: ``phase``, its name, empty where that is not known;
        ``movements``, their number; ``bytes``, those that were copied, and ``begun``
        and ``ended``, the UNIX times of the first and the last, each as far as it is
        known of these movements, null where it is of none."""
        return [self._of[phase] for phase in sorted(self._of)]


def progress(movements: Iterable[Movement]) -> Optional[Progress]:
    """How far data movements are, together; None without any. As long as it is not
    known of all how much they copy, each counts as much as the others."""
    found = list(movements)
    if not found:
        return None
    moved = _sum([each.bytes for each in found])
    total = _sum([each.total for each in found])
    if moved is not None and total:
        percent = min(100, 100 * moved // total)
    else:
        percent = sum(each.percent for each in found) // len(found)
    left = [each.left for each in found]
    return Progress(
        moved=moved,
        total=total,
        percent=percent,
        left=None
        if None in left
        else max(value for value in left if value is not None),
    )


def _sum(values: list[Optional[int]]) -> Optional[int]:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _together(
    combine: Callable[[list[float]], float], *values: Optional[float]
) -> Optional[float]:
    """Values combined, as far as they are known; None if none is."""
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def _percent(command: _Command) -> int:
    value = command.progress
    return max(0, min(100, int(value))) if is_number(value) else 0


def _left(last: str, command: _Command, percent: int) -> Optional[float]:
    """Seconds until the end, as ``dcp`` says, or as far as the copy came until now."""
    said = _LEFT.search(last)
    if said is not None:
        return float(said[1])
    elapsed = parse_go_duration(_text(command.elapsed_time))
    if elapsed is None or percent <= 0:
        return None
    return round(elapsed * (100 - percent) / percent, 1)


def _size(found: Optional[re.Match[str]]) -> Optional[int]:
    """The bytes of a size; None for one that no file system has."""
    if found is None:
        return None
    size = int(float(found[1]) * _BYTES[found[2]])
    return size if size <= INT64_MAX else None


def _text(value: Any) -> str:
    """A text, short and printable; an empty one for what is none."""
    return printable(value, SHOWN) if isinstance(value, str) else ""
