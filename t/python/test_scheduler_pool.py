# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which nodes, and how much storage, sched-rabbit gives to jobs."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from math import inf
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import bits, constraints, rset
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import gib_per_rabbit
from flux_k8s.scheduler import rwriter
from flux_k8s.scheduler.free import Chassis, Grant, Taken
from flux_k8s.scheduler.pool import Infeasible, Node, Pool, reserve, storage_nodes
from flux_k8s.scheduler.request import MAX_GROUPS, Group
from rabbitsim.flux import pool as standin
from support.effort import count_calls, examples
from support.schedpool import (
    CHUNKS,
    CORES,
    GPUS,
    NODES,
    SSD_SIZE,
    chassis,
    core,
    make_pool,
    node,
    rabbit,
    request,
    slot,
    ssd,
    topology,
)

GPU = {"type": "gpu", "count": 1}
small = st.integers(1, 4)
gib = st.integers(1, 4 * SSD_SIZE)
VERTICES = st.one_of(
    st.builds(lambda n, c: node(slot(core(c)), count=n), small, small),
    st.builds(lambda n: node(slot(core()), count=n, exclusive=True), small),
    st.builds(lambda n, c: slot(core(c), count=n), st.integers(1, 20), small),
    st.builds(lambda n: slot(core(), GPU, count=n), small),
    st.builds(rabbit, small, gib, st.integers(1, 2)),
    st.builds(lambda n: rabbit(f"1-{n}", 20), st.integers(2, 6)),
    st.builds(lambda c, n: chassis(c, node(slot(core()), count=n)), small, small),
    st.builds(lambda c, n, g: chassis(c, rabbit(n, g)), small, small, gib),
    st.builds(ssd, st.integers(1, 9 * SSD_SIZE)),
    st.builds(lambda n, g: slot(ssd(g), count=n), small, gib),
    st.builds(lambda n, g: slot(core(), ssd(g), count=n), small, gib),
)
CONSTRAINTS = st.sampled_from(
    [
        {},
        {"properties": ["fast"]},
        {"properties": ["^badrabbit"]},
        {"hostlist": ["node[1-4]"]},
        {"not": [{"ranks": ["0,4"]}]},
        {"or": [{"hostlist": ["node2"]}, {"properties": ["fast"]}]},
    ]
)
PROPERTIES = {"fast": (0, 1, 2, 5)}


def ssds_of(grant: Optional[Grant]) -> dict[int, int]:
    assert grant is not None
    return {n: bits.size(ssds) for n, ssds in grant.ssds.items()}


def ranks_of(grant: Optional[Grant]) -> list[int]:
    assert grant is not None
    return sorted(grant.nodes)


def check_disjoint(pool: Pool) -> None:
    """No core, GPU or ssd is given to two jobs, or counted wrongly."""
    taken: dict[Any, int] = {}
    for grant in pool.grants.values():
        for number, part in grant.nodes.items():
            for key, ids in (("core", part.cores), ("gpu", part.gpus)):
                assert not taken.get((key, number), 0) & ids
                taken[key, number] = taken.get((key, number), 0) | ids
        for number, ssds in grant.ssds.items():
            assert not taken.get(("ssd", number), 0) & ssds
            taken["ssd", number] = taken.get(("ssd", number), 0) | ssds
    for number, found in pool.taken().items():
        assert taken.pop(("core", number), 0) == found.cores
        assert taken.pop(("gpu", number), 0) == found.gpus
    for number in range(len(pool.chassis)):
        assert taken.pop(("ssd", number), 0) == pool.taken_ssds(number)
    assert not any(taken.values())


class Machine:
    """A pool to which random things happen."""

    def __init__(self, data: st.DataObject) -> None:
        self.pool = make_pool(PROPERTIES)
        self._draw = data.draw
        self._down: set[int] = set()
        self._marked: set[int] = set()
        self._jobids = itertools.count(1)

    def step(self) -> None:
        getattr(self, self._draw(st.sampled_from(self.STEPS)))()
        check_disjoint(self.pool)

    STEPS = ("allocate", "allocate", "free", "free_part", "node", "ssd", "mark")

    def _job(self) -> Optional[int]:
        jobs = sorted(self.pool.grants)
        return self._draw(st.sampled_from(jobs)) if jobs else None

    def allocate(self) -> None:
        pool = self.pool
        constraint = self._draw(CONSTRAINTS)
        wanted = request(self._draw(VERTICES), constraint=constraint)
        if self._draw(st.booleans()):
            wanted = pool.bind(wanted)
        before = {n: pool.taken_ssds(n) for n in range(2)}
        grant = pool.allocate(next(self._jobids), wanted)
        if grant is None:
            return
        pool.check(wanted)
        parsed = constraints.parse(constraint)
        for number in grant.nodes:
            names = {name for name, ranks in PROPERTIES.items() if number in ranks}
            names |= {"badrabbit"} if number in self._marked else set()
            assert parsed.match(f"node{number}", number, frozenset(names))
            assert number not in self._down
        for number, ssds in grant.ssds.items():
            assert not ssds & (before[number] | pool.down_ssds[number])
        group = wanted.places[0].group
        if group.below_one and group.nodes and group.ssd:
            self._check_storage(group, grant)

    def _check_storage(self, group: Group, grant: Grant) -> None:
        """Below each chassis there is storage for the nodes that the job has there."""
        each = -(-group.ssd // SSD_SIZE)
        for number, place in enumerate(self.pool.chassis):
            below = bits.size(bits.mask(grant.nodes) & place.nodes)
            found = bits.size(grant.ssds.get(number, 0))
            assert found == below // group.nodes * each
        apart = bits.mask(grant.nodes)
        for place in self.pool.chassis:
            apart &= ~place.nodes
        assert not apart

    def free(self) -> None:
        jobid = self._job()
        if jobid is not None:
            self.pool.release(jobid)

    def free_part(self) -> None:
        jobid = self._job()
        if jobid is not None and self.pool.grants[jobid].nodes:
            grant = self.pool.grants[jobid]
            ssds = dict(grant.ssds)
            self.pool.release(jobid, [self._draw(st.sampled_from(sorted(grant.nodes)))])
            assert self.pool.grants[jobid].ssds == ssds

    def node(self) -> None:
        number, up = self._draw(st.integers(0, NODES - 1)), self._draw(st.booleans())
        self.pool.set_up(1 << number, up)
        (self._down.discard if up else self._down.add)(number)

    def ssd(self) -> None:
        chassis, number = self._draw(st.integers(0, 1)), self._draw(st.integers(0, 3))
        self.pool.set_ssd(chassis, number, self._draw(st.booleans()))

    def mark(self) -> None:
        number, bad = self._draw(st.integers(0, NODES - 1)), self._draw(st.booleans())
        self.pool.mark("badrabbit", number, bad)
        (self._marked.add if bad else self._marked.discard)(number)


@examples(50)
@given(st.data())
def test_nothing_is_given_twice_whatever_happens(data: st.DataObject) -> None:
    machine = Machine(data)
    for _ in range(data.draw(st.integers(1, 12))):
        machine.step()
    for jobid in list(machine.pool.grants):
        machine.pool.release(jobid)
    check_disjoint(machine.pool)
    assert not machine.pool.taken()


@examples(50)
@given(st.data())
def test_jobs_keep_what_they_have_when_the_scheduler_is_loaded_again(
    data: st.DataObject,
) -> None:
    machine = Machine(data)
    for _ in range(data.draw(st.integers(1, 8))):
        machine.step()
    old, new = machine.pool, make_pool(PROPERTIES)
    for jobid, grant in old.grants.items():
        if grant.nodes:
            R = rset.parse(rwriter.write(old, grant, 0.0, 0.0))
            assert rwriter.hold(new, jobid, R) == ()
            assert new.grants[jobid].nodes == grant.nodes
            assert new.grants[jobid].ssds == {n: s for n, s in grant.ssds.items() if s}
    check_disjoint(new)


@examples(50)
@given(VERTICES, CONSTRAINTS)
def test_a_request_is_feasible_if_and_only_if_an_empty_machine_has_it(
    vertex: Json, constraint: Json
) -> None:
    pool, wanted = make_pool(PROPERTIES), request(vertex, constraint=constraint)
    try:
        pool.check(wanted)
    except Infeasible as error:
        assert str(error).startswith("unsatisfiable: it needs ")
        assert pool.allocate(1, wanted) is None
    else:
        assert pool.allocate(1, wanted) is not None


SHAPES = st.one_of(
    st.builds(lambda n, c: node(slot(core(c)), count=n), small, small),
    st.builds(lambda n: node(slot(core()), count=n, exclusive=True), small),
    st.builds(rabbit, small, gib, st.integers(1, 2)),
    st.builds(lambda c, n: chassis(c, node(slot(core()), count=n)), small, small),
    st.builds(lambda c, n, g: chassis(c, rabbit(n, g)), small, small, gib),
)


@examples(50)
@given(st.lists(st.tuples(SHAPES, st.booleans()), max_size=8))
def test_jobs_get_what_fluxion_would_give_them(jobs: list[tuple[Json, bool]]) -> None:
    """As the stand-in does it, which was compared with Fluxion."""
    pool = make_pool()
    nodes = standin.make_nodes(
        [f"node{rank}" for rank in range(NODES)], topology(), CORES, GPUS, {}
    )
    other = standin.Pool(nodes, topology(), CHUNKS)
    running: list[tuple[int, standin.Grant]] = []
    for jobid, (resources, ends) in enumerate(jobs):
        grant = pool.allocate(jobid, request(resources))
        expected = other.allocate([resources], lambda node: True)
        assert (grant is None) == (expected is None)
        if grant is not None and expected is not None:
            ssds = Counter(p.owner for p in expected if p.type == "ssd" for _ in p.ids)
            assert set(grant.nodes) == {p.owner for p in expected if p.type == "core"}
            assert ssds_of(grant) == ssds
            running.append((jobid, expected))
        if ends and running:
            ended, parts = running.pop(0)
            pool.release(ended)
            other.release(parts)


def test_storage_outside_of_a_slot_comes_from_any_rabbit() -> None:
    pool = make_pool()
    grant = pool.allocate(1, request(node(slot(core())), ssd(5 * SSD_SIZE)))
    assert ssds_of(grant) == {0: 4, 1: 1}
    assert ssds_of(pool.allocate(2, request(ssd(10)))) == {1: 1}
    assert ssds_of(pool.allocate(3, request(slot(ssd(10), count=2)))) == {1: 2}
    assert pool.allocate(4, request(ssd(1))) is None


def test_as_many_nodes_as_there_are_of_a_range() -> None:
    pool = make_pool()
    assert ranks_of(pool.allocate(1, request(rabbit("2-4:2:*", 1)))) == [0, 1, 2, 3]
    assert ranks_of(pool.allocate(2, request(node(slot(core()), count="1+")))) == [4, 5]


def test_a_job_without_an_ssd_that_is_out_of_service_waits() -> None:
    pool, wanted = make_pool(), request(rabbit(1, 1))
    for number in range(2):
        for id in range(CHUNKS):
            pool.set_ssd(number, id, False)
    pool.check(wanted)
    assert not pool.is_served(wanted)
    assert pool.allocate(1, wanted) is None
    pool.set_ssd(1, 3, True)
    assert pool.is_served(wanted)
    assert ssds_of(pool.allocate(1, wanted)) == {1: 1}


def test_a_job_whose_nodes_have_been_marked_or_are_down_waits() -> None:
    pool = make_pool()
    wanted = request(node(slot(core())), constraint={"properties": ["^badrabbit"]})
    for number in range(NODES):
        pool.mark("badrabbit", number, True)
    pool.check(wanted)
    assert pool.allocate(1, wanted) is None
    pool.mark("badrabbit", 3, False)
    for up in (False, True):
        before = pool.generation, pool.outages
        pool.set_up(1 << 3, up)
        assert (pool.generation, pool.outages) == (before[0] + 1, before[1] + 1)
        assert (pool.allocate(1, wanted) is not None) == up
    assert ranks_of(pool.grants[1]) == [3]


def test_a_rabbit_itself_runs_no_jobs() -> None:
    pool = make_pool()
    nodes = [*pool.nodes, Node(NODES, "rabbit1", 0b1111, 0)]
    apart = storage_nodes(topology(), nodes)
    pool = Pool(nodes, {}, pool.chassis, apart)
    assert apart == 1 << NODES
    with pytest.raises(Infeasible, match=f"room for {NODES}$"):
        pool.check(request(node(slot(core()), count=NODES + 1)))
    grant = pool.allocate(1, request(node(slot(core()), count="1+")))
    assert ranks_of(grant) == list(range(NODES))


def test_a_request_for_more_than_the_instance_has_left_is_infeasible() -> None:
    pool, wanted = make_pool(), request(node(slot(core()), count=NODES))
    pool.check(wanted)
    pool.remove([2])
    with pytest.raises(Infeasible, match=f"{NODES} times .* room for {NODES - 1}"):
        pool.check(wanted)


TWO_NODES: Json = {"hostlist": ["node[1-2]"]}


@pytest.mark.parametrize(
    "resources, constraint, reason",
    [
        (
            chassis(3, rabbit(1, 1, per_slot=2)),
            {},
            "3 times a chassis with 2 whole nodes with 1 core and 1 GiB of storage"
            " below one Rabbit, and there is room for 2",
        ),
        (
            node(slot(core(9))),
            {},
            "1 times a node with 9 cores, and there is room for 0",
        ),
        (
            slot(core(), GPU, count=3),
            TWO_NODES,
            "3 times a slot with 1 core and 1 GPU, and there is room for 2 on the 2"
            " nodes that its constraints allow",
        ),
        (ssd(900), {}, "1 times 900 GiB of storage, and there is room for 0"),
    ],
)
def test_the_reason_names_what_is_missing(
    resources: Json, constraint: Json, reason: str
) -> None:
    with pytest.raises(Infeasible) as caught:
        make_pool().check(request(resources, constraint=constraint))
    assert str(caught.value) == f"unsatisfiable: it needs {reason}"


def test_R_is_what_its_readers_expect() -> None:
    pool = make_pool(PROPERTIES)
    grant = pool.allocate(1, request(rabbit(3, SSD_SIZE)))
    assert grant is not None
    R = rset.parse(rwriter.write(pool, grant, 1000.5, 1060.5))
    assert R.hosts == ("node0", "node1", "node2")
    assert (R.starttime, R.expiration) == (1000.5, 1060.5)
    assert R.properties == {"fast": (0, 1, 2)}
    assert R.targets[0].children == {"core": f"0-{CORES - 1}", "gpu": "0"}
    assert gib_per_rabbit(R, topology()) == {"rabbit0": 50, "rabbit1": 25}


@pytest.mark.parametrize(
    ("resources", "slots"),
    [
        ([slot(core(3), count="1-9")], NODES),
        ([slot(node(slot(core(), count=2)), ssd(SSD_SIZE), count="2-3")], 6),
        ([chassis("1-2", node(slot(core(), count=4)))], 8),
        ([node(slot(core(), count=2), count=2), slot(core(), count=3)], 7),
        ([node(core())], None),
    ],
)
def test_R_has_the_number_of_slots_for_tasks(
    resources: list[Json], slots: Optional[int]
) -> None:
    """RFC 20: a scheduler SHALL include it. Where the jobspec has a range, or the slots
    are not the first ones in it, flux-shell needs it."""
    pool = make_pool()
    grant = pool.allocate(1, request(*resources))
    assert grant is not None
    assert rset.parse(rwriter.write(pool, grant, 0.0, 0.0)).nslots == slots


def machine(*gpus: int) -> Pool:
    """Nodes with so many GPUs, and 8 cores, below one Rabbit each."""
    nodes = [
        Node(rank, f"node{rank}", 0xFF, (1 << count) - 1)
        for rank, count in enumerate(gpus)
    ]
    below = [Chassis(f"rabbit{n}", 4, 10, 1 << n) for n in range(len(gpus))]
    return Pool(nodes, {}, below)


def gpus(count: int) -> Json:
    return {"type": "gpu", "count": count}


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.lists(st.integers(1, 8), min_size=6, max_size=6),
    st.tuples(
        *[st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(0, 4))] * 2
    ),
)
def test_two_groups_of_whole_nodes_fit_if_there_is_any_way_to_place_them(
    gpus_of: list[int], cores_of: list[int], wanted: Any
) -> None:
    nodes = [
        Node(rank, f"node{rank}", (1 << cores) - 1, (1 << count) - 1)
        for rank, (cores, count) in enumerate(zip(cores_of, gpus_of))
    ]
    pool = Pool(nodes, {}, [])
    fits = [
        {n.rank for n in nodes if bits.size(n.cores) >= c and bits.size(n.gpus) >= g}
        for _, c, g in wanted
    ]
    counts = [count for count, _, _ in wanted]
    enough = all(len(found) >= count for found, count in zip(fits, counts))
    feasible = enough and len(fits[0] | fits[1]) >= sum(counts)  # Hall's theorem
    asked = request(
        *(
            node(slot(core(c), gpus(g)), count=count, exclusive=True)
            for count, c, g in wanted
        )
    )
    assert (pool.allocate(1, asked) is not None) == feasible


@pytest.mark.parametrize("counts", [("1+", 1), (1, "1+"), ("1+", "1+"), ("2+", "3+")])
def test_a_group_that_takes_all_it_can_leaves_the_other_its_least(counts: Any) -> None:
    pool = make_pool()
    asked = request(*(node(slot(core(CORES)), count=count) for count in counts))
    pool.check(asked)
    grant = pool.allocate(1, asked)
    assert grant is not None and len(grant.nodes) == NODES


# A chassis that is the job's alone


def whole_chassis(count: Any, *children: Json) -> Json:
    return {**chassis(count, *children), "exclusive": True}


ONE_CORE = whole_chassis(1, node(slot(core())))


def test_a_job_gets_all_that_is_below_an_exclusive_chassis() -> None:
    pool = make_pool()
    grant = pool.allocate(1, request(ONE_CORE))
    assert ranks_of(grant) == [0, 1] and ssds_of(grant) == {0: CHUNKS}
    assert grant is not None and grant.slots == 2  # flux-shell wants one on each node
    assert {bits.size(taken.cores) for taken in grant.nodes.values()} == {CORES}
    check_disjoint(pool)
    assert ranks_of(pool.allocate(2, request(ONE_CORE))) == [2, 3]
    assert pool.allocate(3, request(ONE_CORE)) is None
    before = pool.generation
    pool.release(1)
    assert pool.generation > before
    pool.remove([1])  # one that has gone is not waited for
    pool.check(request(whole_chassis(2, node(slot(core())))))
    assert ranks_of(pool.allocate(3, request(ONE_CORE))) == [0]


@pytest.mark.parametrize(
    "use",
    [
        lambda pool: pool.allocate(1, request(slot(core()))),
        lambda pool: pool.allocate(1, request(node(slot(core())), ssd(1))),
        lambda pool: pool.set_up(1 << 1, False),
        lambda pool: pool.set_ssd(0, 2, False),
    ],
    ids=["a core", "an ssd", "a node that is down", "an ssd that is down"],
)
def test_an_exclusive_chassis_is_one_below_which_nobody_has_anything(use: Any) -> None:
    pool = make_pool()
    use(pool)
    assert ranks_of(pool.allocate(2, request(ONE_CORE))) == [2, 3]


def test_storage_is_held_by_size_when_rabbits_are_cut_another_way() -> None:
    old, new = make_pool(), make_pool(chunks=10)
    grant = old.allocate(1, request(rabbit(1, 2 * SSD_SIZE)))
    assert grant is not None
    R = rset.parse(rwriter.write(old, grant, 0.0, 0.0))
    rwriter.hold(new, 1, R)
    assert ssds_of(new.grants[1]) == {0: 5}


@pytest.mark.parametrize("chunks, ssds, size", [(4, 4, 25), (36, 36, 2), (999, 100, 1)])
def test_a_rabbit_is_cut_into_ssd_of_a_gib_at_least(
    chunks: int, ssds: int, size: int
) -> None:
    (first, _) = make_pool(chunks=chunks).chassis
    assert (first.ssds, first.ssd_size) == (ssds, size)


def test_R_of_a_node_that_has_gone_is_held_as_far_as_it_is_there() -> None:
    old, new = make_pool(), make_pool()
    grant = old.allocate(1, request(rabbit(4, SSD_SIZE)))
    assert grant is not None
    new.remove([1])
    R = rset.parse(rwriter.write(old, grant, 0.0, 0.0))
    assert rwriter.hold(new, 1, R) == (1,)
    assert ranks_of(new.grants[1]) == [0, 2, 3]
    assert ssds_of(new.grants[1]) == {0: 2, 1: 2}


@examples(25)
@given(st.lists(VERTICES, max_size=6), VERTICES)
def test_no_job_more_than_needed_must_end_before_another_starts(
    others: list[Json], vertex: Json
) -> None:
    pool, wanted = make_pool(), request(vertex)
    for jobid, other in enumerate(others):
        pool.allocate(jobid, request(other))
    jobs = sorted(pool.grants)
    count = pool.fits_after(wanted, jobs)
    for number, jobid in enumerate(jobs, start=1):
        pool.release(jobid)
        fits = pool.allocate(99, wanted) is not None
        pool.release(99)
        assert fits == (count is not None and number >= count)


def test_a_request_of_several_groups_fits_as_early_as_it_can() -> None:
    pool, whole = make_pool(), node(slot(core()), exclusive=True)
    for jobid in range(1, NODES + 1):
        pool.allocate(jobid, request(whole))
    assert pool.fits_after(request(whole, whole), range(1, NODES + 1)) == 2


@pytest.mark.parametrize("text", ["node[1-4]", "node[0-9999]", "nowhere[1-9000]"])
@pytest.mark.parametrize("operator", ["hostlist", "ranks"])
def test_a_job_that_waits_keeps_no_hosts(operator: str, text: str) -> None:
    names = text if operator == "hostlist" else text.strip("ehnorwd[]")
    constraint = {"not": [{"or": [{operator: [names]}, {"properties": ["fast"]}]}]}
    wanted = request(node(slot(core()), count="1+"), constraint=constraint)
    bound = make_pool().bind(wanted)
    assert make_pool().allocate(1, bound) == make_pool().allocate(1, wanted)
    assert len(pickle.dumps(bound.constraint)) < 1000


SORTS, CHASSIS, NODES_BELOW = 64, 32, 16
BIG = 10**9
SSD = ssd(1)


@pytest.mark.parametrize(
    "resources",
    [
        [slot(core(), count=BIG)],
        [slot(core(), count={"min": 1, "max": BIG})] * MAX_GROUPS,
        [slot(core(), SSD, count=CHASSIS * 4)] * MAX_GROUPS,
        [chassis(CHASSIS, slot(core(), SSD))] * MAX_GROUPS,
        [chassis({"min": 1}, node(slot(core()), count=2))] * MAX_GROUPS,
        [chassis("1-9", slot(core(), count=",".join(map(str, range(1, 400, 2)))))],
    ],
)
def test_no_request_takes_long_however_many_sorts_of_nodes_there_are(
    resources: list[Json],
) -> None:
    """So that no user's request holds up the jobs of others: not many more calls of
    functions than the machine has nodes."""
    size = CHASSIS * NODES_BELOW
    nodes = [Node(n, f"node{n}", (1 << SORTS) - 1, 0) for n in range(size)]
    below = (1 << NODES_BELOW) - 1
    rabbits = [
        Chassis(f"rabbit{n}", 32, 10, below << n * NODES_BELOW) for n in range(CHASSIS)
    ]
    pool, wanted = Pool(nodes, {}, rabbits), request(*resources)
    for number in range(size):
        pool.hold(
            number, Grant({number: Taken(bits.mask(range(number % SORTS)), 0)}), {}
        )

    calls = count_calls(lambda: pool.allocate(size, wanted))
    assert calls < 40 * size * len(resources)


def test_a_job_can_start_when_enough_others_have_ended() -> None:
    pool, wanted = make_pool(), request(rabbit(2, 2 * SSD_SIZE))
    for jobid in range(1, 5):
        pool.allocate(jobid, request(rabbit(1, 2 * SSD_SIZE)))
    assert pool.allocate(9, wanted) is None
    for ends, begin in (
        ({1: 50.0, 2: 40.0, 3: 70.0, 4: 60.0}, 50.0),
        ({1: 50.0, 3: 70.0}, 70.0),
        ({1: 50.0}, -inf),
        ({}, -inf),
    ):
        assert reserve(pool, wanted, ends).begin == begin


@examples(50)
@given(st.lists(VERTICES, max_size=5), VERTICES, st.lists(VERTICES, max_size=5))
def test_jobs_beside_a_reservation_do_not_make_it_begin_later(
    running: list[Json], vertex: Json, behind: list[Json]
) -> None:
    pool, wanted = make_pool(), request(vertex)
    for jobid, each in enumerate(running):
        pool.allocate(jobid, request(each))
    ends = {jobid: float(jobid) for jobid in pool.grants if jobid % 3}
    if not pool.is_served(wanted) or pool.fits_after(wanted, []) == 0:
        return
    reserved = reserve(pool, wanted, ends)
    for jobid, each in enumerate(behind, start=len(running)):
        pool.allocate(jobid, request(each), reserved.grant)
    known = reserved.begin != -inf
    for jobid in range(len(running)):
        if not known or ends.get(jobid, inf) <= reserved.begin:
            pool.release(jobid)
    assert pool.allocate(99, wanted) is not None


def test_a_job_that_waits_for_one_node_keeps_no_others() -> None:
    pool, whole = make_pool(), node(slot(core()), exclusive=True)
    pool.allocate(1, request(whole))
    (busy,) = pool.grants[1].nodes
    wanted = request(whole, constraint={"ranks": [str(busy)]})
    reserved = reserve(pool, wanted, {})
    assert [*reserved.grant.nodes] == [busy]
