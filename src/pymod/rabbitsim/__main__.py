# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim``."""

from __future__ import annotations

import sys

from rabbitsim.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
