# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Trouble in Flux: of the module, the plugin, nodes and jobs."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rabbitsim.flux.events import JobState
from rabbitsim.torture.record import ABORT
from rabbitsim.torture.trouble import NODES, PAUSES, Moment, Trouble

if TYPE_CHECKING:
    from rabbitsim.torture.plan import Plan
    from rabbitsim.torture.world import World

# The module, the plugin, and job-exec


def draw_module(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(["crash", "crash", "late-crash", "remove"])
    when = moment.any(rng)
    return [Trouble("module", what, **when, duration=rng.choice(PAUSES))]


def lose_module(world: World, trouble: Trouble) -> None:
    system = world.system
    if not system.instance.module_loaded:
        return
    if trouble.what == "remove":
        system.unload_module()
    else:
        kube = system.troubled
        left = [] if kube is None else kube.on_the_way()
        system.kill_module()
        if trouble.what == "late-crash":
            # Requests that were on the way arrive all the same, some time later.
            for request in left:
                wait = system.rng.uniform(0.0, 5.0)
                world.later(wait, partial(system.api_troubles.carry_out, request))
    world.later(trouble.duration, world.load_module)


def draw_plugin(rng: random.Random, moment: Moment) -> list[Trouble]:
    seconds = rng.choice([0.0, 0.0, 0.0, 0.001, 0.5, 5.0])
    return [Trouble("plugin", "reload", **moment.any(rng), duration=seconds)]


def reload_plugin(world: World, trouble: Trouble) -> None:
    if world.system.instance.jobtap.plugin is None:
        return
    world.system.instance.unload_plugin()
    world.plugin_outages.append((world.system.loop.now(), float("inf")))
    if trouble.duration:
        world.later(trouble.duration, world.load_plugin)
    else:
        world.load_plugin()


def draw_exec(rng: random.Random, moment: Moment) -> list[Trouble]:
    """job-exec is loaded again; or the job manager is, and job-exec only later. Jobs
    are cancelled meanwhile."""
    what = rng.choice(["reload", "unheard"])
    when: dict[str, Any] = {
        "job": rng.randrange(moment.jobs),
        "events": rng.randint(12, 20),
    }
    seconds = rng.choice([5.0, 60.0]) if what == "unheard" else 0.0
    troubles = [Trouble("exec", what, **when, duration=seconds)]
    if rng.random() < 0.7:
        troubles.append(Trouble("exec", "cancel", **when, skip=rng.randint(1, 10)))
    return troubles


def reload_exec(world: World, trouble: Trouble) -> None:
    instance = world.system.instance
    if trouble.what == "cancel":
        instance.cancel(world.jobid_of(trouble))
    elif trouble.what == "reload":
        instance.reload_exec()
    else:
        world.system.reload_manager()
        world.later(trouble.duration, instance.reload_exec)


def draw_fault(rng: random.Random, moment: Moment) -> list[Trouble]:
    """A step for a job raises an unexpected exception, once."""
    job = rng.randrange(moment.jobs)
    return [Trouble("fault", "step", job=job, skip=rng.randint(0, 12))]


def arm_fault(world: World, trouble: Trouble) -> None:
    world.system.step_faults[world.jobid_of(trouble)] = trouble.skip


def add_latency(plan: Plan, rng: random.Random) -> Plan:
    """Messages and requests take time."""
    message = rng.choice([0.0, 0.001, 0.05])
    kube = rng.choice([0.0, 0.005, 0.2])
    site = replace(plan.site, message_latency=message, kube_latency=kube)
    return replace(plan, site=site)


# Nodes


def draw_node(rng: random.Random, moment: Moment) -> list[Trouble]:
    name, seconds = rng.choice(NODES), rng.choice([1.0, 60.0])
    return [Trouble("node", "lost", **moment.any(rng), duration=seconds, name=name)]


def lose_node(world: World, trouble: Trouble) -> None:
    instance, name = world.system.instance, trouble.name
    world.lost_nodes.add(name)
    instance.set_up(name, False)
    if trouble.what == "fenced":
        world.fence(name)

    def back() -> None:
        world.fenced.discard(name)
        instance.set_up(name, True)

    world.later(trouble.duration, back)


# Jobs


def draw_user(rng: random.Random, moment: Moment) -> list[Trouble]:
    job = rng.randrange(moment.jobs)
    when: dict[str, Any] = {"job": job, "events": rng.randint(1, 20)}
    skip = rng.randint(0, 30)
    what = rng.choice(["cancel", "cancel", "note"])
    troubles = [Trouble("user", what, **when, skip=skip)]
    if rng.random() < 0.3:
        troubles.append(Trouble("user", "cancel", **when, skip=rng.randint(0, 60)))
    return troubles


def act_as_user(world: World, trouble: Trouble) -> None:
    instance, jobid = world.system.instance, world.jobid_of(trouble)
    manager, job = instance.manager, instance.manager.jobs.get(jobid)
    if trouble.what == "cancel":
        instance.cancel(jobid)
    elif job is None or not job.active:
        return
    elif trouble.what == "note":
        manager.raise_exception(jobid, "user", 3, "by the way", manager.owner)
    elif job.was_posted("epilog-start"):
        world.aborted.add(jobid)
        manager.raise_exception(jobid, ABORT, 0, "enough", manager.owner)


def draw_abort(rng: random.Random, moment: Moment) -> list[Trouble]:
    """An epilog is given up during an outage, and who knows of it dies."""
    job = rng.randrange(moment.jobs)
    when: dict[str, Any] = {"job": job, "events": rng.randint(15, 18)}
    dark = rng.choice([60.0, 600.0])
    what = rng.choice(["refused", "hang", "503"])
    troubles = [
        Trouble("outage", what, **when, skip=4, duration=dark),
        Trouble("user", "abort", **when, skip=rng.randint(4, 12)),
    ]
    for kind, what in (("module", "crash"), ("plugin", "reload")):
        if rng.random() < 0.7:
            when["skip"], away = rng.randint(12, 60), rng.choice(PAUSES)
            troubles.append(Trouble(kind, what, **when, duration=away))
    return troubles


def add_queue(plan: Plan, rng: random.Random) -> Plan:
    """The places of jobs in the queue change, or the nodes that they may get."""
    own, jobs = random.Random(f"queue {plan.seed}"), len(plan.jobs)
    troubles = [
        Trouble(
            "queue",
            job=own.randrange(jobs),
            events=own.randint(1, 8),
            what=own.choice(["urgency", "hold", "requires"]),
            skip=own.randint(0, 60),
            duration=own.choice([0.1, 5.0, 60.0]),
        )
        for _ in range(own.randint(0, jobs // 2))
    ]
    return plan.with_troubles(troubles)


def change_queue(world: World, trouble: Trouble) -> None:
    manager = world.system.instance.manager
    job = manager.jobs.get(world.jobid_of(trouble))
    waiting = (JobState.DEPEND, JobState.PRIORITY, JobState.SCHED)
    if job is None or job.state not in waiting:
        return
    if trouble.what != "requires":
        urgency = 0 if trouble.what == "hold" else world.system.rng.randint(1, 31)
        manager.set_urgency(job.id, urgency, manager.owner)
        if urgency == 0:
            again = partial(change_queue, world, replace(trouble, what="urgency"))
            world.later(trouble.duration, again)
    elif job.state is JobState.DEPEND and len(world.system.topology.rabbit_of) > 4:
        # Enough nodes for any job. As flux update does with another queue.
        hosts = sorted(world.system.topology.rabbit_of)[::2]
        key = "attributes.system.constraints"
        manager.post(job, "jobspec-update", {key: {"hostlist": hosts}})


EVENTS = (
    "dependency-add",
    "jobspec-update",
    "dependency-remove",
    "alloc",
    "prolog-start",
    "dws_environment",
    "prolog-finish",
    "start",
    "finish",
    "epilog-start",
    "memo",
)
"""In whose callbacks another plugin may act."""


def draw_hostile(rng: random.Random, moment: Moment) -> list[Trouble]:
    """Another jobtap plugin raises a fatal exception when an event is posted."""
    job, name = rng.randrange(moment.jobs), rng.choice(EVENTS)
    return [Trouble("hostile", "raise", job=job, name=name)]


def arm_hostile(world: World, trouble: Trouble) -> None:
    world.at_event[world.jobid_of(trouble), trouble.name] = trouble


def raise_hostile(world: World, trouble: Trouble) -> None:
    manager, note = world.system.instance.manager, f"in job.event.{trouble.name}"
    jobid = world.jobid_of(trouble)
    manager.raise_exception(jobid, "hostile", 0, note, manager.owner)
