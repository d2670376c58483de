# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The reasons for which the service drains a node that cannot mount or unmount storage.

The reason of the drain in Flux has the job's ID and a text of this module. It is the
only record: a service that is started later learns from it which nodes an earlier one
has drained, and why.
"""

from __future__ import annotations

import re
from typing import Mapping, Optional

from flux_k8s.dws.workflowview import State
from flux_k8s.rfc.jobid import decode, f58

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

_CANNOT_MOUNT = (NOT_SERVED[State.PreRun], NOT_UNMOUNTED, IN_USE, UNKNOWN)
_REASON = re.compile(
    "f[1-9A-HJ-NP-Za-km-z]+: (?:" + "|".join(map(re.escape, _CANNOT_MOUNT)) + ")"
)


def drain_reason(jobid: int, reason: str) -> str:
    """The reason of a drain: the job's ID in F58, and a text of this module."""
    return f"{f58(jobid)}: {reason}"


def cannot_mount(text: str) -> bool:
    """Whether ``text`` is the reason of a drain because a node could not mount or
    unmount storage."""
    return _REASON.match(text) is not None


def unknown_of(text: str) -> Optional[int]:
    """The job whose abort drained a node for the reason :data:`UNKNOWN`; None if
    ``text`` is another reason of a drain."""
    job, _, reason = text.partition(": ")
    try:
        return decode(job) if reason == UNKNOWN else None
    except ValueError:
        return None
