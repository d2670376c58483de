# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writes the records of what Teardown deletes: the data that was moved, and what the
job's containers have logged.

They are read before. An error in reading them neither fails a job nor delays its
Teardown for long: where there is no time for all, those that were read are written,
those that failed first.
"""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.kubecalls import absent_or_forbidden, refused
from flux_k8s.jobs.copies import list_movements
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.objects.cleanup import workflow_selector
from flux_k8s.objects.datamovement import Totals
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import POD, Json, KubeError

CHARACTERS = 50_000
"""Of container logs that are kept for a job."""

CONTAINERS = 32
"""Containers of a job whose logs are read: one of each Rabbit may be many."""

LIMIT = 60.0
"""Seconds in which each of these records is read. The job waits for it, and an abort
waits for the request that is under way."""

TRIED = 0.5
"""Seconds for which reading one may fail while Kubernetes answers other requests: a few
tries."""

UNSUCCESSFUL = ("Failed", "Invalid")
"""The values of ``status.status`` of an NnfDataMovement that failed."""

NO_LOG = (400, 404)
"""The answers for a container that has not started, or is gone."""


class _NotRecorded(Exception):
    """A record is given up, although Kubernetes answers."""


class DataRecords:
    """Keeps records of the data and the containers of jobs."""

    def __init__(
        self, context: Context, records: Records, workflows: WorkflowRequests
    ) -> None:
        self._clock = context.clock
        self._calls = context.kube
        self._settings = context.settings
        self._records = records
        self._workflows = workflows

    async def record(self, info: WorkflowInfo) -> None:
        """Write the records of the objects that Teardown deletes, once.

        Raises:
            KubeError: a request failed, and is to be repeated.
        """
        records = {
            "data movements": self._record_data_movements,
            "container logs": self._record_container_logs,
        }
        for what, write in records.items():
            if what in info.recording.done:
                continue
            try:
                await write(info, self._clock.now() + LIMIT)
            except KubeError as error:
                if await self._may_pass(info, error):
                    raise
                self._records.give_up(info, what, error)
            except _NotRecorded as reason:
                self._records.give_up(info, what, reason)
            info.recording.done |= {what}

    async def _may_pass(self, info: WorkflowInfo, error: KubeError) -> bool:
        """Whether an error is waited for: Teardown has to wait as well while Kubernetes
        is out of reach."""
        if refused(error) or absent_or_forbidden(error):
            return False
        if (error.retry_after or 0.0) >= LIMIT:
            return False
        return not await self._workflows.has_persisted(info, TRIED)

    def _check_time(self, info: WorkflowInfo, until: float) -> None:
        """Check whether there is time for another request.

        Raises:
            _NotRecorded: there is none.
        """
        if info.aborted:
            raise _NotRecorded("the epilog is given up")
        if self._clock.now() >= until:
            raise _NotRecorded(f"reading them takes more than {LIMIT:g}s")

    # Data movements: in a namespace of NNF, or of each Rabbit

    async def _record_data_movements(self, info: WorkflowInfo, until: float) -> None:
        if info.view is None or not info.view.moves_data:
            return
        totals = Totals()
        kept: list[Json] = []
        limit = self._settings.config.save_datamovements
        try:
            async for items, more in list_movements(self._calls, info.name):
                _check_not_torn_down(info)
                for item in items:
                    totals.add(item)
                if limit > 0:
                    found, path = [*kept, *items], ("status", "status")
                    kept = failed_first(found, path, UNSUCCESSFUL)[:limit]
                if more:
                    self._check_time(info, until)
        except _NotRecorded:
            if kept:
                await self._put_movements(info, kept)
            raise
        if limit > 0:
            await self._put_movements(info, kept)
        await self._records.put_json(info, "rabbit_moved", totals.to_json())

    async def _put_movements(self, info: WorkflowInfo, kept: Iterable[Json]) -> None:
        plain = [_plain(item) for item in kept]
        await self._records.put_json(info, "rabbit_datamovements", plain)

    # Containers: in pods, which are where the Workflow is

    async def _record_container_logs(self, info: WorkflowInfo, until: float) -> None:
        if info.view is None or not info.view.runs_containers:
            return
        selector = workflow_selector(info.name)
        namespace = self._settings.namespace
        listed = await self._calls.list(POD, namespace, label_selector=selector)
        pods = failed_first(listed["items"], ("status", "phase"), ("Failed",))
        names = [name for pod in pods for name in _containers(pod)]
        logs: list[tuple[str, str]] = []
        try:
            for pod, container in names[:CONTAINERS]:
                self._check_time(info, until)
                log = await self._log(info, pod, container)
                if log:
                    logs.append((f"{pod}/{container}", log))
        except _NotRecorded:
            await self._put_logs(info, logs)
            raise
        await self._put_logs(info, logs)

    async def _put_logs(
        self, info: WorkflowInfo, logs: Sequence[tuple[str, str]]
    ) -> None:
        if logs:
            await self._records.put(
                info, "rabbit_container_log", join_logs(logs, CHARACTERS)
            )

    async def _log(self, info: WorkflowInfo, pod: str, container: str) -> str:
        """The log of a container; "" if there is none."""
        namespace = self._settings.namespace
        try:
            return await self._calls.pod_log(
                namespace, pod, container, characters=CHARACTERS
            )
        except KubeError as error:
            if error.status not in NO_LOG:
                raise
            return ""


def _check_not_torn_down(info: WorkflowInfo) -> None:
    """Check that a list has all data movements of a job.

    Raises:
        _NotRecorded: Teardown, which deletes them, may have begun.
    """
    view = info.view
    if view is None or view.deleting or view.desired is State.Teardown:
        raise _NotRecorded("the Workflow was deleted, or moved to Teardown")


def failed_first(
    items: Iterable[Json], path: Sequence[str], failures: Sequence[str]
) -> list[Json]:
    """Objects of a list: first those that failed, then the others, each in the
    order of their creation (which is known to the second) and of their names.

    Args:
        path: the field that has one of ``failures`` in an object that failed.
    """

    def order(item: Json) -> tuple[bool, str, str, str]:
        when, namespace, name = (
            str(_get(item, "metadata", key))
            for key in ("creationTimestamp", "namespace", "name")
        )
        return _get(item, *path) not in failures, when, namespace, name

    return sorted(items, key=order)


def _containers(pod: Json) -> list[tuple[str, str]]:
    """The names of a pod and of each of its containers."""
    containers = _get(pod, "spec", "containers")
    return [
        (str(_get(pod, "metadata", "name")), str(_get(container, "name")))
        for container in (containers if isinstance(containers, list) else [])
    ]


def _get(value: Any, *path: str) -> Any:
    """The value at a path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(item: Json) -> Json:
    """An object without its managedFields."""
    metadata = item["metadata"].items()
    kept = {key: value for key, value in metadata if key != "managedFields"}
    return {**item, "metadata": kept}


def join_logs(logs: Sequence[tuple[str, str]], characters: int) -> str:
    """The ends of logs, as one text. Several logs have headings like those of
    ``tail``.

    Args:
        logs: the name and the text of each.
        characters: the length of the text without headings. Long logs share the room
            that short ones leave.
    """
    shares = fair_shares([len(text) for _, text in logs], characters)
    ends = [text[len(text) - share :] for (_, text), share in zip(logs, shares)]
    if len(ends) == 1:
        return ends[0]
    return "\n".join(f"==> {name} <==\n{end}" for (name, _), end in zip(logs, ends))


def fair_shares(wanted: Sequence[int], total: int) -> list[int]:
    """The fair share of each in ``total``: as much as it wants, or the same as each
    other that wants more."""
    shares, left = [0] * len(wanted), total
    for rank, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[index] = min(wanted[index], left // (len(wanted) - rank))
        left -= shares[index]
    return shares
