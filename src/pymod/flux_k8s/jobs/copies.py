# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Decides on the next step for copies out of which DWS says nothing, before data is
given up.

NNF begins all copies of a job at once, and reports on one after the other: when one has
failed, the Workflow is in Error, while others go on or are over. Teardown would end
them. So their data movements are waited for, as long as they would be without the
failure, and the Workflow gets an annotation with what became of each.
"""

from __future__ import annotations

from typing import Optional

from flux_k8s.control.kubecalls import REOPEN_DELAY
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.problems import copies_unknown
from flux_k8s.jobs.step import ListMovements, NoteCopies, Step, Wait
from flux_k8s.jobs.timelimits import Moment, overdue
from flux_k8s.jobs.workflowinfo import WorkflowInfo

LIST_VALID = 60.0
"""Seconds until data movements that go on are listed again: the watch of them may have
been interrupted, or hang."""


def await_copies(info: WorkflowInfo, view: WorkflowView, at: Moment) -> Optional[Step]:
    """The step for the copies of a job whose data is about to be given up; None if
    nothing is to be found out about them, or nothing can be. :class:`Wait` is for those
    that go on, at most until its time."""
    if not copies_unknown(info, view):
        return None
    data, now = info.data, at.now
    if data.refused is not None and now < data.refused + REOPEN_DELAY:
        return None
    limit, deadline = overdue(info, view, State.DataOut.name, at)
    again = data.listed + LIST_VALID
    stale = now >= again if limit is None else data.listed < (deadline or now)
    # A list from before the Error, or from before the copies were made again, may lack
    # data movements, or show them as they were.
    begun = max(info.troubled_since or 0.0, view.rescued or 0.0)
    if not data.current or stale or data.listed < begun <= now:
        return ListMovements()
    if data.going and limit is None:
        return Wait(again if deadline is None else min(again, deadline))
    return None if data.noted else NoteCopies()
