# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Trouble in DWS, and of the Rabbits and nodes that it works with."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flux_k8s.config.table import KEEP
from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.objects.workflowmarks import KEPT_FOR
from flux_k8s.ports import SERVERS
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import COPYING, Fault
from rabbitsim.torture.trouble import NODES, RABBITS, Moment, Trouble

if TYPE_CHECKING:
    from rabbitsim.torture.plan import Plan
    from rabbitsim.torture.world import World

# Its states


def draw_dws(rng: random.Random, moment: Moment) -> list[Trouble]:
    state = rng.choice(STATES)
    kinds = ["error", "transient", "never", "slow", "stall", "mount", "brief"]
    what = rng.choice(kinds)
    if what == "mount":
        state = rng.choice(["PreRun", "PostRun"])
    if what == "stall":
        return _draw_stalls(rng, moment)
    seconds = rng.choice([0.0, 5.0, 30.0, 400.0])
    if what == "slow" or state in ("PostRun", "DataOut", "Teardown"):
        seconds = rng.choice([5.0, 30.0, 400.0])  # who would end it otherwise?
    if what == "error" and state == "Teardown":
        what = "transient"  # only an administrator can clear an error there
    if what == "brief":
        what, seconds = "transient", rng.choice([0.5, 3.0])
    job = rng.randrange(moment.jobs)
    return [Trouble("dws", what, job=job, duration=seconds, name=state)]


def _draw_stalls(rng: random.Random, moment: Moment) -> list[Trouble]:
    """A global file system hangs, and with it the data of some jobs."""
    state, seconds = rng.choice(COPYING), rng.choice([30.0, 100.0, 400.0])
    jobs = [job for job in range(moment.jobs) if rng.random() < 0.3]
    return [Trouble("dws", "stall", job=j, duration=seconds, name=state) for j in jobs]


def add_failing_copies(plan: Plan, rng: random.Random) -> Plan:
    """Data movements of some jobs fail in DataOut for a while. The site may keep
    their storage."""
    own, jobs = random.Random(f"copies {plan.seed}"), len(plan.jobs)
    keeps = own.random() < 0.5
    if keeps:
        keep = own.choice([60.0, 600.0, 3000.0])
        plan = plan.with_config(keep_failed=keep, keep_failed_limit=100.0)
    if own.random() >= (0.9 if keeps else 0.1):
        return plan
    troubles = [
        Trouble(
            "dws",
            "copy",
            job=own.randrange(jobs),
            duration=own.choice([30.0, 400.0, 3000.0]),
            name="DataOut",
            copy=own.choice([None, 0, 1]),
        )
        for _ in range(own.randint(1, max(1, jobs // 4)))
    ]
    return plan.with_troubles(troubles)


def arm(world: World, trouble: Trouble) -> None:
    directive = None if trouble.copy is None else _copy_out(world.plan, trouble)
    _add_fault(world, trouble, trouble.name, directive=directive)


def _add_fault(world: World, trouble: Trouble, state: str, **more: Any) -> None:
    """DWS has a fault from the beginning, which shows in a state."""
    fault = Fault(
        state,
        trouble.what,
        workflow_name(world.jobid_of(trouble)),
        trouble.duration,
        message="a trouble that was planned",
        **more,
    )
    world.faults.append(fault)


def _copy_out(plan: Plan, trouble: Trouble) -> int:
    """The number of the directive whose data movements fail; -1 if there is none."""
    (job,) = (job for job in plan.jobs if job.number == trouble.job)
    dw = job.jobspec["attributes"]["system"].get("dw")
    texts = dw.splitlines() if isinstance(dw, str) else dw
    if not isinstance(texts, list):
        return -1
    found = [i for i, text in enumerate(texts) if str(text).startswith("#DW copy_out")]
    return dict(enumerate(found)).get(trouble.copy or 0, -1)


def draw_controllers(rng: random.Random, moment: Moment) -> list[Trouble]:
    """DWS does nothing at all for a while."""
    seconds = rng.choice([30.0, 600.0, 1800.0])
    return [Trouble("controllers", "down", **moment.any(rng), duration=seconds)]


def pause_controllers(world: World, trouble: Trouble) -> None:
    world.pauses += 1
    world.system.controllers.pause()

    def back() -> None:
        world.pauses -= 1
        if world.pauses == 0:
            world.note("the controllers go on")
            world.system.controllers.resume()

    world.later(trouble.duration, back)


# One node or Rabbit of a job


def draw_part(rng: random.Random, moment: Moment) -> list[Trouble]:
    """One compute node does not mount, or one Rabbit makes no storage."""
    if rng.random() < 0.7:
        name = rng.choice(NODES)
        what = rng.choice(["mount", "mount", "error", "never"])
    else:
        name = rng.choice(RABBITS)
        what = rng.choice(["error", "transient", "never"])
    seconds = rng.choice([0.0, 0.0, 5.0, 30.0, 400.0])
    if what == "never":
        seconds = seconds or 400.0  # who would end it where there is no time limit?
    job = rng.randrange(moment.jobs)
    return [Trouble("part", what, job=job, duration=seconds, name=name)]


def arm_part(world: World, trouble: Trouble) -> None:
    state = "Setup" if trouble.name.startswith("rabbit") else "PreRun"
    _add_fault(world, trouble, state, node=trouble.name)


def arm_unmount(world: World, trouble: Trouble) -> None:
    _add_fault(world, trouble, "PostRun", node=trouble.name)


FENCE = "/site/is-fenced"
"""The program that says which nodes the administrator has fenced."""


def add_bad_nodes(plan: Plan, rng: random.Random) -> Plan:
    """Nodes that do not unmount for long. The site may keep their storage, and have a
    program that tells which of them are fenced."""
    own = random.Random(f"bad nodes {plan.seed}")
    keeps = own.random() < 0.5
    if keeps:
        limit = plan.site.config.postrun_timeout
        limit = limit or own.choice([None, 20.0, 60.0, 300.0])
        plan = plan.with_config(unmount_failure=KEEP, postrun_timeout=limit)
    bad = own.random() < (0.9 if keeps else 0.1)
    troubles = _bad_nodes(own, len(plan.jobs)) if bad else []
    if keeps and own.random() < 0.5:
        plan = plan.with_config(fence_command=(FENCE,))
        troubles += _fences(random.Random(f"fences {plan.seed}"), troubles)
    return plan.with_troubles(troubles)


def _bad_nodes(rng: random.Random, jobs: int) -> list[Trouble]:
    """Some nodes are switched off while they do not unmount, for a while."""
    troubles: list[Trouble] = []
    for _ in range(rng.randint(1, max(1, jobs // 8))):
        job, name = rng.randrange(jobs), rng.choice(NODES)
        stuck = rng.choice([30.0, 400.0, 3000.0])
        troubles.append(Trouble("unmount", "mount", job=job, duration=stuck, name=name))
        if rng.random() < 0.5:
            off = Trouble(
                "node",
                "lost",
                job=job,
                events=rng.randint(15, 18),
                skip=rng.randint(0, 40),
                duration=rng.choice([5.0, 60.0, 600.0]),
                name=name,
            )
            troubles += [off, replace(off, kind="rabbit", what="link")]
    return troubles


def _fences(rng: random.Random, bad_nodes: list[Trouble]) -> list[Trouble]:
    """Some of the nodes that do not unmount are fenced, for a while."""
    return [
        replace(
            trouble,
            kind="node",
            what="fenced",
            events=rng.randint(15, 18),
            skip=rng.randint(0, 60),
            duration=rng.choice([5.0, 60.0, 600.0]),
        )
        for trouble in bad_nodes
        if trouble.kind == "unmount" and rng.random() < 0.7
    ]


OFF = 60.0
"""Seconds for which the administrator switches off a node."""


def switch_off_kept(world: World) -> None:
    """Switch off the nodes that storage is kept for, as an administrator does whom
    ``flux dws show`` tells so; or fence them, where the site has a program that
    tells."""
    for workflow in world.system.workflows():
        annotations = workflow["metadata"].get("annotations") or {}
        for host in hostlist.decode(annotations.get(KEPT_FOR, "")):
            if world.plan.site.config.fence_command:
                world.note(f"fence {host}")
                world.fence(host)
                continue
            for kind, what in (("node", "lost"), ("rabbit", "link")):
                world.begin(Trouble(kind, what, duration=OFF, name=host))


# Rabbits


def draw_rabbit(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(["offline", "link"])
    index = rng.randint(1, 4)
    name = f"rabbit-{index:02d}" if what == "offline" else f"compute-{index:02d}"
    seconds = rng.choice([1.0, 20.0, 200.0])
    return [Trouble("rabbit", what, **moment.any(rng), duration=seconds, name=name)]


def break_rabbit(world: World, trouble: Trouble) -> None:
    rabbits, name = world.system.controllers.rabbits, trouble.name
    topology = world.system.topology
    if trouble.what == "offline" and name in topology.rabbits:
        rabbits.set_status(name, "Offline")
        world.later(trouble.duration, lambda: rabbits.set_status(name, "Ready"))
    elif trouble.what == "link" and name in topology.rabbit_of:
        rabbits.set_link(name, False)
        world.later(trouble.duration, lambda: rabbits.set_link(name, True))


def draw_storage(rng: random.Random, moment: Moment) -> list[Trouble]:
    """Others than jobs fill a Rabbit, but for 20 GiB."""
    name, seconds = rng.choice(RABBITS), rng.choice([20.0, 200.0])
    return [Trouble("storage", "full", **moment.any(rng), duration=seconds, name=name)]


def fill_rabbit(world: World, trouble: Trouble) -> None:
    store, name = world.system.store, f"others-{world.steps}"
    used = [{"name": trouble.name, "allocationCount": 1}]
    size = world.plan.site.capacity - (20 << 30)
    sets = [{"label": "xfs", "allocationSize": size, "storage": used}]
    body = {"metadata": {"name": name}, "spec": {"allocationSets": sets}}
    if store.find(SERVERS, "default", name) is None:
        store.create(SERVERS, "default", body)
        world.filled = world.system.loop.now()

        def leave() -> None:
            store.delete(SERVERS, "default", name)

        world.later(trouble.duration, leave)
