# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writing to Flux's log."""

from __future__ import annotations

import syslog
import traceback
from typing import Any

from flux.core.inner import ffi, lib

import flux
from flux_k8s.reasons import Reason, log_line
from flux_k8s.text import LINE, printable_bytes


def open_handle(name: str) -> Any:
    """A Flux handle of the instance owner. Its lines in the log have the module's
    name."""
    handle = flux.Flux()
    lib.flux_log_set_appname(handle.handle, name.encode())
    return handle


def log(handle: Any, level: int, text: str) -> None:
    """Log a line at a level of :mod:`syslog`. ``text`` may have any characters.

    ``handle.log`` and the methods of ``BrokerModule.log`` pass their text to
    ``flux_log`` as the format: a ``%s`` in it would read memory, a ``%n`` write it.
    """
    line = printable_bytes(text, LINE)
    lib.flux_log(handle.handle, level, b"%s", ffi.new("char[]", line))


def log_exception(handle: Any, what: str, error: BaseException) -> None:
    """Log an unexpected exception with its traceback, after a line with ``what``."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    text = f"{what}: {type(error).__name__}: {error}"
    log(handle, syslog.LOG_CRIT, log_line(text, Reason.SERVICE_FAULT))
    for line in trace.splitlines():
        log(handle, syslog.LOG_CRIT, line)
