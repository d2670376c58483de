# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The processor of this machine, on which measured times depend."""

from __future__ import annotations

import os


def model() -> str:
    """The model where the kernel names it, else the architecture."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return os.uname().machine
