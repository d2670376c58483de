# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When the data of a job has moved last, for ``rabbit.stall_timeout``.

The watch of :mod:`flux_k8s.jobs.progresswatch` shows when data moves. It may be
interrupted, or hang, or not know a job that has too many data movements. So they are
listed before data is given up. No data has moved if all of them are as far as the watch
has shown them last, or as in the list before. Else some has, at a time that nobody
knows: it is taken to have moved just now.
"""

from __future__ import annotations

import syslog
from typing import Callable, Mapping, Optional

from flux_k8s.control.kubecalls import KubeCalls, absent_or_forbidden
from flux_k8s.dws.datamovement import Movement, key_of, parse
from flux_k8s.jobs.records import list_movements
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.ports import NNFDATAMOVEMENT, Flux, Json, Kube, KubeError

Movements = Mapping[tuple[str, str], Movement]
"""Data movements by namespace and name."""

_DIGEST = 2**64


class Stalls:
    """Keeps the :class:`~flux_k8s.jobs.workflowinfo.DataProgress` of jobs.

    Args:
        shown: returns the data movements of a job that the watch has shown; None while
            they are not known.
    """

    def __init__(
        self, flux: Flux, kube: Kube, shown: Callable[[int], Optional[Movements]]
    ) -> None:
        self._flux = flux
        self._calls = KubeCalls(kube)
        self._shown = shown
        self._logged = False

    def see(
        self, info: WorkflowInfo, known: Optional[Movement], found: Movement
    ) -> None:
        """The watch has shown a data movement that was as ``known`` before, or new."""
        if known is None or known.achieved != found.achieved:
            info.data.moved = self._flux.now()

    async def look(self, info: WorkflowInfo) -> None:
        """List the data movements of a job, and note whether data has moved.

        Raises:
            KubeError: a request failed, and is to be repeated. A refusal is no such
                error: then nobody knows whether data moves.
        """
        data, requested_at = info.data, self._flux.now()
        listed = _Listed(self._shown(info.jobid))
        try:
            await list_movements(self._calls, info.name, listed.take)
        except KubeError as error:
            if not absent_or_forbidden(error):
                raise
            data.refused = self._flux.now()
            self._log_refusal(error)
            return
        if not listed.as_shown and listed.digest != data.digest:
            data.moved = self._flux.now()
        data.listed, data.digest, data.refused = requested_at, listed.digest, None

    def _log_refusal(self, error: KubeError) -> None:
        if not self._logged:
            self._logged = True
            text = f"{NNFDATAMOVEMENT.plural}: {error}; stall_timeout is not kept"
            self._flux.log(syslog.LOG_WARNING, text)


class _Listed:
    """What a list says of a job's data movements. They are not kept.

    Attributes:
        as_shown: all are as far as the watch has shown them.
        digest: of what they have achieved, in whatever order they are listed.
    """

    def __init__(self, shown: Optional[Movements]) -> None:
        self.as_shown = shown is not None
        self.digest = 0
        self._shown: Movements = {} if shown is None else shown

    def take(self, items: list[Json], more: bool) -> None:
        """Take in those of a page."""
        for item in items:
            key, movement = key_of(item), parse(item)
            achieved = movement.achieved
            self.digest = (self.digest + hash((key, achieved))) % _DIGEST
            known = self._shown.get(key)
            if known is None or known.achieved != achieved:
                self.as_shown = False
