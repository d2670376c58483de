# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Why a node is drained that could not mount or unmount a job's storage.

The job and the reason are the text of the drain in Flux. Nothing else keeps it: the
next module reads there which nodes this one has drained, and what for.
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
"""By the state in which the node failed."""

NOT_UNMOUNTED = "Rabbit storage could not be unmounted"
IN_USE = "storage still in use at epilog-timeout"
UNKNOWN = "storage may still be in use at epilog-timeout"
"""At an abort: Kubernetes said that the node had not unmounted, or did not say
whether it had."""

_CANNOT_MOUNT = (NOT_SERVED[State.PreRun], NOT_UNMOUNTED, IN_USE, UNKNOWN)
_REASON = re.compile(
    "f[1-9A-HJ-NP-Za-km-z]+: (?:" + "|".join(map(re.escape, _CANNOT_MOUNT)) + ")"
)


def drain_reason(jobid: int, reason: str) -> str:
    """The text of a drain."""
    return f"{f58(jobid)}: {reason}"


def cannot_mount(text: str) -> bool:
    """Whether a node that is drained with this text could not mount or unmount."""
    return _REASON.match(text) is not None


def unknown_of(text: str) -> Optional[int]:
    """The job of a node that was drained because it was not known whether it still
    mounts that job's storage; None for any other text."""
    job, _, reason = text.partition(": ")
    try:
        return decode(job) if reason == UNKNOWN else None
    except ValueError:
        return None
