# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the module and the plugin tell each other about themselves (DESIGN
section 3).

Either may be loaded first, and may go away and come back at any time:

``job-manager.dws.hello``
    From the module when it starts, and when it gets ``dws.hello``. Answered by the jobs
    that the plugin holds; the plugin then repeats what it waits for.
``dws.hello``
    From the plugin when it was loaded.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from flux_k8s.fields import Reader
from flux_k8s.workflowinfo import Goal


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
    """A job that the plugin holds. ``ran``: its tasks were started; ``teardown``:
    an exception in its epilog asks for Teardown; ``told``: a fatal exception is
    about its storage; ``failure_tolerance``: without the storage of how many nodes
    it may run."""

    jobid: int
    phase: Phase
    ran: bool
    teardown: bool = False
    told: bool = False
    failure_tolerance: int = 0


def read_hello(payload: Any) -> tuple[HeldJob, ...]:
    """The jobs that the plugin holds."""
    reader = Reader("job-manager.dws.hello", payload)
    phases = [phase.value for phase in Phase]
    return tuple(
        HeldJob(
            job.integer("id", minimum=0),
            Phase(job.string("phase", choices=phases)),
            job.optional_boolean("run_started") or False,
            job.optional_boolean("teardown") or False,
            job.optional_boolean("told") or False,
            job.optional_integer("failure_tolerance", minimum=0) or 0,
        )
        for job in reader.objects("jobs")
    )
