# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage of every kind in a whole system: who gets which nodes and Rabbits."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.control.coroutines import Call
from flux_k8s.dws.directivebreakdown import Access, Breakdown, parse
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.storageusage import COLOCATION_ANNOTATION
from flux_k8s.errors import BadObject
from flux_k8s.jobs import breakdownreader
from flux_k8s.jobs.planning import Planner
from flux_k8s.ports import (
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    SERVERS,
    STORAGE,
    WORKFLOW,
    Json,
    KubeError,
)
from flux_k8s.rfc import hostlist, rset
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.dws import Options, Topology
from rabbitsim.dws.directive import read_data
from rabbitsim.dws.options import table
from rabbitsim.dws.topology import RABBIT_LABEL, Rabbit
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem, mapping_of
from support.breakdowns import colocated
from support.effort import SOAKING, seeds
from support.outages import OUTAGES, inject
from support.service import (
    DAY,
    HOUR,
    LIFE,
    LUSTRE,
    MGT,
    USE,
    XFS,
    exceptions,
    jobspec,
    labelled,
    long,
    memo,
    memos,
    names,
    placed,
    run_until,
    running,
    settle_jobs,
    started,
    wants,
)

PROFILES: Json = read_data("profiles.yaml")["profiles"]
KINDS = [(name, type) for name, types in PROFILES.items() for type in types]
STRATEGIES = [("default", "xfs"), ("high-performance", "lustre"), ("shared", "gfs2")]
"""A kind of each strategy of allocation."""
OWNER = 500


def hosts(system: VirtualSystem, jobid: int) -> tuple[str, ...]:
    R = system.instance.job(jobid).R
    assert R is not None
    return rset.parse(R).hosts


def runs(system: VirtualSystem, spec: Json, userid: int = OWNER) -> int:
    """Submit a job that must come to its end as all do."""
    jobid = system.instance.submit(spec, userid=userid)
    settle_jobs(system)
    assert names(system, jobid) == LIFE, exceptions(system, jobid)
    return jobid


def test_a_job_is_changed_to_ask_for_its_storage_and_for_no_rabbit_that_is_bad() -> (
    None
):
    """NNF adds 300 MiB to 10 GiB: that is 11 ssd."""
    system = started()
    jobid = runs(system, jobspec(XFS))
    events = system.instance.eventlog(jobid)
    (update,) = (each.context for each in events if each.name == "jobspec-update")
    assert update is not None
    (slot,) = update["resources"]
    assert (slot["label"], slot["with"][1]["count"]) == ("rabbit", 11)
    assert update["attributes.system.constraints"] == {"properties": ["^badrabbit"]}


@pytest.mark.parametrize(("profile", "type"), KINDS)
@pytest.mark.parametrize("nodes", [3, 1] if SOAKING else [3])
def test_every_kind_of_breakdown_gets_storage(
    profile: str, type: str, nodes: int
) -> None:
    system = started(nodes=16, rabbits=4)
    dw = f"#DW jobdw type={type} capacity=50GiB name=p1 profile={profile}"
    jobid = system.instance.submit(long(dw, nodes))
    running(system, jobid)
    sets = PROFILES[profile][type]
    found = placed(system)
    assert set(found) == {entry["label"] for entry in sets}
    for entry in sets:
        counts = found[entry["label"]]
        if entry["strategy"] == "AllocatePerCompute":
            below = map(system.mapping.rabbit_of, hosts(system, jobid))
            assert counts == Counter(below)
        elif entry["strategy"] == "AllocatePerServer":
            below = map(system.mapping.rabbit_of, hosts(system, jobid))
            assert counts == Counter(set(below))
        elif "count" in entry or entry["strategy"] == "AllocateSingleServer":
            assert sum(counts.values()) == entry.get("count", 1)
    rabbits = hostlist.decode(memo(system, jobid, "rabbits"))
    assert set(rabbits) == {name for counts in found.values() for name in counts}
    (computes,) = system.store.list(COMPUTES, None)["items"]
    named = [entry["name"] for entry in computes["data"]]
    assert named == list(hosts(system, jobid))
    settle_jobs(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize(("profile", "type"), KINDS if SOAKING else STRATEGIES)
def test_persistent_storage_of_every_kind_is_made_used_and_destroyed(
    profile: str, type: str
) -> None:
    system = started(nodes=16, rabbits=4)
    create = f"#DW create_persistent type={type} capacity=50GiB name=keep"
    runs(system, jobspec(f"{create} profile={profile}", 2))
    before = placed(system)
    assert before
    runs(system, jobspec(USE, 2))
    assert placed(system) == before
    runs(system, jobspec("#DW destroy_persistent name=keep", 1))
    system.loop.run(timeout=60)
    assert not placed(system)


# Compute location


def refused(system: VirtualSystem, spec: Json) -> str:
    """The note of the exception of a job that gets no nodes."""
    jobid = system.instance.submit(spec)
    settle_jobs(system)
    assert "alloc" not in names(system, jobid)
    (exception,) = exceptions(system, jobid)
    return str(exception["note"])


def with_persistent(
    type: str = "xfs", create_on: str = "compute-[03-04]", **options: Any
) -> VirtualSystem:
    """A system in which persistent storage was created on certain nodes."""
    system = started(nodes=8, rabbits=4, **options)
    dw = f"#DW create_persistent type={type} capacity=1GiB name=keep"
    count = len(hostlist.decode(create_on))
    where = {"constraints": {"hostlist": [create_on]}}
    runs(system, jobspec(dw, count, **where))
    return system


def test_a_job_with_existing_storage_runs_only_where_that_is() -> None:
    system = with_persistent()
    jobids = [system.instance.submit(long(USE, 1, 60)) for _ in range(4)]
    settle_jobs(system)
    used = {host for jobid in jobids for host in hosts(system, jobid)}
    assert used <= {"compute-03", "compute-04"}
    assert all(names(system, jobid) == LIFE for jobid in jobids)


def test_existing_storage_on_several_rabbits_allows_the_nodes_of_all() -> None:
    system = with_persistent(create_on="compute-[01-02,07-08]")
    jobid = runs(system, jobspec(USE, 4))
    assert hostlist.encode(hosts(system, jobid)) == "compute-[01-02,07-08]"


def test_the_users_own_constraint_holds_as_well() -> None:
    system = with_persistent()
    mine = {"constraints": {"hostlist": ["compute-[04-08]"]}}
    jobid = runs(system, jobspec(USE, 1, **mine))
    assert hosts(system, jobid) == ("compute-04",)


def test_a_job_that_needs_more_nodes_than_existing_storage_has_gets_an_exception() -> (
    None
):
    assert refused(with_persistent(), jobspec(USE, 3)) == (
        "the job asks for 3 nodes, but only compute-[03-04] (2) have an "
        "allocation of the storage of default/keep on their Rabbit"
    )


def test_storage_on_rabbits_that_no_node_shares_is_an_exception() -> None:
    system = with_persistent()
    dw = "#DW create_persistent type=xfs capacity=1GiB name=other"
    where = {"constraints": {"hostlist": ["compute-01"]}}
    runs(system, jobspec(dw, 1, **where))
    both = [USE, "#DW persistentdw name=other"]
    assert refused(system, jobspec(both, 1)) == (
        "no compute node has the PCIe connection that is needed to the storage of "
        "default/keep, default/other"
    )


def test_a_persistent_lustre_is_reached_from_any_node() -> None:
    """NNF says "mandatory physical" of it, too."""
    system = with_persistent("lustre")
    jobid = runs(system, jobspec(USE, 8))
    assert len(hosts(system, jobid)) == 8


def test_the_location_holds_without_a_scheduler_that_knows_rabbits() -> None:
    system = with_persistent()
    assert system.service is not None
    system.service.settings.scheduler = False
    jobid = runs(system, jobspec(USE, 2))
    assert hosts(system, jobid) == ("compute-03", "compute-04")


@pytest.mark.parametrize(("nodes", "near"), [(2, True), (3, False)])
def test_a_connection_that_is_only_wished_for_is_tried(
    nodes: int, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many nodes as have it, the job gets these; with more it runs anyway."""

    def soft(obj: Any) -> Breakdown:
        found = parse(obj)
        access = (Access("network", "mandatory"), Access("physical", "bestEffort"))
        soft = (replace(location, access=access) for location in found.locations)
        return replace(found, locations=tuple(soft))

    system = with_persistent()
    monkeypatch.setattr(breakdownreader, "parse_breakdown", soft)
    jobid = system.instance.submit(jobspec(USE, nodes))
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.R is not None, timeout=60.0)
    assert (set(hosts(system, jobid)) == {"compute-03", "compute-04"}) is near


# Colocation


def keys(system: VirtualSystem) -> list[tuple[str, str]]:
    """Key and Rabbit of all allocations whose place is exclusive."""
    found = []
    for servers in system.store.list(SERVERS, None)["items"]:
        text = servers["metadata"].get("annotations", {}).get(COLOCATION_ANNOTATION)
        if text is None:
            continue
        for index, entry in enumerate(servers["spec"]["allocationSets"]):
            for key in json.loads(text)[index]:
                found += [(key, storage["name"]) for storage in entry["storage"]]
    return found


@pytest.mark.parametrize("dw", [LUSTRE, MGT, LUSTRE + " profile=exclusive-mdt"])
@pytest.mark.parametrize("seed", seeds(1, soaking=20))
def test_jobs_at_once_never_share_a_rabbit_for_the_same_key(dw: str, seed: int) -> None:
    system = started(
        seed=seed, nodes=16, rabbits=4, kube_latency=0.2, message_latency=0.01
    )
    count = 2 if "mdt" in dw else 4
    jobids = [system.instance.submit(long(dw)) for _ in range(count)]
    running(system, *jobids)
    found = keys(system)
    assert len(found) == len(set(found)) >= count
    settle_jobs(system)
    assert all(names(system, jobid) == LIFE for jobid in jobids)


@pytest.mark.parametrize("dw", [LUSTRE, MGT])
@pytest.mark.parametrize("seed", seeds(1, soaking=20))
def test_large_jobs_that_choose_in_several_turns_do_not_choose_the_same(
    dw: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn takes a second here, and other jobs choose meanwhile."""

    async def next_turn(self: Planner, hosts: object) -> None:
        await Call(lambda go_on: self._clock.call_later(1.0, partial(go_on, None)))

    monkeypatch.setattr(Planner, "_next_turn", next_turn)
    system = started(seed=seed, nodes=16, rabbits=4, message_latency=0.1)
    jobids = [system.instance.submit(long(dw)) for _ in range(4)]
    running(system, *jobids)
    found = keys(system)
    assert len(found) == len(set(found)) >= len(jobids)
    settle_jobs(system)
    assert all(names(system, jobid) == LIFE for jobid in jobids)


@pytest.mark.parametrize("seed", [2, 10, 20, *seeds(0, soaking=60)])
def test_storage_that_was_requested_has_its_key_though_the_answer_was_lost(
    seed: int,
) -> None:
    rng = random.Random(seed)

    def lost(request: Request) -> Optional[Fault]:
        if request.kind != SERVERS or request.verb != "patch" or rng.random() < 0.4:
            return None
        error = KubeError(0, "ConnectionLost", "the line went dead")
        return Fault(error=error, carried_out=True)

    def shared() -> bool:
        found = keys(system)
        return len(found) > len(set(found))

    def placed() -> bool:
        return all(names(system, jobid)[-1] == "start" for jobid in jobids)

    system = started(seed=seed, nodes=16, rabbits=4, kube_latency=0.5, faults=lost)
    jobids = [system.instance.submit(long(MGT)) for _ in range(4)]
    assert system.loop.run(lambda: shared() or placed(), timeout=HOUR)
    assert not shared()


def test_a_job_that_ended_has_its_key_before_its_workflow_is_seen() -> None:
    """While Kubernetes is away, the module is loaded again, and so is the plugin."""
    away = False

    def fault(request: Request) -> Optional[Fault]:
        refused = KubeError(0, "ConnectionRefused", "nobody listens")
        return Fault(error=refused) if away else None

    slow = Options(latency=table({"Teardown": 50.0}))
    system = started(nodes=2, rabbits=1, faults=fault, options=slow)
    first = system.instance.submit(long(MGT))
    running(system, first)
    second = system.instance.submit(long(MGT))
    away = True
    system.kill_module()
    system.load_module()
    system.loop.run(timeout=1.0)
    system.instance.unload_plugin()
    system.instance.cancel(first)
    job = system.instance.job(first)
    assert system.loop.run(lambda: not job.active, timeout=HOUR)
    system.load_plugin()
    system.loop.run(timeout=10.0)
    away = False
    system.loop.run(timeout=40.0)
    assert (
        'the colocation key "lustre-mgt"' in memos(system, second)["rabbit_waits_for"]
    )
    assert keys(system) == [("lustre-mgt", "rabbit-01")]
    settle_jobs(system)
    assert names(system, second) == LIFE


def test_a_key_is_in_use_while_the_storage_of_a_workflow_that_was_purged_is_there() -> (
    None
):
    """An administrator has removed its finalizers. DWS has still to delete the rest."""
    system = started(nodes=2, rabbits=1)
    first = system.instance.submit(long(MGT))
    running(system, first)
    second = system.instance.submit(long(MGT))
    system.loop.run(timeout=30.0)
    system.controllers.pause()
    name = workflow_name(first)
    system.store.delete(WORKFLOW, "default", name)
    purged: Json = {"metadata": {"finalizers": None}}
    system.store.merge_patch(WORKFLOW, "default", name, purged)
    assert system.loop.run(lambda: not system.instance.job(first).active, timeout=HOUR)
    system.loop.run(timeout=60.0)
    assert keys(system) == [("lustre-mgt", "rabbit-01")]
    system.controllers.resume()
    settle_jobs(system)
    assert names(system, second) == LIFE


def test_a_job_waits_in_its_prolog_for_a_rabbit_without_its_key() -> None:
    system = started(nodes=8, rabbits=2)
    first, second = (system.instance.submit(long(MGT)) for _ in range(2))
    running(system, first, second)
    third = system.instance.submit(long(MGT))
    system.loop.run(timeout=300)
    assert (
        'rabbit-01 has another allocation with the colocation key "lustre-mgt"'
        in (memos(system, third)["rabbit_waits_for"])
    )
    settle_jobs(system)
    assert names(system, third) == LIFE
    assert memos(system, third)["rabbit_waits_for"] is None


def test_a_job_gives_up_before_its_prolog_would() -> None:
    system = started(nodes=8, rabbits=2, config=Config.parse({"prolog_timeout": "20m"}))
    day = int(DAY / 2)
    blockers = [system.instance.submit(long(MGT, seconds=day)) for _ in range(2)]
    running(system, *blockers)
    submitted = system.loop.now()
    third = system.instance.submit(long(MGT))
    job = system.instance.job(third)
    assert system.loop.run(lambda: not job.active, timeout=DAY)
    (exception,) = exceptions(system, third)
    assert "allocation set mgt needs 1 Rabbit, the job has 0" in exception["note"]
    assert 600 < system.loop.now() - submitted < 700
    settle_jobs(system)


def test_persistent_storage_is_not_waited_for() -> None:
    system = started(nodes=2, rabbits=1)
    create = MGT.replace("jobdw", "create_persistent")
    runs(system, jobspec(create, 1))
    jobid = system.instance.submit(jobspec(MGT, 1))
    begin = system.loop.now()
    settle_jobs(system)
    assert system.loop.now() - begin < 10
    (exception,) = exceptions(system, jobid)
    assert 'the colocation key "lustre-mgt"' in exception["note"]


def test_a_rabbit_is_free_for_the_next_job_as_soon_as_the_last_one_is_gone() -> None:
    """Between Teardown and its deletion a Servers object occupies nothing."""
    system = started(nodes=1, rabbits=1, kube_latency=1.0)
    jobids = [system.instance.submit(jobspec(MGT, 1)) for _ in range(4)]
    settle_jobs(system)
    for jobid in jobids:
        assert names(system, jobid) == LIFE, exceptions(system, jobid)
    assert not [line for line in system.log if "colocation" in line[2]]


def held(size: Any, **other: Any) -> Json:
    """A Servers object with one allocation of a key, as DWS shows it."""
    text = json.dumps([["mgt"]])
    status = {"label": "mgt", "storage": {"r1": {"allocationSize": size}}}
    storage = [{"name": "r1", "allocationCount": 1}]
    return {
        "metadata": {
            "name": "x-0",
            "annotations": {COLOCATION_ANNOTATION: text},
            **other.pop("metadata", {}),
        },
        "spec": {
            "allocationSets": [
                {"label": "mgt", "allocationSize": 2**30, "storage": storage}
            ]
        },
        "status": {"allocationSets": [status], "ready": True, **other},
    }


@pytest.mark.parametrize(
    ("servers", "occupied"),
    [
        (held(2**30), True),
        (held(0), False),  # after Teardown
        (held(0, ready=False), True),  # before Setup
        (held(0, ready=False, metadata={"deletionTimestamp": "now"}), False),
        (held(2**30, metadata={"deletionTimestamp": "now"}), True),
        ({**held(0), "status": {"ready": False}}, True),
        ({**held(0), "status": None}, True),
    ],
)
def test_servers_occupy_a_rabbit_until_their_storage_is_gone(
    servers: Json, occupied: bool
) -> None:
    expected = {"mgt": frozenset({"r1"})} if occupied else {}
    assert colocated(servers) == expected


def test_a_malformed_status_of_servers_is_refused_with_its_place() -> None:
    with pytest.raises(BadObject) as caught:
        colocated(held("1"))
    assert str(caught.value) == (
        "Servers x-0: status.allocationSets[0].storage.r1.allocationSize is "
        '"1", expected an integer of at least 0 and below 2^63'
    )


# Labels


def test_storage_goes_only_where_all_labels_are() -> None:
    system = started(topology=labelled(tier="fast"), options=wants("tier=fast"))
    jobid = system.instance.submit(long(LUSTRE, 2))
    running(system, jobid)
    assert all(set(counts) == {"rabbit-02"} for counts in placed(system).values())
    settle_jobs(system)


@pytest.mark.parametrize("scheduler", [True, False])
def test_a_job_gets_nodes_below_a_rabbit_with_its_labels(scheduler: bool) -> None:
    system = started(
        topology=labelled(tier="fast"),
        options=wants("tier=fast", "tier"),
        scheduler=scheduler,
    )
    jobid = runs(system, jobspec(XFS, 2))
    assert hosts(system, jobid) == ("compute-03", "compute-04")


def test_labels_that_all_rabbits_carry_leave_the_choice_as_it_is() -> None:
    system = started(topology=labelled(), options=wants())
    jobid = runs(system, jobspec(XFS, 1))
    found = system.instance.job(jobid).jobspec["attributes"]["system"]["constraints"]
    assert "hostlist" not in str(found)


def test_labels_count_as_they_are_when_the_job_is_planned() -> None:
    system = started(topology=labelled(tier="slow"), options=wants("tier=fast"))
    for name, tier in (("rabbit-01", "fast"), ("rabbit-02", "slow")):
        patch = {"metadata": {"labels": {"tier": tier}}}
        system.store.merge_patch(STORAGE, "default", name, patch)
    system.loop.run(timeout=1)
    assert hosts(system, runs(system, jobspec(XFS, 1))) == ("compute-01",)


def test_a_job_waits_for_the_rabbit_with_its_labels_to_be_mended() -> None:
    system = started(topology=labelled(tier="fast"), options=wants("tier=fast"))
    system.controllers.rabbits.set_status("rabbit-02", "Offline")
    system.loop.run(timeout=1)
    jobid = system.instance.submit(jobspec(XFS, 1))
    system.loop.run(timeout=60)
    assert system.instance.job(jobid).R is None
    system.controllers.rabbits.set_status("rabbit-02", "Ready")
    settle_jobs(system)
    assert hosts(system, jobid) == ("compute-03",)


def test_network_storage_goes_to_a_rabbit_with_its_labels_wherever_the_nodes_are() -> (
    None
):
    """There are too few nodes below it."""
    system = started(topology=labelled(tier="fast"), options=wants("tier=fast"))
    jobid = system.instance.submit(long(LUSTRE, 4))
    running(system, jobid)
    assert all(set(counts) == {"rabbit-02"} for counts in placed(system).values())
    settle_jobs(system)


@pytest.mark.parametrize("type", ["xfs", "lustre"])
def test_labels_that_no_rabbit_has_are_an_exception_in_proposal(type: str) -> None:
    system = started(topology=labelled(tier="slow"), options=wants("tier=fast"))
    note = refused(system, jobspec(f"#DW jobdw type={type} capacity=9GiB name=p1", 1))
    assert note.endswith(f"no Rabbit carries all of: {RABBIT_LABEL}=Rabbit, tier=fast")


@pytest.mark.parametrize("type", ["xfs", "gfs2", "raw"])
@pytest.mark.parametrize("command", ["jobdw", "create_persistent"])
def test_more_for_each_node_than_the_largest_rabbit_has_is_refused_with_both_sizes(
    command: str, type: str
) -> None:
    small = Rabbit("rabbit-01", 20 * GIB, ("n1", "n2"))
    large = Rabbit("rabbit-02", 30 * GIB, ("n3", "n4"))
    system = started(topology=Topology.of([small, large]))
    directive = f"#DW {command} type={type} name=big capacity="
    assert refused(system, jobspec(f"{directive}30GiB", 2)) == (
        "each node needs 31 GiB on its Rabbit, but the largest Rabbit has 30 GiB for"
        " jobs"
    )
    runs(system, jobspec(f"{directive}29GiB", 1))


def test_a_job_that_needs_more_nodes_than_labelled_rabbits_have_gets_an_exception() -> (
    None
):
    system = started(topology=labelled(tier="fast"), options=wants("tier=fast"))
    note = refused(system, jobspec(XFS, 3))
    (jobid,) = system.instance.manager.jobs
    assert note == (
        "the job asks for 3 nodes, but only compute-[03-04] (2) are below Rabbits that"
        f" carry {RABBIT_LABEL}=Rabbit, tier=fast, which DirectiveBreakdown"
        f" default/fluxjob-{jobid}-0: allocation set xfs needs"
    )


def test_labels_and_persistent_storage_that_no_node_shares_are_an_exception() -> None:
    system = started(topology=labelled(tier="fast"), options=wants("tier=fast"))
    create = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    runs(system, jobspec(create, 1))
    for name, tier in (("rabbit-01", "fast"), ("rabbit-02", "slow")):
        patch = {"metadata": {"labels": {"tier": tier}}}
        system.store.merge_patch(STORAGE, "default", name, patch)
    system.loop.run(timeout=1)
    assert refused(system, jobspec([XFS, USE], 1)) == (
        "no compute node can reach the persistent storage of the job and is below a"
        " Rabbit with the labels that its own storage needs"
    )


def test_a_rabbit_outside_of_the_mapping_is_never_used() -> None:
    """It is the only one with the label, and storage reached over the network may
    go to Rabbits without nodes of the job."""
    system = started(topology=labelled(tier="slow"), options=wants("tier=fast"))
    storage = system.store.get(STORAGE, "default", "rabbit-01")
    labels = {**storage["metadata"]["labels"], "tier": "fast"}
    other = {
        **{key: storage[key] for key in ("apiVersion", "kind", "spec", "status")},
        "metadata": {"name": "rabbit-99", "namespace": "default", "labels": labels},
    }
    system.store.create(STORAGE, "default", other)
    system.loop.run(timeout=1)
    assert "no Rabbit carries all of" in refused(system, jobspec(LUSTRE, 1))


# Daemons

OFFLOAD = "#DW jobdw type=xfs capacity=10GiB name=p1 requires=copy-offload"
DAEMONS = {
    "copy-offload": {
        "environment": {"COPY_OFFLOAD": "1", "DW_JOB_p1": "/nowhere"},
        "unit": "nnf-dm@offload.service",
    },
    "scratch-cache": {"unit": "cache.service"},
}


TO_CONFIGURE = (
    " (an administrator makes it available with a table"
    " [rabbit.daemons.copy-offload] in Flux's configuration)"
)


def environment(system: VirtualSystem, jobid: int) -> Json:
    (event,) = (
        event
        for event in system.instance.eventlog(jobid)
        if event.name == "dws_environment"
    )
    assert event.context is not None
    variables: Json = event.context["variables"]
    return variables


def test_a_required_daemon_gets_its_variables_and_its_unit_to_the_job() -> None:
    system = started(config=Config.parse({"daemons": DAEMONS}))
    jobid = runs(system, jobspec(OFFLOAD))
    variables = environment(system, jobid)
    assert variables["COPY_OFFLOAD"] == "1"
    assert variables["DW_JOB_p1"].endswith("-0")  # what DWS says has the last word
    assert "rabbits" in memos(system, jobid)
    assert units(system, jobid) == ["nnf-dm@offload.service"]


def units(system: VirtualSystem, jobid: int) -> Any:
    return json.loads(system.instance.job(jobid).kvs["rabbit_units"])


def test_a_job_that_requires_nothing_gets_nothing() -> None:
    system = started(config=Config.parse({"daemons": DAEMONS}))
    jobid = runs(system, jobspec())
    assert "COPY_OFFLOAD" not in environment(system, jobid)
    assert "rabbit_units" not in system.instance.job(jobid).kvs


@pytest.mark.parametrize(
    ("daemons", "expected"),
    [
        ({}, "expected no requires= at all"),
        ({"scratch-cache": {}, "other": {}}, "expected one of other, scratch-cache"),
    ],
)
def test_an_unknown_daemon_is_refused_at_proposal_with_those_that_are_known(
    daemons: Json, expected: str
) -> None:
    system = started(config=Config.parse({"daemons": daemons}))
    assert refused(system, jobspec(OFFLOAD)) == (
        f"{OFFLOAD}: requires=copy-offload is not available here, {expected}"
        f"{TO_CONFIGURE}"
    )


def until(system: VirtualSystem, condition: Callable[[], bool]) -> None:
    assert system.loop.run(condition, timeout=DAY)


@pytest.mark.parametrize("state", ["Proposal", "Setup", "PreRun"])
def test_a_daemon_that_a_reload_has_removed_ends_the_job_that_requires_it(
    state: str,
) -> None:
    slow = table({"Proposal": 5, "Setup": 5, "DataIn": 5, "PreRun": 5})
    system = started(
        config=Config.parse({"daemons": DAEMONS}), options=Options(latency=slow)
    )
    jobid = system.instance.submit(jobspec(OFFLOAD))
    until(
        system,
        lambda: any(w["spec"]["desiredState"] == state for w in system.workflows()),
    )
    assert system.service is not None
    system.service.reconfigure(Config.parse({"daemons": {"scratch-cache": {}}}))
    settle_jobs(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"].startswith(f"{OFFLOAD}: requires=copy-offload is not")
    assert exception["note"].endswith(TO_CONFIGURE)
    assert "start" not in names(system, jobid)


@pytest.mark.parametrize("state", ["Proposal", "Setup", "PreRun"])
def test_a_module_that_was_restarted_in_the_prolog_still_knows_the_daemons(
    state: str,
) -> None:
    config = Config.parse({"daemons": DAEMONS})
    slow = table({"Proposal": 5, "Setup": 5, "DataIn": 5, "PreRun": 5})
    system = started(config=config, options=Options(latency=slow))
    jobid = system.instance.submit(jobspec(OFFLOAD))
    until(
        system,
        lambda: any(w["spec"]["desiredState"] == state for w in system.workflows()),
    )
    system.kill_module()
    system.loop.run(timeout=60)
    system.load_module()
    settle_jobs(system)
    assert names(system, jobid) == LIFE
    assert environment(system, jobid)["COPY_OFFLOAD"] == "1"
    assert units(system, jobid) == ["nnf-dm@offload.service"]


# Malformed objects of Kubernetes


def test_a_malformed_breakdown_fails_the_job_with_its_place() -> None:
    slow = table({"Proposal": 5})
    system = started(options=Options(latency=slow))
    jobid = system.instance.submit(jobspec())
    found: list[Optional[Json]] = [None]

    def breakdown_is_ready() -> bool:
        items = system.store.list(DIRECTIVEBREAKDOWN, None)["items"]
        found[0] = items[0] if items and items[0].get("status") else None
        return found[0] is not None

    until(system, breakdown_is_ready)
    assert found[0] is not None
    name = found[0]["metadata"]["name"]
    sets = found[0]["status"]["storage"]["allocationSets"]
    sets[0]["constraints"]["count"] = 2**40
    bad = {"status": {"storage": {"allocationSets": sets}}}
    system.store.merge_patch(DIRECTIVEBREAKDOWN, "default", name, bad)
    settle_jobs(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"].startswith(
        f"DirectiveBreakdown default/{name}: "
        "status.storage.allocationSets[0].constraints.count is 1099511627776, "
        "expected an integer from 1 to 65536"
    )


def test_a_rabbit_that_the_mapping_lacks_is_named_in_the_job_s_exception() -> None:
    system = started(nodes=4, rabbits=2)
    other = Topology.regular(4, 2, rabbit_prefix="other-")
    assert system.service is not None
    system.service.settings.mapping = mapping_of(other)
    jobid = system.instance.submit(jobspec())
    settle_jobs(system)
    (exception,) = exceptions(system, jobid)
    assert "R of job" in exception["note"]
    assert (
        'scheduling.graph.nodes is "rabbit-01", expected a Rabbit of the rabbit mapping'
        in exception["note"]
    )
    assert system.instance.job(jobid).state is JobState.INACTIVE


@pytest.mark.parametrize("plugin_too", [False, True])
def test_a_job_gives_up_before_its_prolog_would_however_often_the_service_is_restarted(
    plugin_too: bool,
) -> None:
    """The prolog script, which counts for itself, knows nothing of the restarts."""
    system = started(nodes=8, rabbits=2, config=Config.parse({"prolog_timeout": "20m"}))
    day = int(DAY / 2)
    blockers = [system.instance.submit(long(MGT, seconds=day)) for _ in range(2)]
    running(system, *blockers)
    jobid = system.instance.submit(long(MGT))
    run_until(system, jobid, "prolog-start")
    began = system.loop.now()
    job = system.instance.job(jobid)
    while job.active and system.loop.now() < began + 1200.0:
        system.kill_module()
        if plugin_too:
            system.reload_manager()
        system.loop.run(timeout=20.0)
        system.load_module()
        system.loop.run(lambda: not job.active, timeout=280.0)
    (exception,) = exceptions(system, jobid)
    assert "half of prolog_timeout; please submit it again" in exception["note"]
    assert 600 < system.loop.now() - began < 700


def test_a_job_gives_up_before_its_prolog_would_after_an_outage_of_kubernetes() -> None:
    """It is not known before the end of the outage that the job cannot have storage."""
    system = started(nodes=8, rabbits=2, config=Config.parse({"prolog_timeout": "20m"}))
    day = int(DAY / 2)
    blockers = [system.instance.submit(long(MGT, seconds=day)) for _ in range(2)]
    running(system, *blockers)
    jobid = system.instance.submit(long(MGT))
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.was_posted("alloc"), HOUR)
    inject(system, OUTAGES["503"], 500.0)
    began = system.loop.now()
    assert system.loop.run(lambda: not job.active, timeout=1200.0)
    (exception,) = exceptions(system, jobid)
    assert "half of prolog_timeout; please submit it again" in exception["note"]
    assert 600 < system.loop.now() - began < 700
    settle_jobs(system)
