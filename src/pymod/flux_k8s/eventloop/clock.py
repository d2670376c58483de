# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The time of a service."""

from __future__ import annotations

import time


class SteadyClock:
    """The UNIX time by the system's clock when this was made. It goes on evenly from
    there, whatever the system's clock is set to."""

    def __init__(self) -> None:
        self._epoch = time.time() - time.monotonic()

    def now(self) -> float:
        """The UNIX time, in seconds."""
        return self._epoch + time.monotonic()
