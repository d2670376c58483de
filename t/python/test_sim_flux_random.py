# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in Flux with random events: every job ends, and ends once."""

from __future__ import annotations

from typing import Any, Optional

from hypothesis import given
from hypothesis import strategies as st

from rabbitsim.flux.events import JobState
from rabbitsim.flux.instance import Instance
from support.effort import examples
from support.flux import System, epilog, hold, load, prolog

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            "submit cancel wait remove_dependency finish_prolog finish_epilog"
            " hold release unload load down up".split()
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)


@examples(30)
@given(ACTIONS, st.integers(0, 3))
def test_every_job_becomes_inactive_once_whatever_happens(
    actions: list[tuple[str, int]], latency: int
) -> None:
    system = System(latency=lambda: latency / 1000)
    script = {
        "job_state_depend": hold,
        "job_state_run": prolog,
        "job_state_cleanup": epilog,
    }
    load(system, **script)
    jobs: list[int] = []
    for action, number in actions:
        job = jobs[number % len(jobs)] if jobs else None
        _act(system, action, number, job, jobs, script)
        system.run(timeout=0.02 * number)
    _let_go(system, script, jobs)
    for jobid in jobs:
        names = system.names(jobid)
        assert system.state(jobid) is JobState.INACTIVE
        assert names.count("clean") == 1 and names[-1] == "clean"
        assert names.count("alloc") == names.count("free") <= 1
        assert names.count("prolog-start") == names.count("prolog-finish")
        assert names.count("epilog-start") == names.count("epilog-finish")
        assert names.count("start") == names.count("release") == names.count("finish")
    pool = system.instance.scheduler.pool
    assert all(pool.free("core", node.rank) == node.cores for node in pool.nodes)


def _act(
    system: System,
    action: str,
    number: int,
    job: Optional[int],
    jobs: list[int],
    script: dict[str, Any],
) -> None:
    instance = system.instance
    if action == "submit":
        jobs.append(system.submit(f"-N{number % 4 + 1}", seconds=number / 10))
    elif action == "unload" and instance.jobtap.plugin is not None:
        instance.unload_plugin()
    elif action == "load" and instance.jobtap.plugin is None:
        load(system, **script)
    elif action in ("up", "down"):
        instance.set_up(f"node{number % 4}", action == "up")
    elif job is not None:
        _act_on_job(instance, action, job)


def _act_on_job(instance: Instance, action: str, job: int) -> None:
    calls = {
        "remove_dependency": lambda: instance.jobtap.dependency_remove(job, "storage"),
        "finish_prolog": lambda: _finish(instance, job, "prolog"),
        "finish_epilog": lambda: _finish(instance, job, "epilog"),
        "hold": lambda: instance.manager.set_urgency(job, 0, 0),
        "release": lambda: instance.manager.set_urgency(job, 16, 0),
        "cancel": lambda: instance.cancel(job),
    }
    if action in calls:
        try:
            calls[action]()
        except OSError:
            pass  # not possible in the job's state: as in Flux


def _finish(instance: Instance, job: int, what: str) -> None:
    """Finish an action that was started and not finished, as plugins do."""
    names = [event.name for event in instance.eventlog(job)]
    if names.count(f"{what}-start") > names.count(f"{what}-finish"):
        getattr(instance.jobtap, f"{what}_finish")(job, "x", 0)


def _let_go(system: System, script: dict[str, Any], jobs: list[int]) -> None:
    """Let everything that can go on do so, until all is quiet."""
    if system.instance.jobtap.plugin is None:
        load(system, **script)
    for host in ("node0", "node1", "node2", "node3"):
        system.instance.set_up(host, True)
    for _ in range(200):
        if system.instance.idle():
            return
        for job in jobs:
            for action in (
                "release",
                "remove_dependency",
                "finish_prolog",
                "finish_epilog",
            ):
                _act_on_job(system.instance, action, job)
        system.run(timeout=0.1)
