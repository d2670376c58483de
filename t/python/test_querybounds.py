# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The bounds of guests' queries, and of what the service does in one turn."""

from __future__ import annotations

import errno
import sys
from typing import Any, Callable

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.broker.querybounds import (
    QUERIES_IN_WORK,
    QUERIES_PER_SECOND,
    QUERY_BYTES,
    USERS,
    QueryBounds,
)
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.jobs import jobtable, queries
from flux_k8s.jobs.jobrows import Known, row
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.queries import JobFilter
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.limits import DIRECTIVES
from flux_k8s.objects.storagerequest import StorageRequest
from flux_k8s.objects.systemstatus import SystemStatusView
from flux_k8s.ports import WORKFLOW
from rabbitsim.dws.options import Options, table
from rabbitsim.system import VirtualSystem
from rabbitsim.torture.deeds import left_workflow
from support.queries import GUEST, ask, query, told_by_plugin
from support.rabbits import disable, set_status, wait
from support.service import HOUR, jobspec, started

pauses = st.floats(0.0, 2.0)


@given(st.lists(pauses, max_size=300))
def test_no_guest_gets_more_answers_than_the_rate_allows(pauses: list[float]) -> None:
    bounds, now, granted = QueryBounds(), 0.0, 0
    for pause in pauses:
        now += pause
        granted += bounds.refuse(1000, 10, 0, now) is None
    assert granted <= QUERIES_PER_SECOND * (1 + now) + 1


@given(st.lists(st.floats(1 / QUERIES_PER_SECOND + 1e-6, 2.0), max_size=100))
def test_a_guest_who_keeps_to_the_rate_is_never_refused(pauses: list[float]) -> None:
    bounds, now = QueryBounds(), 0.0
    for pause in pauses:
        now += pause
        assert bounds.refuse(1000, 10, 0, now) is None


def test_the_guest_is_told_which_bound_it_is() -> None:
    bounds = QueryBounds()
    refusals = [
        bounds.refuse(1, QUERY_BYTES + 1, 0, 0.0),
        bounds.refuse(1, 10, QUERIES_IN_WORK, 0.0),
    ]
    while (refusal := bounds.refuse(1, 10, 0, 0.0)) is None:
        pass
    refusals.append(refusal)
    errors = [refusal[0] for refusal in refusals if refusal is not None]
    assert errors == [errno.EMSGSIZE, errno.EAGAIN, errno.EAGAIN]


def test_only_so_many_users_are_remembered() -> None:
    bounds = QueryBounds()
    while bounds.refuse(0, 10, 0, 0.0) is None:
        pass
    for userid in range(1, USERS + 1):
        bounds.refuse(userid, 10, 0, 0.0)
    assert bounds.refuse(0, 10, 0, 0.0) is None


# Whatever a guest writes into a job, queries about it cost the service little


def directives(count: int) -> list[str]:
    return [f"#DW jobdw type=xfs capacity=1GiB name=p{n}" for n in range(count)]


def calls_of_filter(count: int) -> int:
    """The calls of Python functions for a query about 20 jobs of so many directives,
    of which none has the type."""
    latency = table({"Proposal": 10 * HOUR})
    system = started(options=Options(latency=latency))
    for _ in range(20):
        system.instance.submit(jobspec(directives(count)), userid=GUEST)
    system.loop.run(timeout=1.0)
    query(system, "job-list", {"type": "lustre"}, GUEST)
    calls = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        query(system, "job-list", {"type": "lustre"}, GUEST)
    finally:
        sys.setprofile(None)
    return calls


def test_a_filter_costs_as_much_for_jobs_of_many_directives_as_for_others() -> None:
    assert calls_of_filter(DIRECTIVES) < calls_of_filter(1) + 100


def test_types_that_a_guest_makes_up_do_not_swell_a_row() -> None:
    """DWS refuses them, but maybe later."""
    plain = enumerate(directives(DIRECTIVES))
    made_up = [each.replace("xfs", f"x{n}") for n, each in plain]
    info = WorkflowInfo(1, Goal.PLANNED)
    info.request = StorageRequest(GUEST, parse_attribute(made_up, {}), [])
    assert row(info, Known())["types"] == [f"x{n}" for n in range(8)]


# However many jobs, nodes and Rabbits there are, no turn of the reactor is long


def most_calls(system: VirtualSystem, function: Callable[..., Any]) -> int:
    """How often a function is called in one turn, at most, of those that follow."""
    calls = most = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is function.__code__

    def turn() -> bool:
        nonlocal calls, most
        calls, most = 0, max(calls, most)
        return False

    sys.setprofile(note)
    try:
        system.loop.run(turn, timeout=60.0)
    finally:
        sys.setprofile(None)
    return most


def test_of_many_jobs_few_are_compared_with_a_filter_in_one_turn() -> None:
    jobids = range(1, queries.LOOKS + 10)
    system = told_by_plugin({"jobs": [{"id": id, "phase": "depend"} for id in jobids]})
    system.store.create(WORKFLOW, "default", left_workflow(jobids[-2]))
    system.load_module()
    system.loop.run(timeout=10.0)
    asked = ask(system, "job-list", {"state": "Proposal"})
    assert most_calls(system, JobFilter.matches) == queries.LOOKS
    answer = asked()
    assert answer is not None and answer[2] is not None
    assert [row["id"] for row in answer[2]["jobs"]] == [jobids[-2]]


def test_of_many_jobs_few_are_told_in_one_turn_that_a_rabbit_is_back() -> None:
    """They fail in a step: Flux does not know them."""
    jobids = range(1, 2 * jobtable.VISITS)
    system = told_by_plugin({"jobs": [{"id": id, "phase": "sched"} for id in jobids]})
    system.load_module()
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    set_status(system, "rabbit-01", "Ready")
    assert most_calls(system, JobTable.asked) == jobtable.VISITS


def test_the_nodes_that_others_have_disabled_are_found_once_for_many_rabbits() -> None:
    system = started(nodes=8, rabbits=8)
    disable(system, "compute-02")
    wait(system)
    ask(system, "rabbit-list")
    getter = SystemStatusView.disabled.fget
    assert getter is not None and most_calls(system, getter) == 1
