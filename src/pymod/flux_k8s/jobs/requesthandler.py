# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Answers the ``dws.*`` requests at once, in an outage of Kubernetes, too.

A request about a job changes the goal of Flux for the job, and has the job reconciled.
The result goes to the plugin later, by ``job-manager.dws.*``.
"""

from __future__ import annotations

import errno
import syslog
from functools import partial
from typing import Any, Callable, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.config.policy import check_request
from flux_k8s.dws.storagerequest import AHEAD
from flux_k8s.errors import BadObject, DWSError
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.isolation import Barred, JobScope, describe, summary
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.requests import (
    LargeSetup,
    log_prefix,
    read_create,
    read_jobid,
    read_post_run,
    work_of,
)
from flux_k8s.jobs.setuppayload import read_setup
from flux_k8s.jobs.setupreader import Result, SetupReader
from flux_k8s.jobs.work import Work
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.rfc.rset import Summary, UnreadableR

Respond = Callable[[int, str, Optional[Json]], None]
"""Answers an RPC: errno (0 for success), the error's text, the payload."""

SUCCESS: Json = {"success": True}


class RequestHandler:
    """Handles the requests of the plugin."""

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        scope: JobScope,
        in_use: InUse,
        relist_jobs: Callable[[], None],
        ask_for_report: Callable[[int], None],
        setup_reader: Optional[SetupReader] = None,
    ) -> None:
        """
        Args:
            relist_jobs: lists the jobs of the plugin again.
            ask_for_report: requests the report on what became of the data of a job.
            setup_reader: reads R where requests may be
                :class:`~flux_k8s.jobs.requests.LargeSetup`.
        """
        self._flux = context.flux
        self._settings = context.settings
        self._jobs = jobs
        self._scope = scope
        self._in_use = in_use
        self._relist_jobs = relist_jobs
        self._ask_for_report = ask_for_report
        self._setup_reader = setup_reader
        self._methods: Mapping[str, Callable[[Any], Json]] = {
            "create": self._create,
            "setup": self._setup,
            "post_run": self._post_run,
            "teardown": self._teardown,
            "abort": self._abort,
            "report_data": self._report_data,
            "hello": self._hello,
        }

    def handle(self, method: str, payload: Any, respond: Respond) -> None:
        """Handle ``dws.<method>``."""
        handler = self._methods.get(method)
        if handler is None:
            respond(errno.ENOSYS, f"dws.{method}: no such method", None)
            return
        work = work_of(method, payload)
        with self._scope.doing(work):
            if work is not None and self._jobs.bars(work):
                self._answer(method, payload, partial(_refuse, work), respond)
            elif isinstance(payload, LargeSetup):
                self._read_setup(payload, respond)
            else:
                self._answer(method, payload, partial(handler, payload), respond)

    def _answer(
        self, method: str, payload: Any, act: Callable[[], Json], respond: Respond
    ) -> None:
        """Respond with the result of ``act``, or with its error."""
        try:
            respond(0, "", act())
        except (BadObject, UnreadableR) as error:
            # A guest writes the contents of dws.create: an error there is the guest's.
            level = syslog.LOG_INFO if method == "create" else syslog.LOG_ERR
            self._flux.log(level, f"{log_prefix(payload)}{error}", error.reason)
            respond(errno.EPROTO, str(error), None)
        except DWSError as error:
            text, reason = f"{log_prefix(payload)}refused: {error}", error.reason
            self._flux.log(syslog.LOG_INFO, text, reason)
            answer = {"success": False, "errstr": str(error), "reason": reason.value}
            respond(0, "", answer)
        except Exception as error:
            text = f"internal error in dws.{method}"
            line = f"{log_prefix(payload)}{text}: {describe(error)}"
            self._flux.log(syslog.LOG_CRIT, line, Reason.SERVICE_FAULT)
            respond(errno.EINVAL, f"{text}, the log has more: {summary(error)}", None)

    def _create(self, payload: Any) -> Json:
        config = self._settings.config
        jobid, request, tolerance = read_create(payload, config)
        check_request(request, config, self._settings.owner)
        if request.stage == AHEAD and not self._settings.scheduler:
            raise DWSError(f"dw_stage={AHEAD} needs a scheduler that knows Rabbits")
        job = self._jobs.obtain(jobid, Goal.PLANNED)
        job.info.want_planned(request, tolerance)
        self._jobs.asked(job)
        return SUCCESS

    def _setup(self, payload: Any) -> Json:
        return self._set_up(*read_setup(payload))

    def _read_setup(self, setup: LargeSetup, respond: Respond) -> None:
        """Have R read. Its job is known from now on: when it ends meanwhile, R
        comes too late."""
        jobid = setup.jobid
        self._jobs.obtain(jobid, Goal.READY)

        def act(result: Result) -> Json:
            if isinstance(result, UnreadableR):
                raise result
            return self._set_up(jobid, result) if jobid in self._jobs else SUCCESS

        def done(result: Result) -> None:
            if not self._jobs.stopped:
                self._answer("setup", setup, partial(act, result), respond)

        assert self._setup_reader is not None
        self._setup_reader.read(setup.text, self._scope.bind(done))

    def _set_up(self, jobid: int, allocation: Summary) -> Json:
        """The job has nodes. Those of Rabbits mount no storage, so they are none of
        the job's for the service."""
        rabbits = self._settings.mapping.rabbits_among(allocation.hosts)
        job = self._jobs.obtain(jobid, Goal.READY)
        job.info.note_prolog(self._flux.now())
        job.info.want_ready(allocation.without(rabbits) if rabbits else allocation)
        self._jobs.asked(job)
        return SUCCESS

    def _post_run(self, payload: Any) -> Json:
        jobid, ran = read_post_run(payload)
        self._release(jobid, ran=ran)
        return SUCCESS

    def _teardown(self, payload: Any) -> Json:
        self._release(read_jobid(payload, "dws.teardown"), abandoned=True)
        return SUCCESS

    def _abort(self, payload: Any) -> Json:
        jobid = read_jobid(payload, "dws.abort")
        info = self._release(jobid, abandoned=True, aborted=True)
        self._in_use.drain_after_silence(info)
        return SUCCESS

    def _report_data(self, payload: Any) -> Json:
        self._ask_for_report(read_jobid(payload, "dws.report_data"))
        return SUCCESS

    def _release(self, jobid: int, **how: bool) -> WorkflowInfo:
        """Release the storage of a job: see :meth:`WorkflowInfo.want_released`."""
        job = self._jobs.obtain(jobid, Goal.RELEASED)
        job.info.want_released(**how)
        self._jobs.asked(job)
        return job.info

    def _hello(self, payload: Any) -> Json:
        self._relist_jobs()
        return SUCCESS


def _refuse(work: Work) -> Json:
    raise Barred(work)
