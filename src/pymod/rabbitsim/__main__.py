# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim``."""

from __future__ import annotations

import sys

from rabbitsim.cli import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ModuleNotFoundError as error:
        if error.name not in ("aiohttp", "jsonpatch"):
            raise
        # Where flux-dws is installed for Flux alone.
        sys.exit(f"rabbitsim: {error.name} is not installed (pip: flux-dws[sim])")
