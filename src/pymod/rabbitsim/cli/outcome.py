# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The end of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional

from flux_k8s.ports import Json


@dataclass(frozen=True)
class Outcome:
    """The end of a job.

    Attributes:
        status: the exit status of ``flux job attach``.
        events: the eventlog (RFC 18).
        workflows: how many Workflows are left in Kubernetes; None when the job
            was never submitted.
        id: the job's ID in F58, in ASCII; None when the job was never submitted.
        kvs: what its KVS directory has of what makes a job object, as text. Empty
            when that is not wanted.
    """

    status: int
    events: list[Json]
    workflows: Optional[int]
    id: Optional[str] = None
    kvs: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the job's storage."""
        for event in self.events:
            if event["name"] == "dws_environment":
                variables: dict[str, str] = event["context"]["variables"]
                return variables
        return {}
