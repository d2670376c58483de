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
from typing import Any, Iterable, Optional

from flux_k8s.control.coroutines import settle
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


GROUP = 4
"""The most Storages that are written at a time: as many requests as the client makes
at once. Jobs do not wait behind more."""


async def annotate(
    kube: Kube, namespace: str, names: Iterable[str], note: Optional[Disabled]
) -> None:
    """Write the annotation to the Storages of Rabbits, or (None) remove it. Where
    Kubernetes does not answer, the rest is not tried.

    Raises:
        KubeError: at least one of them could not be changed. It names these.
    """
    text = None
    if note is not None:
        text = json.dumps({"by": note.by, "at": note.at, "reason": note.reason})
    patch = {"metadata": {"annotations": {ANNOTATION: text}}}
    calls = KubeCalls(kube)
    rest = list(names)
    failed: dict[str, KubeError] = {}
    while rest and all(error.status for error in failed.values()):
        group, rest = rest[:GROUP], rest[GROUP:]
        answers = await settle(
            calls.patch(STORAGE, namespace, name, patch, key=f"storage-{name}")
            for name in group
        )
        found = zip(group, answers)
        failed.update((name, one) for name, one in found if isinstance(one, KubeError))
    for error in failed.values():
        left = hostlist.encode([*failed, *rest])
        # A request without an answer may still be carried out.
        text = f"{error}; not known to be done for {left}"
        if all(one.status for one in failed.values()):
            text = f"{error}; not done for {left}"
        raise KubeError(error.status, error.reason, text) from None
