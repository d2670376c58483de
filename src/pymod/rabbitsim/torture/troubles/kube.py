# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Trouble in Kubernetes: of its API, and by others who write its objects."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Mapping

from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.ports import WORKFLOW, Json, KubeError
from rabbitsim.kube.direct import DirectKube
from rabbitsim.kube.errors import ApiError
from rabbitsim.torture.api import ERRORS
from rabbitsim.torture.trouble import NODES, PAUSES, Moment, Trouble

if TYPE_CHECKING:
    from rabbitsim.torture.plan import Plan
    from rabbitsim.torture.world import World

# The API


def disturb(world: World, trouble: Trouble) -> None:
    world.system.api_troubles.add(trouble)


def draw_api(rng: random.Random, moment: Moment) -> list[Trouble]:
    return [
        Trouble(
            "api",
            rng.choice(tuple(ERRORS)),
            **moment.any(rng),
            duration=rng.choice([0.5, 5.0, 60.0]),
            chance=rng.choice([0.1, 0.5, 1.0]),
        )
    ]


def draw_outage(rng: random.Random, moment: Moment) -> list[Trouble]:
    what = rng.choice(["refused", "hang", "503", "401", "no-kind"])
    seconds = rng.choice([60.0, 600.0, 3600.0])
    return [Trouble("outage", what, **moment.any(rng), duration=seconds)]


def draw_unready(rng: random.Random, moment: Moment) -> list[Trouble]:
    """DirectiveBreakdowns and Servers are not ready, although the Workflow is."""
    seconds, what = rng.choice([0.5, 5.0, 60.0]), rng.choice(["false", "missing"])
    return [Trouble("unready", what, **moment.any(rng), duration=seconds)]


# Watches

OF_EVENTS = ("miss", "delay", "duplicate", "stale", "replay")
"""What happens to events; the others happen to watches."""


def draw_watch(rng: random.Random, moment: Moment) -> list[Trouble]:
    return [
        Trouble(
            "watch",
            rng.choice(("drop", "end", "expire", "silence", *OF_EVENTS)),
            **moment.any(rng),
            duration=rng.choice([0.5, 5.0, 60.0]),
            chance=rng.choice([0.2, 1.0]),
        )
    ]


def disturb_watches(world: World, trouble: Trouble) -> None:
    kube = world.system.troubled
    if trouble.what in OF_EVENTS:
        disturb(world, trouble)
        if trouble.what in ("miss", "stale", "replay"):
            # The next list shows the objects as they are.
            world.later(trouble.duration, partial(_list_again, world))
    elif kube is None or not world.system.instance.module_loaded:
        return
    elif trouble.what == "end":
        kube.end_watches()
    elif trouble.what == "silence":
        kube.silence_watches()
        world.later(trouble.duration, partial(_drop, world, kube, "drop"))
    else:
        _drop(world, kube, trouble.what)


def _list_again(world: World) -> None:
    if world.system.troubled is not None:
        _drop(world, world.system.troubled, "expire")


def _drop(world: World, kube: DirectKube, what: str) -> None:
    if kube is world.system.troubled:
        expired = KubeError(410, "Expired", "too old resource version")
        kube.drop_watches(expired if what == "expire" else None)


# Administrators

_MEDDLING: Mapping[str, Json] = {
    "purge": {"metadata": {"finalizers": None}},
    "teardown": {"spec": {"desiredState": "Teardown"}},
}
"""What an administrator writes to a Workflow."""


def draw_admin(rng: random.Random, moment: Moment) -> list[Trouble]:
    when: dict[str, Any] = {
        "job": rng.randrange(moment.jobs),
        "events": rng.randint(4, 20),
        "skip": rng.randint(0, 20),
    }
    if rng.random() < 0.2:
        return [Trouble("admin", "squat", job=when["job"], at=0.0)]
    what = rng.choice(["delete", "purge", "teardown"])
    if rng.random() < 0.7:
        return [Trouble("admin", what, **when)]
    # At the same moment its user cancels it in its epilog.
    when["events"] = rng.randint(15, 18)
    cancel = {**when, "skip": rng.randint(0, 20)}
    return [Trouble("admin", "cancel", **cancel), Trouble("admin", what, **when)]


def add_unseen(plan: Plan, rng: random.Random) -> Plan:
    """While no module is loaded, somebody deletes the Workflow of a job whose data
    others wait for, with its finalizers."""
    awaited = sorted({job.after for job in plan.jobs if job.after is not None})
    if "module" not in plan.kinds or not awaited:
        return plan
    own = random.Random(f"unseen {plan.seed}")
    troubles: list[Trouble] = []
    for _ in range(own.randint(0, 3)):
        when: dict[str, Any] = {"job": own.choice(awaited)}
        when["events"] = own.randint(16, 26)
        skip = own.randint(0, 30)
        later = skip + own.randint(1, 10)
        away = own.choice(PAUSES)
        troubles += [
            Trouble("module", "crash", **when, skip=skip, duration=away),
            Trouble("admin", "purge", **when, skip=later),
        ]
    return plan.with_troubles(troubles)


def meddle(world: World, trouble: Trouble) -> None:
    store, jobid = world.system.store, world.jobid_of(trouble)
    name = workflow_name(jobid)
    if trouble.what == "cancel":
        world.system.instance.cancel(jobid)
        return
    try:
        if trouble.what == "squat":
            world.taken_names.add(world.numbers[jobid])
            world.make_foreign(name, "slurm")
            return
        world.meddled_jobs.add(jobid)
        if trouble.what != "teardown":
            store.delete(WORKFLOW, "default", name)
        body = _MEDDLING.get(trouble.what)
        if body is not None:
            store.merge_patch(WORKFLOW, "default", name, body)
    except ApiError as error:
        world.note(f"{f58(jobid)}: {error}")


def draw_operator(rng: random.Random, moment: Moment) -> list[Trouble]:
    """Somebody disables a node in SystemStatus, for a while."""
    name, seconds = rng.choice(NODES), rng.choice([5.0, 60.0, 400.0])
    when = moment.any(rng)
    return [Trouble("operator", "disable", **when, duration=seconds, name=name)]


def disable_node(world: World, trouble: Trouble) -> None:
    host = trouble.name
    world.disabled.add(host)
    if host not in world.disabled_now:
        if world.set_node(host, "Disabled"):
            world.disabled_now.add(host)
        world.later(trouble.duration, partial(world.enable, host))
