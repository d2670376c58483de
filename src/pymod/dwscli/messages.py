# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Lines of standard error, as Flux's own commands write them."""

from __future__ import annotations

from flux_k8s.command import write_message

NAME = "dws"
"""The command is ``flux dws``."""


def warn(message: str) -> None:
    """Write a warning to standard error."""
    write_message(NAME, "WARNING", message)


def complain(message: str) -> None:
    """Write an error to standard error."""
    write_message(NAME, "ERROR", message)
