# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is known of a job's data movement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, Optional

from flux_k8s.slots import slotted


@slotted
@dataclass
class DataProgress:
    """What is known of a job's data movement, by :mod:`flux_k8s.jobs.stalls`.

    Attributes:
        moved: the UNIX time at which data was last seen to have moved. The time for
            which Kubernetes was out of reach since then is added to it. None before.
        listed: the UNIX time at which the data movements were last listed; 0 before.
        digest: of what they had achieved then; None before.
        refused: the UNIX time at which Kubernetes refused the list; None if it did not.
        current: the list still tells what became of each copy out. False before there
            was one, and when the last of those that went on then has ended.
        going: the names of the data movements of copies out that had not ended then,
            without those that the watch has shown to have ended since.
        copied: by the number of the directive, whether all data movements of a copy_out
            of which none was going have succeeded.
        noted: ``copied`` was written to the Workflow, by
            :mod:`flux_k8s.jobs.steps`. Another program may have removed it at once.
    """

    moved: Optional[float] = None
    listed: float = 0.0
    digest: Optional[int] = None
    refused: Optional[float] = None
    current: bool = False
    going: set[str] = field(default_factory=set)
    copied: dict[int, bool] = field(default_factory=dict)
    noted: bool = False

    def see_ended(self, ended: AbstractSet[str]) -> None:
        """Some data movements have ended, in whatever way."""
        if self.going and self.going <= ended:
            self.current = False
        self.going -= ended
