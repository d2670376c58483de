# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What all tests have in common."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:  # a test waits for no import that it does not need
    from rabbitsim.kube.store import Store
    from support.client import Connect, Fake, KubeClient, Service
    from support.jobtap import JobManager

# By default Python looks for garbage 70 times as often, among millions of objects that
# pytest makes in each worker, and that stay.
gc.set_threshold(50_000, 20, 50)

# An assertion of a helper says what it compared, as that of a test does.
pytest.register_assert_rewrite("support")

# A machine that is busy with something else is no reason for a test to fail, and a
# change is not blamed for what another example would have found before it: make soak
# looks for that, with --hypothesis-profile=soak.
settings.register_profile(
    "patient",
    settings.default,
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak", settings.get_profile("patient"), derandomize=False, max_examples=2000
)
# For tests that are run once more, by test_jobtap_sanitized.py.
settings.register_profile("brief", settings.get_profile("patient"), max_examples=5)
settings.load_profile("patient")


def pytest_report_header() -> str:
    """How to have the same samples again."""
    from support.seed import SEED

    return f"SEED={SEED}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the garbage collector leave alone what was collected: it stays."""
    gc.freeze()


@pytest.fixture
def manager(request: pytest.FixtureRequest) -> Iterator[JobManager]:
    """A job manager with the compiled plugin, which gets the parameter as ``conf``."""
    from support.jobtap import JobManager

    manager = JobManager(getattr(request, "param", None))
    yield manager
    if manager.plugin is not None:
        manager.unload()


@pytest.fixture
def store() -> Store:
    """The simulated API server's store, empty."""
    from support.store import new_store

    return new_store()


@pytest.fixture
def service() -> Iterator[Service]:
    """A thread that has clients of an API server."""
    from support.client import Service

    with Service() as service:
        yield service


@pytest.fixture
def connect(service: Service, tmp_path: Path) -> Iterator[Connect]:
    """What makes a server that answers as it is told, and a client of it."""
    from support.client import Fake, write_kubeconfig

    fakes: list[Fake] = []

    def connect(
        answer: Any, user: Any = None, **options: Any
    ) -> tuple[Fake, KubeClient]:
        fakes.append(Fake(answer))
        kubeconfig = write_kubeconfig(tmp_path / "kc", fakes[-1].port, user)
        return fakes[-1], service.client(kubeconfig, **options)

    yield connect
    for fake in fakes:
        fake.close()


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    """A file with the mapping of the example system."""
    from support.mapping import EXAMPLE

    path = tmp_path / "mapping.json"
    path.write_text(json.dumps(EXAMPLE))
    return path
