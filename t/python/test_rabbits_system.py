# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rabbits that break, and storage that the scheduler does not know of, in a whole
system. (That whatever breaks is told: test_storage.py. Jobs that wait for Rabbits:
stories/broken.py.)"""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.formats import rset
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import storageusage
from flux_k8s.ports import SERVERS, STORAGE, Json
from flux_k8s.rules.directivebreakdown.allocation import gib_per_rabbit
from support.rabbits import (
    PERSISTENT,
    finish,
    hosts,
    marked,
    set_status,
    small,
    stats,
    submit,
    system_of,
    wait,
)
from support.service import HOUR, LIFE, USE, exceptions, memo, names, settle


def storage_of(gib: int) -> str:
    return f"#DW jobdw type=xfs capacity={gib}GiB name=p1"


@pytest.mark.parametrize(
    ("type", "shares"), [("xfs", (182, 91)), ("gfs2", (182, 91)), ("lustre", (64, 32))]
)
def test_the_scheduling_key_of_R_leads_to_the_servers(
    type: str, shares: tuple[int, int]
) -> None:
    system = system_of()
    jobid = submit(system, f"#DW jobdw type={type} capacity=90GiB name=p1", nodes=3)
    wait(system)
    given = gib_per_rabbit(rset.parse(system.instance.job(jobid).R), system.mapping)
    assert given == dict(zip(("rabbit-01", "rabbit-02"), shares))
    (servers,) = system.store.list(SERVERS, None)["items"]
    data = servers["spec"]["allocationSets"][0]  # a Lustre's first one is its OSTs
    made = storageusage.requested([data])
    assert made.keys() == given.keys()
    assert all(size <= (given[rabbit] or 0) * GIB for rabbit, size in made.items())


CHASSIS = {"type": "chassis", "count": 1}


@pytest.mark.parametrize(
    ("dw", "nodes", "chassis", "note"),
    [
        (
            storage_of(32),
            4,
            None,
            "the job asks for 4 nodes with 33 GiB each, and the Rabbits have room for"
            " 2",
        ),
        # The scheduler takes all of it from the Rabbit of the node.
        (
            storage_of(70).replace("xfs", "lustre"),
            1,
            None,
            "each node needs 75 GiB on its Rabbit, but the largest Rabbit has 64 GiB"
            " for jobs",
        ),
        (
            storage_of(40),
            2,
            CHASSIS,
            "the job asks for 2 nodes with 41 GiB each below each of 1 Rabbits, and 0"
            " have room for them",
        ),
        (USE, 5, None, "the job asks for 5 nodes, and Flux has 4"),
    ],
)
def test_more_than_there_is_is_refused(
    dw: str, nodes: int, chassis: Optional[Json], note: str
) -> None:
    system = small()
    finish(system, PERSISTENT.replace("xfs", "lustre").replace("10GiB", "1GiB"))
    jobid = submit(system, dw, nodes, chassis)
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == note
    assert "alloc" not in names(system, jobid)


def test_a_rabbit_that_was_disabled_or_deleted_is_down() -> None:
    system = system_of()
    patch: Json = {"spec": {"state": "Disabled"}}
    system.store.merge_patch(STORAGE, "default", "rabbit-01", patch)
    system.store.delete(STORAGE, "default", "rabbit-02")
    wait(system)
    assert marked(system) == "compute-[01-04]"
    assert stats(system)["down"] == {"rabbit-01": "Disabled", "rabbit-02": "not there"}


def test_a_job_says_that_it_waits_for_the_rabbit_of_its_persistent_storage() -> None:
    system = small()
    finish(system, PERSISTENT)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    jobid = submit(system, USE)
    wait(system, HOUR)
    assert memo(system, jobid, "rabbit_waits_for") == (
        "the Rabbits that it needs: rabbit-01 is Offline"
    )
    set_status(system, "rabbit-01", "Ready")
    settle(system)
    assert (names(system, jobid), hosts(system, jobid)) == (LIFE, "compute-01")
