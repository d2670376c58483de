# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ssd that jobs keep from others, whatever happens to their storage."""

from __future__ import annotations

from typing import Any, Mapping
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.directives import GIB
from flux_k8s.machine.fluxiongraph import Ssds
from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.ssdcounts import SsdCounts
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.breakdown import Reference
from support.effort import examples
from support.mapping import context_of
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


def nothing() -> None:
    pass


def change(free: Ledger, what: str, jobid: int, sizes: Mapping[str, int]) -> None:
    key = Reference("default", f"s{jobid}")
    if what == "assume":
        free.assume(key, servers(jobid, sizes))
    elif what == "note_share":
        free.note_share(jobid, sizes)
    elif what == "withdraw":
        free.withdraw(key)
    elif what in ("release", "tear down"):
        free.return_share(jobid, torn_down=what == "tear down")
    elif what == "forget":
        free.forget(jobid)
    else:
        free.event(what, watched(servers(jobid, sizes)))


@examples(40)
@given(st.lists(CHANGES, max_size=30))
def test_what_jobs_keep_is_what_they_hold_whatever_happens_to_them(
    changes: list[tuple[str, int, dict[str, int]]],
) -> None:
    """By Servers after a restart, and by what was said of a share before; also when
    the ``ssd`` are read anew with another size."""
    known = {1, 2, 3}
    free = Ledger(context_of(MAPPING), nothing, known.__contains__)
    size = 1
    settings: Any = Mock(scheduler=True)
    fluxion: Any = Mock(ssds_of=lambda rabbit: Ssds(size, 900))
    counts = SsdCounts(settings, free, fluxion)
    model = Model()
    for what, number, sizes in changes:
        if what == "other ssd":
            size = number
        else:
            if what == "forget":
                known.discard(number)
            change(free, what, number, sizes)
            model.change(what, number, sizes)
        for rabbit in RABBITS:
            held = model.held(rabbit)
            found = counts.of_jobs(rabbit)
            assert found == {id: -(-n // (size * GIB)) for id, n in held.items() if n}
            for jobid in (1, 2, 3):
                others = sum(found.values()) - found.get(jobid, 0)
                own = free.bytes_of(jobid)[rabbit]
                assert counts.room(rabbit, jobid) == (900 - others) * size * GIB + own
                unplaced = free.unplaced_beside(jobid)[rabbit]
                assert unplaced == model.unplaced_beside(rabbit, jobid)


class Model:
    """The same, as simple as can be: what each job was given, has, and has ended."""

    def __init__(self) -> None:
        self.seen: dict[int, dict[str, int]] = {}
        self.assumed: dict[int, dict[str, int]] = {}
        self.shares: dict[int, dict[str, int]] = {}
        self.over: set[int] = set()
        self.forgotten: set[int] = set()

    def change(self, what: str, jobid: int, sizes: dict[str, int]) -> None:
        if what in ("ADDED", "MODIFIED"):
            self.seen[jobid] = sizes
            if self.assumed.get(jobid) == sizes:
                del self.assumed[jobid]
        elif what == "DELETED":
            self.seen.pop(jobid, None)
            self.assumed.pop(jobid, None)
        elif what == "assume":
            self.assumed[jobid] = sizes
        elif what == "withdraw":
            self.assumed.pop(jobid, None)
        elif what == "note_share":
            self.shares[jobid] = sizes
            self.over.discard(jobid)
        elif what in ("release", "tear down"):
            self.over.add(jobid)
            if what == "tear down":
                self.seen.pop(jobid, None)
                self.assumed.pop(jobid, None)
        elif what == "forget":
            self.forgotten.add(jobid)

    def unplaced_beside(self, rabbit: str, jobid: int) -> int:
        """The shares of other jobs that are in no Servers yet."""
        placed = {*self.seen, *self.assumed}
        waiting = self.shares.keys() - self.over - self.forgotten - placed - {jobid}
        return sum(self.shares[other].get(rabbit, 0) for other in waiting)

    def held(self, rabbit: str) -> dict[int, int]:
        return {
            jobid: self.shares[jobid].get(rabbit, 0)
            if jobid in self.shares
            else max(
                each.get(jobid, {}).get(rabbit, 0) for each in (self.seen, self.assumed)
            )
            for jobid in {1, 2, 3} - self.over - self.forgotten
        }
