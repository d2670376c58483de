# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Several Flux instances on one cluster: none touches the Workflows of another."""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.config.settings import Identity
from flux_k8s.dws.storageusage import WORKFLOW_LABEL
from flux_k8s.dws.workflowmarks import INSTANCE
from flux_k8s.dws.workflowview import FINALIZER
from flux_k8s.ports import WORKFLOW, Json
from flux_k8s.rabbits.freestorage import FreeStorage
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.system import VirtualSystem
from support.mapping import servers
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    OPTION,
    exceptions,
    lines,
    names,
    run_until,
    settle,
    started,
    submit,
)

UNKNOWN = 4711
"""A job that this Flux does not know."""


def workflow_of(jobid: int, label: Optional[str]) -> Json:
    """A Workflow as a module makes it."""
    metadata: Json = {"name": workflow_name(jobid), "finalizers": [FINALIZER]}
    if label is not None:
        metadata["labels"] = {INSTANCE: label}
    spec = {
        "desiredState": "Proposal",
        "dwDirectives": [],
        "forceReady": False,
        "groupID": 0,
        "jobID": f58(jobid),
        "userID": 0,
        "wlmID": "flux",
    }
    return {"metadata": metadata, "spec": spec}


def system_of(identity: Identity, label: Optional[str]) -> VirtualSystem:
    """A system with a Workflow of an unknown job, which has this label."""
    system = VirtualSystem()
    system.identity = identity
    system.store.create(WORKFLOW, "default", workflow_of(UNKNOWN, label))
    system.start()
    return system


def is_untouched(system: VirtualSystem, jobid: int = UNKNOWN) -> bool:
    workflow = system.store.get(WORKFLOW, "default", workflow_name(jobid))
    metadata, spec = workflow["metadata"], workflow["spec"]
    held = FINALIZER in metadata["finalizers"] and "deletionTimestamp" not in metadata
    return held and spec["desiredState"] == "Proposal"


def relabel(system: VirtualSystem, jobid: int, label: Optional[str]) -> None:
    """Another label, or none."""
    labels = {"metadata": {"labels": {INSTANCE: label}}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), labels)


def test_a_workflow_names_the_instance_of_its_job() -> None:
    system = started()
    jobid = submit(system, "-N1", "-S", OPTION)
    run_until(system, jobid, "start")
    workflow = system.store.get(WORKFLOW, "default", workflow_name(jobid))
    assert workflow["metadata"]["labels"][INSTANCE] == system.identity.name
    settle(system)


@pytest.mark.parametrize("shares", [False, True])
def test_a_workflow_of_another_instance_is_not_touched(shares: bool) -> None:
    system = system_of(Identity("ours", shares=shares), "theirs")
    system.loop.run(timeout=HOUR)
    assert is_untouched(system)
    system.unload_module()
    system.load_module()
    system.loop.run(timeout=HOUR)
    assert is_untouched(system)
    assert not lines(system, workflow_name(UNKNOWN))


@pytest.mark.parametrize("identity", [Identity("ours"), Identity("new", "ours", True)])
def test_an_orphan_of_this_instance_is_torn_down(identity: Identity) -> None:
    system = system_of(identity, "ours")
    assert system.loop.run(lambda: not system.workflows(), HOUR)


@pytest.mark.parametrize("shares", [False, True])
def test_an_orphan_with_an_earlier_name_may_be_of_an_instance_that_has_it_now(
    shares: bool,
) -> None:
    earlier = frozenset({"earlier"})
    system = system_of(Identity("ours", shares=shares, names=earlier), "earlier")
    system.loop.run(timeout=HOUR)
    assert is_untouched(system)


def test_an_orphan_without_a_label_is_torn_down_where_no_instance_has_a_name() -> None:
    system = system_of(Identity("a1b2c3"), None)
    assert system.loop.run(lambda: not system.workflows(), HOUR)


def test_an_unlabelled_workflow_of_an_unknown_job_is_left_to_other_instances() -> None:
    system = system_of(Identity("ours", shares=True), None)
    system.loop.run(timeout=HOUR)
    assert is_untouched(system)
    assert len(lines(system, f"Workflow {workflow_name(UNKNOWN)} is not touched")) == 1


@pytest.mark.parametrize("label", [None, "earlier"])
def test_a_workflow_from_before_the_name_is_torn_down_when_its_job_has_ended(
    label: Optional[str],
) -> None:
    """As one that a module without labels had made, whose job ended meanwhile."""
    system = VirtualSystem()
    system.identity = Identity("ours", shares=True)
    system.start()
    jobid = submit(system, "-N1", "-S", OPTION)
    run_until(system, jobid, "start")
    relabel(system, jobid, label)
    system.identity = Identity("ours", shares=True, names=frozenset({"earlier"}))
    system.unload_module()
    system.instance.unload_plugin()
    assert system.loop.run(lambda: not system.instance.manager.active_jobs, HOUR)
    assert system.workflows()
    system.load_plugin()
    system.load_module()
    assert system.loop.run(lambda: not system.workflows(), HOUR)


@pytest.mark.parametrize("event", ["depend", "prolog-start", "start"])
def test_a_job_does_not_notice_that_its_instance_gets_a_name(event: str) -> None:
    system = started()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    system.unload_module()
    system.identity = Identity("new", former=system.identity.name, shares=True)
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("event", ["depend", "prolog-start", "start"])
def test_a_job_goes_on_with_a_workflow_from_before_there_were_labels(
    event: str,
) -> None:
    system = started()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    system.unload_module()
    relabel(system, jobid, None)
    system.identity = Identity("ours", shares=True)
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("name", ["new", None])
@pytest.mark.parametrize("event", ["depend", "prolog-start", "start", "epilog-start"])
def test_a_job_does_not_notice_that_its_instance_gets_another_name_or_none(
    event: str, name: Optional[str]
) -> None:
    system = VirtualSystem()
    system.identity = Identity("old", shares=True)
    system.start()
    jobid = submit(system, "-N2", "-S", OPTION)
    run_until(system, jobid, event)
    system.unload_module()
    known = frozenset({"old"})
    system.identity = Identity(name or "a1b2c3", shares=name is not None, names=known)
    system.load_module()
    settle(system)
    assert names(system, jobid) == LIFE


def test_a_workflow_that_is_given_to_another_instance_is_not_touched() -> None:
    """Before the plugin has said whether its job is one of this instance."""
    system = VirtualSystem()
    system.identity = Identity("ours")
    system.store.create(WORKFLOW, "default", workflow_of(UNKNOWN, "ours"))
    system.load_module()
    system.loop.run(timeout=60.0)
    relabel(system, UNKNOWN, "theirs")
    system.loop.run(timeout=60.0)
    system.load_plugin()
    system.loop.run(timeout=HOUR)
    assert is_untouched(system)


def test_a_job_whose_workflow_becomes_anothers_in_its_epilog_is_told() -> None:
    """Its data is not copied, and nobody else says so."""
    system = started()
    jobid = submit(system, "-N2", "-S", f"{OPTION}\n{COPY_OUT}")
    run_until(system, jobid, "epilog-start")
    relabel(system, jobid, "theirs")
    assert system.loop.run(lambda: not system.instance.manager.active_jobs, HOUR)
    (raised,) = exceptions(system, jobid)
    assert raised["severity"] == 0
    assert 'belongs to the Flux instance "theirs"' in raised["note"]


def test_storage_on_rabbits_of_another_instance_is_not_counted() -> None:
    system = started()
    system.loop.run(timeout=60.0)
    body = servers("theirs", **{"rabbit-99": 2**30})
    body["metadata"]["labels"] = {WORKFLOW_LABEL: workflow_name(UNKNOWN)}
    assert system.service is not None
    machine = system.service._machine
    free = machine.free_storage
    assert isinstance(free, FreeStorage)
    free.event("ADDED", body)
    assert free.usage_of(UNKNOWN)
    assert free.bytes_in_use == 0 and machine.stats()["in_use"] == 0


def test_a_job_whose_name_another_instance_has_taken_fails_and_says_so() -> None:
    system = VirtualSystem()
    jobid = submit(system, "-N1", "-S", OPTION)
    system.store.create(WORKFLOW, "default", workflow_of(jobid, "theirs"))
    system.start()
    assert system.loop.run(lambda: not system.instance.manager.active_jobs, HOUR)
    (raised,) = exceptions(system, jobid)
    assert raised["type"] == "dws"
    assert 'belongs to the Flux instance "theirs"' in raised["note"]
    assert is_untouched(system, jobid)
