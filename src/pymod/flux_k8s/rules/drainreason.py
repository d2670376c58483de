# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons for which the service drains a node: it lost its PCIe connection, or it
cannot mount or unmount storage.

The latter have the job's ID and a text of this module. The reason of the drain in Flux
is the only record: a service that is started later learns from it which nodes an
earlier one has drained, and why. If somebody else has drained a node before that has
storage mounted, the text stands behind their reason, and they undrain the node.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, Optional

from flux_k8s.formats.jobid import decode, f58
from flux_k8s.objects.workflowstate import State

LOST_CONNECTION = "dws: PCIe connection to Rabbit "
"""The beginning of the reason for nodes that are undrained when their connection is
back."""

NOT_SERVED: Mapping[State, str] = {
    State.Setup: "Rabbit storage of this node could not be made",
    State.PreRun: "Rabbit storage could not be mounted",
}
"""The reason, by the state in which the node failed."""

NOT_UNMOUNTED = "Rabbit storage could not be unmounted"
IN_USE = "storage still in use at epilog-timeout"
UNKNOWN = "storage may still be in use at epilog-timeout"
"""Reasons for a drain at an abort: Kubernetes shows that the node has not unmounted,
or does not answer."""

_MOUNTED = (NOT_UNMOUNTED, IN_USE, UNKNOWN)


def _pattern(reasons: Iterable[str]) -> re.Pattern[str]:
    texts = "|".join(map(re.escape, reasons))
    return re.compile(f"(?:^|; )f[1-9A-HJ-NP-Za-km-z]+: (?:{texts})")


_IS_MOUNTED = _pattern(_MOUNTED)
_CANNOT_MOUNT = _pattern((NOT_SERVED[State.PreRun], *_MOUNTED))


def drain_reason(jobid: int, reason: str) -> str:
    """The reason of a drain: the job's ID in F58, and a text of this module."""
    return f"{f58(jobid)}: {reason}"


def cannot_mount(text: str) -> bool:
    """Whether ``text`` is the reason of a drain because a node could not mount or
    unmount storage."""
    return _CANNOT_MOUNT.search(text) is not None


def is_mounted(text: str) -> bool:
    """Whether ``text`` is the reason of a drain because a node has storage mounted, or
    may have."""
    return _IS_MOUNTED.search(text) is not None


def replacement(known: str, reason: str) -> Optional[str]:
    """The text that takes the place of the reason for which a node is drained already
    (``known``), when it is to be drained for another one; None if that stays. A node
    that is still mounted must not be undrained when its connection is back, and DWS
    must not wait for it, whoever has drained it."""
    if not (known and is_mounted(reason)) or cannot_mount(known):
        return None
    return reason if known.startswith(LOST_CONNECTION) else f"{known}; {reason}"


def unknown_of(text: str) -> Optional[int]:
    """The job whose abort drained a node for the reason :data:`UNKNOWN`; None if
    ``text`` is another reason of a drain."""
    job, _, reason = text.partition(": ")
    try:
        return decode(job) if reason == UNKNOWN else None
    except ValueError:
        return None
