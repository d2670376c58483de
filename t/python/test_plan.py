# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``python -m rabbitsim plan``."""

from __future__ import annotations

import json
import pathlib
import shlex
from typing import Any

import pytest
import yaml

from flux_k8s.objects.mapping import assemble
from rabbitsim.cli import main
from support.objects import changed
from support.tables import rows
from support.tree import TOP, recorded

TIB = 2**40

Captured = pytest.CaptureFixture[str]
LUSTRE = "#DW jobdw type=lustre capacity=10TiB name=x"


@pytest.fixture
def mapping(tmp_path: pathlib.Path) -> str:
    """h1 to h8 on r1 to r4."""
    hosts_of = {f"r{n}": [f"h{2 * n - 1}", f"h{2 * n}"] for n in range(1, 5)}
    found = assemble(hosts_of, dict.fromkeys(hosts_of, 28 * TIB)).to_json()
    return write(tmp_path, "mapping.json", found)


def plan(mapping: str, *args: str) -> int:
    return main(["plan", "--mapping", mapping, *args])


def planned(capfd: Captured, mapping: str, *args: str) -> dict[str, Any]:
    """What it prints with --json."""
    status = plan(mapping, "--json", *args)
    out, err = capfd.readouterr()
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def refused(capfd: Captured, mapping: str, *args: str) -> str:
    """The one line that it prints when it does not plan."""
    assert plan(mapping, *args) == 2
    out, err = capfd.readouterr()
    assert (out, len(err.splitlines())) == ("", 1) and err.startswith("rabbitsim: ")
    return err


def test_a_plan_shows_all_that_is_decided(mapping: str, capfd: Captured) -> None:
    assert plan(mapping, "--nodes", "h[1-8]", LUSTRE) == 0
    assert capfd.readouterr() == ((TOP / "t/data/plan.txt").read_text(), "")


def test_a_plan_in_json_has_the_objects_themselves(
    mapping: str, capfd: Captured
) -> None:
    found = planned(
        capfd,
        mapping,
        "--nodes=h[1-3]",
        "#DW jobdw type=xfs capacity=10GiB name=p1 requires=copy-offload",
        "#DW create_persistent type=gfs2 capacity=1GiB name=keep\n"
        "#DW copy_in source=/lustre/a destination=$DW_JOB_p1/a",
    )
    assert (found["nodes"], found["requires"]) == ("h[1-3]", ["copy-offload"])
    assert [b["metadata"]["name"] for b in found["breakdowns"]] == ["plan-0", "plan-1"]
    assert [s["metadata"]["name"] for s in found["servers"]] == ["plan-0", "keep"]
    (xfs,) = found["servers"][0]["spec"]["allocationSets"]
    assert xfs["storage"] == [
        {"name": "r1", "allocationCount": 2},
        {"name": "r2", "allocationCount": 1},
    ]
    # 10 GiB and 1 GiB, with 300 MiB that NNF adds to each
    (slot,) = found["resources"]
    assert (slot["count"], slot["label"], slot["with"][1]["count"]) == (3, "rabbit", 12)
    assert found["constraint"] == {"properties": ["^badrabbit"]}


def test_a_directive_without_storage_changes_no_resources(
    mapping: str, capfd: Captured
) -> None:
    found = planned(capfd, mapping, "--nodes=h1", "#DW destroy_persistent name=keep")
    assert found["servers"] == found["breakdowns"] == []
    assert found["resources"][0]["type"] == "node"


def test_more_than_a_rabbit_has_is_worth_a_note(mapping: str, capfd: Captured) -> None:
    found = planned(
        capfd, mapping, "--nodes=h[1-3]", "#DW jobdw type=xfs capacity=20TiB name=p1"
    )
    assert found["notes"] == [
        "the scheduler would not find these nodes: r1 has 28672 ssd, and the job "
        "asks for 40962 there"
    ]


def write(folder: pathlib.Path, name: str, content: Any) -> str:
    path = folder / name
    dump = json.dumps if path.suffix == ".json" else yaml.safe_dump
    path.write_text(dump(content))
    return str(path)


@pytest.fixture
def workers(tmp_path: pathlib.Path) -> str:
    """The system of the recordings."""
    hosts_of = {"kind-worker2": ("1", "2", "3"), "kind-worker3": ("4",)}
    names = {
        rabbit: [f"compute-0{number}" for number in numbers]
        for rabbit, numbers in hosts_of.items()
    }
    found = assemble(names, dict.fromkeys(names, TIB)).to_json()
    return write(tmp_path, "workers.json", found)


@pytest.mark.parametrize("listed", [False, True])
def test_a_recorded_breakdown_is_planned_like_a_directive(
    listed: bool, workers: str, tmp_path: pathlib.Path, capfd: Captured
) -> None:
    obj = recorded("lustre", "DirectiveBreakdown")[-1]
    content = {"kind": "List", "items": [obj]} if listed else obj
    file = write(tmp_path, "lustre", content)
    found = planned(capfd, workers, "--nodes=compute-[01-04]", "--breakdown", file)
    (servers,) = found["servers"]
    assert servers["metadata"]["name"] == obj["status"]["storage"]["reference"]["name"]
    ost, mgtmdt = servers["spec"]["allocationSets"]
    assert (ost["label"], mgtmdt["label"]) == ("ost", "mgtmdt")


def test_a_persistentdw_needs_the_servers_that_exist(
    workers: str, tmp_path: pathlib.Path, capfd: Captured
) -> None:
    lustre = recorded("persistentdw", "DirectiveBreakdown")[-1]
    one = changed(lustre, "status.compute.constraints.location.1", ...)
    nodes = ["--nodes=compute-01", "--breakdown", write(tmp_path, "one.yaml", one)]
    assert "which nodes are near Servers default/keep1" in refused(
        capfd, workers, *nodes
    )
    servers = recorded("create-persistent", "Servers")[-1]
    for entry in servers["spec"]["allocationSets"]:
        entry["storage"] = [{"name": "kind-worker2", "allocationCount": 1}]
    file = ["--breakdown", write(tmp_path, "servers.yaml", servers)]
    found = planned(capfd, workers, *nodes, *file)
    assert found["constraint"] == {
        "and": [{"hostlist": ["compute-[01-03]"]}, {"properties": ["^badrabbit"]}]
    }
    wrong = ["--nodes=compute-04", *nodes[1:], *file]
    assert "compute-04 without a PCIe connection" in refused(capfd, workers, *wrong)
    # One of several sets may be used from anywhere.
    file = ["--breakdown", write(tmp_path, "both.yaml", lustre)]
    assert plan(workers, "--nodes=compute-[01,04]", *file) == 0
    out = capfd.readouterr().out
    access = "nodes need access to Servers default/keep1, set 0: mandatory network"
    assert access in out and "2 x node, exclusive" in out


# Arguments, and what is said of them. XFS is a directive.

WRONG = """
--nodes=h1 -> give a #DW directive, or --breakdown FILE
--nodes=h[1- XFS -> --nodes h[1-: not an RFC 29 hostlist
--nodes= XFS -> --nodes: expected at least one node
--nodes=h9 XFS -> node h9 has no Rabbit
--nodes=h1 jobdw -> unknown preset and no '#DW' directive
--nodes=h1 '#DW jobdw type=xfs' -> missing required argument
--nodes=h1 XFS=zfs -> DWS refuses: argument 'type' invalid string 'zfs'
--nodes=h1 XFS=xfs,profile=nope -> NnfStorageProfile: nope
--nodes=h1 '#DW persistentdw name=keep' -> --breakdown FILE
--nodes=h1 --breakdown=/nope -> /nope: No such file or directory
--breakdown=x -> the following arguments are required: --nodes
"""


@pytest.mark.parametrize(("args", "said"), rows(WRONG))
def test_bad_input_gets_one_line(
    args: str, said: str, mapping: str, capfd: Captured
) -> None:
    words = []
    for word in shlex.split(args):
        type, _, more = (word[4:] or "xfs").partition(",")
        dw = f"#DW jobdw type={type} capacity=1GiB name=p1 {more}".strip()
        words.append(dw if word.startswith("XFS") else word)
    assert said in refused(capfd, mapping, *words)


# What is in a file, and what is said of it.

BREAKDOWNS = r"""
a: b: c -> is neither JSON nor YAML
- 3 -> has 3, expected an object
{} -> kind is missing, expected one of DirectiveBreakdown, Servers
kind: Pod -> kind is "Pod", expected one of DirectiveBreakdown, Servers
kind: DirectiveBreakdown -> metadata.name is missing
{kind: Servers, metadata: {name: 3}} -> metadata.name is 3, expected a string
{kind: List, items: 3} -> items is 3, expected an array
"""
MAPPINGS = """
nonsense -> is not JSON
{"computes": {"h1": "r1"}, "rabbits": {}} -> computes.h1 is "r1", expected
"""


@pytest.mark.parametrize(("text", "said"), rows(BREAKDOWNS + MAPPINGS))
def test_a_bad_file_gets_one_line(
    text: str, said: str, mapping: str, tmp_path: pathlib.Path, capfd: Captured
) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    if (text, said) in rows(BREAKDOWNS):
        assert said in refused(capfd, mapping, "--nodes=h1", f"--breakdown={path}")
    else:
        directive = "#DW jobdw type=xfs capacity=1GiB name=p1"
        found = refused(capfd, str(path), "--nodes=h1", directive)
        assert f"{path}: {said}" in found
