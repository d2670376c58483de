# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ledger in units of the scheduler: how many ``ssd`` each Rabbit has for jobs, how
many each job keeps, and whether the scheduler keeps from jobs what nobody may have."""

from __future__ import annotations

from typing import Optional

from flux_k8s.config.settings import Settings
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxion import Fluxion
from flux_k8s.machine.fluxiongraph import Ssds
from flux_k8s.machine.ledger import Ledger


class SsdCounts:
    """Counts what is asked for: all of it follows from the ledger, and from Fluxion's
    graph."""

    def __init__(self, settings: Settings, ledger: Ledger, fluxion: Fluxion) -> None:
        self._settings = settings
        self._ledger = ledger
        self._fluxion = fluxion

    def on(self, rabbit: str) -> Ssds:
        """The ``ssd`` of a Rabbit that jobs may have. If the scheduler gives none, each
        GiB counts as one."""
        found = self._fluxion.ssds_of(rabbit) if self._settings.scheduler else None
        if found is not None:
            return found
        count = self._ledger.capacity(rabbit) // GIB
        whole = self._settings.mapping.capacity(rabbit) // GIB
        return Ssds(1, count, max(0, whole - count))

    def of_jobs(self, rabbit: str) -> dict[int, int]:
        """How many ``ssd`` of a Rabbit each job keeps from others."""
        ledger, scheduler = self._ledger, self._settings.scheduler
        ssds = self._fluxion.ssds_of(rabbit) if scheduler else None
        found: dict[int, int] = {}
        for jobid in ledger.jobs_on(rabbit):
            if ssds is not None:
                share = ledger.share_of(jobid, rabbit)
                count = 0 if share is None else share.ssds(ssds.size)
            else:
                count = -(-ledger.bytes_on(rabbit, jobid) // GIB)
                if count and not scheduler and self._fluxion.present:
                    # A Rabbit with storage of a job takes no other job.
                    count = self.on(rabbit).count
            if count:
                found[jobid] = count
        return found

    def room(self, rabbit: str, jobid: int) -> Optional[int]:
        """The bytes in the ``ssd`` of a Rabbit that are of no other job. None if they
        are not known."""
        ssds = self._fluxion.ssds_of(rabbit)
        if ssds is None:
            return None
        taken = self.of_jobs(rabbit)
        left = max(0, ssds.count - sum(taken.values()) + taken.get(jobid, 0))
        return left * ssds.size * GIB + self._ledger.bytes_on(rabbit, jobid)

    def are_kept(self, jobid: int) -> bool:
        """Whether the scheduler keeps from jobs what they must not have on the Rabbits
        of a job, by their ``ssd`` or their nodes."""
        if self._settings.scheduler:
            return self._fluxion.keeps(self._claims_beside(jobid), frozenset())
        rabbits = self._ledger.rabbits_of(jobid)
        return self._fluxion.keeps({}, self._settings.mapping.hosts_below(rabbits))

    async def are_given_out(self, jobid: int) -> bool:
        """Whether the scheduler had given ``ssd`` for that to other jobs before.

        Raises:
            RpcError: Fluxion does not answer.
            BadObject: its answer is malformed.
        """
        return await self._fluxion.is_given_out(self._claims_beside(jobid))

    def _claims_beside(self, jobid: int) -> dict[str, int]:
        """The bytes on each Rabbit of a job that the scheduler gave to no job."""
        rabbits = self._ledger.rabbits_of(jobid)
        return {rabbit: self._ledger.withheld_on(rabbit) for rabbit in rabbits}
