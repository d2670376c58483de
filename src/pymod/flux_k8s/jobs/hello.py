# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the module and the plugin tell each other about themselves (DESIGN
section 3).

Either may be loaded first, and may go away and come back at any time:

``job-manager.dws.hello``
    From the module when it starts, and when it gets ``dws.hello``. Answered by the
    jobs that the plugin holds, a portion of them, and a ``cursor`` if there are
    more: the module asks for these with ``{"cursor": N}``. After each portion the
    plugin repeats what it waits for, for the jobs in it.
    Until the plugin has read the eventlogs of its jobs, it answers EAGAIN.
``dws.hello``
    From the plugin when it was loaded, and has read these.
"""

from __future__ import annotations

import enum
import errno
import syslog
from dataclasses import dataclass
from functools import partial
from typing import AbstractSet, Any, Callable, Optional, Union

from flux_k8s.errors import BadObject
from flux_k8s.jobs.workflowinfo import Goal
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Flux, Json, RpcError, Timer

FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
"""Seconds until the plugin is asked again after a failure: doubled each time."""


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
    it may run; ``waits``: a memo of ours says what it waits for."""

    jobid: int
    phase: Phase
    ran: bool
    teardown: bool = False
    told: bool = False
    failure_tolerance: int = 0
    waits: bool = False


def held_job(entry: Any) -> HeldJob:
    """A job as the plugin tells it.

    Raises:
        BadObject: it is malformed.
    """
    job = Reader("job-manager.dws.hello", entry)
    return HeldJob(
        job.integer("id", minimum=0),
        Phase(job.string("phase", choices=[phase.value for phase in Phase])),
        job.optional_boolean("run_started") or False,
        job.optional_boolean("teardown") or False,
        job.optional_boolean("told") or False,
        job.optional_integer("failure_tolerance", minimum=0) or 0,
        job.optional_boolean("waits") or False,
    )


class Greeter:
    """Asks the plugin for its jobs.

    Args:
        learn: is called for each job.
        complete: is called with the IDs of all jobs in the end.
        refused: is called when the plugin is not there, or not ready to answer.

    Attributes:
        asking: the plugin is about to tell which jobs it holds.
    """

    def __init__(
        self,
        flux: Flux,
        learn: Callable[[HeldJob], None],
        complete: Callable[[AbstractSet[int]], None],
        refused: Callable[[], None],
    ) -> None:
        self.asking = False
        self._flux = flux
        self._learn = learn
        self._complete = complete
        self._refused = refused
        self._round = 0
        self._timer: Optional[Timer] = None
        self._delay = FIRST_DELAY
        self._failure: Optional[str] = None

    def greet(self) -> None:
        """Ask from the beginning. What was asked before does not count any more."""
        self.stop()
        self._ask({}, set())

    def stop(self) -> None:
        """No job is learnt any more."""
        self._round += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self, payload: Json, held: set[int]) -> None:
        self.asking = True
        answered = partial(self._answered, self._round, held)
        self._flux.rpc("job-manager.dws.hello", payload, answered)

    def _answered(
        self, round: int, held: set[int], result: Union[Json, RpcError]
    ) -> None:
        if round != self._round:
            return
        self.asking = False
        if isinstance(result, RpcError):
            self._try_again(result)
            self._refused()
            return
        try:
            reader = Reader("job-manager.dws.hello", result)
            jobs = reader.list("jobs")
            cursor = reader.optional_integer("cursor", minimum=0)
        except BadObject as error:
            self._failed(str(error))
            self._refused()
            return
        for entry in jobs:
            self._take(entry, held)
        if cursor is None:
            self._delay, self._failure = FIRST_DELAY, None
            self._complete(held)
        else:
            self._ask({"cursor": cursor}, held)

    def _take(self, entry: Any, held: set[int]) -> None:
        """One job that cannot be understood does not keep the others waiting."""
        try:
            job = held_job(entry)
        except BadObject as error:
            self._flux.log(syslog.LOG_ERR, str(error))
            return
        held.add(job.jobid)
        self._learn(job)

    def _try_again(self, error: RpcError) -> None:
        if error.errnum == errno.ENOSYS:
            text = "dws-jobtap.so is not loaded: new jobs with #DW directives fail"
            self._flux.log(syslog.LOG_WARNING, text)
            return  # the plugin says hello when it is loaded
        if error.errnum == errno.EAGAIN:  # it will say hello when it is ready
            self._again()
            return
        self._failed(f"job-manager.dws.hello: {error}")

    def _failed(self, text: str) -> None:
        """Log what is wrong, once, and ask again later."""
        if text != self._failure:
            self._failure = text
            self._flux.log(syslog.LOG_ERR, f"{text}; trying again")
        self._again()

    def _again(self) -> None:
        self._timer = self._flux.call_later(self._delay, self.greet)
        self._delay = min(2 * self._delay, LONGEST_DELAY)
