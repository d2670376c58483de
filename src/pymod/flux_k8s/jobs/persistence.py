# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Tells requests that fail by themselves from an outage of Kubernetes: no job's end
waits for ever for one that fails while others are answered, as where a role forbids it
or a webhook is broken."""

from __future__ import annotations

from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import WORKFLOW, KubeError

PERSISTENCE = 120.0
"""Seconds for which a request that fails is repeated while Kubernetes answers others.
An outage does not count."""


async def has_persisted(
    calls: KubeCalls, namespace: str, info: WorkflowInfo, now: float
) -> bool:
    """Whether requests of the step that a job is in have failed for :data:`PERSISTENCE`
    seconds while Kubernetes answers others. Call this after each failure. The job's
    Workflow is requested to tell that from an outage."""
    try:
        await calls.get(WORKFLOW, namespace, info.name, key=info.name)
    except KubeError:
        info.failing_since = None
        return False
    if info.failing_since is None:
        info.failing_since = now
    return now >= info.failing_since + PERSISTENCE
