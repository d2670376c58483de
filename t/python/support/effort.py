# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How much is tried: little by default, much in ``make soak``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import settings

First = TypeVar("First")
Second = TypeVar("Second")

SOAKING = settings.default.max_examples > settings.get_profile("default").max_examples
"""Whether pytest has --hypothesis-profile=soak (conftest.py)."""

BRIEF = settings.default.max_examples == settings.get_profile("brief").max_examples
"""Whether pytest has --hypothesis-profile=brief: what is tried again is tried less."""

night = pytest.mark.skipif(not SOAKING, reason="make soak")
"""For a test that takes long, and whose fault seldom is that of a change: what is
built, installed and drawn, or the same as another test with more of everything."""


def examples(usual: int) -> settings:
    """For a property whose examples take long: how many of them, usually."""
    if SOAKING:
        return settings(max_examples=40 * usual)
    return settings(max_examples=max(usual // 5, 1) if BRIEF else usual)


def seeds(usual: int, soaking: int) -> range:
    """The seeds of random runs."""
    return range(soaking if SOAKING else usual)


def pairs(
    first: Iterable[First], second: Iterable[Second], usual: int
) -> list[tuple[First, Second]]:
    """Each with each; usually with one in so many, such that all are there."""
    return [
        (one, other)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
        if SOAKING or (row + column) % usual == 0
    ]


def count_calls(work: Callable[[], object]) -> int:
    """How many functions are called while some work is done: its cost, whatever else
    the machine does."""
    calls = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
