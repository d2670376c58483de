# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whatever a guest writes into a job, queries about it cost the service little."""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.jobs import jobrows
from flux_k8s.text import printable
from support.queries import GUEST, query
from support.service import long, running, settle_jobs, started


def directives(count: int) -> list[str]:
    return [f"#DW jobdw type=xfs capacity=1GiB name=p{n}" for n in range(count)]


def test_the_details_of_a_job_have_each_directive_made_printable_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = []

    def count(text: str, limit: Optional[int] = None) -> str:
        lengths.append(len(text))
        return printable(text, limit)

    storage = directives(16)
    copies = [
        f"#DW copy_out source=$DW_JOB_p{n}/{500 * chr(1)} destination=/lustre/{n}"
        for n in range(16)
    ]
    system = started()
    jobid = system.instance.submit(long([*storage, *copies]), userid=GUEST)
    running(system, jobid)
    monkeypatch.setattr(jobrows, "printable", count)
    details = query(system, "job-show", {"id": jobid}, GUEST)
    assert len(details["allocations"]) == 16
    assert {each["type"] for each in details["allocations"]} == {"xfs"}
    assert sum(lengths) < 2 * len("".join([*storage, *copies]))
    settle_jobs(system)
