# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Lines of standard error, as Flux's own commands write them."""

from __future__ import annotations

from flux_k8s.command import write_message

NAME = "dws"
"""The command is ``flux dws``."""

MOMENT = 2
"""Seconds after which a user wonders what a command waits for."""

KUBERNETES = "waiting for the dws module, which asks Kubernetes"


def warn(message: str) -> None:
    """Write a warning to standard error."""
    write_message(NAME, "WARNING", message)


class Notice:
    """Says once what a command waits for, unless the answer comes within a moment."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._ticks = 0

    def tick(self) -> None:
        """About a second has passed."""
        self._ticks += 1
        if self._ticks == MOMENT:
            warn(self._message)


def complain(message: str) -> None:
    """Write an error to standard error."""
    write_message(NAME, "ERROR", message)
