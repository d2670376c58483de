# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the stand-in webhooks refuse, and what breakdowns say."""

from __future__ import annotations

import pytest
import yaml

from flux_k8s.ports import WORKFLOW, Json
from rabbitsim.dws import Profiles, Rules, objects
from rabbitsim.dws.breakdown import storage_status
from rabbitsim.dws.directive import InvalidDirective, capacity, parse
from rabbitsim.kube.errors import ApiError
from support.dws import XFS, System
from support.tree import CRDS

WEBHOOK = 'admission webhook "vworkflow.kb.io" denied the request: '


@pytest.mark.parametrize(
    "directive, problem",
    [
        ("jobdw type=xfs", "missing '#DW' prefix in directive 'jobdw type=xfs'"),
        ("", "missing '#DW' prefix in directive ''"),
        ("#DW", "invalid directive '#DW'"),
        ("#DW frob name=aa", "invalid directive '#DW frob name=aa'"),
        (
            "#DW jobdw type=zfs capacity=1GiB name=aa",
            "argument 'type' invalid string 'zfs'",
        ),
        (
            "#DW jobdw type=xfs capacity=1Gib name=aa",
            "argument 'capacity' invalid string '1Gib'",
        ),
        (
            "#DW jobdw type=xfs capacity=1GiB name=Aa",
            "argument 'name' invalid string 'Aa'",
        ),
        ("#DW jobdw capacity=1GiB name=aa", "missing required argument '^type$'"),
        (
            "#DW jobdw type=xfs type=xfs capacity=1GiB name=aa",
            "repeated argument in directive: 'type'",
        ),
        (
            "#DW jobdw type=xfs capacity=1GiB name=aa color=red",
            "unsupported argument 'color'",
        ),
        ("#DW jobdw type= capacity=1GiB name=aa", "malformed keyword[=value]: 'type='"),
        (
            "#DW jobdw type=xfs capacity=1GiB name=aa requires=copy-offload,magic",
            "argument 'requires' invalid string 'magic'",
        ),
    ],
)
def test_a_bad_directive_is_refused(directive: str, problem: str) -> None:
    system = System()
    with pytest.raises(ApiError) as refused:
        system.submit(directive)
    assert refused.value.code == 403
    assert refused.value.message == WEBHOOK + problem
    assert system.items(WORKFLOW) == []


def test_names_of_storage_are_unique_in_a_workflow() -> None:
    with pytest.raises(InvalidDirective, match="must be unique within 'jobdw_name'"):
        Rules.default().validate([XFS, XFS])


def test_a_workflow_begins_in_proposal() -> None:
    system = System()
    body = {
        "metadata": {"name": "job"},
        "spec": {
            "desiredState": "Setup",
            "dwDirectives": [XFS],
            "groupID": 0,
            "jobID": "f1",
            "userID": 0,
            "wlmID": "flux",
        },
    }
    with pytest.raises(ApiError, match="the first state is Proposal"):
        system.store.create(WORKFLOW, "default", body)


@pytest.mark.parametrize(
    "spec, problem",
    [
        ({"desiredState": "PreRun"}, "states cannot be skipped"),
        ({"desiredState": "Proposal"}, "states cannot be gone back to"),
        ({"desiredState": "DataIn"}, "state 'Setup' is not ready"),
        ({"jobID": "other"}, "the field is immutable"),
        ({"userID": 5}, "the field is immutable"),
        ({"dwDirectives": []}, "the field is immutable"),
    ],
)
def test_a_workflow_may_not_change_at_will(spec: Json, problem: str) -> None:
    system = System()
    system.submit(XFS)
    system.wait()
    system.assign()
    system.patch({"desiredState": "Setup"})
    with pytest.raises(ApiError) as refused:
        system.patch(spec)
    assert refused.value.code == 403 and problem in refused.value.message
    system.patch({"desiredState": "Teardown"})
    with pytest.raises(ApiError, match="Teardown is the last state"):
        system.patch({"desiredState": "Setup"})


def breakdown(text: str) -> Json:
    servers = objects.reference("Servers", "job-0", "default")
    return storage_status(parse(text), Profiles.default(), servers, "job")


@pytest.mark.parametrize("type", ["xfs", "gfs2", "raw"])
def test_storage_per_compute_node_is_padded(type: str) -> None:
    status = breakdown(f"#DW jobdw type={type} capacity=10GiB name=aa")
    [entry] = status["storage"]["allocationSets"]
    assert entry == {
        "allocationStrategy": "AllocatePerCompute",
        "constraints": {"labels": ["dataworkflowservices.github.io/storage=Rabbit"]},
        "label": type,
        "minimumCapacity": 11051991040,
    }


def test_a_profile_decides_what_a_lustre_is_made_of() -> None:
    text = "#DW jobdw type=lustre capacity=1TB name=aa profile=exclusive-mdt"
    status = breakdown(text)
    ost, mgt, mdt = status["storage"]["allocationSets"]
    assert (ost["label"], ost["minimumCapacity"]) == ("ost", 10**12)
    assert ost["constraints"]["scale"] == 5
    assert mgt["allocationStrategy"] == "AllocateSingleServer"
    assert mgt["constraints"]["colocation"] == [
        {"key": "lustre-mgt", "type": "exclusive"}
    ]
    assert mdt["constraints"]["count"] == 2
    assert mdt["constraints"]["colocation"] == [{"key": "", "type": "exclusive"}]
    location = status["compute"]["constraints"]["location"]
    assert [entry["reference"]["fieldPath"] for entry in location] == [
        f"servers.spec.allocationSets[{index}]" for index in range(3)
    ]


def test_sizes_are_read_in_every_unit() -> None:
    assert capacity("3KB") == 3000
    assert capacity("3KiB") == 3072
    assert capacity("2TiB") == 2 << 40
    with pytest.raises(InvalidDirective):
        capacity("3")


@pytest.mark.parametrize(
    "entry, problem",
    [
        ({"strategy": "AllocateSomewhere"}, "strategy is AllocateSomewhere"),
        ({"count": 1, "scale": 1}, "give count or scale, not both"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(entry: Json, problem: str) -> None:
    good = {"label": "xfs", "strategy": "AllocatePerCompute", "access": []}
    data = {"default": "p", "profiles": {"p": {"xfs": [{**good, **entry}]}}}
    with pytest.raises(ValueError, match=problem):
        Profiles(data)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0s"),
        (0.0000015, "2µs"),
        (0.11981, "119.81ms"),
        (0.003, "3ms"),
        (1.048427, "1.048427s"),
        (2.0, "2s"),
        (123.5, "2m3.5s"),
        (3600, "1h0m0s"),
        (7325.25, "2h2m5.25s"),
    ],
)
def test_durations_are_those_of_go(seconds: float, text: str) -> None:
    assert objects.duration(seconds) == text


@pytest.mark.skipif(not CRDS.is_dir(), reason="the real rule set is not here")
def test_our_rules_mean_what_the_real_ones_mean() -> None:
    real = yaml.safe_load((CRDS / "nnf-ruleset.yaml").read_text())
    assert Rules.default().object["spec"] == real["spec"]
