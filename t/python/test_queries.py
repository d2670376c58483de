# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What queries answer, in a whole system under virtual time."""

from __future__ import annotations

import errno
import json
from typing import Any, Union

import pytest

from flux_k8s.broker.querybounds import QUERY_BYTES
from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import f58
from flux_k8s.jobs import heldqueries
from flux_k8s.ports import STORAGE, Json
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.queries import (
    DETAILS,
    GUEST,
    OTHER,
    ROW,
    SITUATION,
    answer_of,
    ask,
    check,
    query,
    refusal,
    seen,
)
from support.service import (
    COPY_OUT,
    DAY,
    HOUR,
    XFS,
    exceptions,
    in_state,
    jobspec,
    long,
    running,
    settle,
    settle_jobs,
    started,
)


@pytest.fixture(scope="module")
def idle() -> VirtualSystem:
    """A system for tests that only ask."""
    system = started()
    seen(system)
    return system


SLOW = Options(latency=table({"Setup": 60.0, "PreRun": 60.0, "PostRun": 60.0}))


def rows(system: VirtualSystem, payload: Any = None, userid: Any = None) -> list[Json]:
    found: list[Json] = query(system, "job-list", payload, userid)["jobs"]
    return found


def test_a_job_that_runs_has_a_row_with_its_nodes_rabbits_and_bytes() -> None:
    system = started()
    jobid = system.instance.submit(long(XFS, 2), userid=GUEST)
    running(system, jobid)
    (row,) = rows(system)
    check(row, ROW)
    assert row["id"] == jobid and row["userid"] == GUEST
    assert row["state"] == "PreRun" and row["status"] == "Completed" and row["ready"]
    assert row["wants"] == "ready" and row["types"] == ["xfs"]
    assert (row["nodes"], row["nnodes"]) == ("compute-[01-02]", 2)
    assert row["rabbits"] == "rabbit-01"
    assert row["capacity"] == 2 * 11051991040
    settle_jobs(system)
    seen(system)
    assert rows(system) == []


def test_metrics_count_jobs_states_and_requests_and_know_the_oldest_state() -> None:
    system = started(options=SLOW)
    jobids = [system.instance.submit(jobspec(nodes=1)) for _ in range(3)]
    assert system.loop.run(in_state(system, "Setup"), HOUR)
    system.loop.run(timeout=20.0)
    found = query(system, "metrics")
    assert found["jobs"] == 3 and found["states"] == {"Setup": 3}
    assert found["oldest"] == pytest.approx(20.0, abs=2.0)
    proposal = found["seconds"]["Proposal"]
    assert sum(proposal["counts"]) == 3 and proposal["sum"] < 3
    assert found["requests"]["create"] == {"ok": 3}
    settle(system)
    seen(system)
    found = query(system, "metrics")
    assert found["jobs"] == 0 and found["oldest"] == 0 and found["watches_lost"] == {}
    assert sum(found["seconds"]["PreRun"]["counts"]) == len(jobids)


def test_metrics_count_jobs_that_ended_or_failed_and_what_waits() -> None:
    """An internal error is a failure as well."""
    system = started(options=SLOW)
    begun = query(system, "metrics")
    assert begun["started"] <= begun["now"]
    assert (begun["ended"], begun["failed"], begun["events"]) == (0, 0, 0)
    system.instance.submit(jobspec(nodes=1))
    system.instance.submit(jobspec(XFS + " profile=nope", nodes=1))
    settle(system)
    seen(system)
    found = query(system, "metrics")
    assert (found["ended"], found["failed"]) == (2, 1)
    assert found["started"] == begun["started"]
    waiting = ("ready", "busy", "retrying", "requests_in_flight")
    assert [found[key] for key in waiting] == [0, 0, 0, 0]


@pytest.mark.parametrize("keep_failed, trouble", [("1d", "error"), (0, "never")])
def test_storage_that_is_kept_and_an_abort_that_is_fatal_are_failures(
    keep_failed: Union[str, int], trouble: str
) -> None:
    """Their jobs have a fatal exception, and no reason that the service keeps."""
    config = Config.parse({"keep_failed": keep_failed, "keep_failed_limit": 100})
    system = started(
        options=Options(faults=[DwsFault("DataOut", trouble)]),
        config=config,
        plugin_conf={"epilog-timeout": 60.0},
    )
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], nodes=1))
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, DAY)
    raised = {note["type"] for note in exceptions(system, jobid)}
    assert raised == ({"dws"} if keep_failed else {"dws-epilog-timeout", "dws"})
    assert query(system, "metrics")["failed"] == 1


def test_an_abort_that_loses_no_data_is_no_failure() -> None:
    system = started(
        options=Options(faults=[DwsFault("PostRun", "never")]),
        plugin_conf={"epilog-timeout": 60.0},
    )
    jobid = system.instance.submit(jobspec(nodes=1))
    job = system.instance.job(jobid)
    assert system.loop.run(lambda: job.state is JobState.INACTIVE, DAY)
    assert [found["severity"] for found in exceptions(system, jobid)] == [0, 1]
    assert query(system, "metrics")["failed"] == 0


def test_a_compute_whose_name_no_host_can_have_is_left_out() -> None:
    system = started()
    seen(system)
    computes = [{"name": name, "status": "Offline"} for name in ("no host", "h[1", "x")]
    body = {"status": {"access": {"computes": computes}}}
    for rabbit in system.topology.rabbits:
        system.store.merge_patch(STORAGE, "default", rabbit, body, subresource="status")
    seen(system)
    rabbits = query(system, "rabbit-list")["rabbits"]
    assert [row["broken"] for row in rabbits] == ["x", "x"]
    stats = ask_stats(system)
    seen(system)
    assert stats[0]["rabbits"]


def ask_stats(system: VirtualSystem) -> list[Json]:
    """The list that gets the answer to ``dws.stats-get``."""
    answers: list[Json] = []
    assert system.service is not None
    system.service.request(
        "stats-get", {}, lambda errnum, text, payload: answers.append(payload or {})
    )
    return answers


def test_stats_have_the_metrics_as_well() -> None:
    system = started()
    system.instance.submit(jobspec(nodes=1))
    seen(system)
    (stats,) = ask_stats(system)
    assert sum(stats["workflows"].values()) == stats["jobs"] == 1
    found = query(system, "metrics")
    assert set(stats) > set(found) - set(SITUATION)
    assert stats["requests"] == found["requests"] and stats["kubernetes"] == "ok"


def test_each_answer_has_its_age() -> None:
    system = started()
    seen(system)
    for method in ("job-list", "rabbit-list", "rules", "metrics"):
        found = query(system, method)
        check({key: found[key] for key in SITUATION}, SITUATION)
        assert found["kubernetes"] == "ok" and found["age"] == 0


def test_the_details_of_a_job_tell_its_states_and_allocations() -> None:
    system = started()
    jobid = system.instance.submit(long([XFS], 2))
    running(system, jobid)
    found = query(system, "job-show", {"id": jobid})
    check(found, {**DETAILS, **SITUATION})
    assert found["directives"] == [XFS]
    names = [state["state"] for state in found["states"]]
    assert names == ["Proposal", "Setup", "DataIn", "PreRun"]
    assert all(state["seconds"] is not None for state in found["states"])
    (allocation,) = found["allocations"]
    assert allocation["type"] == "xfs" and allocation["rabbits"] == {"rabbit-01": 2}
    assert allocation["size"] == 11051991040
    settle_jobs(system)
    # Of a job that ended, the KVS has them.
    kept = system.instance.job(jobid).kvs["rabbit_allocations"]
    assert json.loads(kept) == found["allocations"]


def test_the_details_tell_which_time_limits_run() -> None:
    config = Config.parse({"setup_timeout": 300})
    system = started(options=SLOW, config=config)
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(in_state(system, "Setup"), HOUR)
    seen(system)
    found = query(system, "job-show", {"id": jobid})
    (limit,) = found["limits"]
    assert limit["name"] == "setup_timeout"
    assert limit["at"] == pytest.approx(found["since"] + 300)
    settle(system)


def test_guests_see_their_own_jobs_and_everybodys_totals() -> None:
    system = started(options=SLOW)
    mine = system.instance.submit(jobspec(), userid=GUEST)
    others = system.instance.submit(jobspec(), userid=OTHER)
    seen(system)
    found = query(system, "job-list", {}, GUEST)
    assert [row["id"] for row in found["jobs"]] == [mine]
    assert found["totals"]["jobs"] == 2
    assert sum(found["totals"]["states"].values()) == 2
    assert [row["id"] for row in rows(system)] == [mine, others]
    assert refusal(system, "job-list", {"userid": OTHER}, GUEST)[0] == errno.EPERM
    assert query(system, "job-show", {"id": mine}, GUEST)["id"] == mine
    errnum, text = refusal(system, "job-show", {"id": others}, GUEST)
    assert (errnum, text) == (errno.EPERM, f"job {f58(others)} is not yours")
    settle(system)


def test_a_job_that_is_not_there_has_no_details() -> None:
    system = started()
    jobid = system.instance.submit(jobspec())
    settle(system)
    seen(system)
    text = f"job {f58(jobid)}: no active job with #DW directives"
    for userid in (None, GUEST):
        assert refusal(system, "job-show", {"id": jobid}, userid) == (
            errno.ENOENT,
            text,
        )


@pytest.mark.parametrize("method", ["metrics", "rabbit-disable", "rabbit-enable"])
@pytest.mark.parametrize("payload", [{}, {"rabbits": ["rabbit-01"], "reason": "x"}])
def test_queries_of_the_instance_owner_are_refused_to_guests(
    idle: VirtualSystem, method: str, payload: Json
) -> None:
    assert refusal(idle, method, payload, GUEST)[0] == errno.EPERM
    assert not any(r["disabled"] for r in query(idle, "rabbit-list")["rabbits"])


@pytest.mark.parametrize(
    "method", ["create", "setup", "post_run", "teardown", "abort", "hello", "stats-get"]
)
def test_the_requests_of_the_plugin_stay_the_owners(
    idle: VirtualSystem, method: str
) -> None:
    assert refusal(idle, method, {"jobid": 1}, GUEST)[0] == errno.EPERM


@pytest.mark.parametrize(
    "method, payload, said",
    [
        ("job-list", {"after": -1}, "after"),
        ("job-list", {"after": "1"}, "after"),
        ("job-list", {"after": 2**70}, "after"),
        ("job-list", {"max": 0}, "max"),
        ("job-list", {"max": True}, "max"),
        ("job-list", {"state": "Running"}, 'state is "Running"'),
        ("job-list", {"state": ["PreRun"]}, "state"),
        ("job-list", {"rabbit": 7}, "rabbit"),
        ("job-list", {"type": {}}, "type"),
        ("job-list", {"userid": "root"}, "userid"),
        ("job-list", [], "dws.job-list"),
        ("job-show", {}, "id is missing"),
        ("job-show", {"id": "f1"}, "id"),
        ("job-show", {"id": -1}, "id"),
        ("job-show", {"id": 1, "seen": 1.5}, "seen"),
        ("rabbit-list", 7, "dws.rabbit-list"),
        ("rules", "rules", "dws.rules"),
        ("rabbit-disable", {"rabbits": "rabbit-01"}, "rabbits"),
        ("rabbit-disable", {"rabbits": []}, "rabbits"),
        ("rabbit-enable", {}, "rabbits"),
    ],
)
def test_a_malformed_query_is_refused_with_the_field_that_is_wrong(
    idle: VirtualSystem, method: str, payload: Any, said: str
) -> None:
    errnum, text = refusal(idle, method, payload)
    assert errnum == errno.EPROTO and said in text
    assert [line for _, level, line in idle.log if level <= 3] == []


# Many jobs


def crowd(count: int, **options: Any) -> tuple[VirtualSystem, list[int]]:
    """A system with jobs of two users that stay in Proposal."""
    latency = table({"Proposal": 10 * HOUR})
    system = started(options=Options(latency=latency), **options)
    jobids = [
        system.instance.submit(jobspec(), userid=(GUEST, OTHER)[n % 2])
        for n in range(count)
    ]
    seen(system)
    return system, jobids


def test_all_jobs_are_listed_in_portions() -> None:
    system, jobids = crowd(60)
    found: list[int] = []
    after, portions = 0, 0
    while True:
        answer = query(system, "job-list", {"after": after, "max": 7})
        assert len(answer["jobs"]) <= 7
        assert answer["totals"]["jobs"] == 60
        found += [row["id"] for row in answer["jobs"]]
        portions += 1
        if answer["next"] is None:
            break
        after = answer["next"]
    assert found == sorted(jobids) and portions == 9


def test_filters_choose_jobs_whatever_the_portions_are() -> None:
    system, jobids = crowd(20)
    assert len(rows(system, {"userid": GUEST})) == 10
    assert len(rows(system, {"state": "Proposal"})) == 20
    assert rows(system, {"state": "PreRun"}) == []
    assert len(rows(system, {"type": "xfs", "userid": OTHER})) == 10
    assert rows(system, {"type": "lustre"}) == []
    assert rows(system, {"rabbit": "rabbit-01"}) == []
    assert len(rows(system, {"max": 2**40})) == 20


def test_jobs_are_found_by_their_rabbit() -> None:
    system = started()
    first, second = (system.instance.submit(long(XFS, 2)) for _ in range(2))
    running(system, first, second)
    found = {
        rabbit: [row["id"] for row in rows(system, {"rabbit": rabbit})]
        for rabbit in ("rabbit-01", "rabbit-02")
    }
    assert sorted(found.values()) == sorted([[first], [second]])
    settle_jobs(system)


# Floods


def test_a_guest_who_asks_too_often_is_told_to_ask_later() -> None:
    system = started()
    seen(system)
    asked = [ask(system, "rules", {}, GUEST) for _ in range(100)]
    system.loop.run(timeout=0.0)
    answers = [answer() for answer in asked]
    refused = [answer for answer in answers if answer and answer[0]]
    assert len(refused) == 80
    assert {answer[0] for answer in refused} == {errno.EAGAIN}
    assert "more than 20 queries a second" in refused[0][1]
    assert answer_of(system, "rules", {}, OTHER)[0] == 0  # others may
    system.loop.run(timeout=1.0)
    assert answer_of(system, "rules", {}, GUEST)[0] == 0  # and so may they, later


def test_a_guests_large_query_is_refused(idle: VirtualSystem) -> None:
    payload = {"rabbit": "x" * QUERY_BYTES}
    assert refusal(idle, "job-list", payload, GUEST)[0] == errno.EMSGSIZE


# Queries that wait for a change


def test_a_query_waits_until_its_job_changes() -> None:
    system = started(options=SLOW)
    jobid = system.instance.submit(jobspec(), userid=GUEST)
    assert system.loop.run(in_state(system, "Setup"), HOUR)
    seen(system)
    before = query(system, "job-show", {"id": jobid}, GUEST)
    assert before["state"] == "Setup"
    begun = system.loop.now()
    payload = {"id": jobid, "seen": before["serial"]}
    states = [before["state"]]
    while states[-1] == "Setup":
        after = query(system, "job-show", payload, GUEST)
        states.append(after["state"])
        if after["serial"] == payload["seen"]:  # nothing has changed for a while
            assert system.loop.now() - begun >= heldqueries.HOLD_TIME
        payload["seen"] = after["serial"]
    assert len(states) < 8
    settle(system)


def test_a_held_query_hears_that_its_job_is_over() -> None:
    system = started()
    jobid = system.instance.submit(long(XFS, 1, 10))
    running(system, jobid)
    seen(system)
    asked = ask(system, "job-show", {"id": jobid, "seen": 2**60})
    settle(system)
    system.loop.run(timeout=1.0)
    answer = asked()
    assert answer is not None and answer[0] == errno.ENOENT


def test_the_queries_that_wait_are_bounded_for_each_guest() -> None:
    system = started()
    jobid = system.instance.submit(long(XFS, 1, 3600), userid=GUEST)
    running(system, jobid)
    seen(system)
    payload = {"id": jobid, "seen": 2**60}
    asked = [ask(system, "job-show", payload, GUEST) for _ in range(20)]
    system.loop.run(timeout=1.0)
    answers = [answer() for answer in asked]
    assert answers.count(None) == 16
    refused = [answer for answer in answers if answer is not None]
    assert {answer[0] for answer in refused} == {errno.EAGAIN}
    system.loop.run(timeout=heldqueries.HOLD_TIME + 1)
    assert all(answer() is not None for answer in asked)
    settle_jobs(system)


def test_the_queries_of_all_guests_that_wait_leave_room_for_the_owner() -> None:
    system, _ = crowd(0)
    most, each = heldqueries.HELD, heldqueries.HELD_PER_USER
    guests = range(GUEST, GUEST + most // each + 1)
    jobids = [system.instance.submit(jobspec(), userid=guest) for guest in guests]
    seen(system)
    payloads = [{"id": jobid, "seen": 2**60} for jobid in jobids]
    asked = [
        ask(system, "job-show", payload, guest)
        for guest, payload in zip(guests, payloads)
        for _ in range(each)
    ]
    of_owner = ask(system, "job-show", payloads[0])
    seen(system)
    answers = [answer() for answer in asked]
    assert answers[:most] == [None] * most and of_owner() is None
    text = f"{most} queries wait for a change already: ask again later"
    assert answers[most:] == [(errno.EAGAIN, text, None)] * each
