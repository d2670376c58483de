# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The version of what is installed, and that of the protocol between module and
plugin."""

from __future__ import annotations

from pathlib import Path

PROTOCOL = 1
"""Changes when a module and a plugin that differ in it may not understand each other.
``src/jobtap/job.h`` has it as well."""

UNKNOWN = "unknown"
"""The version of a part that was not built by ``setup.py``, or is older than versions
are."""


def version() -> str:
    """The version with which this package was built."""
    try:
        text = Path(__file__).with_name("version.txt").read_text(encoding="utf-8")
    except OSError:
        return UNKNOWN
    return text.strip() or UNKNOWN
