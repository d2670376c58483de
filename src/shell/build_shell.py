# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""dws_environment: the job shell's plugin, and ``rabbitsim._shell``."""

from __future__ import annotations

import sys

sys.path.insert(0, "src/standin")

from component import Component  # noqa: E402

COMPONENT = Component(
    extension="rabbitsim._shell",
    plugin="dws_environment.so",
    directory="lib/flux/shell/plugins",
    sources=["src/shell/dws_environment.c"],
    headers=[],
    host_sources=["src/standin/plugin.c", "src/standin/shell.c"],
    host_header="shell.h",
    cdef="int standin_shell_run (void *host, int to_the_end);",
)

ffibuilder = COMPONENT.ffi()
