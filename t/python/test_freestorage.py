# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the Servers of the cluster hold is counted, whatever the order in which they,
and the ends of their jobs, are seen."""

from __future__ import annotations

import json
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.dws import mapping
from flux_k8s.dws.directivebreakdown import Reference
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.storageusage import (
    BEYOND_ANNOTATION,
    COLOCATION_ANNOTATION,
    WORKFLOW_LABEL,
)
from flux_k8s.ports import Json
from flux_k8s.rabbits.freestorage import FreeStorage
from support.effort import examples

RABBITS = ("r1", "r2")
MAPPING = {
    "computes": {"n1": "r1", "n2": "r2"},
    "rabbits": {
        "r1": {"capacity": 60 * GIB, "hostlist": "n1"},
        "r2": {"capacity": 60 * GIB, "hostlist": "n2"},
    },
}


class Seen(NamedTuple):
    """Servers of a job, or of a persistent file system (0), with storage on a Rabbit,
    or on none.

    Attributes:
        number: of the Servers, of which a job may have several.
        made: the Rabbits on which NNF has made the storage.
        ready: NNF had made all storage once.
    """

    jobid: int
    rabbits: frozenset[str] = frozenset({"r1"})
    keys: frozenset[str] = frozenset({"mgt"})
    number: int = 0
    made: frozenset[str] = frozenset()
    ready: bool = False

    @property
    def name(self) -> Reference:
        return Reference("default", f"s{self.jobid}-{self.number}")

    @property
    def object(self) -> Json:
        storage = [{"name": name, "allocationCount": 1} for name in self.rabbits]
        sets = [{"label": "x", "allocationSize": 2 * GIB, "storage": storage}]
        labels = {WORKFLOW_LABEL: f"fluxjob-{self.jobid}"} if self.jobid else {}
        annotations = {
            COLOCATION_ANNOTATION: json.dumps([sorted(self.keys)]),
            BEYOND_ANNOTATION: json.dumps(dict.fromkeys(self.rabbits, GIB)),
        }
        metadata = {
            "namespace": self.name.namespace,
            "name": self.name.name,
            "labels": labels,
            "annotations": annotations,
        }
        made = {name: {"allocationSize": 2 * GIB} for name in self.made}
        status = {"ready": self.ready, "allocationSets": [{"storage": made}]}
        spec = {"allocationSets": sets}
        return {"metadata": metadata, "spec": spec, "status": status}


CHANGES = st.tuples(
    st.sampled_from("MODIFIED DELETED assume withdraw release teardown forget".split()),
    st.builds(
        Seen,
        st.integers(0, 2),
        st.frozensets(st.sampled_from(RABBITS)),
        st.frozensets(st.sampled_from(["mgt", "mdt"])),
        st.integers(0, 1),
        st.frozensets(st.sampled_from(RABBITS)),
        st.booleans(),
    ),
)


def free_storage() -> FreeStorage:
    return FreeStorage(mapping.parse(MAPPING), print, lambda: None, lambda: None)


def change(free: FreeStorage, what: str, seen: Seen) -> None:
    if what == "assume":
        free.assume(seen.name, seen.object)
    elif what == "withdraw":
        free.withdraw(seen.name)
    elif what in ("release", "teardown"):
        free.release_share(seen.jobid, torn_down=what == "teardown")
    elif what == "forget":
        free.forget(seen.jobid)
    else:
        free.event(what, seen.object)


@examples(60)
@given(st.lists(CHANGES, max_size=20))
def test_when_all_servers_are_gone_nothing_is_counted(
    changes: list[tuple[str, Seen]],
) -> None:
    free = free_storage()
    for what, seen in changes:
        change(free, what, seen)
    for jobid in range(3):
        free.forget(jobid)
        for number in range(2):
            free.event("DELETED", Seen(jobid, number=number).object)
    assert free.left([]) == free.sizes
    assert not any(free.colocated([]).values())
    assert not (free.reserved or free.unscheduled or free.bytes_in_use or free.jobs)
    assert not (free._released or free._torn_down or free._forgotten)


@examples(60)
@given(st.lists(CHANGES, max_size=20), st.sets(st.integers(1, 2)))
def test_a_service_that_is_loaded_anew_counts_the_same(
    changes: list[tuple[str, Seen]], ended: set[int]
) -> None:
    """Whatever came in between, writes that failed included."""
    free, shown = free_storage(), dict[Reference, Seen]()
    for what, seen in changes:
        if what == "teardown":  # until the storage is gone, only this service knows
            what = "release"
        change(free, what, seen)
        if what == "MODIFIED":
            shown[seen.name] = seen
        elif what == "DELETED":
            shown.pop(seen.name, None)
    for jobid in range(3):
        for number in range(2):
            free.withdraw(Seen(jobid, number=number).name)
        free.release_share(jobid, torn_down=False)
    for jobid in ended:
        free.forget(jobid)
    anew = free_storage()
    for seen in shown.values():
        anew.event("ADDED", seen.object)
    for jobid in range(3):
        anew.release_share(jobid, torn_down=False)
    assert free.left([]) == anew.left([])
    assert free.left([], lasting=True) == anew.left([], lasting=True)
    assert free.reserved == anew.reserved
    assert free.unscheduled == anew.unscheduled
    assert free.colocated([]) == anew.colocated([])
    assert [free.usage_of(j) for j in range(3)] == [anew.usage_of(j) for j in range(3)]


def test_servers_seen_after_the_teardown_take_nothing_off_those_of_others() -> None:
    """The watch may show again what it has shown, or begin late."""
    free = free_storage()
    free.release_share(1, torn_down=True)
    free.event("ADDED", Seen(1).object)
    free.forget(1)
    free.event("DELETED", Seen(1).object)
    free.event("ADDED", Seen(2).object)
    assert free.colocated([]) == {"mgt": {"r1"}}
    assert free.left([])["r1"] == 58 * GIB


def test_storage_that_was_not_torn_down_is_counted_until_it_is_gone() -> None:
    """The scheduler has the job's share back, and must not give it to others."""
    free = free_storage()
    free.event("ADDED", Seen(1).object)
    free.forget(1)
    assert free.colocated([]) == {"mgt": {"r1"}}
    assert free.left([])["r1"] == 58 * GIB
    assert free.unscheduled == {"r1": 2 * GIB}
    free.event("DELETED", Seen(1).object)
    assert free.left([]) == free.sizes
    assert not free.unscheduled


def test_storage_that_is_about_to_be_written_is_counted_until_that_write_is_shown() -> (
    None
):
    """A write whose answer was lost may be shown after another one was begun."""
    free = free_storage()
    first, second = Seen(1), Seen(1, frozenset({"r2"}))
    for seen in (first, second):
        free.assume(seen.name, seen.object)
    free.event("MODIFIED", first.object)
    assert free.left([]) == {"r1": 58 * GIB, "r2": 58 * GIB}
    free.event("MODIFIED", second.object)
    assert free.left([]) == {"r1": 60 * GIB, "r2": 58 * GIB}


def test_storage_that_was_deleted_before_its_write_was_shown_is_not_counted() -> None:
    """The watch skips versions when the service falls behind."""
    free = free_storage()
    free.assume(Seen(1).name, Seen(1).object)
    free.event("MODIFIED", Seen(1, ready=True).object)
    assert free.left([]) == free.sizes


def test_storage_is_counted_where_it_was_and_where_it_may_be_written() -> None:
    free = free_storage()
    free.event("ADDED", Seen(1).object)
    elsewhere = Seen(1, frozenset({"r2"}))
    free.assume(elsewhere.name, elsewhere.object)
    assert free.colocated([]) == {"mgt": {"r1", "r2"}}
    assert free.left([]) == {"r1": 58 * GIB, "r2": 58 * GIB}
    free.event("MODIFIED", elsewhere.object)
    assert free.colocated([]) == {"mgt": {"r2"}}
