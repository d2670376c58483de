# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The lines of a batch script with ``#DW`` that Flux does not read (RFC 37)."""

from __future__ import annotations

import re
from typing import Any, Optional

COMMENT = re.compile(r"[^\w]*(?:flux|FLUX):(?:[^#\"']*\s)?(#DW\s.*)")
"""A line for Flux with a directive that is not within an option: a comment to Flux."""
BARE = re.compile(r"#DW\s")
MEANT = "expected '#flux: --dw=\"#DW ...\"'"


def unread_line(script: str, dw: Any) -> Optional[str]:
    """The first line of a script with a directive that its job does not have, in words.
    None if there is none.

    Args:
        dw: the directives of the job, as in ``attributes.system.dw``; None if it has
            none. Those of a job that has some are not looked for in lines that begin
            with ``#DW``, which may be for another program.
    """
    read = "\n".join(map(str, dw)) if isinstance(dw, (list, tuple)) else str(dw or "")
    without = ", and the job has no storage" if dw is None else ""
    for number, line in enumerate(script.splitlines(), 1):
        if dw is None and BARE.match(line):
            return f"line {number}: Flux does not read #DW lines{without}: {MEANT}"
        comment = COMMENT.match(line)
        if comment and comment[1].strip() not in read:
            return (
                f"line {number}: Flux takes a #DW that is not within an option for a"
                f" comment{without}: {MEANT}"
            )
    return None
