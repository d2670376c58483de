# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a ClientMount says of a node, and Servers of Rabbits."""

from __future__ import annotations

import pytest

from flux_k8s.errors import BadObject
from flux_k8s.objects.cleanup import allocated_rabbits
from flux_k8s.objects.clientmount import ClientMount, not_unmounted
from flux_k8s.ports import Json


@pytest.mark.parametrize(
    ("state", "ready", "clean"),
    [("unmounted", True, True), ("unmounted", False, False), ("mounted", True, False)],
)
def test_a_node_is_clean_once_its_mounts_are_unmounted_and_ready(
    state: str, ready: bool, clean: bool
) -> None:
    """NNF writes that they are unmounted before it tries."""
    clientmount = {
        "metadata": {"name": "x", "namespace": "n1"},
        "spec": {"desiredState": "unmounted"},
        "status": {"mounts": [{"state": state, "ready": ready}]},
    }
    assert not_unmounted([ClientMount.read(clientmount)]) == (() if clean else ("n1",))


@pytest.mark.parametrize(("desired", "told"), [("mounted", False), ("unmounted", True)])
def test_dws_has_told_a_node_to_unmount_by_the_desired_state(
    desired: str, told: bool
) -> None:
    mount = ClientMount.read({"spec": {"desiredState": desired}})
    assert mount.is_to_be_unmounted is told


def test_an_unknown_mount_counts_as_one_that_was_told_and_has_not_unmounted() -> None:
    mount = ClientMount.unknown("n1")
    assert not_unmounted([mount]) == ("n1",)
    assert mount.is_to_be_unmounted and not mount.has_failed_to_mount


@pytest.mark.parametrize(
    ("ready", "error", "mounted"),
    [
        (True, False, True),
        (True, True, True),
        (False, False, True),
        (False, True, False),
    ],
)
def test_a_mount_that_failed_is_none(ready: bool, error: bool, mounted: bool) -> None:
    status: Json = {"mounts": [{"state": "mounted", "ready": ready}]}
    if error:
        status["error"] = {"userMessage": "mount/unmount failed"}
    assert ClientMount.read({"status": status}).may_be_mounted is mounted


@pytest.mark.parametrize(
    "damage",
    [{"status": {"mounts": [{"state": 3}]}}, {"spec": {"desiredState": []}}],
)
def test_a_damaged_mount_is_neither_mounted_nor_unmounted(damage: Json) -> None:
    names = {"metadata": {"name": "x", "namespace": "n1"}}
    mount = ClientMount.read({**names, **damage})
    assert not (mount.is_mounted or mount.is_unmounted) and mount.may_be_mounted
    assert not_unmounted([mount]) == ("n1",)


@pytest.mark.parametrize(
    ("allocation", "holds"),
    [({"allocationSize": 1}, True), ({"allocationSize": 0}, False), ({}, False)],
)
def test_a_rabbit_holds_storage_until_none_is_allocated(
    allocation: Json, holds: bool
) -> None:
    servers: Json = {"status": {"allocationSets": [{"storage": {"r1": allocation}}]}}
    assert allocated_rabbits([servers]) == (("r1",) if holds else ())


def test_servers_that_cannot_be_read_do_not_say_that_no_rabbit_holds_storage() -> None:
    servers: Json = {"status": {"allocationSets": [{"storage": {"r1": 7}}]}}
    with pytest.raises(BadObject):
        allocated_rabbits([servers])
