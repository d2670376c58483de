# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The requests of the plugin to the service, and the
service's requests to the plugin.

A ``dws.*`` request is answered at once, in an outage of Kubernetes, too; only a large R
is read first (:mod:`flux_k8s.jobs.setupreader`). One about a
job changes the goal of Flux for the job, and has the job reconciled. The result goes to
the plugin later, by ``job-manager.dws.*``.
"""

from __future__ import annotations

import errno
import json
import syslog
from functools import partial
from typing import Any, Callable, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.config.policy import check_request
from flux_k8s.config.table import Config
from flux_k8s.control.coroutines import call
from flux_k8s.errors import BadObject, DWSError
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.formats.jobid import f58
from flux_k8s.formats.rset import Summary, UnreadableR
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.isolation import Barred, describe, summary
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.setupreader import LargeSetup, Result, read_large, read_setup
from flux_k8s.jobs.work import Work
from flux_k8s.jobs.workflowinfo import Goal, Haste, WorkflowInfo
from flux_k8s.json_reader import Reader, check_extent
from flux_k8s.objects.storagerequest import (
    AHEAD,
    RELEASES,
    STAGES,
    URGENCY_DEFAULT,
    StorageRequest,
)
from flux_k8s.ports import Flux, Json, Respond, RpcError
from flux_k8s.reasons import Reason

RELEASING = frozenset({"post_run", "teardown", "abort", "report_data"})
"""The methods that ask the service to release storage."""

CURRENT = 2
"""``FLUX_JOB_LOOKUP_CURRENT``: with all updates of the jobspec."""


def read_jobid(payload: Any, name: str) -> int:
    """The job that a request is about."""
    return Reader(name, payload).integer("jobid", minimum=0)


def read_create(payload: Any, config: Config) -> tuple[int, StorageRequest, int]:
    """``dws.create``: the job, its request, with presets replaced by their
    directives, and its failure tolerance.

    Raises:
        BadObject: the payload is malformed.
        DirectiveError: the job's directives are.
    """
    reader = Reader("dws.create", payload)
    jobid = reader.integer("jobid", minimum=0)
    resources = list(reader.list("resources"))
    check_extent(reader.name, "resources", resources)
    urgency = reader.optional_integer("urgency", minimum=0)  # an older plugin has none
    request = StorageRequest(
        userid=reader.integer("userid", minimum=0),
        directives=parse_attribute(
            list(reader.strings("dw_directives")), config.presets
        ),
        resources=resources,
        release=reader.optional_string("release", choices=RELEASES),
        stage=reader.optional_string("stage", choices=STAGES),
        constraints=reader.value.get("constraints"),
        urgency=URGENCY_DEFAULT if urgency is None else urgency,
        depends=reader.optional_boolean("depends") or False,
    )
    return jobid, request, reader.integer("failure_tolerance", minimum=0)


def read_post_run(payload: Any) -> tuple[int, bool]:
    """``dws.post_run``: the job and whether it ran."""
    reader = Reader("dws.post_run", payload)
    return reader.integer("jobid", minimum=0), reader.boolean("run_started")


def jobid_of(payload: Any) -> Optional[int]:
    """The job that a request is about, or seems to be."""
    if isinstance(payload, LargeSetup):
        return payload.jobid
    jobid = payload.get("jobid") if isinstance(payload, dict) else None
    return jobid if isinstance(jobid, int) and 0 <= jobid < 2**64 else None


def work_of(method: str, payload: Any) -> Optional[Work]:
    """The work that a request asks the service for; None without a job ID."""
    jobid = jobid_of(payload)
    return None if jobid is None else Work(jobid, method in RELEASING)


def log_prefix(payload: Any) -> str:
    """The beginning of a line of the log about a request: the job ID, if it has one."""
    jobid = jobid_of(payload)
    return "" if jobid is None else f"{f58(jobid)}: "


async def read_jobspec(context: Context, info: WorkflowInfo) -> StorageRequest:
    """What a job asks Flux for now, with the storage that it was planned with, of which
    the plugin sends no request any more. It is read as the plugin would send it. The
    request of the job is this one, if it was not known.

    Raises:
        RpcError: Flux does not answer.
        DWSError: the directives are refused by now.
    """
    payload: Json = {"id": info.jobid, "keys": ["jobspec"], "flags": CURRENT}
    answer = await call(context.flux.rpc, "job-info.lookup", payload)
    jobspec = json.loads(Reader("job-info.lookup", answer).string("jobspec"))
    system = jobspec.get("attributes", {}).get("system", {})
    dw = system.get("dw")
    payload = {
        "jobid": info.jobid,
        "userid": info.userid,
        "dw_directives": [dw] if isinstance(dw, str) else dw,
        "resources": jobspec.get("resources"),
        "failure_tolerance": info.failure_tolerance,
        "release": system.get("dw_release"),
        "stage": system.get("dw_stage"),
        "constraints": system.get("constraints"),
    }
    _, found, _ = read_create(payload, context.settings.config)
    info.request = info.request or found
    return found


async def request_plugin(flux: Flux, method: str, payload: Json) -> None:
    """Send an RPC to the plugin. ENOENT is no error: the job has ended, and needs no
    request.

    Raises:
        RpcError: it was not answered, or refused.
    """
    try:
        await call(flux.rpc, f"job-manager.dws.{method}", payload)
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise


class RequestHandler:
    """Handles the requests of the plugin."""

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        in_use: InUse,
        relist_jobs: Callable[[], None],
        ask_for_report: Callable[[int], None],
    ) -> None:
        """
        Args:
            relist_jobs: lists the jobs of the plugin again.
            ask_for_report: requests the report on what became of the data of a job.
        """
        self._flux = context.flux
        self._settings = context.settings
        self._jobs = jobs
        self._in_use = in_use
        self._relist_jobs = relist_jobs
        self._ask_for_report = ask_for_report
        self._methods: Mapping[str, Callable[[Any], None]] = {
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
        with self._jobs.scope.doing(work):
            if work is not None and self._jobs.scope.bars(work):
                self._answer(method, payload, partial(_refuse, work), respond)
            elif isinstance(payload, LargeSetup):
                self._read_setup(payload, respond)
            else:
                self._answer(method, payload, partial(handler, payload), respond)

    def _answer(
        self, method: str, payload: Any, act: Callable[[], None], respond: Respond
    ) -> None:
        """Respond with the success of ``act``, or with its error."""
        try:
            act()
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
        else:
            respond(0, "", {"success": True})

    def _create(self, payload: Any) -> None:
        config = self._settings.config
        jobid, request, tolerance = read_create(payload, config)
        check_request(request, config, self._settings.owner)
        if request.stage == AHEAD and not self._settings.scheduler:
            raise DWSError(f"dw_stage={AHEAD} needs a scheduler that knows Rabbits")
        job = self._jobs.obtain(jobid, Goal.PLANNED)
        job.info.want_planned(request, tolerance)
        self._jobs.asked(job)

    def _setup(self, payload: Any) -> None:
        self._set_up(*read_setup(payload))

    def _read_setup(self, setup: LargeSetup, respond: Respond) -> None:
        """Have R read. Its job is known from now on: when it ends meanwhile, R
        comes too late."""
        jobid = setup.jobid
        self._jobs.obtain(jobid, Goal.READY)

        def act(result: Result) -> None:
            if isinstance(result, Exception):
                raise result
            if jobid in self._jobs:
                self._set_up(jobid, result)

        def done(result: Result) -> None:
            if not self._jobs.stopped:
                self._answer("setup", setup, partial(act, result), respond)

        read_large(self._flux, setup.text, partial(self._jobs.scope.run, jobid, done))

    def _set_up(self, jobid: int, allocation: Summary) -> None:
        """The job has nodes. Those of Rabbits mount no storage, so they are none of
        the job's for the service."""
        rabbits = self._settings.mapping.rabbits_among(allocation.hosts)
        job = self._jobs.obtain(jobid, Goal.READY)
        job.info.note_prolog(self._flux.now())
        job.info.want_ready(allocation.without(rabbits) if rabbits else allocation)
        self._jobs.asked(job)

    def _post_run(self, payload: Any) -> None:
        jobid, ran = read_post_run(payload)
        self._release(jobid, ran=ran)

    def _teardown(self, payload: Any) -> None:
        self._release(read_jobid(payload, "dws.teardown"), haste=Haste.ABANDON)

    def _abort(self, payload: Any) -> None:
        jobid = read_jobid(payload, "dws.abort")
        info = self._release(jobid, haste=Haste.ABORT)
        self._in_use.begin_abort(info)

    def _report_data(self, payload: Any) -> None:
        self._ask_for_report(read_jobid(payload, "dws.report_data"))

    def _release(
        self, jobid: int, *, ran: bool = False, haste: Haste = Haste.NONE
    ) -> WorkflowInfo:
        """Release the storage of a job."""
        job = self._jobs.obtain(jobid, Goal.RELEASED)
        job.info.want_released(ran=ran, haste=haste)
        self._jobs.asked(job)
        return job.info

    def _hello(self, payload: Any) -> None:
        self._relist_jobs()


def _refuse(work: Work) -> None:
    raise Barred(work)
