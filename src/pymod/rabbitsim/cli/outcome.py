# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How a job ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        status: what ``flux job attach`` would exit with.
        events: the eventlog (RFC 18).
        workflows: how many Workflows are left in Kubernetes; None when the job
            was never submitted.
    """

    status: int
    events: list[Json]
    workflows: Optional[int]

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the job's storage."""
        for event in self.events:
            if event["name"] == "dws_environment":
                variables: dict[str, str] = event["context"]["variables"]
                return variables
        return {}
