# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stories: what happens to a job, and what becomes of it, as rows of a table.

A story has a job, the troubles that it has, and its course: what can be seen from
outside, in order, in words.

====================  ================================================================
word                  what happens
====================  ================================================================
``Proposal`` ...      this state of the job's Workflow is asked for
``force``             that state is to count as reached (``forceReady``)
``kept``              its storage is kept for a rescue of the data
``gone``              the Workflow is deleted
``alloc``             the job gets its nodes
``start``, ``finish``  its tasks begin, and end
``clean``             the job has ended
``setup-timeout!``    a fatal exception, by its reason (:mod:`flux_k8s.reasons`), or by
                      its type where another program raises it: ``cancel!``
``unmount-failed``    an exception that is not fatal
``drain:HOST``        a node is drained (``undrain:HOST``: put back)
``down:HOST``         its broker is gone (``up:HOST``: back)
``disable:NAME``      a Rabbit, or a node in SystemStatus, is Disabled
                      (``enable:NAME``: Enabled again)
====================  ================================================================

The second job of a story has ``2:`` before its words, and so on; ``Setup..finish`` are
the words of a job without trouble, from one to another. The course is exact: no other
of these words was there. Where it has no ``drain:HOST``, no node was drained.

What goes wrong is a fault within DWS (:class:`rabbitsim.dws.options.Fault` has the
kinds), or what somebody does at a moment (:class:`When` and :mod:`.deeds`), as in::

    Story(
        "data that DWS cannot copy out is lost while the module is away",
        "Proposal..DataOut dws-failed! Teardown..gone",
        "dws-failed",
        troubles=(DwsFault("DataOut", "copy"), When("DataOut", unload(30.0))),
    )
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from flux_k8s.config.table import Config
from flux_k8s.objects.workflowstate import State
from flux_k8s.reasons import Reason
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.torture.record import ABORT

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from rabbitsim.torture.life import StorySystem

    P = ParamSpec("P")

LIFE = "Proposal..gone"
"""A job without trouble."""

_LIFE = (
    *("Proposal", "alloc", "Setup", "DataIn", "PreRun", "start", "finish"),
    *("PostRun", "DataOut", "Teardown", "clean", "gone"),
)

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
COPY_IN = "#DW copy_in source=/lustre/in destination=$DW_JOB_p1/"
COPY_OUT = "#DW copy_out source=$DW_JOB_p1/ destination=/lustre/out"

FOREVER = 1e9
"""Seconds that no story lasts."""

NODE = "compute-02"
"""The node of the job to which something happens."""

EVENTS = ("alloc", "start", "finish", "clean")
"""The events of jobs that are in the course."""

RECORDS = ("container_log", "datamovements", "moved")
"""The records of what Teardown deletes, by the ends of their keys in the KVS."""

NO_RECORD = "none"
"""What becomes of data of which there is no record."""

TYPES = (
    "cancel",
    "dependency",
    "dws",
    "dws-epilog-timeout",
    "exec",
    "node-failure",
    "timeout",
)
"""The types of the exceptions that others than the service raise."""

_REASONS = frozenset(reason.value for reason in Reason)
_WORDS = {*State.__members__, "force", "kept", "gone", *EVENTS, *TYPES, *_REASONS}
_OF_NAMES = ("drain", "undrain", "down", "up", "disable", "enable")

Deed = Callable[["StorySystem"], None]
"""What somebody does, or what happens to the machine."""


def deed(function: Callable[Concatenate[StorySystem, P], None]) -> Callable[P, Deed]:
    """The deeds that a function does with more arguments than the system. (A partial
    has them as ``args``.)"""

    def do(*args: Any, **options: Any) -> None:
        *more, system = args
        function(system, *more, **options)

    def of(*args: P.args, **options: P.kwargs) -> Deed:
        return partial(do, *args, **options)

    return of


def of(number: int, words: str) -> str:
    """The words of another job than the first."""
    return " ".join(f"{number}:{word}" for word in words.split())


def spell_out(course: str) -> str:
    """A course without ``..``, with one space between two words."""
    words: list[str] = []
    for word in course.split():
        job, colon, part = word.rpartition(":")
        first, dots, last = part.partition("..")
        among = _LIFE[_LIFE.index(first) :] if dots and first in _LIFE else ()
        if last in among:
            among = among[: among.index(last) + 1]
            words += [f"{job}{colon}{each}" for each in among]
        else:
            words.append(word)
    return " ".join(words)


@dataclass(frozen=True)
class Job:
    """A job that is submitted.

    Attributes:
        directives: none for a job that is not our business.
        nodes: how many it has; it may lose ``tolerance`` of them.
        release, stage: its ``dw_release`` and ``dw_stage``; "" if it does not say.
        seconds: how long its tasks run.
        exclusive: it has its nodes for itself.
        awaits: the number of the job, from 1, whose data it waits for; 0 for none.
        user: its owner; None for that of the instance.
        attributes: others of ``attributes.system``.
    """

    directives: tuple[str, ...] = (XFS, COPY_IN, COPY_OUT)
    nodes: int = 2
    tolerance: int = 0
    release: str = "teardown"
    stage: str = "prolog"
    seconds: float = 0.0
    exclusive: bool = False
    awaits: int = 0
    user: Optional[int] = None
    urgency: int = 16
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class When:
    """A deed that is done ``after`` seconds from the moment at which a word is first
    in the course; "" is the beginning."""

    word: str
    deed: Deed
    after: float = 0.0


@dataclass(frozen=True)
class Story:
    """What happens to a job, and what becomes of it.

    Attributes:
        name: a sentence, or its subject.
        course: what happens, in words; "" if a row does not say.
        data: what becomes of the job's data, as ``rabbit_data_out`` says: "out", or
            the reason for which it is not, as "not-run" (:mod:`flux_k8s.reasons`);
            "none" if there is no record, "" if it is as the course says
            (:attr:`outcome`).
        job: the first job.
        troubles: what goes wrong within DWS, and what others do, at which moments.
        others: more jobs, submitted right after the first one.
        latency: the seconds that a state takes; else those of
            :data:`rabbitsim.torture.life.LATENCY`.
        dws: arguments of :class:`rabbitsim.dws.options.Options`.
        machine: arguments of :class:`rabbitsim.system.VirtualSystem`.
        copied: the bytes of each copy.
        epilog_timeout: of the plugin.
        spans: the seconds from one word to another, to a second.
        left: what the job leaves, of its KVS keys and memos, as "KVS rabbit_kept_for",
            of those that are here each. The nodes that are left drained are those that
            the course drains, and does not undrain.
        log: the reasons of lines of the log, of those that are here each that there is.
        records: what is recorded of what Teardown deletes, of :data:`RECORDS`, and
            nothing else of these; None if it is not looked at.
        large: R of each job is so large that another process reads it.
        unlogged: the reason of which there is no line.
        harm: storage is deleted, or mounted again, while a node has it mounted.
        may: the words of more exceptions that the job may have where a machine
            interrupts it as well, or of what may become of its data then.
        spared: the word of one that it may be spared then: right after the start of a
            service no time limit is over.
        away: the seconds for which Kubernetes or DWS is away, by which limits are late.
        ahead: the seconds by which a clock is set forward: limits are early; they are
            late if it is set back.
        freed: if it is cancelled before a node of it has failed to unmount, nothing but
            an administrator lets it go.
    """

    name: str
    course: str = ""
    data: str = ""
    job: Job = Job()
    troubles: tuple[DwsFault | When, ...] = ()
    others: tuple[Job, ...] = ()
    config: Config = field(default_factory=Config)
    latency: Mapping[str, float] = field(default_factory=dict)
    dws: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    copied: int = 0
    epilog_timeout: Optional[float] = None
    spans: tuple[tuple[str, str, float], ...] = ()
    left: tuple[str, ...] = ()
    log: str = ""
    records: Optional[str] = None
    large: bool = False
    unlogged: str = ""
    harm: bool = False
    may: tuple[str, ...] = ()
    spared: str = ""
    away: float = 0.0
    ahead: float = 0.0
    freed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "course", spell_out(self.course))
        words = {*self.course.split(), *(when.word for when in self.deeds), *self.may}
        words.update((self.spared, self.unlogged))
        words.update(word for span in self.spans for word in span[:2])
        unknown = sorted(word for word in words if word and not _is_word(word))
        if unknown:
            raise ValueError(
                f"{self.name}: no word of a course: {', '.join(unknown)}; expected a"
                f" reason or one of {', '.join(sorted(_WORDS - _REASONS))}, or"
                f" {', '.join(f'{what}:NAME' for what in _OF_NAMES)}"
            )
        if self.data not in {"", "out", NO_RECORD, *_REASONS}:
            known = ", ".join(("out", NO_RECORD, *sorted(_REASONS)))
            text = f"{self.name}: data is {self.data!r}, expected one of {known}"
            raise ValueError(text)
        slow = sorted({*self.latency} - {*State.__members__})
        if slow:
            states = ", ".join(State.__members__)
            text = f"latency of {', '.join(map(repr, slow))}, expected one of {states}"
            raise ValueError(f"{self.name}: {text}")

    def __str__(self) -> str:
        return self.name

    @property
    def outcome(self) -> str:
        """What becomes of the data: a job that does not start has not run, the data of
        one that fails is lost for the last reason, or since its epilog was given up,
        and some is lost if a node has not unmounted."""
        words = self.course.split()
        fatal = [word[:-1] for word in words if word[-1] == "!" and ":" not in word]
        if self.data or not words:
            return self.data
        if not self.job.directives:
            return NO_RECORD
        if "start" not in words:
            return "not-run"
        if ABORT in fatal:
            return Reason.EPILOG_GIVEN_UP.value
        late = "unmount-failed" if "unmount-failed" in words else "out"
        return fatal[-1] if fatal else late

    @property
    def drained(self) -> frozenset[str]:
        """The nodes that are drained in the end."""
        found: set[str] = set()
        for word in self.course.split():
            *_, what, host = f":{word}".split(":")
            if what == "drain":
                found.add(host)
            elif what == "undrain":
                found.discard(host)
        return frozenset(found)

    @property
    def faults(self) -> tuple[DwsFault, ...]:
        return tuple(each for each in self.troubles if isinstance(each, DwsFault))

    @property
    def deeds(self) -> tuple[When, ...]:
        return tuple(each for each in self.troubles if isinstance(each, When))

    @property
    def fatal(self) -> frozenset[str]:
        """The reasons and types of the fatal exceptions that its jobs may have."""
        words = (word.rpartition(":")[2] for word in self.course.split())
        return frozenset(word[:-1] for word in words if word[-1] == "!") | {*self.may}


def _is_word(word: str) -> bool:
    number, colon, rest = word.partition(":")
    if colon and number.isdigit():
        return _is_word(rest)
    return number in _OF_NAMES if colon else word.rstrip("!") in _WORDS
