# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage of every kind in a whole system: who gets which nodes and Rabbits."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.formats import hostlist, rset
from flux_k8s.objects.storageusage import COLOCATION_ANNOTATION
from flux_k8s.ports import COMPUTES, DIRECTIVEBREAKDOWN, STORAGE, Json, Request
from rabbitsim.dws.directive import read_data
from rabbitsim.dws.topology import RABBIT_LABEL
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.breakdowns import colocated
from support.effort import SOAKING
from support.service import (
    LIFE,
    LUSTRE,
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
    running,
    settle_jobs,
    started,
    wants,
)

PROFILES: Json = read_data("profiles.yaml")["profiles"]
KINDS = [(name, type) for name, types in PROFILES.items() for type in types]
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


def outcome(system: VirtualSystem, spec: Json) -> str:
    """The nodes of a job that runs, or the note of one that gets none."""
    jobid = system.instance.submit(spec)
    settle_jobs(system)
    told = exceptions(system, jobid)
    if not told:
        return hostlist.encode(hosts(system, jobid))
    assert "alloc" not in names(system, jobid)
    return str(told[0]["note"]).replace(str(jobid), "JOB")


def on(where: Optional[str]) -> Json:
    """The attributes of a job that must run on certain nodes."""
    return {} if where is None else {"constraints": {"hostlist": [where]}}


def test_a_job_is_changed_to_ask_for_its_storage_and_for_no_rabbit_that_is_bad() -> (
    None
):
    """NNF adds 300 MiB to 10 GiB: that is 11 ssd."""
    system = started()
    events = system.instance.eventlog(runs(system, jobspec(XFS)))
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
    below = Counter(map(system.mapping.rabbit_of, hosts(system, jobid)))
    for entry in sets:
        counts = found[entry["label"]]
        if entry["strategy"] == "AllocatePerCompute":
            assert counts == below
        elif entry["strategy"] == "AllocatePerServer":
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


# Where a job may run

CREATE = "#DW create_persistent type={} capacity=1GiB name={}"


@pytest.mark.parametrize(("nodes", "near"), [(2, True), (3, False)])
def test_a_connection_that_is_only_wished_for_is_tried(nodes: int, near: bool) -> None:
    """With as many nodes as have it, the job gets these; with more it runs anyway."""
    access = [
        {"type": "network", "priority": "mandatory"},
        {"type": "physical", "priority": "bestEffort"},
    ]

    def soft(request: Request) -> Optional[Fault]:
        if (request.verb, request.kind) != ("get", DIRECTIVEBREAKDOWN):
            return None
        assert request.name is not None
        found = system.store.get(DIRECTIVEBREAKDOWN, "default", request.name)
        for location in found["status"]["compute"]["constraints"].get("location", ()):
            location["access"] = access
        return Fault(answer=found)

    system = started(nodes=8, rabbits=4)
    where = on("compute-[03-04]")
    runs(system, jobspec(CREATE.format("xfs", "keep"), 2, **where))
    assert system.service_kube is not None
    system.service_kube.faults = soft
    jobid = system.instance.submit(jobspec(USE, nodes))
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.R is not None, timeout=60.0)
    assert (set(hosts(system, jobid)) == {"compute-03", "compute-04"}) is near


LABELS = f"{RABBIT_LABEL}=Rabbit, tier=fast"
NONE = f"no Rabbit carries all of: {LABELS}"
LABELLED: dict[str, tuple[Json, tuple[str, ...], str, int, str]] = {
    "nodes below the Rabbit": (
        {"tier": "fast"},
        ("tier=fast", "tier"),
        XFS,
        2,
        "compute-[03-04]",
    ),
    "too few nodes": (
        {"tier": "fast"},
        ("tier=fast",),
        XFS,
        3,
        "the job asks for 3 nodes, but only compute-[03-04] (2) are below Rabbits that"
        f" carry {LABELS}, which DirectiveBreakdown default/fluxjob-JOB-0: allocation"
        " set xfs needs",
    ),
    "no Rabbit": ({"tier": "slow"}, ("tier=fast",), XFS, 1, NONE),
    "no Rabbit for Lustre": ({"tier": "slow"}, ("tier=fast",), LUSTRE, 1, NONE),
}
"""The labels of the second Rabbit, those that are wanted, what a job asks for, and the
nodes that it gets, or the end of its exception."""


@pytest.mark.parametrize("case", LABELLED)
@pytest.mark.parametrize("scheduler", [True, False])
def test_the_nodes_of_a_job_that_needs_labels(case: str, scheduler: bool) -> None:
    labels, wanted, dw, nodes, expected = LABELLED[case]
    system = started(
        topology=labelled(**labels), options=wants(*wanted), scheduler=scheduler
    )
    assert outcome(system, jobspec(dw, nodes)).endswith(expected)


def move_label(system: VirtualSystem) -> None:
    """Another Rabbit is the fast one now."""
    for name, tier in (("rabbit-01", "fast"), ("rabbit-02", "slow")):
        patch = {"metadata": {"labels": {"tier": tier}}}
        system.store.merge_patch(STORAGE, "default", name, patch)
    system.loop.run(timeout=1)


def test_labels_count_as_they_are_when_the_job_is_planned() -> None:
    system = started(topology=labelled(tier="fast"), options=wants("tier=fast"))
    runs(system, jobspec(CREATE.format("xfs", "keep"), 1))
    move_label(system)
    assert outcome(system, jobspec(XFS, 1)) == "compute-01"
    assert outcome(system, jobspec([XFS, USE], 1)) == (
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
    assert outcome(system, jobspec(LUSTRE, 1)).endswith(NONE)


# Colocation


def held(size: Any, **other: Any) -> Json:
    """A Servers object with one allocation of a key, as DWS shows it."""
    status = {"label": "mgt", "storage": {"r1": {"allocationSize": size}}}
    storage = [{"name": "r1", "allocationCount": 1}]
    sets = [{"label": "mgt", "allocationSize": 2**30, "storage": storage}]
    annotations = {COLOCATION_ANNOTATION: json.dumps([["mgt"]])}
    metadata = {"name": "x-0", "annotations": annotations, **other.pop("metadata", {})}
    return {
        "metadata": metadata,
        "spec": {"allocationSets": sets},
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


# Daemons

OFFLOAD = "#DW jobdw type=xfs capacity=10GiB name=p1 requires=copy-offload"
DAEMONS = {
    "copy-offload": {
        "environment": {"COPY_OFFLOAD": "1", "DW_JOB_p1": "/nowhere"},
        "unit": "nnf-dm@offload.service",
    },
    "scratch-cache": {"unit": "cache.service"},
}


@pytest.mark.parametrize("dw", [OFFLOAD, XFS])
def test_a_required_daemon_gets_its_variables_and_its_unit_to_the_job(dw: str) -> None:
    system = started(config=Config.parse({"daemons": DAEMONS}))
    jobid = runs(system, jobspec(dw))
    events = system.instance.eventlog(jobid)
    (told,) = (event.context for event in events if event.name == "dws_environment")
    assert told is not None
    variables, kvs = told["variables"], system.instance.job(jobid).kvs
    assert variables["DW_JOB_p1"].endswith("-0")  # what DWS says has the last word
    assert "rabbits" in memos(system, jobid)
    if dw == OFFLOAD:
        assert variables["COPY_OFFLOAD"] == "1"
        assert json.loads(kvs["rabbit_units"]) == ["nnf-dm@offload.service"]
    else:
        assert "COPY_OFFLOAD" not in variables and "rabbit_units" not in kvs
