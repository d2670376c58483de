# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Labels of Rabbits that move while a job waits for nodes, or has its storage (with a
real Fluxion: t2003-rabbits.t)."""

from __future__ import annotations

from flux_k8s.formats.directives import GIB
from flux_k8s.ports import STORAGE, Json
from rabbitsim.system import VirtualSystem
from support.service import (
    LIFE,
    LUSTRE,
    XFS,
    exceptions,
    jobspec,
    labelled,
    long,
    names,
    placed,
    run_until,
    running,
    settle_jobs,
    started,
    wants,
)

NODES = 4
SECOND = "rabbit-02"


def system_with_label_on_first() -> VirtualSystem:
    system = started(topology=labelled(tier="slow"), options=wants("tier=fast"))
    move_label(system, "rabbit-01", SECOND)
    return system


def move_label(system: VirtualSystem, to: str, away: str) -> None:
    for name, tier in ((to, "fast"), (away, "slow")):
        patch = {"metadata": {"labels": {"tier": tier}}}
        system.store.merge_patch(STORAGE, "default", name, patch)
    system.loop.run(timeout=1)


def submit_before_labels_move(system: VirtualSystem, spec: Json) -> int:
    """A job that is planned with the labels as they are, and gets nodes when they have
    moved."""
    running(system, system.instance.submit(long("", NODES, seconds=60)))
    jobid = system.instance.submit(spec)
    run_until(system, jobid, "depend")
    move_label(system, SECOND, "rabbit-01")
    return jobid


def test_the_exception_of_a_job_whose_labels_moved_away_names_rabbit_and_label() -> (
    None
):
    system = system_with_label_on_first()
    jobid = submit_before_labels_move(system, jobspec(XFS, 1))
    settle_jobs(system)
    (exception,) = exceptions(system, jobid)
    assert "Rabbit rabbit-01" in exception["note"]
    assert "lacks the label tier=fast" in exception["note"]
    assert "start" not in names(system, jobid)


def test_network_storage_goes_to_the_rabbit_that_has_its_labels_by_then() -> None:
    system = system_with_label_on_first()
    jobid = submit_before_labels_move(system, long(LUSTRE, 1))
    running(system, jobid)
    assert all(set(counts) == {SECOND} for counts in placed(system).values())
    settle_jobs(system)
    assert names(system, jobid) == LIFE


def test_the_share_of_a_job_that_makes_persistent_storage_is_counted_once() -> None:
    """A job whose share is of one Rabbit, and whose storage goes to another, has room
    there beside the storage that a job has made which runs on."""
    system = system_with_label_on_first()
    move_label(system, SECOND, "rabbit-01")
    size = min(map(system.mapping.capacity, system.mapping.rabbits)) // GIB
    half = f"capacity={int(size * 0.55)}GiB"
    running(
        system,
        system.instance.submit(
            long(f"#DW create_persistent type=xfs {half} name=keep", 1)
        ),
    )
    move_label(system, "rabbit-01", SECOND)
    running(system, system.instance.submit(long("", NODES - 1, seconds=60)))
    tenth = f"capacity={int(size * 0.1)}GiB"
    jobid = system.instance.submit(long(f"#DW jobdw type=lustre {tenth} name=p1", 1))
    run_until(system, jobid, "depend")
    move_label(system, SECOND, "rabbit-01")
    system.loop.run(timeout=90)
    assert "start" in names(system, jobid)


def test_labels_that_move_when_the_storage_is_made_are_of_no_concern() -> None:
    system = system_with_label_on_first()
    jobid = system.instance.submit(long(XFS, 1))
    running(system, jobid)
    move_label(system, SECOND, "rabbit-01")
    settle_jobs(system)
    assert names(system, jobid) == LIFE
