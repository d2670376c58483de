# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What all tests have in common."""

from __future__ import annotations

from typing import Iterator

import jobtap_host
import pytest
from hypothesis import HealthCheck, settings

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
def manager(request: pytest.FixtureRequest) -> Iterator[jobtap_host.JobManager]:
    """A job manager with the compiled plugin, which gets the parameter as ``conf``."""
    manager = jobtap_host.JobManager(getattr(request, "param", None))
    yield manager
    if manager.plugin is not None:
        manager.unload()
