# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows in our naming scheme that no job claims.

Either their job has not been heard of yet, or it has ended without us: then nobody
else will tear them down.
"""

from __future__ import annotations

import json
from typing import Callable, Optional

from flux_k8s.dws.workflowview import FINALIZER, WLM_ID, WorkflowView
from flux_k8s.jobs.jobexception import EPILOG_TIMEOUT, FATAL
from flux_k8s.ports import Json
from flux_k8s.rfc.jobid import f58


def given_up(eventlog: str, owner: int) -> bool:
    """Whether a job's epilog was given up, as its eventlog (RFC 18) says. That is
    there whoever was away meanwhile."""
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


class Strays:
    """The Workflows that were seen and belong to no job that is known.

    Args:
        check_ended: is called with a job that has left a Workflow, as soon as all
            Workflows and all jobs have been told of.
    """

    def __init__(self, check_ended: Callable[[int], None]) -> None:
        self._check_ended = check_ended
        self._found: dict[int, tuple[WorkflowView, Json]] = {}
        self._complete = False

    def see(self, jobid: int, view: Optional[WorkflowView], workflow: Json) -> None:
        """There is a Workflow, or (None) there is none any more. One that is not
        ours is never touched."""
        if view is None:
            self._found.pop(jobid, None)
        elif view.wlm == WLM_ID and view.jobid == f58(jobid):
            known = jobid in self._found or leaves(view)
            self._found[jobid] = view, workflow
            if self._complete and not known:
                self._check_ended(jobid)

    def claim(self, jobid: int) -> Optional[tuple[WorkflowView, Json]]:
        """The Workflow of a job that has turned up, which is none of these any
        more."""
        return self._found.pop(jobid, None)

    def check(self) -> None:
        """All Workflows and all jobs have been told of (again)."""
        self._complete = True
        for jobid, (view, _) in list(self._found.items()):
            if not leaves(view):
                self._check_ended(jobid)

    def view(self, jobid: int) -> Optional[WorkflowView]:
        """The Workflow that a job has left, if there is one."""
        found = self._found.get(jobid)
        return None if found is None else found[0]

    def stuck(self, jobid: int) -> bool:
        """Whether a job has left a Workflow that does not go by itself."""
        found = self._found.get(jobid)
        return found is not None and not leaves(found[0])


def leaves(view: WorkflowView) -> bool:
    """A Workflow is on its way out and needs nothing from us for that. Its job,
    should one turn up, has to wait for its end all the same."""
    return view.deleting and FINALIZER not in view.finalizers
