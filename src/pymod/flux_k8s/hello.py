# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The plugin's answer to ``job-manager.dws.hello`` (DESIGN section 3)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from flux_k8s.fields import Reader
from flux_k8s.workflow import Goal


class Phase(enum.Enum):
    """Where a job is, in the plugin's words."""

    DEPEND = "depend"
    SCHED = "sched"
    PROLOG = "prolog"
    RUNNING = "running"
    EPILOG = "epilog"

    @property
    def goal(self) -> Goal:
        """What Flux wants for a job in this phase."""
        return _GOALS[self]


_GOALS = {
    Phase.DEPEND: Goal.PLANNED,
    Phase.SCHED: Goal.PLANNED,
    Phase.PROLOG: Goal.READY,
    Phase.RUNNING: Goal.READY,
    Phase.EPILOG: Goal.RELEASED,
}


@dataclass(frozen=True)
class HeldJob:
    """A job that the plugin holds. ``ran``: its tasks were started."""

    jobid: int
    phase: Phase
    ran: bool


def read_hello(payload: Any) -> tuple[HeldJob, ...]:
    """The jobs that the plugin holds."""
    reader = Reader("job-manager.dws.hello", payload)
    phases = [phase.value for phase in Phase]
    return tuple(
        HeldJob(
            job.integer("id", minimum=0),
            Phase(job.string("phase", choices=phases)),
            job.optional_boolean("run_started") or False,
        )
        for job in reader.objects("jobs")
    )
