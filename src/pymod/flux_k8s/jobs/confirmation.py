# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers of Kubernetes that would cost a job its life count only once they have been
the same for a while: a proxy may answer anything. Until then they are malformed, and
the request is repeated. What the watch shows counts at once.
"""

from __future__ import annotations

from typing import Sequence

from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import Json, KubeError

CONFIRMATION = 30.0
"""Seconds after which an answer that is unlikely counts, if it is still given."""


def check_workflow(info: WorkflowInfo, view: WorkflowView, now: float) -> None:
    """Refuse another Workflow than the known one, or one of another job.

    Raises:
        KubeError: it is one, and that is not confirmed yet.
    """
    known = info.view
    other = not info.owns(view) if known is None else view.uid != known.uid
    _confirm(info, f"the answer is another Workflow {info.name}", other, now)


def check_mounts(info: WorkflowInfo, clientmounts: Sequence[Json], now: float) -> None:
    """Refuse a list of no ClientMounts where DWS has mounted storage.

    Raises:
        KubeError: it is one, and that is not confirmed yet.
    """
    view = info.view
    mounted = view is not None and view.complete and view.mounts > 0
    lacking = mounted and not clientmounts
    _confirm(info, f"the answer lacks the ClientMounts of {info.name}", lacking, now)


def _confirm(info: WorkflowInfo, what: str, unlikely: bool, now: float) -> None:
    if not unlikely:
        info.unlikely.pop(what, None)
    elif abs(now - info.unlikely.setdefault(what, now)) < CONFIRMATION:
        raise KubeError(0, "BadResponse", what)
