# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The version of what is installed, that of the protocol between module and plugin, and
the oldest flux-core with which they work.

Nothing of Flux is imported here: the build needs no Flux, and an older one may lack
what the modules import.
"""

from __future__ import annotations

import re
from pathlib import Path

from flux_k8s.errors import DWSError

PROTOCOL = 1
"""Changes when a module and a plugin that differ in it may not understand each other.
``src/jobtap/job.h`` has it as well."""

OLDEST_FLUX = "0.86.0"
"""The oldest flux-core on which all of ``t/*.t`` was run, and passes; 0.84 fails some.
Before 0.88 a reload of job-exec while jobs run ends job-exec
(``t/t1003-dws-cancel.t``)."""

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


def check_flux(version: str, part: str = "flux-dws") -> None:
    """Refuse a flux-core that is older than :data:`OLDEST_FLUX`.

    Args:
        version: what Flux says of itself, such as ``0.88.0`` or ``0.88.0-12-gabcdef``.
        part: what needs it, for the message.

    Raises:
        DWSError: it is older.
    """
    if _numbers(version) < _numbers(OLDEST_FLUX):
        raise DWSError(
            f"{part} needs flux-core {OLDEST_FLUX} or newer, this is {version}"
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("-")[0])]
