# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Rabbits have left, where no scheduler gives out shares of it."""

from __future__ import annotations

import syslog
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.arguments import FLUXION
from flux_k8s.errors import AllocationError
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.machine.ledger import Ledger
from flux_k8s.objects import mapping, storageusage, topology
from flux_k8s.ports import (
    SERVERS,
    STORAGE,
    SYSTEMCONFIGURATION,
    WORKFLOW,
    Json,
)
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown import (
    Allocation,
    AllocationSet,
    beyond_shares,
    build_servers,
)
from rabbitsim.dws.topology import Topology
from rabbitsim.system import VirtualSystem
from support.breakdowns import (
    RABBIT,
    across,
    allocation,
    breakdown,
    per_compute,
    place,
    single,
)
from support.effort import examples, seeds
from support.queries import query
from support.rabbits import (
    DESTROY,
    finish,
    hosts,
    marked,
    set_status,
    small,
    submit,
    system_of,
    wait,
)
from support.service import (
    HOUR,
    LIFE,
    exceptions,
    jobspec,
    lines,
    long,
    memos,
    names,
    settle,
)
from support.watched import watched

LARGE = "#DW jobdw type=xfs capacity=40GiB name=p1"
"""More than half of a Rabbit."""


def without_scheduler(**options: Any) -> VirtualSystem:
    """Two nodes on each of two small Rabbits, of which only DWS keeps count."""
    return small(scheduler=False, dynamic_properties=False, **options)


def on(host: str, dw: str, seconds: int = 60) -> Json:
    """The jobspec of a job that must run on a certain node."""
    return long(dw, 1, seconds, constraints={"hostlist": [host]})


def running(system: VirtualSystem, jobid: int) -> bool:
    """Whether its tasks are."""
    return names(system, jobid)[-1] == "start"


# One job's sets


FULLER = {"room": {"a": 3 * GIB, "b": 12 * GIB}}
OTHERS = {
    "room": {"a": 20 * GIB, "b": 20 * GIB},
    "other_shares": {"a": 14 * GIB},
}
"""What other jobs were given is kept for them."""
SPARE = {**OTHERS, "unconnected": ("c",), "storages": {"a": RABBIT}}
NETWORK = {
    "room": {"a": 0, "b": 5 * GIB, "c": 9 * GIB},
    "storages": dict.fromkeys("abc", RABBIT),
}
TWO, ONE = {"a": 2, "b": 2}, {"a": 1}
TOO_LITTLE = (
    "{}: Rabbit a, which 2 of the job's nodes need, has 3 GiB left, and an allocation"
    " needs 4 GiB"
)


@pytest.mark.parametrize(
    ("entry", "on", "expected"),
    [
        # no Rabbit takes more than it has left
        (across(12 * GIB, count=4), allocation(TWO, **FULLER), {"a": 1, "b": 3}),
        (across(12 * GIB, scale=1), allocation(TWO, **FULLER), {"b": 2}),
        (
            per_compute(2 * GIB),
            allocation(TWO, **FULLER),
            "Rabbit a has 3 GiB left, and the job's storage needs 4 GiB there",
        ),
        (
            per_compute(4 * GIB),
            allocation({"a": 2, "b": 1}, **FULLER),
            TOO_LITTLE.format("xfs"),
        ),
        # network storage goes to another one when the job's own is full
        (single(4 * GIB), allocation({"a": 2}, **NETWORK), {"c": 1}),
        (across(4 * GIB, scale=10), allocation({"a": 2}, **NETWORK), {"b": 1, "c": 1}),
        (
            single(10 * GIB),
            allocation({"a": 2}, **NETWORK),
            "needs 1 Rabbit, the job has 0 that may be used: a has 0 GiB left",
        ),
        # a share that the scheduler gave is no more than what is left
        (
            per_compute(10 * GIB),
            allocation(ONE, 10, room={"a": 9 * GIB}),
            "has 9 GiB left, and an allocation needs 10 GiB",
        ),
        # beyond that a job takes only of what nobody else was given
        (single(7 * GIB), allocation({"a": 1, "b": 1}, 5, **OTHERS), {"b": 1}),
        (single(6 * GIB), allocation(ONE, 5, **OTHERS), {"a": 1}),
        (
            single(7 * GIB),
            allocation(ONE, 5, **OTHERS),
            "a has 6 GiB left, .* needs 7 GiB",
        ),
        (single(6 * GIB), allocation({}, **SPARE), {"a": 1}),
        (single(7 * GIB), allocation({}, **SPARE), "may be used"),
        # one of which nothing is known has no limit
        (per_compute(2**60), allocation(ONE, room={"b": 1}), {"a": 1}),
    ],
)
def test_storage_goes_where_there_is_room(
    entry: AllocationSet, on: Allocation, expected: Any
) -> None:
    if isinstance(expected, dict):
        assert place(entry, on) == expected
    else:
        with pytest.raises(AllocationError, match=expected):
            place(entry, on)


def test_storage_that_nodes_must_reach_names_its_set_and_the_full_rabbit() -> None:
    with pytest.raises(AllocationError, match=TOO_LITTLE.format("ost")):
        on = allocation({"a": 2, "b": 1}, **FULLER)
        place(across(8 * GIB, count=2), on, pcie=True)


def test_the_sets_of_a_job_share_what_is_left() -> None:
    both = [breakdown(per_compute(2 * GIB)), breakdown(single(3 * GIB))]
    build_servers(both, allocation(ONE, room={"a": 5 * GIB}))
    words = "mgt needs 1 Rabbit, .* a has 2 GiB left, and an allocation needs 3 GiB"
    with pytest.raises(AllocationError, match=words):
        build_servers(both, allocation(ONE, room={"a": 4 * GIB}))


def test_each_of_a_jobs_servers_has_the_bytes_beyond_the_share() -> None:
    on = allocation({"a": 1, "b": 1}, 5)
    two = [breakdown(single(8 * GIB)), breakdown(single(4 * GIB))]
    specs = build_servers(two, on)
    assert beyond_shares(specs, on) == [{"a": 3 * GIB}, {}]
    assert beyond_shares([specs[0], specs[0]], on) == [{"a": 3 * GIB}, {"a": 8 * GIB}]


# A whole system, with scheduler=none


def test_nodes_whose_rabbit_is_in_use_are_marked_for_as_long_as_it_is() -> None:
    system = system_of(scheduler=False)
    first = submit(system)
    wait(system)
    assert running(system, first)
    assert marked(system, "alloc_rabbit") == "compute-[01-02]"
    second, third = submit(system), submit(system, nodes=3)
    wait(system, 2.0)
    assert (hosts(system, second), hosts(system, third)) == ("compute-03", None)
    settle(system)
    wait(system)
    assert marked(system, "alloc_rabbit") == ""


def test_jobs_wait_where_fluxion_is_to_schedule_no_storage() -> None:
    system = system_of(scheduler=False, scheduler_module=FLUXION)
    jobid = submit(system)
    wait(system)
    assert names(system, jobid)[-1] == "dependency-add"
    reason = memos(system, jobid)["rabbit_waits_for"]
    assert "scheduler=none: Fluxion is loaded" in reason
    wait(system)
    begin = "dws: scheduler=none: Fluxion"
    told = [(level, line) for _, level, line in system.log if line.startswith(begin)]
    assert [level for level, _ in told] == [syslog.LOG_ERR]
    assert "flux dws2jgf" in told[0][1]
    system.instance.cancel(jobid)
    settle(system)


def test_the_error_is_logged_when_fluxion_comes_after_the_module() -> None:
    system = system_of(scheduler=False, scheduler_module=FLUXION)
    system.instance.reload_fluxion()
    wait(system)
    assert len(lines(system, "scheduler=none: Fluxion is loaded")) == 2


def test_a_plan_names_the_nodes_where_the_scheduler_takes_no_properties() -> None:
    system = system_of(scheduler=False, dynamic_properties=False)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    jobid = submit(system)
    wait(system)
    assert hosts(system, jobid) == "compute-03"
    constraints = system.instance.job(jobid).jobspec["attributes"]["system"]
    assert {"not": [{"hostlist": ["compute-[01-02]"]}]} in constraints["constraints"][
        "and"
    ]


def test_the_exception_names_the_room_that_persistent_storage_leaves() -> None:
    system = without_scheduler()
    keep = "#DW create_persistent type=xfs capacity=40GiB name=keep"
    system.instance.submit(on("compute-01", keep))
    settle(system)
    jobid = system.instance.submit(on("compute-02", LARGE))
    begin = system.loop.now()
    settle(system)
    assert system.loop.now() - begin < 5.0
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == (
        f"DirectiveBreakdown default/fluxjob-{jobid}-0: allocation set xfs: Rabbit"
        " rabbit-01, which 1 of the job's nodes need, has 23.707 GiB left, and an"
        " allocation needs 40.293 GiB"
    )
    finish(system, DESTROY)
    again = system.instance.submit(on("compute-02", LARGE))
    settle(system)
    assert names(system, again) == LIFE


requests = st.tuples(
    st.sampled_from(["compute-01", "compute-02", "compute-03", "compute-04"]),
    st.integers(1, 59),
    st.integers(0, 90),
)


@examples(4)
@given(st.lists(requests, min_size=1, max_size=8), st.integers(0, 99))
def test_jobs_that_fit_each_by_itself_all_get_their_storage(
    jobs: list[tuple[str, int, int]], seed: int
) -> None:
    system = without_scheduler(seed=seed, kube_latency=0.1)
    for host, size, later in sorted(jobs, key=lambda job: job[2]):
        wait(system, max(0.0, later - system.loop.now()))
        dw = f"#DW jobdw type=xfs capacity={size}GiB name=p1"
        system.instance.submit(on(host, dw, 30))
    settle(system)
    for job in system.instance.manager.jobs.values():
        assert names(system, job.id) == LIFE, exceptions(system, job.id)


# All who count agree


def on_rabbits(system: VirtualSystem, key: str) -> dict[str, int]:
    """What ``flux dws rabbits`` says of each."""
    rows = query(system, "rabbit-list")["rabbits"]
    return {row["name"]: row[key] for row in rows}


def unscheduled(system: VirtualSystem) -> dict[str, int]:
    """GiB, rounded up, that the scheduler is told to leave out."""
    found = on_rabbits(system, "withheld")
    return {rabbit: -(-size // GIB) for rabbit, size in found.items() if size}


kinds = st.sampled_from(["jobdw type=xfs", "jobdw type=lustre", "create_persistent"])
mixes = st.lists(
    st.tuples(kinds, st.integers(1, 3), st.integers(1, 9), st.booleans()), max_size=5
)


@examples(6)
@given(mixes, st.booleans())
def test_the_counted_room_is_that_of_dws(
    jobs: list[tuple[str, int, int, bool]], scheduler: bool
) -> None:
    """As soon as all is quiet, whatever was made and removed before."""
    system = small(scheduler=scheduler)
    for index, (kind, nodes, size, runs_on) in enumerate(jobs):
        type = kind if "type" in kind else f"{kind} type=raw"
        dw = f"#DW {type} capacity={size}GiB name=keep{index}"
        system.instance.submit(long(dw, nodes, int(10 * HOUR) if runs_on else 30))
        wait(system, 7.0)
    wait(system, HOUR)
    storages = system.store.list(STORAGE, None)["items"]
    shown = {s["metadata"]["name"]: s["status"]["capacity"] for s in storages}
    assert on_rabbits(system, "free") == shown
    configuration = system.store.get(SYSTEMCONFIGURATION, "default", "default")
    servers = system.store.list(SERVERS, None)["items"]
    found = topology.parse(configuration, storages, servers)
    assert found.to_json() == system.mapping.to_json()


# Storage that a scheduler does not know of

ONE_PIECE = "#DW jobdw type=lustre capacity=4GiB name=p1"
"""With an MDT of 5 GiB in one piece."""

ALONE = Topology.regular(4, 4, capacity=64 * GIB)
"""Each node has a Rabbit of its own."""


def servers_of_others(system: VirtualSystem, gib: int, name: str = "system") -> None:
    """Storage that no Workflow made, on the first Rabbit."""
    storage = [{"name": "rabbit-01", "allocationCount": 1}]
    sets = [{"label": "xfs", "allocationSize": gib * GIB, "storage": storage}]
    body = {"metadata": {"name": name}, "spec": {"allocationSets": sets}}
    system.store.create(SERVERS, "default", body)


def test_a_job_with_nodes_waits_while_others_fill_its_rabbit() -> None:
    """They came when it had been scheduled, and no module was there."""
    system = small()
    first = system.instance.submit(on("compute-01", LARGE))
    jobid = system.instance.submit(on("compute-02", LARGE))
    wait(system)
    assert running(system, first) and names(system, jobid)[-1] == "priority"
    system.kill_module()
    system.instance.cancel(first)
    servers_of_others(system, 40)
    system.store.delete(WORKFLOW, "default", workflow_name(first))
    wait(system)
    system.instance.scheduler.wake()
    system.load_module()
    wait(system, 600.0)
    assert not running(system, jobid)
    assert memos(system, jobid)["rabbit_waits_for"].startswith("others' storage: ")
    system.store.delete(SERVERS, "default", "system")
    settle(system)
    assert names(system, jobid) == LIFE


def test_storage_of_a_job_that_is_over_is_kept_from_others_whenever_it_is_shown() -> (
    None
):
    """Also when the cluster goes back."""
    system = small()
    storage = [{"name": "rabbit-01", "allocationCount": 1}]
    labels = {storageusage.WORKFLOW_LABEL: workflow_name(77)}
    metadata = {"name": "s", "namespace": "default", "uid": "1", "labels": labels}
    sets = [{"label": "xfs", "allocationSize": 40 * GIB, "storage": storage}]
    servers = {"metadata": metadata, "spec": {"allocationSets": sets}}
    assert system.service_kube is not None
    for version, type in enumerate(("ADDED", "DELETED", "ADDED")):
        metadata["resourceVersion"] = str(1000 + version)
        system.service_kube.show(SERVERS, type, servers)
        wait(system)
        assert unscheduled(system) == ({"rabbit-01": 40} if type == "ADDED" else {})


def test_the_scheduler_loses_the_ssd_that_a_job_takes_beyond_its_share() -> None:
    """An MDT in one piece does not fit into the share of one node."""
    system = system_of(topology=ALONE)
    jobid = system.instance.submit(long(ONE_PIECE, 4))
    wait(system)
    assert running(system, jobid)
    before = unscheduled(system)
    assert before
    system.kill_module()
    system.load_module()
    wait(system)
    assert unscheduled(system) == before
    settle(system)
    wait(system)
    assert unscheduled(system) == {}


@pytest.mark.parametrize("seed", seeds(2, soaking=50))
def test_no_job_fails_for_what_another_takes_beyond_its_share(seed: int) -> None:
    system = system_of(topology=ALONE, seed=seed, kube_latency=0.1)
    jobids = [system.instance.submit(jobspec(ONE_PIECE, 4)) for _ in range(3)]
    for host in ALONE.rabbit_of:
        spec = on(host, "#DW jobdw type=xfs capacity=60GiB name=p1", 30)
        jobids.append(system.instance.submit(spec))
    jobids += [system.instance.submit(jobspec(ONE_PIECE, 4)) for _ in range(3)]
    settle(system)
    for jobid in jobids:
        assert names(system, jobid) == LIFE, exceptions(system, jobid)


def test_storage_whose_colocation_keys_cannot_be_read_is_counted() -> None:
    entry = {"capacity": 60 * GIB, "hostlist": "n1"}
    system = mapping.parse({"computes": {"n1": "r1"}, "rabbits": {"r1": entry}})
    log: list[tuple[int, str, Reason]] = []
    room = Ledger(system, lambda *line: log.append(line), print, print, bool)
    metadata = {
        "namespace": "default",
        "name": "x",
        "annotations": {storageusage.COLOCATION_ANNOTATION: "mgt"},
    }
    made = {"r1": {"allocationSize": GIB}}
    status = {"ready": True, "allocationSets": [{"storage": made}]}
    room.event("ADDED", watched({"metadata": metadata, "status": status}))
    assert room.left([]) == {"r1": 59 * GIB}
    ((level, text, reason),) = log
    assert (level, reason) == (syslog.LOG_ERR, Reason.BAD_OBJECT)
    assert text.startswith("Servers default/x: metadata.annotations[") and "mgt" in text


def test_storage_of_the_system_is_taken_off_a_rabbit_once() -> None:
    """The mapping has it left out of the capacity that Fluxion gives out."""
    entry = {"capacity": 60 * GIB, "system": 40 * GIB, "hostlist": "n1"}
    system = mapping.parse({"computes": {"n1": "r1"}, "rabbits": {"r1": entry}})
    room = Ledger(system, print, print, print, bool)

    def see(type: str, name: str, size: int) -> None:
        made = {"r1": {"allocationSize": size * GIB}}
        status = {"ready": True, "allocationSets": [{"storage": made}]}
        metadata = {"namespace": "default", "name": name}
        room.event(type, watched({"metadata": metadata, "status": status}))

    see("ADDED", "system", 40)
    assert (room.withheld, room.capacity("r1")) == ({}, 60 * GIB)
    assert room.left([]) == {"r1": 60 * GIB}
    see("ADDED", "persistent", 5)
    assert room.withheld == {"r1": 5 * GIB}
    see("MODIFIED", "system", 50)  # the mapping is out of date
    assert room.withheld == {"r1": 15 * GIB}
    assert room.left([]) == {"r1": 45 * GIB}
    see("DELETED", "system", 50)
    assert (room.withheld, room.left([])) == ({}, {"r1": 95 * GIB})


def test_storage_counts_after_its_job_was_released() -> None:
    """After an abort the scheduler has its share back."""
    system = small(plugin_conf={"epilog-timeout": 60.0})
    jobid = system.instance.submit(on("compute-01", LARGE, 30))
    wait(system)
    assert (running(system, jobid), unscheduled(system)) == (True, {})
    set_status(system, "rabbit-01", "Offline")
    wait(system, 200.0)
    assert not system.instance.job(jobid).active
    assert unscheduled(system) == {"rabbit-01": 41}
    system.kill_module()
    system.load_module()
    wait(system)
    assert unscheduled(system) == {"rabbit-01": 41}
    set_status(system, "rabbit-01", "Ready")
    enabled = {"spec": {"state": "Enabled"}}  # by an administrator
    system.store.merge_patch(STORAGE, "default", "rabbit-01", enabled)
    wait(system, HOUR)
    assert (unscheduled(system), system.workflows()) == ({}, [])
