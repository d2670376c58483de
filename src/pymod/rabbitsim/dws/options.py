# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The speed and the faults of the stand-in controllers, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random
from typing import Callable, Optional

from rabbitsim.dws.breakdown import Profiles
from rabbitsim.dws.directive import STATES, Rules

Latency = Callable[[str, Random], float]
"""From a Workflow state and randomness to seconds that the state takes."""

FAULT_KINDS = (
    "error",
    "transient",
    "never",
    "slow",
    "stall",
    "copy",
    "mount",
    "rabbit",
)

COPYING = ("DataIn", "DataOut")
"""The states in which data moves."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        state: the Workflow state in which it is injected.
        kind:
            - ``error``: the Workflow's status becomes Error.
            - ``transient``: it is TransientCondition while the fault lasts.
            - ``never``: the state does not become ready while it lasts.
            - ``slow``: the state takes ``duration`` longer.
            - ``stall``: data movement (DataIn, DataOut) stops half way while the
              fault lasts. One whose size is not known does not begin.
            - ``copy``: data movements (DataIn, DataOut), those of the Rabbit ``node``
              if there is one, that end while it lasts have failed.
            - ``mount``: mounting (PreRun) or unmounting (PostRun) fails on
              ``node`` while it lasts.
            - ``rabbit``: the Rabbit ``node`` goes offline when a Workflow enters
              the state, and is back after ``duration``.
        match: names of the Workflows into which it is injected, with ``*`` and ``?``.
        duration: seconds since the Workflow entered the state; 0 is for ever.
        node: a compute node (``mount``) or a Rabbit, with ``*`` and ``?``. With
            ``error``, ``transient`` and ``never`` in Setup: the Rabbit on which
            storage cannot be made; in PreRun: the compute node that does not
            mount, and does not say so. The others do their part.
        message: the message for the user.
        directive: the number of a directive: with ``copy`` and ``stall`` only its data
            movements are meant.
    """

    state: str
    kind: str
    match: str = "*"
    duration: float = 0.0
    node: str = ""
    message: str = ""
    directive: Optional[int] = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(
                f"fault state is {self.state!r}, expected one of {', '.join(STATES)}"
            )
        if self.kind not in FAULT_KINDS:
            raise ValueError(
                f"fault kind is {self.kind!r}, expected one of {', '.join(FAULT_KINDS)}"
            )
        if self.kind in ("stall", "copy") and self.state not in COPYING:
            raise ValueError(
                f"no data moves in {self.state}: a {self.kind} is one of"
                f" {', '.join(COPYING)}"
            )
        if self.duration < 0:
            raise ValueError(
                f"fault duration is {self.duration}, expected seconds, 0 for ever"
            )

    def is_active(self, workflow: str, state: str, elapsed: float) -> bool:
        """Whether the fault is injected into a Workflow ``elapsed`` seconds after the
        state began."""
        return (
            self.state == state
            and (self.duration == 0 or elapsed < self.duration)
            and fnmatchcase(workflow, self.match)
        )

    def matches_node(self, name: str) -> bool:
        return fnmatchcase(name, self.node or "*")

    @property
    def of_node(self) -> bool:
        """Whether the fault stops one Rabbit or compute node, not the whole state."""
        kinds = ("error", "transient", "never")
        return (
            bool(self.node) and self.kind in kinds and self.state in ("Setup", "PreRun")
        )

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault from ``STATE:KIND[:NODE[:SECONDS]]``, as in
        ``PreRun:mount:compute-02``.

        Raises:
            ValueError: it is none.
        """
        if not 2 <= len(text.split(":")) <= 4:
            raise ValueError(f"{text!r} is not STATE:KIND[:NODE[:SECONDS]]")
        state, kind, node, seconds = (*text.split(":"), "", "")[:4]
        try:
            duration = float(seconds or 0)
        except ValueError:
            problem = f"fault duration is {seconds!r}, expected seconds"
            raise ValueError(problem) from None
        return cls(state, kind, node=node, duration=duration)


def constant(seconds: float) -> Latency:
    """Every state takes this long."""
    return lambda state, rng: seconds


def table(seconds: Mapping[str, float], spread: float = 0.0) -> Latency:
    """Each state takes the seconds in the table (0 for one that is not there), give or
    take a fraction ``spread`` of them."""

    def latency(state: str, rng: Random) -> float:
        return seconds.get(state, 0.0) * (1 + spread * (2 * rng.random() - 1))

    return latency


def recorded() -> Latency:
    """About the times of real DWS and NNF for one job, without hardware."""
    seconds = {
        "Proposal": 0.1,
        "Setup": 0.15,
        "DataIn": 0.01,
        "PreRun": 2.2,
        "PostRun": 1.1,
        "DataOut": 0.01,
        "Teardown": 0.13,
    }
    return table(seconds, spread=0.1)


@dataclass(frozen=True)
class Options:
    """The options of the stand-in controllers.

    Attributes:
        latency: how long states take, besides the work itself.
        faults: the failures. Those of a list may change while the controllers run.
        progress_after: a driver that takes longer than this many seconds says
            in the Workflow for what it waits.
        capacity_interval: free capacity of a Rabbit is published at most this
            often, in seconds.
        user_container_tls: whether the site has set up the secret that
            ``requires=copy-offload`` needs.
        copy_step: data movement copies this many bytes at a time between two
            looks at anything else.
        copy_rate: bytes per second that one data movement copies at most; None for
            no limit.
        report_interval: seconds between two reports of a copy that is under way.
        full_events: whether watches show as many events as those of a real system:
            each thing that the controllers do is a write of its own
            (:mod:`rabbitsim.dws.separatewrites`), and objects have ``managedFields``,
            where the API server is the stand-in.
    """

    latency: Latency = field(default_factory=lambda: constant(0.001))
    faults: Sequence[Fault] = ()
    profiles: Profiles = field(default_factory=Profiles.default)
    rules: Rules = field(default_factory=Rules.default)
    progress_after: float = 0.05
    capacity_interval: float = 0.05
    user_container_tls: bool = True
    copy_step: int = 8 << 20
    copy_rate: Optional[float] = None
    report_interval: float = 0.5
    full_events: bool = False

    def fault(
        self, kind: str, workflow: str, state: str, elapsed: float
    ) -> Optional[Fault]:
        """The first active fault of a kind that concerns a whole Workflow."""
        for fault in self.faults:
            if fault.kind == kind and fault.is_active(workflow, state, elapsed):
                if not fault.of_node and fault.directive is None:
                    return fault
        return None

    def fault_of_copy(
        self, kind: str, workflow: str, state: str, elapsed: float, directive: int
    ) -> Optional[Fault]:
        """The first active fault of a kind that concerns the data movements of a
        directive."""
        for fault in self.faults:
            if fault.kind == kind and fault.directive == directive:
                if fault.is_active(workflow, state, elapsed):
                    return fault
        return self.fault(kind, workflow, state, elapsed)

    def faults_of_nodes(
        self, workflow: str, state: str, elapsed: float
    ) -> tuple[Fault, ...]:
        """The active faults of a Workflow's Rabbits and nodes."""
        return tuple(
            fault
            for fault in self.faults
            if fault.of_node and fault.is_active(workflow, state, elapsed)
        )
