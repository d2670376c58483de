# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rabbits that the instance owner has taken out of service for jobs.

An annotation of the Rabbit's Storage says who did that, when, and why. It outlives the
module and the instance, and DWS does not read it: DWS still serves the jobs that have
storage there. (``spec.state: Disabled`` of a Storage is for DWS.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.formats import hostlist
from flux_k8s.json_reader import is_number
from flux_k8s.ports import STORAGE, Kube, KubeError
from flux_k8s.text import SHOWN, printable

ANNOTATION = "flux-framework.readthedocs.io/out-of-service"
"""A JSON object with ``by``, ``at`` (UNIX time) and ``reason``."""


@dataclass(frozen=True)
class Disabled:
    """A Rabbit was taken out of service.

    Attributes:
        by: who did it.
        at: when (UNIX time).
    """

    by: str
    at: float
    reason: str

    def __str__(self) -> str:
        return f"disabled by {self.by}" + (f": {self.reason}" if self.reason else "")


def read_note(text: Any) -> Optional[Disabled]:
    """Read the annotation; None without one. One that is malformed counts: somebody
    meant to take the Rabbit out of service."""
    if not isinstance(text, str) or not text:
        return None
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        note = None
    if not isinstance(note, dict):
        note = {"reason": text}
    at: Any = note.get("at")
    return Disabled(
        printable(str(note.get("by", "unknown")), SHOWN),
        float(at) if is_number(at) else 0.0,
        printable(str(note.get("reason", "")), SHOWN),
    )


async def annotate(
    kube: Kube, namespace: str, names: Sequence[str], note: Optional[Disabled]
) -> None:
    """Write the annotation to the Storages of Rabbits, or (None) remove it, one after
    the other: jobs do not wait behind many. Where Kubernetes does not answer, the rest
    is not tried.

    Raises:
        KubeError: at least one of them could not be changed. It names these.
    """
    text = None
    if note is not None:
        text = json.dumps({"by": note.by, "at": note.at, "reason": note.reason})
    patch = {"metadata": {"annotations": {ANNOTATION: text}}}
    calls = KubeCalls(kube)
    failed: list[str] = []
    first: Optional[KubeError] = None
    for number, name in enumerate(names):
        try:
            await calls.patch(STORAGE, namespace, name, patch, key=f"storage-{name}")
        except KubeError as error:
            failed.append(name)
            first = first or error
            if not error.status:  # a request without an answer may be carried out yet
                left = hostlist.encode([*failed, *names[number + 1 :]])
                text = f"{first}; not known to be done for {left}"
                raise KubeError(first.status, first.reason, text) from None
    if first is not None:
        text = f"{first}; not done for {hostlist.encode(failed)}"
        raise KubeError(first.status, first.reason, text)
