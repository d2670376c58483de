# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Tells requests that fail by themselves from an outage of Kubernetes: no job waits for
ever for an answer that does not come while others do, as where a role forbids a request
or a webhook is broken."""

from __future__ import annotations

from typing import Optional

from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import WORKFLOW, KubeError

PERSISTENCE = 120.0
"""Seconds for which a request that fails is repeated while Kubernetes answers others.
An outage does not count."""


async def failing_since(
    calls: KubeCalls,
    namespace: str,
    info: WorkflowInfo,
    since: Optional[float],
    now: float,
) -> Optional[float]:
    """Since when (UNIX time) a request about a job fails while Kubernetes answers
    others; None in an outage. The job's Workflow is requested to find out.

    Args:
        since: the result after the failure before; None after a success.
    """
    try:
        await calls.get(WORKFLOW, namespace, info.name, key=info.name)
    except KubeError:
        return None
    return now if since is None else since
