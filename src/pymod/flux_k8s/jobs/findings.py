# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What steps have found out about a job, and what they have done beside it. Another
service finds it out anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from flux_k8s.objects.workflowstate import State
from flux_k8s.slots import slotted


@slotted
@dataclass
class Recording:
    """The records of a job that are written; :mod:`flux_k8s.jobs.records` writes this.

    Attributes:
        durations: the seconds of the states that this module has recorded.
        rabbits: this module has recorded where the job has storage.
        end: Teardown was seen, and what is due then was recorded: the Workflow, if it
            was not complete.
        done: the records of objects that Teardown deletes which were written, or given
            up.
    """

    durations: dict[State, float] = field(default_factory=dict)
    rabbits: bool = False
    end: bool = False
    done: frozenset[str] = frozenset()


@slotted
@dataclass
class DataProgress:
    """What is known of a job's data movement, by :mod:`flux_k8s.jobs.copies`.

    Attributes:
        moved: the UNIX time at which data was last seen to have moved; None before.
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


@slotted
@dataclass
class Mounts:
    """What is known of the nodes that have a job's storage mounted at its end, by
    :mod:`flux_k8s.jobs.inuse` and :mod:`flux_k8s.jobs.keeping`.

    Attributes:
        found_at: the UNIX time at which they were looked for; None before, and when
            they are to be looked for anew.
        left: the nodes that had not unmounted then. They are drained.
        writers: those of them that could write to storage that is kept for them.
        late: the nodes that DWS has told to unmount, of storage that is kept, and that
            have not; since when this service knows that (UNIX time).
    """

    found_at: Optional[float] = None
    left: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    late: dict[str, float] = field(default_factory=dict)

    @property
    def none_writes(self) -> bool:
        """Whether it is known that no node could write."""
        return self.found_at is not None and not self.writers


class Refusal(NamedTuple):
    """An error of Kubernetes to the last attempt to request a state.

    Attributes:
        at: the UNIX time of that attempt.
    """

    at: float
    error: str
