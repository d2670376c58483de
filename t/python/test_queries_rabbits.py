# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What queries answer about Rabbits and rules, and Rabbits that are taken out of
service, in a whole system under virtual time."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from flux_k8s.formats.directives import GIB
from flux_k8s.jobs import rabbitqueries
from flux_k8s.machine.ledger import Share
from flux_k8s.ports import DWDIRECTIVERULE, Json, Sender
from rabbitsim.system import VirtualSystem
from support.queries import GUEST, OTHER, check, query, refusal, seen
from support.rabbits import disable
from support.service import (
    HOUR,
    KEEP,
    LUSTRE,
    XFS,
    long,
    names,
    running,
    settle_jobs,
    started,
)

# The rules

RULE = {"command": "jobdw", "ruleDefs": []}


def test_the_rules_are_those_of_the_cluster() -> None:
    system = started()
    seen(system)
    rules = query(system, "rules", {}, GUEST)["rules"]
    assert {"jobdw", "copy_in"} <= {rule["command"] for rule in rules}
    assert all(rule["ruleDefs"] is not None for rule in rules)
    found = system.store.list(DWDIRECTIVERULE, None)["items"]
    for item in found:
        meta = item["metadata"]
        system.store.delete(DWDIRECTIVERULE, meta["namespace"], meta["name"])
    seen(system)
    assert query(system, "rules", {}, GUEST)["rules"] is None


# Rabbits


RABBIT = {
    "name": (str,),
    "state": (str,),
    "reason": (str,),
    "capacity": (int,),
    "free": (int, type(None)),
    "withheld": (int, type(None)),
    "ssd_size": (int,),
    "ssds": (int,),
    "ssds_withheld": (int,),
    "ssds_free": (int,),
    "nodes": (str,),
    "broken": (str,),
    "njobs": (int,),
    "jobs": (list,),
    "job_ssds": (dict,),
    "disabled": (dict, type(None)),
}


def rabbits(system: VirtualSystem, userid: Any = None) -> dict[str, Json]:
    system.loop.run(timeout=1.5)
    found = query(system, "rabbit-list", {}, userid)["rabbits"]
    return {row["name"]: row for row in found}


def test_rabbits_tell_their_room_and_their_jobs_and_guests_see_their_own() -> None:
    system = started()
    mine = system.instance.submit(long(LUSTRE, 2), userid=GUEST)
    others = system.instance.submit(long(LUSTRE, 2), userid=OTHER)
    running(system, mine, others)
    for userid in (None, GUEST):
        found = rabbits(system, userid)
        for row in found.values():
            check(row, RABBIT)
            assert row["state"] == "Ready" and row["reason"] == ""
        jobs = {job for row in found.values() for job in row["jobs"]}
        assert jobs == ({mine} if userid else {mine, others})
        assert sum(row["njobs"] for row in found.values()) >= 2
        assert any(row["free"] < row["capacity"] for row in found.values())
    settle_jobs(system)
    found = rabbits(system)
    assert all(row["free"] == row["capacity"] for row in found.values())
    assert found["rabbit-01"]["nodes"] == "compute-[01-02]"


def test_rabbits_are_disabled_with_a_reason_until_they_are_enabled() -> None:
    system = started()
    seen(system)
    both = {"rabbits": ["rabbit-01", "rabbit-02"], "reason": "new\x1b[2J disks"}
    found = query(system, "rabbit-disable", both)
    assert found == {**found, "rabbits": both["rabbits"], "replaced": {}}
    seen(system)
    one = {"rabbits": ["rabbit-01"], "reason": "new cables"}
    replaced = query(system, "rabbit-disable", one)["replaced"]
    assert replaced == {"rabbit-01": "new\\x1b[2J disks"}
    query(system, "rabbit-disable", both)
    row = rabbits(system)["rabbit-01"]
    assert row["disabled"]["reason"] == "new\\x1b[2J disks"
    assert row["disabled"]["by"] == str(system.instance.broker.owner)
    assert row["state"] == "Ready"
    assert row["reason"].startswith("disabled by ")
    assert query(system, "rabbit-enable", both)["rabbits"] == both["rabbits"]
    seen(system)
    assert query(system, "rabbit-enable", one)["rabbits"] == []


def test_nodes_that_another_program_has_disabled_are_named() -> None:
    system = started()
    row = rabbits(system)["rabbit-01"]
    assert "disabled_nodes" not in row
    disable(system, "compute-02")
    assert rabbits(system)["rabbit-01"] == {**row, "disabled_nodes": "compute-02"}


def test_a_rabbit_that_was_just_listed_is_shown_as_disabled_at_once() -> None:
    system = started()
    for method, is_disabled in (("disable", True), ("enable", False)):
        before = rabbits(system)["rabbit-01"]
        assert bool(before["disabled"]) is not is_disabled
        query(system, f"rabbit-{method}", {"rabbits": ["rabbit-01"]})
        system.loop.run(timeout=0.1)
        found = query(system, "rabbit-list", {})["rabbits"]
        assert bool(found[0]["disabled"]) is is_disabled


def test_rabbits_are_listed_in_portions() -> None:
    count = rabbitqueries.ROWS + 1
    system = started(nodes=count, rabbits=count)
    seen(system)
    rows, portions, payload = [], 0, {}
    while True:
        found = query(system, "rabbit-list", payload, GUEST)
        rows += [row["name"] for row in found["rabbits"]]
        portions += 1
        if found["next"] is None:
            break
        payload = {"after": found["next"]}
    assert portions == 2 and sorted(rows) == sorted(system.topology.rabbits)
    assert refusal(system, "rabbit-list", {"after": "rabbit-999"}, GUEST) == (
        errno.ENOENT,
        "'rabbit-999' is no Rabbit of rabbit.mapping",
    )


def test_queries_that_come_together_are_answered_one_in_a_turn() -> None:
    """Many guests may ask while the rows of a large machine are made."""
    count = rabbitqueries.ROWS_AT_A_TIME + 1
    system = started(nodes=count, rabbits=count)
    seen(system)
    asked, answers = 8, list[int]()
    assert system.service is not None
    for number in range(asked):
        sender = Sender(GUEST + number, owner=False)
        system.service.query("rabbit-list", {}, lambda *_: answers.append(1), sender)
    most = 0
    while len(answers) < asked:
        before = len(answers)
        assert system.loop.step()
        most = max(most, len(answers) - before)
    assert most == 1


def room(system: VirtualSystem) -> tuple[dict[str, int], dict[str, int]]:
    """The ``ssd`` that are free on each Rabbit, for the service and the scheduler."""
    system.loop.run(timeout=5.0)
    found = {name: row["ssds_free"] for name, row in rabbits(system).items()}
    pool = system.instance.scheduler.pool
    given = {c.rabbit: pool.free("ssd", c.index) for c in pool.chassis}
    return found, given


@pytest.mark.parametrize("directives", [XFS, [XFS, XFS.replace("p1", "p2")], LUSTRE])
def test_the_ssd_that_are_free_are_those_that_the_scheduler_gives(
    directives: Any,
) -> None:
    system = started()
    keep = system.instance.submit(long(KEEP, seconds=1))
    mine = system.instance.submit(long(directives, 3), userid=GUEST)
    others = system.instance.submit(long(XFS, 1), userid=OTHER)
    running(system, mine, others)
    assert system.loop.run(lambda: "clean" in names(system, keep), timeout=HOUR)
    found, given = room(system)
    assert found == given
    for row in rabbits(system, GUEST).values():
        assert set(row["job_ssds"]) <= {str(mine)}
    settle_jobs(system)
    found, given = room(system)
    assert found == given and sum(given.values()) > 0


@pytest.mark.parametrize("is_fluxion", [False, True])
def test_without_ssd_from_the_scheduler_rabbits_have_the_room_that_jobs_leave(
    is_fluxion: bool,
) -> None:
    """Fluxion has jobs keep apart, so one that is there leaves none."""
    system = started(scheduler=False, dynamic_properties=is_fluxion)
    jobid = system.instance.submit(long(XFS, 2))
    running(system, jobid)
    system.loop.run(timeout=5.0)
    rows = rabbits(system)
    for row in rows.values():
        used = row["capacity"] - row["free"] > 0
        left = 0 if used and is_fluxion else row["free"] // GIB
        assert row["ssd_size"] == 1 and row["ssds"] == row["capacity"] // GIB
        assert abs(row["ssds_free"] - left) <= 1
        assert bool(row["job_ssds"]) is used
    assert any(row["free"] < row["capacity"] for row in rows.values())


@pytest.mark.parametrize(
    "sizes, size, expected",
    [
        ([10, 10, 10], 60, 3),
        ([61, 61], 60, 4),
        ([120], 60, 2),
    ],
)
def test_an_ssd_is_part_of_one_allocation(
    sizes: list[int], size: int, expected: int
) -> None:
    share = Share(sum(sizes) * GIB, len(sizes))
    assert share.ssds(size) == expected


def test_a_rabbit_that_is_unknown_cannot_be_disabled() -> None:
    system = started()
    payload = {"rabbits": ["rabbit-01", "rabbit-99"], "reason": ""}
    errnum, text = refusal(system, "rabbit-disable", payload)
    assert errnum == errno.ENOENT and "'rabbit-99'" in text
    assert rabbits(system)["rabbit-01"]["disabled"] is None
