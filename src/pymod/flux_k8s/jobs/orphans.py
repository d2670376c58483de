# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows in our naming scheme that no job claims.

Either the plugin has not told of the job yet, or the job has ended while the module
was away: then nobody but the module tears the Workflow down.
"""

from __future__ import annotations

import json
from typing import Callable, Optional

from flux_k8s.dws.workflowview import FINALIZER, WLM_ID, WorkflowView
from flux_k8s.jobs.jobexception import EPILOG_TIMEOUT, FATAL
from flux_k8s.ports import Json
from flux_k8s.rfc.jobid import f58


def given_up(eventlog: str, owner: int) -> bool:
    """Whether a job's epilog was given up, as its eventlog (RFC 18) says. The eventlog
    says so even if neither the plugin nor the module was there.

    Args:
        owner: the user ID of the instance owner: an exception of a guest does not
            count.
    """
    # Not splitlines(): that would split at separators that JSON allows in strings.
    for line in eventlog.split("\n"):
        if EPILOG_TIMEOUT not in line:
            continue
        try:
            event = json.loads(line)
            context = event["context"]
            found = event["name"], context["type"], context["severity"]
            by = context.get("userid", owner)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if found == ("exception", EPILOG_TIMEOUT, FATAL) and by in (owner, 0):
            return True
    return False


class Orphans:
    """The Workflows of no known job, by job ID.

    Args:
        check_ended: finds out whether the job of an orphan has ended. It is called
            once all Workflows and all jobs are known.
    """

    def __init__(self, check_ended: Callable[[int], None]) -> None:
        self._check_ended = check_ended
        self._found: dict[int, tuple[WorkflowView, Json]] = {}
        self._complete = False

    def see(self, jobid: int, view: Optional[WorkflowView], workflow: Json) -> None:
        """Add a Workflow of no known job, or (``view`` is None) drop it. A Workflow
        that another workload manager has made is ignored."""
        if view is None:
            self._found.pop(jobid, None)
        elif view.wlm == WLM_ID and view.jobid == f58(jobid):
            known = jobid in self._found or leaves(view)
            self._found[jobid] = view, workflow
            if self._complete and not known:
                self._check_ended(jobid)

    def claim(self, jobid: int) -> Optional[tuple[WorkflowView, Json]]:
        """Remove the Workflow of a job that has become known, and return it."""
        return self._found.pop(jobid, None)

    def check(self) -> None:
        """All Workflows and all jobs are known (again): check the job of each."""
        self._complete = True
        for jobid, (view, _) in list(self._found.items()):
            if not leaves(view):
                self._check_ended(jobid)

    def view(self, jobid: int) -> Optional[WorkflowView]:
        """The Workflow of a job that is not known; None if there is none."""
        found = self._found.get(jobid)
        return None if found is None else found[0]

    def stuck(self, jobid: int) -> bool:
        """Whether there is a Workflow of this job that does not go by itself."""
        found = self._found.get(jobid)
        return found is not None and not leaves(found[0])


def leaves(view: WorkflowView) -> bool:
    """Whether a Workflow is being deleted, and no finalizer of ours holds it. A job of
    the same ID that becomes known has to wait until it is gone all the same."""
    return view.deleting and FINALIZER not in view.finalizers
