# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When a job that does not fit now can be started."""

from __future__ import annotations

from typing import Mapping, Optional

from flux_k8s.scheduler.pool import Pool
from flux_k8s.scheduler.request import Request


def earliest(
    pool: Pool, request: Request, ends: Mapping[int, float]
) -> Optional[float]:
    """The time at which a request fits, if all jobs run to the end of their time
    limits; None if that is not known.

    Args:
        ends: when the time limit of each job is over, as far as it has one.
    """
    jobs = sorted((end, jobid) for jobid, end in ends.items() if jobid in pool.grants)
    count = pool.fits_after(request, [jobid for _, jobid in jobs])
    return jobs[count - 1][0] if count else None
