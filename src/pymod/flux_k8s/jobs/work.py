# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the supervisor and the service have to agree on: the methods that requests are
for, and the work that they ask for. The supervisor imports nothing else of
:mod:`flux_k8s.jobs`."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

QUERIES = frozenset({"job-list", "job-show", "rabbit-list", "rescue", "rules"})
"""Methods that guests may call. :mod:`flux_k8s.jobs.queries` checks the user of each
message."""

OWNER_QUERIES = frozenset({"metrics", "rabbit-disable", "rabbit-enable"})
"""Further methods of the commands, for the instance owner."""

DISCONNECT = "disconnect"
"""The method by which Flux says that the sender of requests has gone (RFC 6)."""


class Work(NamedTuple):
    """Work for a job: the service provides its storage, or (``releasing``) releases
    it."""

    jobid: int
    releasing: bool


NoteWork = Callable[[Optional[Work]], None]
"""Notes the current work; None while the service works for no job."""
