# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which flux-core flux-dws needs: for the build, the modules and the plugin.

Nothing of Flux is imported here: the build needs no Flux, and an older one may lack
what the modules import.
"""

from __future__ import annotations

import re

from flux_k8s.errors import DWSError

OLDEST_FLUX = "0.86.0"
"""The oldest flux-core on which all of ``t/*.t`` was run, and passes; 0.84 fails some.
Before 0.88 a reload of job-exec while jobs run ends job-exec
(``t/t1003-dws-cancel.t``)."""


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
