# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The hello between the module and the plugin.

Either may be loaded first, and may go away and come back at any time:

``job-manager.dws.hello``
    The module sends it when it starts, and when it gets ``dws.hello``. The plugin
    answers with a portion of the jobs that it holds, and with a ``cursor`` if there are
    more, which the module requests with ``{"cursor": N}``. Both say of which version
    they are. After each portion the plugin sends the unanswered requests for these jobs
    again. Until the plugin has read the eventlogs of its jobs, it answers EAGAIN.
``dws.hello``
    The plugin sends it after it was loaded, when it has read the eventlogs.
"""

from __future__ import annotations

import errno
import syslog
from dataclasses import dataclass
from typing import AbstractSet, Any, Callable, Optional, Sequence, Union

from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import call
from flux_k8s.errors import BadObject
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.workflowinfo import NOT_HERE, Goal, Haste
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Flux, Json, RpcError
from flux_k8s.reasons import Reason
from flux_k8s.text import SHOWN, printable
from flux_k8s.version import PROTOCOL, UNKNOWN, version

TOPIC = "job-manager.dws.hello"


PHASES = {
    "depend": Goal.PLANNED,
    "sched": Goal.PLANNED,
    "prolog": Goal.READY,
    "running": Goal.READY,
    "epilog": Goal.RELEASED,
}
"""The phases of a job, as the plugin names them, and the goal for its storage."""


@dataclass(frozen=True)
class HeldJob:
    """A job that the plugin holds.

    Attributes:
        phase: one of ``PHASES``.
        ran: the tasks of the job were started.
        teardown_requested: an exception in its epilog asks for Teardown.
        failed: the job has a fatal exception about its storage.
        failure_tolerance: the number of nodes without whose storage the job may run.
        memo: the memo of an earlier service, with the reason for which the job waits;
            None without one. Empty if its text is not known: a user has posted it,
            or an older plugin says only whether there is one.
        submitted: when the job was submitted (UNIX time).
        userid: the user of the job.
        prolog_since: when its prolog was started (UNIX time); None if it was not.
            This, ``submitted`` and ``userid`` are None as well if the plugin is an
            older one, which does not say so.
    """

    jobid: int
    phase: str
    ran: bool
    teardown_requested: bool = False
    failed: bool = False
    failure_tolerance: int = 0
    memo: Optional[str] = None
    submitted: Optional[float] = None
    userid: Optional[int] = None
    prolog_since: Optional[float] = None


def held_job(entry: Any) -> HeldJob:
    """Read an entry of the answer to ``job-manager.dws.hello``.

    Raises:
        BadObject: the entry is malformed.
    """
    job = Reader(TOPIC, entry)
    return HeldJob(
        job.integer("id", minimum=0),
        job.string("phase", choices=PHASES),
        job.optional_boolean("run_started") or False,
        job.optional_boolean("teardown") or False,
        job.optional_boolean("told") or False,
        job.optional_integer("failure_tolerance", minimum=0) or 0,
        _memo(job),
        job.optional_number("t_submit", minimum=0),
        job.optional_integer("userid", minimum=0),
        job.optional_number("t_prolog", minimum=0) or None,
    )


def _memo(job: Reader) -> Optional[str]:
    if isinstance(job.value.get("waits"), bool):
        return "" if job.boolean("waits") else None
    return job.optional_text("waits")


class JobLister:
    """Lists the jobs that the plugin holds, and adds them to the table.

    Args:
        complete: is called with the IDs of all jobs after the last one.
    """

    def __init__(
        self,
        flux: Flux,
        jobs: JobTable,
        complete: Callable[[AbstractSet[int]], None],
    ) -> None:
        self._flux = flux
        self._jobs = jobs
        self._complete = complete
        self._version = version()
        self._failure: Optional[str] = None
        self._controller = Controller[str](
            flux,
            self._reconcile,
            self._failed,
            Options[str](expected=(RpcError, BadObject)),
        )

    def relist(self) -> None:
        """Request all jobs. A list that is under way is dropped."""
        self._jobs.awaits_hello = True
        self._jobs.has_no_plugin = False
        self._controller.restart(TOPIC)

    def stop(self) -> None:
        """Call none of the functions any more."""
        self._controller.stop()

    async def _reconcile(self, topic: str) -> None:
        held: set[int] = set()
        cursor: Optional[int] = None
        while True:
            try:
                jobs, cursor = await self._ask(topic, cursor)
            except RpcError as error:
                if error.errnum != errno.ENOSYS:
                    raise
                self._is_absent()
                return
            for entry in jobs:
                self._take(entry, held)
            if cursor is None:
                self._failure = None
                self._jobs.complete = True
                self._handle_unknown()
                self._complete(held)
                return

    async def _ask(
        self, topic: str, cursor: Optional[int]
    ) -> tuple[Sequence[Any], Optional[int]]:
        """The next portion of jobs, and the cursor of the one after it."""
        self._jobs.awaits_hello = True
        payload: Json = {"version": self._version, "protocol": PROTOCOL}
        if cursor is not None:
            payload["cursor"] = cursor
        answer = Reader(topic, await call(self._flux.rpc, topic, payload))
        if cursor is None:
            self._note_versions(answer)
        jobs = answer.list("jobs")
        following = answer.optional_integer("cursor", minimum=0)
        self._jobs.awaits_hello = False
        return jobs, following

    def _note_versions(self, answer: Reader) -> None:
        """Log the versions, and whether those of module and plugin differ."""
        plugin = printable(answer.optional_text("version") or UNKNOWN, SHOWN)
        protocol = answer.optional_integer("protocol", minimum=0) or 0
        self._jobs.plugin_version = plugin
        text = (
            f"dws module {self._version}, dws-jobtap.so {plugin}, protocol {PROTOCOL}"
        )
        self._flux.log(syslog.LOG_INFO, text, Reason.STARTED)
        differ = UNKNOWN not in (plugin, self._version) and plugin != self._version
        if differ or protocol != PROTOCOL:
            text = (
                f"dws-jobtap.so {plugin} (protocol {protocol}) is not of the version of"
                f" the dws module, {self._version} (protocol {PROTOCOL}): load the one"
                " that is older again"
            )
            self._flux.log(syslog.LOG_WARNING, text, Reason.VERSIONS_DIFFER)

    def _is_absent(self) -> None:
        """Wait for ``dws.hello``: the plugin is not loaded."""
        text = "dws-jobtap.so is not loaded: new jobs with #DW directives fail"
        self._flux.log(syslog.LOG_WARNING, text, Reason.PLUGIN_MISSING)
        self._jobs.awaits_hello = False
        self._jobs.has_no_plugin = True
        self._handle_unknown()

    def _take(self, entry: Any, held: set[int]) -> None:
        """Take one job. A malformed entry is logged, and does not delay the others."""
        try:
            job = held_job(entry)
        except BadObject as error:
            self._flux.log(syslog.LOG_ERR, str(error), error.reason)
            return
        held.add(job.jobid)
        self._jobs.scope.run(job.jobid, self._learn, job)

    def _learn(self, held: HeldJob) -> None:
        """Take note of a job that the plugin holds. If the plugin waits for something,
        its request follows."""
        job = self._jobs.get(held.jobid)
        known = job is not None and not job.unknown
        job = self._jobs.obtain(held.jobid, PHASES[held.phase])
        job.unknown = False
        info = job.info
        if job.memo is None:
            job.memo = held.memo
        info.failure_tolerance = held.failure_tolerance
        if held.userid is not None:
            info.userid = held.userid
        if held.failed and not info.failed:
            info.failure = NOT_HERE
        if known:
            return
        planned = held.phase != "depend"
        if not planned and held.submitted is not None:
            # It waits for its Workflow longer than this service knows of it.
            info.learned = min(info.learned or held.submitted, held.submitted)
        if held.prolog_since is not None:
            info.note_prolog(min(held.prolog_since, self._flux.now()))
        if planned:
            info.answered |= {Goal.PLANNED}
        if held.phase == "running":
            info.answered |= {Goal.READY}
        info.doubtful = info.doubtful or (planned and info.view is None)
        info.ran = info.ran or held.ran
        if held.teardown_requested:
            info.haste = max(info.haste, Haste.ABANDON)
        self._jobs.changed(job)

    def _handle_unknown(self) -> None:
        """Reconcile the unknown jobs: the plugin reports no more about them."""
        for job in self._jobs:
            if job.unknown:
                job.unknown = False
                self._jobs.changed(job)

    def _failed(self, topic: str, error: Union[RpcError, BadObject]) -> None:
        """Log an error once. EAGAIN is not logged: the plugin sends ``dws.hello`` when
        it is ready."""
        text = f"{topic}: {error}" if isinstance(error, RpcError) else str(error)
        waits = isinstance(error, RpcError) and error.errnum == errno.EAGAIN
        if not waits and text != self._failure:
            self._failure = text
            text = f"{text}; trying again"
            self._flux.log(syslog.LOG_ERR, text, Reason.FLUX_ERROR)
        self._jobs.awaits_hello = False
        self._handle_unknown()
