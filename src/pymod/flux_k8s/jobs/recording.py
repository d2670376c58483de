# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which records of a job are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from flux_k8s.objects.workflowstate import State
from flux_k8s.slots import slotted

DATA_MOVEMENTS = "data movements"
CONTAINER_LOGS = "container logs"
BEFORE_TEARDOWN = frozenset({DATA_MOVEMENTS, CONTAINER_LOGS})
"""The records of objects that Teardown deletes."""


@slotted
@dataclass
class Recording:
    """The records of a job that are written; :mod:`flux_k8s.jobs.records` writes this.

    Attributes:
        timed_states: the states whose durations were recorded.
        durations: the seconds of those states that this module has recorded.
        rabbits: this module has recorded where the job has storage.
        end: Teardown was seen, and what is due then was recorded: the Workflow, if it
            was not complete.
        done: those of :data:`BEFORE_TEARDOWN` that were written, or given up.
        failures: the number of failures in writing the next of them.
        since: the UNIX time since which the next of them is read while Kubernetes
            answers; None before.
    """

    timed_states: frozenset[State] = frozenset()
    durations: dict[State, float] = field(default_factory=dict)
    rabbits: bool = False
    end: bool = False
    done: frozenset[str] = frozenset()
    failures: int = 0
    since: Optional[float] = None

    @property
    def allows_teardown(self) -> bool:
        """Whether all of :data:`BEFORE_TEARDOWN` were written, or given up."""
        return self.done >= BEFORE_TEARDOWN
