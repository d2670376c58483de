# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws check, and what becomes of the jobs, in a whole system."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from flux_k8s.ports import Json
from rabbitsim.commands import VirtualInstance
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.dwscli import GIB, dws
from support.effort import seeds
from support.rabbits import set_status
from support.service import exceptions, jobspec, long, memo, names, started

NOW = 60.0
"""Seconds within which a job that fits has its nodes."""


def storage_of(gib: int, type: str = "xfs") -> str:
    return f"#DW jobdw type={type} capacity={gib}GiB name=p1"


def checked(system: VirtualSystem, dw: str, nodes: int) -> tuple[int, Json]:
    done = dws(VirtualInstance(system), "check", "--json", dw, f"-N{nodes}")
    assert not done.err
    return done.status, json.loads(done.out)


def random_system(rng: random.Random) -> VirtualSystem:
    rabbits = rng.randint(1, 3)
    topology = Topology.regular(
        nodes=rabbits * rng.randint(1, 4),
        rabbits=rabbits,
        capacity=rng.randint(16, 64) * GIB,
    )
    chunks = rng.choice([None, 4, 8])
    system: VirtualSystem = started(topology=topology, chunks=chunks)
    system.loop.run(timeout=NOW)
    return system


def submit(system: VirtualSystem, dw: str, nodes: int) -> int:
    jobid = system.instance.submit(long(dw, nodes, seconds=86400))
    system.loop.run(timeout=NOW)
    return jobid


def happen(system: VirtualSystem, rng: random.Random) -> None:
    """A Rabbit breaks or is mended, persistent storage is made, or nothing happens."""
    what = rng.random()
    if what < 0.2:
        rabbit = rng.choice(list(system.topology.rabbits))
        set_status(system, rabbit, rng.choice(["Offline", "Ready"]))
    elif what < 0.3:
        dw = storage_of(rng.randint(1, 20)).replace("jobdw", "create_persistent")
        name = f"keep{rng.randrange(10**6)}"
        jobid = system.instance.submit(jobspec(dw.replace("p1", name), nodes=1))
        system.loop.run(timeout=NOW)
        system.instance.cancel(jobid)
    system.loop.run(timeout=600.0)


@pytest.mark.parametrize("seed", seeds(8, 1500))
def test_check_says_what_the_scheduler_does(seed: int) -> None:
    """Jobs that do not fit are cancelled, since those that wait are not looked at."""
    rng = random.Random(seed)
    system = random_system(rng)
    most = len(system.topology.rabbit_of)
    for _ in range(8):
        happen(system, rng)
        dw = storage_of(rng.randint(1, 40), rng.choice(["xfs", "raw", "gfs2"]))
        nodes = rng.randint(1, most + 1)
        status, answer = checked(system, dw, nodes)
        if "refusal" in answer:
            continue  # it is refused by the same rules at submission
        jobid = submit(system, dw, nodes)
        job, notes = system.instance.job(jobid), exceptions(system, jobid)
        about = (dw, nodes, answer, names(system, jobid), notes)
        assert (status == 1) == bool(answer["never"]) == bool(notes), about
        if answer["never"]:
            assert notes[0]["type"] == "dws"
            continue
        fits = sum(answer["fits_now"].values()) >= nodes
        assert fits == job.was_posted("alloc"), about
        if not fits:
            assert job.state is JobState.SCHED
            system.instance.cancel(jobid)
            system.loop.run(timeout=NOW)


def test_jobs_wait_for_a_graph_with_rabbits_and_check_says_so() -> None:
    system = started()
    find = system.instance.fluxion.methods["find"]

    def find_none(payload: Json, userid: int) -> Any:
        return {"R": None} if "rabbit" in payload["criteria"] else find(payload, userid)

    system.instance.fluxion.methods["find"] = find_none
    system.instance.reload_fluxion()
    system.loop.run(timeout=NOW)
    status, answer = checked(system, storage_of(10), 1)
    assert (status, answer["fits_now"], answer["fits_by"]) == (0, {}, None)
    jobid = submit(system, storage_of(10), 1)
    assert system.instance.job(jobid).state is JobState.DEPEND
    assert "jobs with storage wait" in memo(system, jobid, "rabbit_waits_for")
    system.instance.fluxion.methods["find"] = find
    system.instance.reload_fluxion()
    system.loop.run(timeout=300.0)
    assert system.instance.job(jobid).was_posted("start")
