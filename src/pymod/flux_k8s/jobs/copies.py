# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Copies: when the data of a job has moved last, for ``rabbit.stall_timeout``, and what
became of those of which DWS says nothing.

The watch of :mod:`flux_k8s.jobs.optionalwatches` shows when data moves. It may be
interrupted, or hang, or not know a job that has too many data movements. So they are
listed before data is given up. No data has moved if all of them are as far as the watch
has shown them last, or as in the list before. Else some has, at a time that nobody
knows: it is taken to have moved just now.

NNF begins all copies of a job at once, and reports on one after the other: when one has
failed, the Workflow is in Error, while others go on or are over. Teardown would end
them. So their data movements are waited for, as long as they would be without the
failure, and the Workflow gets an annotation with what became of each.
"""

from __future__ import annotations

import syslog
from functools import partial
from typing import AsyncIterator, Callable, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.kubecalls import KubeCalls, Page
from flux_k8s.jobs.timelimits import REOPEN_DELAY
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.objects.cleanup import workflow_selector
from flux_k8s.objects.datamovement import Movement, key_of, parse
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import NNFDATAMOVEMENT, Json, KubeError
from flux_k8s.reasons import Reason

PAGE = 100
"""Data movements in one answer. A job may have one for each of its nodes."""

Movements = Mapping[tuple[str, str], Movement]
"""Data movements by namespace and name."""

_DIGEST = 2**64


def list_movements(calls: KubeCalls, workflow: str) -> AsyncIterator[Page]:
    """The data movements of a Workflow, as :meth:`KubeCalls.pages`."""
    return calls.pages(
        NNFDATAMOVEMENT,
        limit=PAGE,
        label_selector=workflow_selector(workflow),
        certain=True,
    )


class Copies:
    """Keeps the :class:`~flux_k8s.jobs.findings.DataProgress` of jobs.

    Args:
        shown: returns the data movements of a job that the watch has shown; None while
            they are not known.
        ask: has a job handled: all data movements that it waits for have ended.
    """

    def __init__(
        self,
        context: Context,
        workflows: WorkflowRequests,
        shown: Callable[[int], Optional[Movements]],
        ask: Callable[[int], None],
    ) -> None:
        self._flux = context.flux
        self._calls = context.kube
        self._workflows = workflows
        self._shown = shown
        self._ask = ask
        self._logged = False

    def see(
        self, info: WorkflowInfo, known: Optional[Movement], found: Movement
    ) -> None:
        """The watch has shown a data movement that was as ``known`` before, or new."""
        if known is None or known.achieved != found.achieved:
            info.data.moved = self._flux.now()
        if found.over and found.name in info.data.going:
            info.data.going.remove(found.name)
            if not info.data.going:
                self._ask(info.jobid)

    async def look(self, info: WorkflowInfo) -> Optional[Listed]:
        """List the data movements of a job, and note whether data has moved, and which
        copies out go on.

        Returns:
            What the list says; None if it is refused.

        Raises:
            KubeError: a request failed, and is to be repeated. One that fails for
                ``PERSISTENCE`` seconds while Kubernetes answers others is refused: then
                nobody knows whether data moves.
        """
        data, requested_at = info.data, self._flux.now()
        if data.refused is not None and requested_at < data.refused + REOPEN_DELAY:
            return None
        listed = Listed(partial(self._shown, info.jobid))
        try:
            async for items, _ in list_movements(self._calls, info.name):
                listed.take(items)
        except KubeError as error:
            # A server that starts refuses for a while what it allows later.
            if not await self._workflows.has_persisted(info):
                raise
            data.refused = self._flux.now()
            self._log_refusal(error)
            return None
        if not listed.as_shown and listed.digest != data.digest:
            data.moved = self._flux.now()
        data.listed, data.digest, data.refused = requested_at, listed.digest, None
        data.going = listed.going()
        return listed

    def _log_refusal(self, error: KubeError) -> None:
        if not self._logged:
            self._logged = True
            text = (
                f"{NNFDATAMOVEMENT.plural}: {error}; stall_timeout is not kept, and"
                " copies that go on when another one has failed are not waited for"
            )
            self._flux.log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)


class Listed:
    """What a list says of a job's data movements. They are not kept.

    Args:
        shown: those that the watch has shown, as for :class:`Copies`.

    Attributes:
        as_shown: all are as far as the watch has shown them.
        digest: of what they have achieved, in whatever order they are listed.
    """

    def __init__(self, shown: Callable[[], Optional[Movements]]) -> None:
        before = shown()
        self.as_shown = before is not None
        self.digest = 0
        self._before: Movements = {} if before is None else before
        self._shown = shown
        # Of copies out: those that had not ended, and their directives.
        self._going: dict[str, Optional[int]] = {}
        self._copies: dict[int, bool] = {}

    def going(self) -> set[str]:
        """Those of copies out that have not ended."""
        self._take_ended()
        return set(self._going)

    def copied(self) -> dict[int, bool]:
        """Whether the data of each copy_out whose data movements have all ended is
        copied, by the number of the directive."""
        self._take_ended()
        going = frozenset(self._going.values())
        return {i: self._copies[i] for i in sorted(self._copies) if i not in going}

    def take(self, items: list[Json]) -> None:
        """Take in those of a page."""
        for item in items:
            key, movement = key_of(item), parse(item)
            achieved = movement.achieved
            self.digest = (self.digest + hash((key, achieved))) % _DIGEST
            known = self._before.get(key)
            if known is None or known.achieved != achieved:
                self.as_shown = False
            if movement.phase == State.DataOut.name:
                self._take_copy(movement)

    def _take_ended(self) -> None:
        """Take in what the watch has shown to end since it was listed."""
        for movement in (self._shown() or {}).values():
            if movement.over and movement.name in self._going:
                del self._going[movement.name]
                self._take_copy(movement)

    def _take_copy(self, movement: Movement) -> None:
        index = movement.directive
        if not movement.over:
            self._going[movement.name] = index
        elif index is not None:
            done = not movement.failed
            self._copies[index] = done and self._copies.get(index, True)
