# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""rabbitsim.kube.kinds: what we serve is what DWS and NNF define."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from flux_k8s.rules.directivebreakdown.breakdown import parse
from rabbitsim.kube.objects import shape
from rabbitsim.kube.patch import same_json
from support.store import KINDS
from support.tree import CRDS, RECORDED


def strip(node: Any) -> Any:
    """A CRD's schema without prose, as kinds.yaml has it."""
    if isinstance(node, list):
        return [strip(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("x-kubernetes-int-or-string"):
        return {"x-kubernetes-int-or-string": True}
    return {
        key: strip(value)
        for key, value in node.items()
        if not (key == "description" and isinstance(value, str))
    }


def in_order(node: Any) -> Any:
    """``node`` with the lists in it whose order means nothing sorted."""
    if isinstance(node, dict):
        return {
            k: sorted(v)
            if k in ("enum", "required") and isinstance(v, list)
            else in_order(v)
            for k, v in node.items()
        }
    return node


SCHEMAS = sorted(CRDS.glob("*_*.yaml"))


@pytest.mark.skipif(not SCHEMAS, reason="the CRDs of DWS and NNF are not here")
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_our_schemas_say_what_the_crds_say(path: Path) -> None:
    crd = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    spec, version = crd["spec"], crd["spec"]["versions"][0]
    resource = KINDS.resources[spec["group"], spec["names"]["plural"]]
    assert resource.version == version["name"]
    assert resource.kind.name == spec["names"]["kind"]
    assert resource.singular == spec["names"]["singular"]
    assert resource.has_status == ("status" in version.get("subresources", {}))
    theirs = strip(version["schema"]["openAPIV3Schema"])
    for key in ("apiVersion", "kind", "metadata"):
        del theirs["properties"][key]
    assert in_order(resource.open_api) == in_order(theirs)


RECORDINGS = sorted(RECORDED.glob("*.jsonl"))


@pytest.mark.skipif(not RECORDINGS, reason="the recordings are not here")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recorded_objects_pass_our_schemas_unchanged_and_breakdowns_are_understood(
    path: Path,
) -> None:
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "object" in record:
            obj = record["object"]
            group = obj["apiVersion"].partition("/")[0]
            resource = KINDS.resources[group, record["kind"]]
            assert same_json(shape(KINDS, resource, obj, None), obj)
            status = obj.get("status") or {}
            if record["kind"] == "DirectiveBreakdown" and status.get("ready"):
                parse(obj)
