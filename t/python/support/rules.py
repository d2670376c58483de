# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules of torture."""

from __future__ import annotations

import re

from support.tree import TOP


def rules_of_torture() -> set[str]:
    """The names of all rules, from the sources."""
    sources = (TOP / "src/pymod/rabbitsim/torture").glob("*.py")
    texts = (path.read_text() for path in sources)
    found = (re.findall(r'fail\(\s*"([a-z ]+)"', text) for text in texts)
    return set().union(*found)
