# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When a job that does not fit now can be started, and what it gets then."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Mapping

from flux_k8s.scheduler.free import Grant
from flux_k8s.scheduler.pool import Pool
from flux_k8s.scheduler.request import Request


@dataclass(frozen=True, eq=False)
class Reservation:
    """What is kept for a job from those behind it that do not end in time.

    Attributes:
        begin: when it can be started, UNIX time, if all jobs run to the end of their
            time limits; -inf if that is not known.
        grant: what it gets then.
    """

    begin: float
    grant: Grant

    def leaves(self, now: float, duration: float) -> bool:
        """Whether a job that is started now ends in time.

        Args:
            duration: seconds; 0 for no limit.
        """
        return self.begin == inf or 0 < duration <= self.begin - now


NOTHING = Reservation(inf, Grant())
"""No job waits."""


def reserve(pool: Pool, request: Request, ends: Mapping[int, float]) -> Reservation:
    """The reservation of a request that fits if no job runs.

    Jobs that are started with regard to it do not make it begin later.

    Args:
        ends: when the time limit of each job is over, as far as it has one.
    """
    limited = sorted(
        (end, jobid) for jobid, end in ends.items() if jobid in pool.grants
    )
    jobs = [jobid for _, jobid in limited]
    count = pool.fits_after(request, jobs)
    if not count:
        return Reservation(-inf, pool.place_after(request, list(pool.grants)))
    return Reservation(limited[count - 1][0], pool.place_after(request, jobs[:count]))
