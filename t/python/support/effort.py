# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The number of random examples: few by default, many in ``make soak``."""

from __future__ import annotations

from hypothesis import settings

SOAKING = settings.default.max_examples > settings.get_profile("default").max_examples
"""Whether pytest has --hypothesis-profile=soak (conftest.py)."""


def examples(usual: int) -> settings:
    """For a property whose examples take long: how many of them, usually."""
    return settings(max_examples=20 * usual if SOAKING else usual)


def seeds(usual: int, soaking: int) -> range:
    """The seeds of random runs."""
    return range(soaking if SOAKING else usual)
