# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job leaves behind in its KVS."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.copies import PAGE
from flux_k8s.jobs.datarecords import (
    CHARACTERS,
    CONTAINERS,
    fair_shares,
    join_logs,
)
from flux_k8s.jobs.records import durations
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.objects.datamovement import STATE_LABEL, Totals
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import NNFDATAMOVEMENT, WORKFLOW, Json, Request
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.files import NoFiles
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.broker import Offered
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault, Faults
from rabbitsim.system import VirtualSystem
from support.records import COPY_IN, OFFLOAD, labels, movements, offloading, pod
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    LUSTRE,
    XFS,
    exceptions,
    in_state,
    jobspec,
    lines,
    names,
    settle,
    started,
)
from support.tables import rows

GIB = 2**30


def saving(
    most: int = 10, faults: Optional[Faults] = None, **options: Any
) -> VirtualSystem:
    config = Config.parse({"save_datamovements": most, "daemons": {"copy-offload": {}}})
    latency = table({"DataIn": 0.1, "PreRun": 0.1, "DataOut": 0.1, "Teardown": 0.1})
    return started(
        config=config, options=Options(latency=latency), faults=faults, **options
    )


def offload(system: VirtualSystem, jobid: int, name: str, status: str) -> None:
    """A data movement that the job asked for while it ran."""
    meta = {
        "name": name,
        "namespace": "rabbit-01",
        "labels": labels(jobid),
        "managedFields": [{"manager": "nnf-dm"}],
    }
    system.store.ensure_namespace("rabbit-01")
    system.store.create(NNFDATAMOVEMENT, "rabbit-01", {"metadata": meta})
    ended: Json = {"status": {"state": "Finished", "status": status}}
    system.store.merge_patch(
        NNFDATAMOVEMENT, "rabbit-01", name, ended, subresource="status"
    )


def asked(system: VirtualSystem) -> list[str]:
    """What the service asks for from now on: verb and kind."""
    seen: list[str] = []
    kube = system.service_kube
    assert kube is not None

    def note(request: Request) -> None:
        seen.append(f"{request.verb} {request.kind.plural}")

    kube.faults = note
    return seen


# Data movements


def kept(system: VirtualSystem, jobid: int) -> Json:
    """The Workflow that is recorded."""
    workflow: Json = json.loads(system.instance.job(jobid).kvs["rabbit_workflow"])
    return workflow


@pytest.mark.parametrize("state", ["Proposal", "Setup", "DataIn", "PreRun"])
def test_a_failure_is_recorded_at_once_with_what_dws_says(state: str) -> None:
    """The controllers do nothing any more: the end does not come."""
    fault = DwsFault(state, "error", message="it broke")
    latency = table(dict.fromkeys(("Proposal", "Setup", "DataIn", "PreRun"), 2.0))
    system = started(options=Options(faults=(fault,), latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_IN]))
    assert system.loop.run(lambda: bool(exceptions(system, jobid)), HOUR)
    system.controllers.pause()
    system.loop.run(timeout=1.0)
    status = kept(system, jobid)["status"]
    assert status["state"] == state and status["status"] == "Error"
    assert "it broke" in status["message"]
    kvs = system.instance.job(jobid).kvs
    assert 1.9 < float(kvs[f"rabbit_{state.lower()}_timing"]) < 2.5
    system.controllers.resume()
    settle(system)
    assert kept(system, jobid)["status"]["state"] == "Teardown"


@pytest.mark.parametrize("state", ["Setup", "PreRun", "DataOut"])
def test_the_workflow_before_teardown_is_recorded(state: str) -> None:
    """Somebody else asks for Teardown, then the controllers do nothing any more."""
    fault = DwsFault(state, "never", message="at it")
    latency = table(dict.fromkeys(("Setup", "DataIn", "PreRun", "PostRun"), 2.0))
    system = started(options=Options(faults=(fault,), latency=latency))
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(in_state(system, state), HOUR)
    system.loop.run(timeout=5.0)
    system.controllers.pause()
    body: Json = {"spec": {"desiredState": "Teardown"}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
    system.loop.run(timeout=1.0)
    assert kept(system, jobid)["status"]["state"] == state
    system.controllers.resume()
    settle(system)
    assert kept(system, jobid)["status"]["state"] == "Teardown"


DURATIONS = """
Proposal=1 -> Proposal ->
Proposal=1 Setup=9 -> Setup ->
Proposal=1-3 Setup=9 -> Setup -> Proposal=2
Setup=9 DataIn=15 -> DataIn -> Setup=6
Setup=9-14 DataIn=15 -> DataIn -> Setup=5
Setup=9 Teardown=19 -> Teardown -> Setup=10
DataIn=15 PreRun=20 PostRun=90 -> PostRun -> DataIn=5
DataIn=15 PreRun=20-24 PostRun=90 -> PostRun -> DataIn=5 PreRun=4
PreRun=20 Teardown=25 -> Teardown -> PreRun=5
PostRun=90 DataOut=95 Teardown=99 -> Teardown -> PostRun=5 DataOut=4
"""
"""When states were asked for, and ended, as far as a Workflow says so; its state, and
the seconds that states have taken."""


@pytest.mark.parametrize(("times", "desired", "expected"), rows(DURATIONS, 3))
def test_a_module_that_is_new_knows_what_a_state_has_taken(
    times: str, desired: str, expected: str
) -> None:
    """A job may run for long after PreRun, of which DWS does not say when it ended
    where nothing was mounted."""
    begun: list[Optional[float]] = [None] * len(STATES)
    ended = begun.copy()
    for name, _, text in (part.partition("=") for part in times.split()):
        begin, _, end = text.partition("-")
        begun[State[name]] = float(begin)
        ended[State[name]] = float(end) if end else None
    view = WorkflowView(
        uid="u",
        resource_version="7",
        jobid="",
        wlm="flux",
        desired=State[desired],
        state=None,
        ready=False,
        status="",
        message="",
        finalizers=(),
        deleting=False,
        begun=tuple(begun),
        ended=tuple(ended),
    )
    found = durations(WorkflowInfo(1, Goal.READY, last=view))
    said = (f"{state.name}={seconds:g}" for state, seconds in sorted(found.items()))
    assert " ".join(said) == expected


def test_a_workflow_of_another_program_is_not_recorded() -> None:
    system = started()
    jobid = system.instance.submit(jobspec([XFS]))
    spec = {
        "desiredState": "Proposal",
        "dwDirectives": [XFS],
        "forceReady": False,
        "groupID": 0,
        "jobID": "x",
        "userID": 0,
        "wlmID": "slurm",
    }
    metadata = {"name": workflow_name(jobid)}
    system.store.create(WORKFLOW, "default", {"metadata": metadata, "spec": spec})
    assert system.loop.run(system.instance.idle, HOUR)
    system.loop.run(timeout=1.0)
    (exception,) = exceptions(system, jobid)
    assert "belongs to job x of slurm" in exception["note"]
    kvs = system.instance.job(jobid).kvs
    assert [key for key in kvs if key.startswith("rabbit_")] == ["rabbit_data_out"]


def test_who_learns_of_the_end_of_a_job_finds_its_records() -> None:
    system = started(options=Options(latency=table({"Teardown": 2.0})))
    system.instance.commit_delay = 0.5
    jobid = system.instance.submit(jobspec(XFS, 1))
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, HOUR)
    kvs = system.instance.job(jobid).kvs
    assert json.loads(kvs["rabbit_workflow"])["status"]["state"] == "Teardown"
    assert json.loads(kvs["rabbit_data_out"]) == {"success": True}
    for state in STATES:
        assert f"rabbit_{state.lower()}_timing" in kvs
    assert float(kvs["rabbit_teardown_timing"]) == 2.0


def test_the_data_movements_of_a_job_are_recorded() -> None:
    system = saving()
    jobid = system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT], nodes=1))
    settle(system)
    found = movements(system, jobid)
    initiators = [m["metadata"]["labels"]["dm.cray.hpe.com/initiator"] for m in found]
    assert initiators == ["copy_in", "copy_out"]
    for movement in found:
        assert movement["kind"] == "NnfDataMovement"
        assert movement["status"]["status"] == "Success"
        assert movement["status"]["commandStatus"]["progress"] == 100
    assert names(system, jobid) == LIFE


def test_data_movements_that_failed_come_first_then_the_oldest() -> None:
    system = saving(4)
    jobid = offloading(system)
    made = [
        ("e", "Success"),
        ("d", "Failed"),
        ("c", "Cancelled"),
        ("b", "Invalid"),
        ("a", "Success"),
    ]
    offload(system, jobid + 1, "of-another", "Failed")
    for name, status in made:
        system.loop.run(timeout=1.0)
        offload(system, jobid, name, status)
    settle(system)
    found = [m["metadata"]["name"] for m in movements(system, jobid)]
    assert found == ["d", "b", "e", "c"]
    assert "managedFields" not in movements(system, jobid)[0]


def moved(system: VirtualSystem, jobid: int) -> list[Json]:
    """The record of the data that a job moved."""
    found: list[Json] = json.loads(system.instance.job(jobid).kvs["rabbit_moved"])
    return found


def test_data_movements_are_not_recorded_by_default_but_their_sum_is() -> None:
    options = Options(copy_rate=GIB)  # 10 s for each copy
    system = started(options=options, files=NoFiles(size=10 * GIB))
    seen = asked(system)
    jobid = system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT], nodes=2))
    settle(system)
    assert "rabbit_datamovements" not in system.instance.job(jobid).kvs
    assert seen.count("list nnfdatamovements") == 1
    into, out = moved(system, jobid)
    assert (into["phase"], out["phase"]) == ("DataIn", "DataOut")
    for total in (into, out):
        # Each node's storage has a copy of its own.
        assert (total["movements"], total["bytes"]) == (2, 20 * GIB)
        assert total["ended"] - total["begun"] == pytest.approx(10.0, abs=1.0)
    assert into["ended"] <= out["begun"]
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize("late", [False, True])
def test_many_data_movements_are_listed_in_portions_and_each_counts_once(
    late: bool,
) -> None:
    """``late``: Kubernetes has forgotten the list when its second portion is asked for,
    and the list begins again."""
    system = saving(2)
    jobid = offloading(system)
    names_ = [f"m{number:03}" for number in range(2 * PAGE + 1)]
    for name in names_:
        offload(system, jobid, name, "Failed" if name == names_[-1] else "Success")
    kube = system.service_kube
    assert kube is not None
    asked_for = []

    def note(request: Request) -> None:
        if request.kind != NNFDATAMOVEMENT or request.verb != "list":
            return
        asked_for.append(request.limit)
        if late and len(asked_for) == 2:
            system.store.ensure_namespace("another")
            system.store.forget_history()

    kube.faults = note
    settle(system)
    assert asked_for == [PAGE] * (5 if late else 3)
    (total,) = moved(system, jobid)
    assert total["movements"] == len(names_)
    found = [m["metadata"]["name"] for m in movements(system, jobid)]
    assert found == [names_[-1], names_[0]]


sizes = st.one_of(st.none(), st.integers(0, 1000))


@given(st.lists(st.tuples(st.sampled_from(["DataIn", "DataOut", "x"]), sizes)))
def test_the_sum_is_of_the_movements_whose_size_is_known(
    found: list[tuple[str, Optional[int]]],
) -> None:
    totals = Totals()
    for phase, size in found:
        command = {} if size is None else {"data": f"{size} MiB"}
        status = {"state": "Finished", "status": "Success", "commandStatus": command}
        totals.add({"metadata": {"labels": {STATE_LABEL: phase}}, "status": status})
    summed = {total["phase"]: total for total in totals.to_json()}
    assert set(summed) == {phase if phase != "x" else "" for phase, _ in found}
    for phase, total in summed.items():
        mine = [size for at, size in found if at == (phase or "x")]
        known = [size << 20 for size in mine if size is not None]
        assert total["movements"] == len(mine)
        assert total["bytes"] == (sum(known) if known else None)
        assert total["begun"] is None and total["ended"] is None


def listed(items: list[Json], token: str = "") -> Json:
    """The answer to a request for data movements."""
    return {
        "kind": "NnfDataMovementList",
        "items": items,
        "metadata": {"continue": token},
    }


def test_an_object_that_python_cannot_write_costs_one_record_and_no_storage() -> None:
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]

    def fault(request: Request) -> Optional[Fault]:
        asked = (request.verb, request.kind) == ("list", NNFDATAMOVEMENT)
        movement = {"metadata": {"name": "m1", "namespace": "x"}, "spec": deep}
        return Fault(answer=listed([movement])) if asked else None

    system = saving(faults=fault)
    jobid = offloading(system)
    settle(system)
    assert names(system, jobid) == LIFE and exceptions(system, jobid) == []
    assert "rabbit_datamovements" not in system.instance.job(jobid).kvs
    assert [total["movements"] for total in moved(system, jobid)] == [1]
    (line,) = lines(system, "are not recorded: ")
    text = "rabbit_datamovements are not recorded: too many levels"
    assert line.endswith(f"{text} [record-incomplete]")


@pytest.mark.parametrize(
    ("dw", "given_up"),
    [(XFS, ""), (LUSTRE, ""), (OFFLOAD, "Proposal"), ([OFFLOAD, COPY_IN], "Setup")],
)
def test_a_job_without_data_movement_costs_no_request_for_records(
    dw: Any, given_up: str
) -> None:
    faults = [DwsFault(given_up, "error")] if given_up else []
    config = Config.parse({"save_datamovements": 1, "daemons": {"copy-offload": {}}})
    system = started(config=config, options=Options(faults=faults))
    seen = asked(system)
    system.instance.submit(jobspec(dw))
    settle(system)
    assert "patch workflows" in seen
    assert not {"list nnfdatamovements", "list pods", "log pods"} & set(seen)


# Container logs


LONG = "".join(f"line {number} é\n" for number in range(10_000))
HALF = (CHARACTERS - 4) // 2
SEVERAL = f"""\
==> torn/five <==
5

==> fine/one <==
{"1" * HALF}
==> fine/two <==
{"2" * HALF}
==> short/four <==
4
"""
LOGS: dict[str, tuple[dict[str, dict[str, Optional[str]]], Optional[str]]] = {
    "as it is": ({"a": {"copy-offload": "hello\nwörld\n"}}, "hello\nwörld\n"),
    "of a long one the end": ({"a": {"copy-offload": LONG}}, LONG[-CHARACTERS:]),
    "several share the room, what failed is first": (
        {
            "fine": {"one": "1" * CHARACTERS, "two": "2" * CHARACTERS},
            "quiet": {"three": ""},
            "short": {"four": "4\n"},
            "torn": {"five": "5\n"},
        },
        SEVERAL,
    ),
    "none where nothing was written": ({"quiet": {"one": ""}}, None),
    "none of what never started": ({"late": {"one": None, "two": "2"}}, "2"),
}
"""What the containers of pods have written, and what is recorded. The pod ``torn`` has
failed."""


@pytest.mark.parametrize("case", LOGS)
def test_the_logs_of_containers_are_recorded(case: str) -> None:
    pods, log = LOGS[case]
    system = saving(0)
    jobid = offloading(system)
    for name, texts in pods.items():
        phase = "Failed" if name == "torn" else "Succeeded"
        given = {container: text or "" for container, text in texts.items()}
        pod(system, jobid, name, given, phase=phase)
        for container, text in texts.items():
            if text is None:
                del system.store.pod_logs["default", name, container]
    settle(system)
    kvs = system.instance.job(jobid).kvs
    assert kvs.get("rabbit_container_log") == log
    assert "rabbit_datamovements" not in kvs and moved(system, jobid) == []
    assert names(system, jobid) == LIFE


def test_of_very_many_containers_some_are_read() -> None:
    system = saving(0)
    jobid = offloading(system)
    for number in range(2 * CONTAINERS):
        pod(system, jobid, f"p{number:03}", {"one": "x"})
    seen = asked(system)
    settle(system)
    assert seen.count("log pods") == CONTAINERS


# The shares of logs


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 300))
def test_the_shares_of_logs_are_fair(wanted: list[int], total: int) -> None:
    shares = fair_shares(wanted, total)
    assert sum(shares) <= total
    assert all(share <= want for share, want in zip(shares, wanted))
    short = [share for share, want in zip(shares, wanted) if share < want]
    if short:
        assert sum(shares) == total or total - sum(shares) < len(wanted)
        assert max(shares) - min(short) <= 1


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.integers(1, 60))
def test_the_end_of_each_log_is_kept(texts: list[str], characters: int) -> None:
    text = join_logs([(f"p/{n}", log) for n, log in enumerate(texts)], characters)
    if len(texts) == 1:
        assert text == texts[0][-characters:]
    else:
        assert all(f"==> p/{number} <==\n" in text for number in range(len(texts)))


def test_of_several_logs_each_has_its_end() -> None:
    text = join_logs([("a", "old new"), ("b", "1 2")], 6)
    assert text == "==> a <==\nnew\n==> b <==\n1 2"


@pytest.mark.parametrize("how", ["deleted", "Teardown"])
def test_a_sum_that_may_lack_what_teardown_has_deleted_is_not_recorded(
    how: str,
) -> None:
    """An administrator interferes while data movements are listed."""
    system = saving()
    kube = system.service_kube
    assert kube is not None
    asked_for: list[Request] = []

    def note(request: Request) -> Optional[Fault]:
        if (request.verb, request.kind) != ("list", NNFDATAMOVEMENT):
            return None
        asked_for.append(request)
        if len(asked_for) == 2:
            name = workflow_name(jobid)
            if how == "deleted":
                system.store.delete(WORKFLOW, "default", name)
            else:
                moved_: Json = {"spec": {"desiredState": "Teardown"}}
                system.store.merge_patch(WORKFLOW, "default", name, moved_)
        return Fault(answer=listed([{"metadata": {}}], "more"))

    kube.faults = note
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=1))
    settle(system)
    (line,) = lines(system, "data movements are not recorded: ")
    text = "the Workflow was deleted, or moved to Teardown [record-incomplete]"
    assert line.endswith(f" recorded: {text}")
    assert len(asked_for) == 2
    assert "rabbit_moved" not in system.instance.job(jobid).kvs


def test_the_service_is_sent_nothing_large_that_a_guest_wrote() -> None:
    """Neither with a report that the data of a job is out, nor with a late record."""
    system = started()
    largest = 0

    def spy(service: Offered) -> Offered:
        def handle(method: str, payload: Json, userid: int, respond: Any) -> None:
            def answer(errnum: int, text: str, found: Optional[Json]) -> None:
                nonlocal largest
                largest = max(largest, len(json.dumps(found)))
                respond(errnum, text, found)

            service(method, payload, userid, answer)

        return handle

    for service in ("job-info", "job-manager", "job-list"):
        system.instance.broker.stand_in(service, spy)
    large = {"script": {"mode": 33152, "data": "x" * 100_000}}
    for how in ("teardown", "unmounted"):
        dw = [XFS, COPY_OUT]
        system.instance.submit(jobspec(dw, nodes=1, dw_release=how, files=large))
    settle(system)
    assert 0 < largest < 10_000
