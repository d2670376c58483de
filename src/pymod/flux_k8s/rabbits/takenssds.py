# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``ssd`` that jobs keep from others, added up by Rabbit."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Mapping, Optional

from flux_k8s.rabbits.freestorage import FreeStorage
from flux_k8s.rabbits.ssds import Ssds


class TakenSsds:
    """A sum over all jobs, for which only those are counted whose storage has changed:
    there may be ten thousand of them, and each job that is to be staged asks.

    Args:
        ssds_of_job: how many ``ssd`` of a Rabbit a job keeps from others, by Rabbit.
    """

    def __init__(
        self, free: FreeStorage, ssds_of_job: Callable[[int], Mapping[str, int]]
    ) -> None:
        self._free = free
        self._ssds_of_job = ssds_of_job
        self._sizes: Mapping[str, Optional[int]] = {}
        self._of_job: dict[int, Mapping[str, int]] = {}
        self._total = Counter[str]()
        free.follow(self._drop)

    def without(
        self, jobid: int, ssds: Mapping[str, Optional[Ssds]]
    ) -> Mapping[str, int]:
        """How many ``ssd`` of each Rabbit the other jobs keep from this one.

        Args:
            ssds: those that jobs may have, by Rabbit. All jobs are counted again when
                the sizes of these are others than before.
        """
        sizes = {r: None if each is None else each.size for r, each in ssds.items()}
        if sizes != self._sizes:
            self._sizes = sizes
            self._of_job.clear()
            self._total.clear()
        for each in self._free.jobs - self._of_job.keys():
            self._of_job[each] = self._ssds_of_job(each)
            self._total.update(self._of_job[each])
        own = self._of_job.get(jobid, {})
        return {name: n - own.get(name, 0) for name, n in self._total.items()}

    def _drop(self, jobid: int) -> None:
        self._total.subtract(self._of_job.pop(jobid, {}))
