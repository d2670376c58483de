# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``ssd`` that jobs keep from others, added up by Rabbit."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Mapping

from flux_k8s.rabbits.ledger import Ledger


class TakenSsds:
    """Sums over all jobs, for which only those are counted again whose storage has
    changed: there may be ten thousand of them, and each job that is to be staged asks.

    Args:
        ssds_of_job: how many ``ssd`` of a Rabbit a job keeps from others, by Rabbit.
    """

    def __init__(
        self, ledger: Ledger, ssds_of_job: Callable[[int], Mapping[str, int]]
    ) -> None:
        self._ledger = ledger
        self._ssds_of_job = ssds_of_job
        self._of_job: dict[int, Mapping[str, int]] = {}
        self._total = Counter[str]()
        self._uncounted: set[int] = set(ledger.jobs)
        ledger.follow(self._uncounted.add)

    def taken(self, rabbit: str, jobid: int) -> int:
        """How many ``ssd`` of a Rabbit the other jobs keep from this one."""
        while self._uncounted:
            each = self._uncounted.pop()
            self._total.subtract(self._of_job.pop(each, {}))
            found = self._ssds_of_job(each)
            if found:
                self._of_job[each] = found
                self._total.update(found)
        return self._total[rabbit] - self._of_job.get(jobid, {}).get(rabbit, 0)

    def clear(self) -> None:
        """Count all jobs again: the ``ssd`` have other sizes."""
        self._of_job.clear()
        self._total.clear()
        self._uncounted.update(self._ledger.jobs)
