# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Fluxion is to be told next: flux_k8s.rabbits.fluxionstate.

Storage that no job holds takes just as much from what Fluxion gives to jobs.
"""

from __future__ import annotations

from typing import Any, Optional

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from flux_k8s.dws import mapping as rabbitmapping
from flux_k8s.rabbits.downssds import CheckAllocated, DownSsds, RecordDown, SetStatus
from flux_k8s.rabbits.fluxiongraph import Chassis as RabbitChassis
from flux_k8s.rabbits.fluxiongraph import Paths
from flux_k8s.rabbits.fluxionstate import (
    ALLOC_RABBIT,
    BAD_RABBIT,
    PROPERTIES,
    ChangeProperty,
    ChangeSsd,
    Desired,
    FindAllocated,
    FluxionState,
    ReportUnknown,
    Request,
    Reschedule,
)

TOTAL = 8
numbers = st.frozensets(st.integers(0, TOTAL - 1))


class Chassis(RuleBasedStateMachine):
    """Jobs take and give back ``ssd`` at any moment; so does storage of no job. A
    step that was begun may be done late, or never when the module dies."""

    def __init__(self) -> None:
        super().__init__()
        self.down: frozenset[int] = frozenset()
        self.recorded: frozenset[int] = frozenset()
        self.allocated: frozenset[int] = frozenset()
        self.needed = 0
        self.out = False
        self.ssds = DownSsds(TOTAL)
        self.check: Optional[tuple[CheckAllocated, frozenset[int]]] = None
        self.ssds.want(0)

    @property
    def free(self) -> frozenset[int]:
        return frozenset(range(TOTAL)) - self.down - self.allocated

    @rule(data=st.data())
    def a_job_takes(self, data: st.DataObject) -> None:
        if self.free:
            self.allocated |= data.draw(
                st.frozensets(st.sampled_from(sorted(self.free)))
            )

    @rule(given_back=numbers)
    def a_job_gives_back(self, given_back: frozenset[int]) -> None:
        self.allocated -= given_back

    @rule(needed=st.integers(0, TOTAL + 1), out=st.booleans())
    def storage_comes_or_goes(self, needed: int, out: bool) -> None:
        self.needed, self.out = min(needed, TOTAL), out
        self.ssds.want(needed, out)

    @rule(answered=st.booleans())
    def do_one_step(self, answered: bool) -> None:
        if self.check is not None:
            self.ssds.see_allocated(*self.check)
            self.check = None
            return
        step = self.ssds.next()
        if isinstance(step, CheckAllocated):
            self.check = step, self.allocated & step.numbers
        elif step is not None:
            self.ssds.begin(step)
            if isinstance(step, RecordDown):
                self.recorded = step.numbers
            elif step.down:
                self.down |= {step.number}
            else:
                self.down -= {step.number}
            if answered:
                self.ssds.end(step)

    @rule()
    def time_passes(self) -> None:
        self.ssds.check_again()

    @rule()
    def another_module_comes(self) -> None:
        self.ssds = DownSsds(TOTAL, self.recorded)
        self.ssds.want(self.needed, self.out)
        self.check = None

    @rule()
    def fluxion_is_reloaded(self) -> None:
        self.down = self.recorded = frozenset()
        self.ssds = DownSsds(TOTAL)
        self.ssds.want(self.needed, self.out)
        self.check = None

    @invariant()
    def what_is_down_is_recorded(self) -> None:
        assert self.down <= self.recorded

    @precondition(lambda self: self.ssds.next() is None and self.check is None)
    @invariant()
    def as_much_as_needed_is_missing(self) -> None:
        if self.out:
            assert len(self.down) == TOTAL
        elif self.ssds.short:
            assert not self.free
        elif self.needed == TOTAL:
            assert len(self.down) == TOTAL
        else:
            assert len(self.down) == self.needed
            assert not self.down & self.allocated

    def teardown(self) -> None:
        """All is told in the end, in not too many steps."""
        for _ in range(20 * TOTAL):
            self.ssds.check_again()
            if self.ssds.next() is None and self.check is None:
                self.as_much_as_needed_is_missing()
                return
            self.do_one_step(answered=True)
        enough = TOTAL - len(self.allocated) >= self.needed
        assert not enough


TestChassis = Chassis.TestCase


# All Rabbits

FEW = 4
"""The ``ssd`` of a Rabbit that is taken out of service by their status."""

HOSTS = {name: tuple(f"{name}n{i}" for i in range(4)) for name in ("r0", "r1", "r2")}
EVERYWHERE = frozenset(host for hosts in HOSTS.values() for host in hosts)
MAPPING = rabbitmapping.assemble(HOSTS, dict.fromkeys(HOSTS, FEW * 2**30))
GHOSTS = frozenset({"r0n1", "r2n3"})
"""Nodes that Fluxion refuses to know, although their paths look right."""


class Graph:
    """Fluxion's graph: r0 has a few ``ssd``, r1 many, r2 is not in it."""

    def __init__(self) -> None:
        self.carry: dict[str, set[str]] = {key: set() for key in PROPERTIES}
        self.down: dict[str, set[int]] = {"r0": set(), "r1": set()}
        self.recorded: dict[str, frozenset[int]] = {}
        self.reported: set[str] = set()

    def paths(self) -> Paths:
        return Paths(
            {
                name: RabbitChassis(
                    f"/c/{name}", ssds, self.recorded.get(name, frozenset())
                )
                for name, ssds in (("r0", FEW), ("r1", 5 * FEW))
            }
        )

    def refuses(self, request: Request) -> bool:
        return isinstance(request, ChangeProperty) and not GHOSTS.isdisjoint(
            request.hosts
        )

    def carry_out(self, request: Request) -> None:
        if isinstance(request, ChangeProperty):
            change = set.update if request.present else set.difference_update
            change(self.carry[request.key], request.hosts)
        elif isinstance(request, ReportUnknown):
            self.reported.update(request.hosts)
        elif isinstance(request, ChangeSsd):
            if isinstance(request.change, RecordDown):
                self.recorded[request.rabbit] = request.change.numbers
            elif request.change.down:
                self.down[request.rabbit].add(request.change.number)
            else:
                self.down[request.rabbit].discard(request.change.number)


WORDS = {
    BAD_RABBIT: st.frozensets(st.sampled_from(sorted(EVERYWHERE))),
    ALLOC_RABBIT: st.frozensets(st.sampled_from(sorted(EVERYWHERE))),
    "out": st.frozensets(st.sampled_from(sorted(HOSTS))),
}


def state_of(desired: Desired, graph: Graph, possible: Any = ()) -> FluxionState:
    state = FluxionState(MAPPING, FEW, desired, possible)
    state.see_paths(graph.paths())
    return state


def next_request(state: FluxionState) -> Optional[Request]:
    state.choose_ssds()
    return state.next_request()


def carry_out(state: FluxionState, graph: Graph) -> list[Request]:
    """Carry out requests until there are no more."""
    requests = []
    while (request := next_request(state)) is not None:
        requests.append(request)
        assert len(requests) < 200
        state.begin(request)
        if isinstance(request, ChangeProperty) and graph.refuses(request):
            state.divide(request)
            continue
        graph.carry_out(request)
        if isinstance(request, FindAllocated):
            state.see_allocated(request, {})
        state.end(request)
    return requests


@given(st.data())
def test_fluxion_has_the_desired_state_in_the_end_despite_lost_requests(
    data: st.DataObject,
) -> None:
    desired, graph = Desired({BAD_RABBIT: frozenset()}, reserved={}), Graph()
    state = state_of(desired, graph, EVERYWHERE)
    for _ in range(data.draw(st.integers(1, 6))):
        word = data.draw(st.sampled_from([*WORDS, "reload", "restart"]))
        if word == "out":
            desired.out_of_service = data.draw(WORDS[word])
        elif word in WORDS:
            desired.properties[word] = data.draw(WORDS[word])
        else:
            graph = Graph() if word == "reload" else graph
            state = state_of(desired, graph, () if word == "reload" else EVERYWHERE)
        for answered in data.draw(st.lists(st.booleans(), max_size=5)):
            request = next_request(state)
            if request is None:
                break
            state.begin(request)
            if isinstance(request, ChangeProperty) and graph.refuses(request):
                state.divide(request)
                continue
            graph.carry_out(request)
            if answered and not isinstance(request, FindAllocated):
                state.end(request)
    carry_out(state, graph)
    bad = set(desired.properties[BAD_RABBIT])
    bad.update(host for name in desired.out_of_service - {"r0"} for host in HOSTS[name])
    known = EVERYWHERE - GHOSTS - set(HOSTS["r2"])
    assert graph.carry[BAD_RABBIT] == bad & known
    if ALLOC_RABBIT in desired.properties:
        alloc = desired.properties[ALLOC_RABBIT]
        assert graph.carry[ALLOC_RABBIT] == alloc & known
    assert len(graph.down["r0"]) == (FEW if "r0" in desired.out_of_service else 0)
    assert not graph.down["r1"]
    assert set(HOSTS["r2"]) <= graph.reported


def test_requests_that_take_out_of_service_come_first_and_checks_of_jobs_last() -> None:
    desired, graph = Desired({BAD_RABBIT: frozenset({"r1n0"})}, reserved={}), Graph()
    state = state_of(desired, graph)
    carry_out(state, graph)
    desired.properties = {
        ALLOC_RABBIT: frozenset({"r1n2", "r1n3"}),
        BAD_RABBIT: frozenset({"r1n1"}),
    }
    desired.out_of_service = frozenset({"r0"})
    assert carry_out(state, graph) == [
        ChangeProperty(ALLOC_RABBIT, True, ("r1n2", "r1n3")),
        ChangeProperty(BAD_RABBIT, True, ("r1n1",)),
        ChangeProperty(BAD_RABBIT, False, ("r1n0",)),
        ChangeSsd("r0", RecordDown(frozenset(range(FEW)))),
        *(ChangeSsd("r0", SetStatus(number, True)) for number in range(FEW)),
        Reschedule("/c"),
    ]
