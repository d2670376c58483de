# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The one way to Flux's log."""

from __future__ import annotations

import syslog
import traceback
from typing import Any

from flux.core.inner import ffi, lib

from flux_k8s.text import printable

MAX_LINE = 1800
"""Bytes of a line. ``flux_log`` cuts off what does not fit into 2048 with its header,
in the midst of a character if need be."""


def log(handle: Any, level: int, text: str) -> None:
    """Log a line, whatever is in ``text``.

    ``handle.log`` and the methods of ``BrokerModule.log`` pass their text to
    ``flux_log`` as the format: a ``%s`` in it reads, a ``%n`` writes memory.
    """
    line = printable(text).encode()
    if len(line) > MAX_LINE:
        line = line[: MAX_LINE - 3].decode(errors="ignore").encode() + b"..."
    lib.flux_log(handle.handle, level, b"%s", ffi.new("char[]", line))


def log_exception(handle: Any, what: str, error: BaseException) -> None:
    """Log an unexpected exception, and where it arose."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    log(handle, syslog.LOG_CRIT, f"{what}: {type(error).__name__}: {error}")
    for line in trace.splitlines():
        log(handle, syslog.LOG_CRIT, line)
