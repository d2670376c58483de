# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Several Flux instances on one cluster: none touches the Workflows of another."""

from __future__ import annotations

from typing import Optional

import pytest

from flux_k8s.config.settings import Identity
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.objects.storageusage import WORKFLOW_LABEL
from flux_k8s.objects.workflowmarks import INSTANCE
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import SERVERS, WORKFLOW, Json
from rabbitsim.system import VirtualSystem
from support.mapping import servers
from support.rabbits import stats
from support.service import (
    COPY_OUT,
    HOUR,
    OPTION,
    exceptions,
    lines,
    run_until,
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


OURS, SHARED = Identity("ours"), Identity("ours", shares=True)
EARLIER = frozenset({"earlier"})

# Who we are, the label of an orphan, and whether it is torn down.
ORPHANS = [
    (OURS, "theirs", False),
    (SHARED, "theirs", False),
    (OURS, "ours", True),
    (Identity("new", "ours", True), "ours", True),
    # An instance may have the earlier name now.
    (Identity("ours", names=EARLIER), "earlier", False),
    (Identity("ours", shares=True, names=EARLIER), "earlier", False),
    (Identity("a1b2c3"), None, True),  # no instance has a name
    (SHARED, None, False),
]


@pytest.mark.parametrize(("identity", "label", "ends"), ORPHANS)
def test_an_orphan_is_torn_down_if_it_is_of_this_instance(
    identity: Identity, label: Optional[str], ends: bool
) -> None:
    system = system_of(identity, label)
    if ends:
        assert system.loop.run(lambda: not system.workflows(), HOUR)
        return
    system.loop.run(timeout=HOUR)
    told = lines(system, f"Workflow {workflow_name(UNKNOWN)} is not touched")
    assert len(told) == (label != "theirs")
    assert is_untouched(system)


@pytest.mark.parametrize(("field", "value"), [("jobID", "x"), ("wlmID", "slurm")])
def test_an_orphan_of_another_program_is_not_touched(field: str, value: str) -> None:
    system = VirtualSystem()
    body = workflow_of(UNKNOWN, None)
    body["spec"][field] = value
    system.store.create(WORKFLOW, "default", body)
    system.start()
    system.loop.run(timeout=HOUR)
    assert is_untouched(system)


def test_a_job_whose_workflow_becomes_anothers_in_its_epilog_is_told() -> None:
    """Its data is not copied, and nobody else says so."""
    system = started()
    jobid = submit(system, "-N2", "-S", f"{OPTION}\n{COPY_OUT}")
    run_until(system, jobid, "epilog-start")
    made = system.store.get(WORKFLOW, "default", workflow_name(jobid))
    assert made["metadata"]["labels"][INSTANCE] == system.identity.name
    relabel(system, jobid, "theirs")
    assert system.loop.run(lambda: not system.instance.manager.active_jobs, HOUR)
    (raised,) = exceptions(system, jobid)
    assert raised["severity"] == 0
    assert 'belongs to the Flux instance "theirs"' in raised["note"]


def test_storage_on_rabbits_of_another_instance_is_not_counted() -> None:
    system = started()
    system.loop.run(timeout=60.0)
    for name, rabbit in (("theirs", "rabbit-99"), ("ours", "rabbit-01")):
        body = servers(name, **{rabbit: 2**30})
        body["metadata"]["labels"] = {WORKFLOW_LABEL: workflow_name(UNKNOWN)}
        body["metadata"]["resourceVersion"] = "1"
        assert system.service_kube is not None
        system.service_kube.show(SERVERS, "ADDED", body)
    system.loop.run(timeout=60.0)
    assert stats(system)["in_use"] == 1  # GiB


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
