# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows that no job claims, and Workflows of others and of other names."""

from __future__ import annotations

import errno
from typing import Optional

from flux_k8s.config.settings import Identity
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.orphans import LOOK_AGAIN
from flux_k8s.objects.workflowmarks import INSTANCE
from flux_k8s.ports import WORKFLOW, Json
from rabbitsim.flux.broker import Offered, Respond
from rabbitsim.flux.fluxion import MODULE as FLUXION
from rabbitsim.torture.deeds import (
    delete,
    leave_workflow,
    patch_workflows,
    take_over,
    unload,
    unload_plugin,
)
from rabbitsim.torture.life import StorySystem
from rabbitsim.torture.outages import fail_flux
from rabbitsim.torture.story import LIFE, Job, Story, When, deed

UNKNOWN = 4711
"""A job that Flux does not know any more."""

PLAIN = Job((), seconds=1800.0)
DAMAGED = {"status": {"computes": {"name": "", "namespace": ""}}}


def own(system: StorySystem) -> None:
    leave_workflow(system.first.id)(system)


def damage(system: StorySystem) -> None:
    """The status of the job's Workflow is not what it should be."""
    name = workflow_name(system.first.id)
    system.store.merge_patch(WORKFLOW, "default", name, DAMAGED)


NAMES = frozenset({"rabbitsim"})


@deed
def rename(system: StorySystem, identity: Identity) -> None:
    """The instance has another name. Without an earlier one, its Workflows have no
    label: they are from before there were any."""
    system.identity = identity
    if not (identity.former or identity.names):
        patch_workflows(system, {"metadata": {"labels": {INSTANCE: None}}})
    system.unload_for(0.0)


@deed
def forget_jobs(system: StorySystem, seconds: float) -> None:
    """The plugin says for some seconds that it holds no job."""

    def forgetful(before: Offered) -> Offered:
        def answer(method: str, payload: Json, user: int, respond: Respond) -> None:
            def without(errnum: int, text: str, found: Optional[Json]) -> None:
                respond(errnum, text, {**(found or {}), "jobs": []})

            before(method, payload, user, without)

        return answer

    restore = system.instance.broker.stand_in("job-manager.dws", forgetful)
    system.loop.call_later(seconds, restore)


STORIES = (
    *(
        Story(
            f"a Workflow whose job is unknown is torn down{how}",
            LIFE,
            troubles=(
                *more,
                When("", unload(10.0)),
                When("", leave_workflow(UNKNOWN), 5.0),
            ),
            log=log,
        )
        for how, log, more in (
            ("", "orphan", ()),
            (
                ", although job-list fails at the time",
                "flux-error orphan",
                (When("", fail_flux("job-list", 8.0), 9.0),),
            ),
            *(
                (
                    f", although job-info fails at the time ({number})",
                    "flux-error orphan",
                    (When("", fail_flux("job-info", 8.0, number), 9.0),),
                )
                for number in (errno.ENOSYS, errno.EHOSTUNREACH, errno.EIO)
            ),
        )
    ),
    Story(
        "a job whose Workflow the plugin does not know of loses it at its end",
        "alloc start Proposal finish clean Teardown gone",
        "out",
        job=PLAIN,
        troubles=(When("start", own),),
        log="orphan",
    ),
    Story(
        "the data of a job that ends while neither module nor plugin is there goes out",
        "Proposal..finish clean PostRun DataOut Teardown gone",
        "out",
        job=Job(seconds=5.0),
        troubles=(When("start", unload(60.0)), When("start", unload_plugin(30.0))),
        log="orphan",
    ),
    Story(
        "who waits for the data of a job that ends without a plugin waits for it",
        "Proposal..finish clean PostRun DataOut 2:alloc 2:start 2:finish 2:clean "
        "Teardown gone",
        "out",
        job=Job(seconds=5.0),
        others=(Job((), awaits=1),),
        troubles=(When("start", unload_plugin(8.0), after=2.0),),
    ),
    Story(
        "a Workflow that has the job's ID is adopted",
        LIFE,
        troubles=(When("", unload(10.0)), When("", own, 1.0)),
    ),
    Story(
        "a Workflow that is malformed fails its job, and no other",
        "Proposal 2:Proposal alloc 2:alloc Setup 2:Setup bad-object! Teardown "
        "2:DataIn 2:PreRun clean gone 2:start..gone",
        troubles=(When("Setup", damage),),
        others=(Job(),),
    ),
    Story(
        "a Workflow that is given to another instance before the plugin is there stays",
        "alloc start Proposal finish clean gone",
        job=PLAIN,
        troubles=(
            When("", unload_plugin(1900.0)),
            When("start", own),
            When("start", take_over, 60.0),
            When("clean", delete, 600.0),
        ),
    ),
    *(
        Story(
            f"in {state} a job does not notice that its instance is renamed: {how}",
            LIFE,
            job=Job(seconds=2.0),
            troubles=(When(state, rename(identity)),),
        )
        for row, (how, identity) in enumerate(
            (
                ("its first", Identity("new", former="rabbitsim", shares=True)),
                ("and there was no label", Identity("ours", shares=True)),
                ("its second", Identity("new", shares=True, names=NAMES)),
                ("that is none", Identity("a1b2c3", names=NAMES)),
            )
        )
        for column, state in enumerate(("Proposal", "Setup", "start", "PostRun"))
        if (row + column) % 2
    ),
    Story(
        "a job that the plugin holds after all is not taken for one that has ended",
        "Proposal..DataOut clean Teardown gone",
        "out",
        job=Job(seconds=200.0, release="unmounted"),
        troubles=(
            When("start", unload(0.0), 2.0),
            When("start", forget_jobs(10.0), 2.0),
            When("start", unload_plugin(0.0), 12.0),
            When("start", fail_flux(FLUXION, 2 * LOOK_AGAIN), 12.0),
        ),
        latency={"DataOut": 3 * LOOK_AGAIN},
        spans=(("start", "clean", 622.0),),
    ),
)
