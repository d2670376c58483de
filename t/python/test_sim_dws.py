# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the stand-in controllers refuse, wait for, and clean up: no less than real ones.

That they do what was recorded of real ones is in ``test_sim_dws_recorded``."""

from __future__ import annotations

import random
from typing import Optional, Sequence

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    PERSISTENTSTORAGE,
    STORAGE,
    SYSTEMSTATUS,
    Json,
    KubeError,
)
from rabbitsim.dws import Fault, Options, Rules, constant
from rabbitsim.dws.directive import STATES
from rabbitsim.kube import direct
from rabbitsim.kube.errors import ApiError
from support.dws import XFS, System
from support.effort import examples
from support.tree import CRDS

JOB = "#DW jobdw type=xfs capacity=1GiB name="
KEEP = "#DW create_persistent type=lustre capacity=20GiB name=keep1"


def start(
    *faults: Fault, until: str = "Proposal", directives: Sequence[str] = (XFS,)
) -> System:
    """A system with a job that was brought to a state, which it is in or not."""
    system = System(Options(latency=constant(0.1), faults=faults))
    system.submit(*directives)
    for state in STATES[: STATES.index(until)]:
        if state != "Proposal":
            assert system.go(state)["ready"]
        else:
            system.wait()
            system.assign()
    if until != "Proposal":
        system.patch({"desiredState": until})
    system.sleep(0.05)
    return system


def after(system: System, seconds: float) -> Json:
    system.sleep(seconds)
    return system.status()


def end(system: System, *names: str) -> None:
    for name in names or ("job",):
        system.remove(name)
    system.check_clean()


# ---- What is refused -------------------------------------------------------------


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
    system = start(until="Setup")
    with pytest.raises(ApiError, match=problem) as refused:
        system.patch(spec)
    assert refused.value.code == 403
    system.patch({"desiredState": "Teardown"})
    with pytest.raises(ApiError, match="Teardown is the last state"):
        system.patch({"desiredState": "Setup"})


@pytest.mark.skipif(not CRDS.is_dir(), reason="the real rule set is not here")
def test_our_rules_mean_what_the_real_ones_mean() -> None:
    real = yaml.safe_load((CRDS / "nnf-ruleset.yaml").read_text())
    assert Rules.default().object["spec"] == real["spec"]


@pytest.mark.parametrize(
    "changes, debug",
    [
        (
            {"storage": [{"name": "rabbit-99", "allocationCount": 1}]},
            "Storage 'rabbit-99' not found",
        ),
        ({"allocationSize": 1 << 30}, "less than the minimum capacity 11051991040"),
        ({"label": "ost"}, "allocation sets are ['ost'], expected ['xfs']"),
        ({"storage": []}, "allocation set 'xfs' has no storage"),
    ],
)
def test_servers_that_do_not_satisfy_the_breakdown_are_an_error_in_setup(
    changes: Json, debug: str
) -> None:
    system = start()
    system.wait()
    system.assign(**changes)
    status = system.go("Setup")
    assert (status["status"], status["ready"]) == ("Error", False)
    driver = next(d for d in status["drivers"] if d["watchState"] == "Setup")
    assert debug in driver["error"]
    end(system)


def set_computes(system: System, *names: str) -> None:
    data = {"data": [{"name": name} for name in names]}
    system.store.merge_patch(COMPUTES, "default", "job", data)


# ---- What is waited for ----------------------------------------------------------


def test_a_mount_that_fails_is_shown_in_the_client_mount_of_the_node() -> None:
    fault = Fault("PreRun", "mount", node="compute-04", message="no such device")
    system = start(fault, until="PreRun")
    status = after(system, 1)
    assert status["status"] == "TransientCondition"
    assert "unable to mount" in status["message"]
    name = "default-job-0-computes"
    bad = system.store.get(CLIENTMOUNT, "compute-04", name)["status"]
    assert bad["error"]["userMessage"] and bad["error"]["debugMessage"]
    assert (bad["allReady"], bad["mounts"][0]["ready"]) == (False, False)
    good = system.store.get(CLIENTMOUNT, "compute-01", name)["status"]
    assert good["allReady"] and "error" not in good
    set_computes(system, "compute-01")
    system.patch({"forceReady": True})
    assert system.wait()["message"] == "Forced Ready"
    assert system.go("PostRun")["ready"]
    assert system.workflow()["spec"]["forceReady"] is False
    for state in STATES[5:]:
        assert system.go(state)["ready"]
    end(system)


def test_a_node_that_died_keeps_its_mount_until_it_is_disabled() -> None:
    system = start(Fault("PostRun", "mount", node="compute-01"), until="PostRun")
    assert not after(system, 60)["ready"]
    mount = system.store.get(CLIENTMOUNT, "compute-01", "default-job-0-computes")
    assert mount["spec"]["desiredState"] == "unmounted"
    assert mount["status"]["mounts"] == [{"ready": True, "state": "mounted"}]
    disabled = {"data": {"nodes": {"compute-01": "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", disabled)
    assert after(system, 1)["ready"]


@pytest.mark.parametrize("mended", [False, True])
def test_a_node_that_is_cut_off_keeps_all_nodes_from_mounting(mended: bool) -> None:
    system = start(until="DataIn")
    system.controllers.rabbits.set_link("compute-04", up=False)
    system.wait()
    system.patch({"desiredState": "PreRun"})
    status = after(system, 1)
    assert (status["status"], status["ready"]) == ("DriverWait", False)
    assert system.items(CLIENTMOUNT) == []
    access = system.store.get(STORAGE, "default", "rabbit-02")["status"]["access"]
    assert {c["name"]: c["status"] for c in access["computes"]} == {
        "compute-03": "Ready",
        "compute-04": "Offline",
    }
    if mended:
        system.controllers.rabbits.set_link("compute-04", up=True)
    else:
        set_computes(system, "compute-01")
    assert system.wait()["ready"]


# ---- What is left ----------------------------------------------------------------

LIVES = (
    (XFS,),
    ("#DW jobdw type=gfs2 capacity=10GiB name=project1",),
    ("#DW jobdw type=raw capacity=1TB name=project1",),
    ("#DW jobdw type=lustre capacity=50GiB name=project1",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=high-performance",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=exclusive-mdt",),
    ("#DW jobdw type=lustre capacity=1TiB name=aa profile=single-mgtmdt",),
    ("#DW jobdw type=gfs2 capacity=1TiB name=aa profile=shared",),
    (XFS, "#DW jobdw type=lustre capacity=1TiB name=scratch-2"),
    (
        JOB + "aa requires=copy-offload",
        "#DW copy_in source=/lustre/in destination=$DW_JOB_aa/",
        "#DW copy_out source=$DW_JOB_aa/out destination=/lustre/out",
    ),
)


@pytest.mark.parametrize("directives", LIVES, ids=lambda d: d[0][4:].replace(" ", "-"))
def test_a_workflow_goes_through_all_its_states_and_leaves_nothing(
    directives: tuple[str, ...],
) -> None:
    system = System()
    system.run(*directives)
    system.check_clean()
    assert system.troubles == []


def test_persistent_storage_outlives_its_creator_until_it_is_destroyed() -> None:
    system = System()
    system.run(KEEP, name="creator")
    [instance] = system.items(PERSISTENTSTORAGE)
    assert instance["status"]["state"] == "Active"
    assert "ownerReferences" not in instance["metadata"]
    assert sum(system.full().values()) - sum(system.free().values()) >= 20 << 30
    system.submit("#DW persistentdw name=keep1", name="user")
    system.wait("user")
    system.assign(name="user")
    for state in STATES[1:4]:
        assert system.go(state, "user")["ready"]
    destroy = "#DW destroy_persistent name=keep1"
    for directive, user, problem in (
        (KEEP, 0, "already exists"),
        (destroy, 0, "is in use"),
        (destroy, 5, "belongs to another user"),
    ):
        system.submit(directive, name="other", user=user)
        assert problem in system.wait("other")["message"]
        system.remove("other")
    system.remove("user")
    system.run(destroy, name="destroyer")
    assert system.items(PERSISTENTSTORAGE) == []
    system.check_clean()


STEP = st.sampled_from(
    ["go", "go", "go", "restart", "drop", "teardown", "delete", "wait"]
)


@examples(20)
@given(
    life=st.sampled_from(LIVES),
    steps=st.lists(STEP, max_size=12),
    events=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_whatever_happens_on_the_way_nothing_is_left(
    life: tuple[str, ...], steps: list[str], events: int, seed: int
) -> None:
    rng = random.Random(seed)
    system = System(seed=seed, latency=lambda: rng.random() / 1000)
    system.submit(*life)
    for step in steps:
        if system.gone():
            break
        for _ in range(rng.randrange(events + 1)):
            system.loop.step()
        _random_step(system, step)
    if not system.gone():
        system.wait()
        system.remove()
    system.check_clean()


def _random_step(system: System, step: str) -> None:
    deleting = "deletionTimestamp" in system.workflow()["metadata"]
    state = system.workflow()["spec"]["desiredState"]
    if step == "restart":
        system.restart()
    elif step == "drop":
        system.kube.drop_watches()
    elif deleting:
        pass
    elif step == "wait":
        system.wait()
    elif step == "delete":
        system.release()
    elif step == "teardown":
        system.patch({"desiredState": "Teardown"})
    elif state != "Teardown" and system.wait()["ready"]:
        if state == "Proposal":
            system.assign()
        system.patch({"desiredState": STATES[STATES.index(state) + 1]})


@examples(13)
@given(life=st.sampled_from(LIVES), seed=st.integers(0, 2**32 - 1))
@example(life=LIVES[0], seed=17248)
def test_an_api_server_with_trouble_only_delays(
    life: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(seed)

    def trouble(request: direct.Request) -> Optional[direct.Fault]:
        dice = rng.random()
        if dice < 0.1:
            return direct.Fault(error=KubeError(500, "InternalError"))
        if dice < 0.2 and request.verb != "watch":
            return direct.Fault(error=KubeError(0, "Lost"), carried_out=True)
        if dice < 0.25:
            return direct.Fault(delay=rng.random())
        return None

    system = System(seed=seed, faults=trouble)
    system.run(*life)
    system.sleep(60.0)
    system.check_clean()
