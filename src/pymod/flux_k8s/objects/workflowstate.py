# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The states of a Workflow, the statuses that mean trouble in them, and what the
drivers of DWS have done in them."""

from __future__ import annotations

import enum
from typing import Mapping, Optional, Sequence

from msgspec import Struct

from flux_k8s.formats.timestamps import parse_timestamp
from flux_k8s.objects.workflowdirectives import WorkflowDirectives


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


class Driver(Struct, frozen=True, gc=False, rename="camel"):
    """An entry of ``status.drivers``: the work of a driver of DWS on a directive in a
    state.

    Attributes:
        dwd_index: the number of the directive.
    """

    dwd_index: Optional[int] = None
    watch_state: Optional[str] = None
    completed: Optional[bool] = None
    status: Optional[str] = None
    complete_time: Optional[str] = None


def times_ended(drivers: Sequence[Driver]) -> Times:
    """For each state the UNIX time at which the last of its drivers completed it; None
    where there is none, or one has not."""
    times: dict[Optional[str], list[Optional[float]]] = {state: [] for state in STATES}
    for driver in drivers:
        found = times.get(driver.watch_state)
        if found is not None:
            stamp = driver.complete_time if driver.completed else None
            found.append(None if stamp is None else parse_timestamp(stamp))
    return tuple(
        None if None in found else max(filter(None, found), default=None)
        for found in times.values()
    )


def unsaved_copies(
    directives: WorkflowDirectives,
    drivers: Sequence[Driver],
    noted: Mapping[int, bool],
) -> tuple[str, ...]:
    """Source and destination of each copy_out that DWS has not completed. Where some of
    them have failed, and others not, it says which.

    Args:
        noted: whether the data of directives of which DWS says nothing is copied.
    """
    if not directives.copies_out:
        return ()
    ends = [driver for driver in drivers if driver.watch_state == State.DataOut.name]
    copied = {driver.dwd_index for driver in ends if driver.completed}
    copied |= {index for index, done in noted.items() if done}
    failed = {driver.dwd_index for driver in ends if driver.status == ERROR}
    failed = failed.union(noted) - copied
    left = [copy for copy in directives.copies_out if copy[0] not in copied]
    if all(index in failed for index, _ in left):
        failed = set()
    return tuple(
        f"{files} (failed)" if index in failed else files for index, files in left
    )
