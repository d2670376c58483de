# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Has data copied again that could not be copied out: ``dws.rescue``.

The storage of such a job is kept for ``rabbit.keep_failed``. nnf-dm makes a data
movement again whose status is removed. To delete those that failed would not do: NNF
makes them again, but takes DataOut for complete at once if all others have succeeded,
since its cache does not have the new ones yet.

First the data movements are started again, then the Workflow is marked. If the service
dies in between, the storage is still kept, and may be rescued again.
"""

from __future__ import annotations

import errno
import syslog
from typing import Any, Coroutine, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call, settle
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.dws.datamovement import FINISHED, STATE_LABEL, SUCCESS, key_of
from flux_k8s.dws.workflowmarks import COPIES, FAILED_UNTIL, GIVEN_UP, RESCUED
from flux_k8s.dws.workflowstate import State
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.errors import QueryError
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.records import list_movements
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.ports import (
    NNFDATAMOVEMENT,
    Json,
    KubeError,
    gone,
)
from flux_k8s.reasons import Reason
from flux_k8s.rfc.timestamps import format_timestamp


class Rescue:
    """Starts copies again, or gives them up."""

    def __init__(
        self, context: Context, workflows: WorkflowRequests, jobs: JobTable
    ) -> None:
        self._flux = context.flux
        self._calls = KubeCalls(context.kube)
        self._workflows = workflows
        self._jobs = jobs
        self._giving_up: set[int] = set()

    def rescue(self, job: Job, by: int) -> Coroutine[Call[Any], Any, Json]:
        """Have the data of a job copied again. The answer has ``copies``, how many
        data movements were started again.

        Args:
            by: the user who asks for it.

        Raises:
            QueryError: no data of the job waits for that.
        """
        info = job.info
        if info.jobid in self._giving_up:
            raise _given_up(info)
        _check_kept(info, self._flux.now())

        async def act() -> Json:
            copies = await self._start_again(info)
            since = format_timestamp(self._flux.now())
            marks = {FAILED_UNTIL: None, RESCUED: since, COPIES: None}
            await self._workflows.annotate(info, marks)
            info.rescues += 1
            text = f"{info.f58}: user {by} has its data copied again: {copies} copies"
            if info.logs_rescue:
                self._flux.log(syslog.LOG_NOTICE, text, Reason.RESCUE)
            return {"copies": copies}

        return self._hold(job, act())

    def give_up(self, job: Job, by: int) -> Coroutine[Call[Any], Any, Json]:
        """Have the storage of a job go, and with it the data that is not copied.

        Raises:
            QueryError: the storage is not kept.
        """
        info = job.info
        view = _check_failed(info)
        if info.jobid in self._giving_up:
            raise _given_up(info)

        async def act() -> Json:
            if view.given_up:
                return {}
            self._giving_up.add(info.jobid)
            try:
                await self._workflows.annotate(info, {GIVEN_UP: "true"})
            finally:
                self._giving_up.discard(info.jobid)
            self._jobs.ask(info.jobid)
            _check_failed(info)
            text = f"{info.f58}: user {by} gives its data up"
            self._flux.log(syslog.LOG_NOTICE, text, Reason.GIVEN_UP)
            return {}

        return act()

    async def _hold(self, job: Job, act: Coroutine[Call[Any], Any, Json]) -> Json:
        """Do something before the time of the storage is over, be it in the last
        moment."""
        job.info.rescuing = True
        try:
            return await act
        finally:
            job.info.rescuing = False
            self._jobs.ask(job.info.jobid)  # which may be over

    async def _start_again(self, info: WorkflowInfo) -> int:
        """Remove the status of the data movements that failed. Returns their number.

        Raises:
            KubeError: a request failed. Some copies may have been started.
            QueryError: Kubernetes does not allow it.
        """
        failed: list[tuple[str, str]] = []

        def take(items: list[Json], more: bool) -> None:
            failed.extend(key_of(item) for item in items if _has_failed(item))

        try:
            await list_movements(self._calls, info.name, take)
            answers = await settle(self._clear(info, *key) for key in failed)
        except KubeError as error:
            raise _refusal(error, f"list {NNFDATAMOVEMENT.plural}") from None
        for answer in answers:
            if isinstance(answer, KubeError) and not gone(answer):
                raise _refusal(answer, f"patch {NNFDATAMOVEMENT.plural}/status")
        return len(failed)

    def _clear(self, info: WorkflowInfo, namespace: str, name: str) -> Call[Json]:
        body: Json = {"status": None}
        key = f"{info.name}/{namespace}"
        return self._calls.patch_status(NNFDATAMOVEMENT, namespace, name, body, key=key)


def _has_failed(movement: Json) -> bool:
    """Whether a data movement belongs to DataOut and has ended without success."""
    status, labels = movement.get("status"), movement["metadata"].get("labels")
    if not isinstance(status, dict) or not isinstance(labels, dict):
        return False
    over = status.get("state") == FINISHED and status.get("status") != SUCCESS
    return over and labels.get(STATE_LABEL) == State.DataOut.name


def _refusal(error: KubeError, what: str) -> Exception:
    """The error to be raised: one that names what Kubernetes does not allow."""
    if error.status != 403:
        return error
    text = (
        f"Kubernetes does not allow the dws module to {what} (see rbac.yaml): {error}"
    )
    return QueryError(errno.EACCES, text)


def _check_failed(info: WorkflowInfo) -> WorkflowView:
    """The Workflow of a job whose data could not be copied out, and is not gone."""
    view: Optional[WorkflowView] = info.view
    if view is None or not (info.owns(view) and view.has_failed):
        text = f"job {info.f58}: no data of it has failed and is kept"
    elif view.complete or view.desired is not State.DataOut or view.deleting:
        text = f"job {info.f58}: its storage is not kept any more"
    else:
        return view
    raise QueryError(errno.EINVAL, text)


def _check_kept(info: WorkflowInfo, now: float) -> None:
    """Check that the data of a job waits to be copied again."""
    view = _check_failed(info)
    if info.rescuing or view.failed_until is None:
        text = f"job {info.f58}: its data is being copied again already"
        raise QueryError(errno.EALREADY, text)
    if view.given_up or now >= view.failed_until:
        raise _given_up(info)


def _given_up(info: WorkflowInfo) -> QueryError:
    return QueryError(errno.EINVAL, f"job {info.f58}: its data is given up")
