# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How many ``ssd`` each Rabbit has for jobs, and how many each job keeps."""

from __future__ import annotations

from collections import Counter
from typing import Mapping

from flux_k8s.config.settings import Settings
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.ssds import Ssds


class SsdCounts:
    """The ledger in units of the scheduler.

    The sums over all jobs are kept, and only those jobs are counted again whose storage
    has changed: there may be ten thousand of them, and each job that is to be staged
    asks.
    """

    def __init__(self, settings: Settings, ledger: Ledger, fluxion: Fluxion) -> None:
        self._settings = settings
        self._ledger = ledger
        self._fluxion = fluxion
        self._of_job: dict[int, Mapping[str, int]] = {}
        self._total = Counter[str]()
        self._uncounted: set[int] = set(ledger.jobs)
        ledger.follow(self._see)

    def _see(self, jobid: int) -> None:
        """The storage or the share of a job has changed. One that is over, and was not
        counted, needs no count."""
        if self._ledger.has(jobid) or jobid in self._of_job:
            self._uncounted.add(jobid)
        else:
            self._uncounted.discard(jobid)

    def on(self, rabbit: str) -> Ssds:
        """The ``ssd`` of a Rabbit that jobs may have. If the scheduler gives none, each
        GiB counts as one."""
        found = self._fluxion.ssds_of(rabbit) if self._settings.scheduler else None
        if found is not None:
            return found
        count = self._ledger.capacity(rabbit) // GIB
        whole = self._settings.mapping.capacity(rabbit) // GIB
        return Ssds(1, count, max(0, whole - count))

    def of_job(self, jobid: int) -> Mapping[str, int]:
        """How many ``ssd`` of a Rabbit a job keeps from others, by Rabbit."""
        if self._settings.scheduler:
            shares = {
                rabbit: (self._fluxion.ssds_of(rabbit), share)
                for rabbit, share in self._ledger.shares_of(jobid).items()
            }
            if all(ssds for ssds, _ in shares.values()):
                return {
                    rabbit: share.ssds(ssds.size)
                    for rabbit, (ssds, share) in shares.items()
                    if ssds
                }
        sizes: Counter[str] = Counter()
        for servers in self._ledger.usage_of(jobid).values():
            sizes.update(servers.unavailable)
        if not self._settings.scheduler and self._fluxion.present:
            # A Rabbit with storage of a job takes no other job.
            return {rabbit: self.on(rabbit).count for rabbit in sizes}
        return {rabbit: -(-size // GIB) for rabbit, size in sizes.items()}

    def taken(self, rabbit: str, jobid: int) -> int:
        """How many ``ssd`` of a Rabbit the other jobs keep from this one."""
        while self._uncounted:
            each = self._uncounted.pop()
            self._total.subtract(self._of_job.pop(each, {}))
            found = self.of_job(each)
            if found:
                self._of_job[each] = found
                self._total.update(found)
        return self._total[rabbit] - self._of_job.get(jobid, {}).get(rabbit, 0)

    def clear(self) -> None:
        """Count all jobs again: the ``ssd`` have other sizes."""
        self._of_job.clear()
        self._total.clear()
        self._uncounted.update(self._ledger.jobs)
