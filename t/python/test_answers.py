# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""An answer of Kubernetes is believed only if it is about what was asked for, and one
alone costs no job its life: a proxy may answer anything."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional

import pytest

from flux_k8s.ports import (
    COMPUTES,
    NNFDATAMOVEMENT,
    WORKFLOW,
    Json,
    KubeError,
)
from flux_k8s.rfc.jobid import workflow_name
from rabbitsim.dws.options import Options, table
from rabbitsim.kube.direct import Fault, Request
from rabbitsim.system import VirtualSystem
from support.effort import pairs
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    lines,
    long,
    names,
    run_until_inactive,
    running,
    settle,
    started,
    wipe,
    workflow,
)

COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"

WRONG: dict[str, Json] = {
    "nothing": {},
    "another kind": {
        "kind": "Pod",
        "metadata": {"name": "NAME", "uid": "1", "resourceVersion": "1"},
    },
    "another name": {
        "kind": "Workflow",
        "metadata": {"name": "other", "uid": "1", "resourceVersion": "1"},
    },
    "no uid": {"kind": "Workflow", "metadata": {"name": "NAME"}},
    "no spec": {
        "kind": "Workflow",
        "metadata": {"name": "NAME", "uid": "1", "resourceVersion": "1"},
    },
    "a spec without a job": {
        "kind": "Workflow",
        "metadata": {"name": "NAME", "uid": "1", "resourceVersion": "1"},
        "spec": {},
    },
    "metadata that is none": {"kind": "Workflow", "metadata": 7},
    "a list": {"kind": "WorkflowList", "metadata": {}, "items": []},
}


def wrong(answer: str, name: str) -> Json:
    found = copy.deepcopy(WRONG[answer])
    metadata = found.get("metadata")
    if isinstance(metadata, dict) and metadata.get("name") == "NAME":
        metadata["name"] = name
    return found


def answered(answer: str, count: int) -> Callable[[Request], Optional[Fault]]:
    """The first requests get an answer that is not theirs."""
    left = [count]

    def fault(request: Request) -> Optional[Fault]:
        if request.verb == "watch" or not left[0]:
            return None
        left[0] -= 1
        name = request.name
        if name is None and isinstance(request.body, dict):
            name = request.body["metadata"]["name"]
        carried_out = left[0] % 2 == 0
        return Fault(answer=wrong(answer, str(name)), carried_out=carried_out)

    return fault


@pytest.mark.parametrize("answer", WRONG)
def test_no_job_fails_while_all_answers_are_wrong(answer: str) -> None:
    system = started(faults=answered(answer, 40))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []
    text = f"the answer is malformed: it is no Workflow {workflow_name(jobid)}"
    assert lines(system, text)


def mounting() -> tuple[VirtualSystem, int]:
    """A system, and a job whose mounts are to be listed before it starts: nobody has
    seen whether a node was disabled meanwhile."""
    system = started(options=Options(latency=table({"PreRun": 5.0})))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    system.loop.run(timeout=1.0)
    assert system.service_kube is not None
    system.service_kube.drop_watches()
    return system, jobid


@pytest.mark.parametrize("items", [[None], [3], [{}], {"a": "b"}, "x"], ids=str)
def test_no_job_fails_by_lists_of_what_is_no_object(items: Any) -> None:
    system, jobid = mounting()
    lies = 20

    def junk(request: Request) -> Optional[Fault]:
        nonlocal lies
        if request.verb != "list" or not lies:
            return None
        lies -= 1
        kind = f"{request.kind.name}List"
        return Fault(answer={"kind": kind, "metadata": {}, "items": items})

    assert system.service_kube is not None
    system.service_kube.faults = junk
    settle(system)
    assert lies == 0 and names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


def test_a_list_of_nothing_may_be_null() -> None:
    system, jobid = mounting()

    asked = 0

    def null(request: Request) -> Optional[Fault]:
        nonlocal asked
        if request.verb != "list" or request.kind != NNFDATAMOVEMENT:
            return None
        asked += 1
        kind = f"{request.kind.name}List"
        return Fault(answer={"kind": kind, "metadata": {}, "items": None})

    assert system.service_kube is not None
    system.service_kube.faults = null
    settle(system)
    assert asked
    assert names(system, jobid) == LIFE and exceptions(system, jobid) == []


STATES = ["Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown"]


def test_a_workflow_that_a_get_misses_by_mistake_is_torn_down() -> None:
    """The job fails, and nobody else would tear down what is mounted."""
    system = started(options=Options(latency=table(dict.fromkeys(STATES, 3.0))))
    jobid = system.instance.submit(long([XFS, COPY_OUT], seconds=3))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    missed: list[Request] = []

    def miss(request: Request) -> Optional[Fault]:
        if (request.verb, request.kind) != ("get", WORKFLOW) or missed:
            return None
        missed.append(request)
        return Fault(error=KubeError(404, "NotFound", "not found"))

    assert system.service_kube is not None
    system.service_kube.faults = miss
    system.service_kube.drop_watches()
    settle(system)
    assert missed and "was deleted under the job" in str(exceptions(system, jobid))
    assert system.workflows() == []


@pytest.mark.parametrize(
    ("mine", "state"), pairs([True, False], STATES[:-1], 2), ids=str
)
def test_another_workflow_for_some_seconds_fails_no_job(state: str, mine: bool) -> None:
    """Each read of the Workflow is answered with one that has its name."""
    system = started(options=Options(latency=table({each: 5.0 for each in STATES})))
    jobid = system.instance.submit(long([XFS, COPY_OUT], seconds=1))
    assert system.loop.run(in_state(system, state), HOUR)
    until = system.loop.now() + 15.0
    told = 0

    def lie(request: Request) -> Optional[Fault]:
        nonlocal told
        stored = system.workflows()
        if request.kind != WORKFLOW or not stored or system.loop.now() > until:
            return None
        if request.verb == "patch":  # the service looks whether that is so
            return Fault(error=KubeError(404, "NotFound", "workflows not found"))
        if request.verb != "get":
            return None
        told += 1
        found = copy.deepcopy(stored[0])
        found["metadata"]["uid"] = "another"
        if not mine:
            found["spec"]["jobID"] = "another"
        return Fault(answer=found)

    assert system.service_kube is not None
    system.service_kube.faults = lie
    settle(system)
    assert told
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


def test_no_workflow_is_changed_that_another_program_has_made_anew() -> None:
    """The service does not know it yet when the job gets nodes."""
    system = started()
    nodes = len(system.instance.scheduler.pool.nodes)
    running(system, system.instance.submit(long("", nodes, 50)))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    system.loop.run(timeout=10.0)
    assert system.service_kube is not None
    system.service_kube.silence_watches(WORKFLOW)
    name, store = workflow_name(jobid), system.store
    spec = {**workflow(system, jobid)["spec"], "jobID": "another"}
    wipe(system, name)
    store.create(WORKFLOW, "default", {"metadata": {"name": name}, "spec": spec})
    system.loop.run(timeout=60.0)
    found = store.get(WORKFLOW, "default", name)
    assert found["spec"] == spec and "annotations" not in found["metadata"]
    assert system.instance.job(jobid).was_posted("prolog-start")
    system.service_kube.drop_watches()
    run_until_inactive(system, jobid)


def test_no_workflow_is_moved_that_takes_the_place_of_the_jobs_own() -> None:
    """The watch shows it while the job's step is under way."""
    other: Json = {}

    def fault(request: Request) -> Optional[Fault]:
        if request.kind != COMPUTES or request.verb != "patch":
            return None
        kube.faults = None
        computes = system.store.get(COMPUTES, "default", str(request.name))
        (found,) = system.workflows()
        name = found["metadata"]["name"]
        other.update(found["spec"], jobID="another")
        wipe(system, name)
        made = {"metadata": {"name": name}, "spec": other}
        system.store.create(WORKFLOW, "default", made)
        return Fault(answer=computes, delay=5.0)

    system = started(faults=fault)
    assert system.service_kube is not None
    kube = system.service_kube
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    run_until_inactive(system, jobid)
    (found,) = system.workflows()
    assert found["spec"] == other and "annotations" not in found["metadata"]
    assert "belongs to job another" in str(exceptions(system, jobid))


def test_no_workflow_is_deleted_that_takes_the_place_of_the_jobs_own() -> None:
    """It does before the DELETE arrives."""
    replaced: list[str] = []

    def fault(request: Request) -> Optional[Fault]:
        if request.kind != WORKFLOW or request.verb != "delete" or replaced:
            return None
        (found,) = system.workflows()
        spec = {**found["spec"], "jobID": "another", "desiredState": "Proposal"}
        name = found["metadata"]["name"]
        replaced.append(name)
        kube.silence_watches(WORKFLOW)
        wipe(system, name)
        made = {"metadata": {"name": name}, "spec": spec}
        system.store.create(WORKFLOW, "default", made)
        return None

    system = started(faults=fault)
    assert system.service_kube is not None
    kube = system.service_kube
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    run_until_inactive(system, jobid)
    system.loop.run(timeout=60.0)
    (found,) = system.workflows()
    assert found["spec"]["jobID"] == "another"
    assert "deletionTimestamp" not in found["metadata"]
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_one_answer_with_the_workflow_of_another_job_fails_no_job(verb: str) -> None:
    """It has the kind, name and uid that were asked for."""

    def fault(request: Request) -> Optional[Fault]:
        if request.kind != WORKFLOW or request.verb != verb:
            return None
        stored = system.workflows() or [request.body]
        metadata = {"uid": "1", **stored[0]["metadata"], "resourceVersion": "99999"}
        spec = {**stored[0]["spec"], "jobID": "another"}
        found = {"kind": "Workflow", "metadata": metadata, "spec": spec}
        assert system.service_kube is not None
        system.service_kube.faults = None
        return Fault(answer=found)

    system = started(faults=fault)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


def test_an_answer_decides_nothing_that_was_seen_after_its_request() -> None:
    """That there is no Workflow is heard after one of another job, which is gone."""

    def fault(request: Request) -> Optional[Fault]:
        if request.kind == WORKFLOW and request.verb == "create":
            return Fault(error=KubeError(409, "AlreadyExists", ""), carried_out=True)
        if request.kind != WORKFLOW or request.verb != "get":
            return None
        kube.faults = None
        name, store = str(request.name), system.store
        spec = {**system.workflows()[0]["spec"], "jobID": "another"}
        other = {"metadata": {"name": name}, "spec": spec}
        system.loop.call_later(1.0, lambda: wipe(system, name))
        system.loop.call_later(2.0, lambda: store.create(WORKFLOW, "default", other))
        system.loop.call_later(3.0, lambda: kube.silence_watches(WORKFLOW))
        system.loop.call_later(4.0, lambda: wipe(system, name))
        return Fault(error=KubeError(404, "NotFound", ""), delay=5.0)

    system = started(faults=fault)
    assert system.service_kube is not None
    kube = system.service_kube
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    system.loop.run(timeout=10.0)
    kube.drop_watches()
    settle(system)
    assert names(system, jobid) == LIFE
    assert exceptions(system, jobid) == []


def test_what_a_job_leaves_that_failed_by_wrong_answers_is_torn_down() -> None:
    """The Workflow seems to be that of another job, until the job has failed."""
    jobid = 0

    def fault(request: Request) -> Optional[Fault]:
        stored = system.workflows()
        if request.kind != WORKFLOW or not stored or not jobid:
            return None
        if request.verb not in ("get", "patch") or exceptions(system, jobid):
            return None
        metadata = {**stored[0]["metadata"], "resourceVersion": "99999"}
        spec = {**stored[0]["spec"], "jobID": "another"}
        return Fault(answer={"kind": "Workflow", "metadata": metadata, "spec": spec})

    system = started(faults=fault)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert "belongs to job" in exception["note"]


def test_what_dws_refuses_is_told_in_its_own_words() -> None:
    def fault(request: Request) -> Optional[Fault]:
        if (request.verb, request.kind) != ("create", WORKFLOW):
            return None
        message = 'admission webhook "w" denied the request: not today'
        return Fault(error=KubeError(403, "Forbidden", message))

    system = started()
    assert system.service_kube is not None
    system.service_kube.faults = fault
    jobid = system.instance.submit(jobspec(XFS))
    run_until_inactive(system, jobid)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == f"{XFS}: DWS refuses: not today"
