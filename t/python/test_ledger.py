# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the Servers of the cluster hold is counted, whatever the order in which they,
and the ends of their jobs, are seen."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats.directives import GIB
from flux_k8s.machine.ledger import Ledger
from flux_k8s.objects.storageusage import (
    BEYOND_ANNOTATION,
    COLOCATION_ANNOTATION,
    WORKFLOW_LABEL,
)
from flux_k8s.ports import Json, KubeError
from flux_k8s.rules.directivebreakdown.breakdown import Reference
from support.effort import examples
from support.mapping import context_of
from support.watched import watched

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


class Malformed(Seen):
    """The same, in a form that nobody can read."""

    @property
    def object(self) -> Json:
        return {**super().object, "spec": {"allocationSets": {}}}


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


def nothing() -> None:
    pass


class Jobs(Ledger):
    """A ledger, and the jobs that are known: at first all."""

    def __init__(self, *over: int) -> None:
        self.over = {*over}
        super().__init__(context_of(MAPPING), nothing, self.is_known)

    def is_known(self, jobid: int) -> bool:
        return jobid not in self.over

    def forget(self, jobid: int) -> None:
        self.over.add(jobid)
        super().forget(jobid)


def change(free: Jobs, what: str, seen: Seen) -> None:
    if what == "assume":
        free.assume(seen.name, seen.object)
    elif what == "withdraw":
        free.withdraw(seen.name)
    elif what in ("release", "teardown"):
        free.return_share(seen.jobid, torn_down=what == "teardown")
    elif what == "forget":
        free.forget(seen.jobid)
    elif what == "remade":  # it is known yet
        Ledger.forget(free, seen.jobid)
    elif what == "again":
        free.over.discard(seen.jobid)
        free.note_share(seen.jobid, {"r1": 2 * GIB})
    else:
        free.event(what, watched(seen.object))


@examples(60)
@given(st.lists(CHANGES, max_size=20))
def test_when_all_servers_are_gone_nothing_is_counted(
    changes: list[tuple[str, Seen]],
) -> None:
    free = Jobs()
    for what, seen in changes:
        change(free, what, seen)
    for jobid in range(3):
        free.forget(jobid)
        for number in range(2):
            free.event("DELETED", watched(Seen(jobid, number=number).object))
    assert free.left([]) == free.sizes
    assert not any(free.colocated([]).values())
    assert not (free.reserved or free.withheld or free.bytes_in_use or free.jobs)


@examples(60)
@given(st.lists(CHANGES, max_size=20), st.sets(st.integers(1, 2)))
def test_a_service_that_is_loaded_anew_counts_the_same(
    changes: list[tuple[str, Seen]], ended: set[int]
) -> None:
    """Whatever came in between, writes that failed included."""
    free, shown = Jobs(), dict[Reference, Seen]()
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
        free.return_share(jobid, torn_down=False)
    for jobid in ended:
        free.forget(jobid)
    anew = Jobs(*free.over)
    for seen in shown.values():
        anew.event("ADDED", watched(seen.object))
    for jobid in range(3):
        anew.return_share(jobid, torn_down=False)
    assert free.left([]) == anew.left([])
    assert free.left([], lasting=True) == anew.left([], lasting=True)
    assert free.reserved == anew.reserved
    assert free.withheld == anew.withheld
    assert free.colocated([]) == anew.colocated([])
    assert [free.usage_of(j) for j in range(3)] == [anew.usage_of(j) for j in range(3)]


@pytest.mark.parametrize(
    ("changes", "left", "rabbits", "withheld"),
    [
        # Servers seen after the teardown take nothing off those of others: the watch
        # may show again what it has shown, or begin late.
        ("teardown:1 ADDED:1 forget:1 DELETED:1 ADDED:2", (58, 60), {"r1"}, 1),
        # What was not torn down counts until it is gone: the scheduler has the share
        # of the job back, and must not give it to others.
        ("ADDED:1 forget:1", (58, 60), {"r1"}, 2),
        ("ADDED:1 release:1", (58, 60), {"r1"}, 2),
        ("ADDED:1 forget:1 DELETED:1", (60, 60), set(), 0),
        # So it does when the cluster goes back, and shows it again.
        ("ADDED:1 forget:1 DELETED:1 ADDED:1", (58, 60), {"r1"}, 2),
        ("ADDED:1 release:1 DELETED:1 ADDED:1", (58, 60), {"r1"}, 2),
        ("release:1 remade:1 ADDED:1", (58, 60), {"r1"}, 1),
        # What was torn down is gone with its job, though the watch has not shown it.
        ("ADDED:1 teardown:1 forget:1", (60, 60), set(), 0),
        # A job whose Workflow is made again forgets what it had before.
        ("ADDED:1 forget:1 again:1 DELETED:1 assume:1", (58, 60), {"r1"}, 1),
        # What is about to be written counts until that write is shown: one whose
        # answer was lost may be shown after another one was begun.
        ("assume:1 assume:1b MODIFIED:1", (58, 58), {"r1", "r2"}, 1),
        ("assume:1 assume:1b MODIFIED:1 MODIFIED:1b", (60, 58), {"r2"}, 0),
        # It was deleted before its write was shown: the watch skips versions when the
        # service falls behind.
        ("assume:1 MODIFIED:1r", (60, 60), set(), 0),
        # It counts where it was, and where it may be written.
        ("ADDED:1 assume:1b", (58, 58), {"r1", "r2"}, 1),
        ("ADDED:1 assume:1b MODIFIED:1b", (60, 58), {"r2"}, 0),
        # What cannot be read any more is there yet, and may be what is being written.
        ("ADDED:1 MODIFIED:1m", (58, 60), {"r1"}, 1),
        ("assume:1 MODIFIED:1m", (58, 60), {"r1"}, 1),
        ("ADDED:1 MODIFIED:1m DELETED:1m", (60, 60), set(), 0),
    ],
)
def test_storage_counts_as_long_as_it_may_be_there(
    changes: str, left: tuple[int, int], rabbits: set[str], withheld: int
) -> None:
    """1b: the same Servers, on the other Rabbit; 1r: all their storage was made once;
    1m: they are malformed. A GiB of each is beyond the share of their job."""
    servers = {
        "1": Seen(1),
        "1b": Seen(1, frozenset({"r2"})),
        "1m": Malformed(1),
        "1r": Seen(1, ready=True),
        "2": Seen(2),
    }
    free = Jobs()
    for what, _, name in (word.partition(":") for word in changes.split()):
        change(free, what, servers[name])
    assert free.left([]) == {"r1": left[0] * GIB, "r2": left[1] * GIB}
    assert free.colocated([]).get("mgt", set()) == rabbits
    assert free.withheld.get("r1", 0) == withheld * GIB


def test_servers_of_a_job_that_nobody_knows_leave_nothing() -> None:
    free, seen = Jobs(), Seen(1)
    free.event("ADDED", watched(seen.object))
    free.event("DELETED", watched(seen.object))
    assert free.jobs == frozenset()


def test_servers_that_are_shown_after_the_end_of_their_job_leave_nothing() -> None:
    free, seen = Jobs(), Seen(1, made=frozenset({"r1"}))
    free.event("ADDED", watched(seen.object))
    free.return_share(1, torn_down=True)
    free.forget(1)
    free.event("MODIFIED", watched(seen.object))
    free.event("DELETED", watched(seen.object))
    assert free.jobs == frozenset()


def test_servers_with_two_damages_cost_themselves() -> None:
    object, free = Seen(1, made=frozenset({"r1"})).object, Jobs()
    storage = {"r1": {"ready": {}}, "r2": []}
    object["status"]["allocationSets"] = [{"storage": storage}]
    free.event("ADDED", watched(object))
    assert free.usage_of(1) == {}


@pytest.mark.parametrize(("status", "counted"), [(500, False), (403, True)])
def test_no_job_waits_for_servers_that_cannot_be_seen(
    status: int, counted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    free = Ledger(context_of(MAPPING), nothing, bool)
    assert not free.settled
    for _ in range(2):
        free.trouble(KubeError(status, "Wrong", "no list"))
    assert free.settled and free.counted == counted
    assert capsys.readouterr().out.count("no list") == 1
    with pytest.raises(KubeError):
        free.colocated([])
    free.synced()
    free.trouble(KubeError(status, "Wrong", "no list"))
    assert free.listed and free.counted
    assert free.colocated([]) == {}
