# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The time limits of jobs and the outages of Kubernetes. What becomes of jobs in an
outage is in the stories (:mod:`stories.outages`)."""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.jobs.outage import Outages

Times = tuple[tuple[float, Optional[float]], ...]


@pytest.mark.parametrize(
    "outages, deadline",
    [
        pytest.param((), 160.0, id="none"),
        pytest.param(((110.0, 120.0),), 170.0, id="within the limit"),
        pytest.param(((80.0, 90.0),), 160.0, id="before it begins"),
        pytest.param(((80.0, 120.0),), 180.0, id="as it begins"),
        pytest.param(((105.0, 110.0), (130.0, 140.0)), 175.0, id="two"),
        pytest.param(((150.0, None),), 210.0, id="one that goes on"),
        pytest.param(((80.0, None),), 260.0, id="one that goes on from before"),
    ],
)
def test_no_limit_runs_in_an_outage(outages: Times, deadline: float) -> None:
    """At 200, for a limit of 60 s that begins at 100."""
    seen = Outages()
    for begin, end in outages:
        seen.begin(begin)
        if end is not None:
            seen.end(end)
    assert seen.deadline(100.0, 60.0, 200.0) == deadline


def test_no_limit_is_over_before_a_new_service_has_looked() -> None:
    assert Outages(quiet_until=300.0).deadline(100.0, 60.0, 200.0) == 300.0
