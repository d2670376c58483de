# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What all tests have in common."""

from __future__ import annotations

from typing import Iterator

import pytest
from hypothesis import HealthCheck, settings

# An assertion of a helper says what it compared, as that of a test does.
pytest.register_assert_rewrite("support")

from support.jobtap import JobManager  # noqa: E402

# A machine that is busy with something else is no reason for a test to fail.
settings.register_profile(
    "patient",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak", settings.get_profile("patient"), max_examples=2000
)  # with --hypothesis-profile=soak
settings.load_profile("patient")


@pytest.fixture
def manager(request: pytest.FixtureRequest) -> Iterator[JobManager]:
    """A job manager with the compiled plugin, which gets the parameter as ``conf``."""
    manager = JobManager(getattr(request, "param", None))
    yield manager
    if manager.plugin is not None:
        manager.unload()
