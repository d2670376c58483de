# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ssd that jobs keep from others: the sum is that of all jobs, whatever happens to
their storage."""

from __future__ import annotations

from collections import Counter
from typing import Any, Mapping
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.ssdcounts import SsdCounts
from flux_k8s.machine.ssds import Ssds
from flux_k8s.objects import mapping
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown import Reference
from support.effort import examples
from support.watched import watched

RABBITS = ("r1", "r2")
ENTRIES = {r: {"capacity": 1000, "hostlist": f"n{r}"} for r in RABBITS}
MAPPING = {"computes": {f"n{r}": r for r in RABBITS}, "rabbits": ENTRIES}
NAMES = ["ADDED", "MODIFIED", "DELETED", "assume", "withdraw", "note_share"]
NAMES += ["release", "tear down", "forget", "other ssd"]
SIZES = st.dictionaries(st.sampled_from(RABBITS), st.integers(1, 90), min_size=1)
CHANGES = st.tuples(st.sampled_from(NAMES), st.integers(1, 3), SIZES)


def servers(jobid: int, sizes: Mapping[str, int]) -> Json:
    storage = [{"name": name, "allocationCount": 1} for name in sizes]
    sets = [
        {"label": "xfs", "allocationSize": size, "storage": [each]}
        for each, size in zip(storage, sizes.values())
    ]
    labels = {"dataworkflowservices.github.io/workflow.name": f"fluxjob-{jobid}"}
    metadata = {"namespace": "default", "name": f"s{jobid}", "labels": labels}
    return {"metadata": metadata, "spec": {"allocationSets": sets}}


def change(free: Ledger, what: str, jobid: int, sizes: Mapping[str, int]) -> None:
    key = Reference("default", f"s{jobid}")
    if what == "assume":
        free.assume(key, servers(jobid, sizes))
    elif what == "note_share":
        free.note_share(jobid, sizes)
    elif what == "withdraw":
        free.withdraw(key)
    elif what in ("release", "tear down"):
        free.release_share(jobid, torn_down=what == "tear down")
    elif what == "forget":
        free.forget(jobid)
    else:
        free.event(what, watched(servers(jobid, sizes)))


@examples(40)
@given(st.lists(CHANGES, max_size=30))
def test_the_sum_is_that_of_all_other_jobs(
    changes: list[tuple[str, int, dict[str, int]]],
) -> None:
    free = Ledger(mapping.parse(MAPPING), print, lambda: None, lambda: None)
    size = 1

    settings: Any = Mock(scheduler=True)
    fluxion: Any = Mock(ssds_of=lambda rabbit: Ssds(size, 9))
    counts = SsdCounts(settings, free, fluxion)
    for what, number, sizes in changes:
        if what == "other ssd":
            size = number
            counts.clear()
        else:
            change(free, what, number, sizes)
        for jobid in (1, 2, 3):
            expected = Counter[str]()
            for other in free.jobs - {jobid}:
                expected.update(counts.of_job(other))
            for rabbit in RABBITS:
                assert counts.taken(rabbit, jobid) == expected[rabbit]
