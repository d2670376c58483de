# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The seed of what this run of the tests draws from more than it has time for."""

from __future__ import annotations

import os
import subprocess

from support.tree import TOP


def _commit() -> str:
    """A number from the hash of the commit that is tested; "0" outside a repository."""
    command = ["git", "-C", str(TOP), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "0"
    return str(int(found.stdout.strip()[:12], 16))


SEED = os.environ.get("SEED") or _commit()
"""``SEED=`` of the environment, or else the number of the commit."""
