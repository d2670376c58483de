# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The logs of containers: the ``log`` subresource of pods."""

from __future__ import annotations

from typing import Optional

from flux_k8s.ports import POD
from rabbitsim.kube.errors import bad_request
from rabbitsim.kube.store import Store


def read_log(
    store: Store,
    namespace: str,
    pod: str,
    container: str = "",
    lines: Optional[int] = None,
) -> str:
    """The log of a container, which need not be named when there is one only;
    the last ``lines`` of it.

    Raises:
        ApiError: 404 for an unknown pod; 400 for a container that is not named,
            not known, or has not started (has no entry in ``store.pod_logs``).
    """
    spec = store.get(POD, namespace, pod).get("spec") or {}
    names = [entry["name"] for entry in spec.get("containers") or ()]
    if not container and len(names) != 1:
        raise bad_request(
            f"a container name must be specified for pod {pod}, choose one of: "
            f"[{' '.join(names)}]"
        )
    container = container or names[0]
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {pod}")
    text = store.pod_logs.get((namespace, pod, container))
    if text is None:
        raise bad_request(
            f'container "{container}" in pod "{pod}" is waiting to start: '
            "ContainerCreating"
        )
    if lines is None:
        return text
    tail = text.splitlines(keepends=True)
    return "".join(tail[max(len(tail) - lines, 0) :])
