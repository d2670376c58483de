# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The states of a Workflow, and the statuses that mean trouble in them."""

from __future__ import annotations

import enum
from typing import Mapping, Optional


class State(enum.IntEnum):
    """The states of a Workflow, in their order."""

    Proposal = 0
    Setup = 1
    DataIn = 2
    PreRun = 3
    PostRun = 4
    DataOut = 5
    Teardown = 6


STATES: Mapping[str, State] = State.__members__
ERROR = "Error"
TRANSIENT = "TransientCondition"
TROUBLES = (ERROR, TRANSIENT)

Times = tuple[Optional[float], ...]
"""For each state a UNIX time, or None."""

NO_TIMES: Times = (None,) * len(State)
