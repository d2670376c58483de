# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whatever a guest writes into a job, queries about it cost the service little."""

from __future__ import annotations

import sys
from typing import Any

from flux_k8s.limits import DIRECTIVES
from flux_k8s.ports import KubeError
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault
from support.queries import GUEST, query
from support.service import HOUR, jobspec, started


def directives(count: int) -> list[str]:
    return [f"#DW jobdw type=xfs capacity=1GiB name=p{n}" for n in range(count)]


def calls_of_filter(count: int) -> int:
    """The calls of Python functions for a query about 20 jobs of so many directives,
    of which none has the type."""
    latency = table({"Proposal": 10 * HOUR})
    system = started(options=Options(latency=latency))
    for _ in range(20):
        system.instance.submit(jobspec(directives(count)), userid=GUEST)
    system.loop.run(timeout=1.0)
    query(system, "job-list", {"type": "lustre"}, GUEST)
    calls = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        query(system, "job-list", {"type": "lustre"}, GUEST)
    finally:
        sys.setprofile(None)
    return calls


def test_a_filter_costs_as_much_for_jobs_of_many_directives_as_for_others() -> None:
    assert calls_of_filter(DIRECTIVES) < calls_of_filter(1) + 100


def test_types_that_a_guest_makes_up_do_not_swell_a_row() -> None:
    """DWS would refuse them, but Kubernetes does not answer."""
    system = started()
    system.loop.run(timeout=1.0)
    assert system.service_kube is not None
    lost = KubeError(0, "", "the connection was closed")
    system.service_kube.faults = lambda request: Fault(HOUR, lost)
    plain = enumerate(directives(DIRECTIVES))
    made_up = [each.replace("xfs", f"x{n}") for n, each in plain]
    system.instance.submit(jobspec(made_up), userid=GUEST)
    system.loop.run(timeout=1.0)
    (row,) = query(system, "job-list", {}, GUEST)["jobs"]
    assert row["types"] == [f"x{n}" for n in range(8)]
