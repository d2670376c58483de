# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is known of a job's data movement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from flux_k8s.slots import slotted


@slotted
@dataclass
class DataProgress:
    """What is known of a job's data movement, by :mod:`flux_k8s.jobs.copies`.

    Attributes:
        moved: the UNIX time at which data was last seen to have moved. The time for
            which Kubernetes was out of reach since then is added to it. None before.
        listed: the UNIX time at which the data movements were last listed; 0 before.
        digest: of what they had achieved then; None before.
        refused: the UNIX time at which Kubernetes refused the list; None if it did not.
        going: the names of the data movements of copies out that had not ended then,
            without those that the watch has shown to have ended since.
    """

    moved: Optional[float] = None
    listed: float = 0.0
    digest: Optional[int] = None
    refused: Optional[float] = None
    going: set[str] = field(default_factory=set)
