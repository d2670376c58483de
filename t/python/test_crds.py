# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""DWS's own schemas accept what we read and what we write."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any, Optional

import pytest
import yaml

from flux_k8s.config.table import Config
from flux_k8s.dws import directivebreakdown
from flux_k8s.ports import COMPUTES, DWS_GROUP, SERVERS, STORAGE, WORKFLOW, Json, Kind
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.kube.patch import merge_patch, same_json
from rabbitsim.kube.schema import Problems, Schema, compile_schema
from rabbitsim.system import VirtualSystem
from support.service import jobspec, settle, started
from support.tree import CRDS, RECORDED

RECORDINGS = sorted(RECORDED.glob("*.jsonl"))

pytestmark = pytest.mark.skipif(
    not CRDS.is_dir(), reason="the CRDs of DWS are not here"
)


def schema(plural: str) -> Schema:
    """The schema of a CRD of DWS."""
    path = CRDS / f"{DWS_GROUP}_{plural}.yaml"
    crd = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = crd["spec"]["versions"]
    return compile_schema(version["schema"]["openAPIV3Schema"])


def problems(found: Schema, obj: Json) -> list[str]:
    """What the schema has against an object; a field that it does not know
    counts, which an API server would drop without a word."""
    collected: Problems = []
    kept = found.conform(obj, None, collected)
    messages = [f"{p.path}: {p.message}" for p in collected]
    kept = {**kept, "metadata": obj.get("metadata")}
    return messages if messages or _within(obj, kept) else [f"{obj} became {kept}"]


def _within(obj: Any, kept: Any) -> bool:
    """Whether nothing of ``obj`` was lost (defaults may have come)."""
    if isinstance(obj, dict) and isinstance(kept, dict):
        return all(key in kept and _within(obj[key], kept[key]) for key in obj)
    if isinstance(obj, list) and isinstance(kept, list):
        return len(obj) == len(kept) and all(map(_within, obj, kept))
    return same_json(obj, kept)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recorded_breakdowns_pass_their_schema_and_are_understood(
    path: pathlib.Path,
) -> None:
    found = schema("directivebreakdowns")
    for line in path.read_text().splitlines():
        obj = json.loads(line).get("object", {})
        if obj.get("kind") != "DirectiveBreakdown":
            continue
        assert problems(found, obj) == []
        if (obj.get("status") or {}).get("ready"):
            directivebreakdown.parse(obj)


def test_the_validator_finds_what_is_wrong() -> None:
    entry = {"allocationSize": 1, "label": "xfs", "storage": []}
    good: Json = {"spec": {"allocationSets": [entry]}}
    found = schema("servers")
    assert problems(found, good) == []
    for change in ({"allocationSize": "1"}, {"label": 1}, {"size": 1}):
        bad = copy.deepcopy(good)
        bad["spec"]["allocationSets"][0].update(change)
        assert problems(found, bad)


class Written:
    """Notes what the service writes, as a whole object each time."""

    def __init__(self) -> None:
        self.objects: list[tuple[Kind, Json]] = []
        self.system: Optional[VirtualSystem] = None

    def __call__(self, request: Request) -> Optional[Fault]:
        if request.verb == "create":
            assert isinstance(request.body, dict)
            self.objects.append((request.kind, request.body))
        elif request.verb == "patch" and isinstance(request.body, dict):
            assert self.system is not None and request.name is not None
            before = self.system.store.get(
                request.kind, request.namespace or "", request.name
            )
            before = json.loads(json.dumps(before))
            self.objects.append((request.kind, merge_patch(before, request.body)))
        return None

    def check(self) -> set[Kind]:
        """Check all of them; the kinds that there were."""
        for kind, obj in self.objects:
            assert problems(schema(kind.plural), obj) == [], kind.name
        return {kind for kind, _ in self.objects}


@pytest.mark.parametrize(
    "dw",
    [
        "#DW jobdw type=xfs capacity=10GiB name=p1",
        "#DW jobdw type=gfs2 capacity=10GiB name=p1 profile=shared",
        "#DW jobdw type=lustre capacity=10GiB name=p1",
        "#DW jobdw type=lustre capacity=10GiB name=p1 profile=exclusive-mdt",
        "#DW create_persistent type=raw capacity=10GiB name=p1",
        "#DW jobdw type=xfs capacity=1GiB name=p1 requires=copy-offload",
    ],
)
def test_all_objects_that_the_service_writes_pass_the_schemas(dw: str) -> None:
    written = Written()
    config = Config.parse({"daemons": {"copy-offload": {}}})
    system = written.system = started(nodes=8, rabbits=4, config=config, faults=written)
    system.instance.submit(jobspec(dw, 3))
    settle(system)
    assert written.check() == {WORKFLOW, SERVERS, COMPUTES}


def test_objects_that_the_service_writes_after_an_abort_pass_the_schemas() -> None:
    written = Written()
    faults = (DwsFault("PostRun", "never"), DwsFault("Teardown", "never"))
    system = written.system = started(
        options=Options(faults=faults),
        plugin_conf={"epilog-timeout": 60.0},
        faults=written,
    )
    system.instance.submit(jobspec())
    assert system.loop.run(system.instance.idle, timeout=3600)
    system.loop.run(timeout=10)
    assert written.check() == {WORKFLOW, SERVERS, COMPUTES, STORAGE}
