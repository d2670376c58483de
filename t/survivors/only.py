# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A plugin of pytest: it runs the tests of a list, in its order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave the tests of the file that FLUX_DWS_WANTED names."""
    wanted = Path(os.environ["FLUX_DWS_WANTED"]).read_text().split("\n")
    place = {test: number for number, test in enumerate(wanted)}
    others = [item for item in items if item.nodeid not in place]
    items[:] = sorted(
        (item for item in items if item.nodeid in place),
        key=lambda item: place[item.nodeid],
    )
    config.hook.pytest_deselected(items=others)
