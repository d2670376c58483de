# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writing to Flux's log."""

from __future__ import annotations

import syslog
import traceback
from typing import Any

from flux.core.inner import ffi, lib

from flux_k8s.text import printable

MAX_LINE = 1800
"""Bytes of a line. ``flux_log`` cuts a line with its header after 2048 bytes, and may
cut a character in two."""


def log(handle: Any, level: int, text: str) -> None:
    """Log a line at a level of :mod:`syslog`. ``text`` may have any characters.

    ``handle.log`` and the methods of ``BrokerModule.log`` pass their text to
    ``flux_log`` as the format: a ``%s`` in it would read memory, a ``%n`` write it.
    """
    line = printable(text).encode()
    if len(line) > MAX_LINE:
        line = line[: MAX_LINE - 3].decode(errors="ignore").encode() + b"..."
    lib.flux_log(handle.handle, level, b"%s", ffi.new("char[]", line))


def log_exception(handle: Any, what: str, error: BaseException) -> None:
    """Log an unexpected exception with its traceback, after a line with ``what``."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    log(handle, syslog.LOG_CRIT, f"{what}: {type(error).__name__}: {error}")
    for line in trace.splitlines():
        log(handle, syslog.LOG_CRIT, line)
