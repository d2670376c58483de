# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled job manager plugin: what it sends, and what answers do."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Iterator, Optional

import pytest

from flux_k8s.version import PROTOCOL, UNKNOWN
from support.jobtap import (
    CLEANUP,
    DEPEND,
    INACTIVE,
    RUN,
    SCHED,
    Hostile,
    Job,
    JobManager,
)
from support.jobtap_jobs import (
    OK,
    WITH_TIMEOUT,
    error_of,
    finish,
    notes,
    submitted,
    up_to,
)


def test_the_whole_life_of_a_job_leaves_the_documented_eventlog(
    manager: JobManager,
) -> None:
    job = up_to(manager, "epilog")
    manager.request("epilog-remove", {"id": 1})
    assert [entry["name"] for entry in job.eventlog] == [
        "submit",
        "validate",
        "dependency-add",
        "jobspec-update",
        "dependency-remove",
        "depend",
        "alloc",
        "prolog-start",
        "dws_environment",
        "prolog-finish",
        "start",
        "finish",
        "epilog-start",
        "epilog-finish",
        "clean",
    ]
    assert job.context("dws_environment") == {"variables": {"DW_JOB_a": "/a"}}


def test_create_tells_the_module_all_about_the_request(manager: JobManager) -> None:
    submitted(manager, dw=["#DW a", "#DW b"], dw_failure_tolerance=3)
    payload, _ = manager.take("dws.create")
    assert payload == {
        "jobid": 1,
        "userid": 100,
        "dw_directives": ["#DW a", "#DW b"],
        "resources": [{"type": "node", "count": 1}],
        "failure_tolerance": 3,
        "urgency": 16,
        "depends": False,
    }


def test_setup_carries_R_from_the_kvs_with_its_scheduling_key(
    manager: JobManager,
) -> None:
    job = up_to(manager, "sched")
    manager.post(job, "alloc")
    assert manager.lookups[0][0] == "job.0000.0000.0000.0001.R"
    manager.answer_lookups()
    payload, _ = manager.take("dws.setup")
    assert payload == {"jobid": 1, "R": {"version": 1, "scheduling": {}}}


def answer_R(manager: JobManager, text: Optional[str]) -> None:
    """The look-ups of R, which the KVS has as ``text`` or does not have."""
    while manager.lookups:
        _, done = manager.lookups.pop(0)
        done(errno.ENOENT if text is None else 0, text)


@pytest.mark.parametrize("R", ["", "[1]", "{", '"{}"', "null", "{}{} x"])
def test_an_R_that_is_no_object_fails_its_job_only(manager: JobManager, R: str) -> None:
    job = up_to(manager, "sched")
    manager.post(job, "alloc")
    answer_R(manager, R)
    assert notes(job) == ["error reading R: Protocol error; please submit it again"]
    assert "dws.setup" not in manager.topics()


def test_an_R_that_the_kvs_does_not_have_fails_its_job(manager: JobManager) -> None:
    job = up_to(manager, "sched")
    manager.post(job, "alloc")
    answer_R(manager, None)
    assert notes(job) == [
        "error reading R: No such file or directory; please submit it again"
    ]


def test_R_comes_with_blanks_around_it(manager: JobManager) -> None:
    job = up_to(manager, "sched")
    manager.post(job, "alloc")
    answer_R(manager, '\n {"version": 1} \n')
    payload, _ = manager.take("dws.setup")
    assert payload == {"jobid": 1, "R": {"version": 1}}


def test_a_job_without_directives_costs_no_request(manager: JobManager) -> None:
    manager.rpcs.clear()
    manager.submit(1, {})
    manager.post(manager.jobs[1], "alloc")
    assert manager.rpcs == [] and not manager.jobs[1].subscribed


@pytest.mark.parametrize("dw", ["", []])
def test_empty_directives_are_no_directives(manager: JobManager, dw: Any) -> None:
    manager.rpcs.clear()
    assert manager.submit(1, {"dw": dw}) is None
    manager.post(manager.jobs[1], "alloc")
    assert manager.rpcs == [] and not manager.jobs[1].subscribed


def test_directives_of_blanks_are_no_directives(manager: JobManager) -> None:
    manager.rpcs.clear()
    assert manager.submit(1, {"dw": " \n\t"}) is None
    assert manager.rpcs == [] and not manager.jobs[1].subscribed


@pytest.mark.parametrize("dw", [["#DW a", ""], [" \n"], ["", 1]])
def test_a_list_with_an_empty_string_is_rejected_as_such(
    manager: JobManager, dw: Any
) -> None:
    reason = manager.submit(1, {"dw": dw})
    assert reason == (
        "attributes.system.dw has an empty string, expected a #DW directive in quotes"
    )


@pytest.mark.parametrize("dw", [[1], 7, None, {"a": 1}])
def test_bad_directives_are_rejected_at_submission(
    manager: JobManager, dw: Any
) -> None:
    reason = manager.submit(1, {"dw": dw})
    assert reason is not None
    assert reason.startswith(f"attributes.system.dw is {json.dumps(dw)}"[:40])
    assert "expected a string of #DW directives or a list of them" in reason


@pytest.mark.parametrize("tolerance", [-1, 1.5, "2", True, None, 2**40])
def test_a_bad_failure_tolerance_is_rejected_at_submission(
    manager: JobManager, tolerance: Any
) -> None:
    reason = manager.submit(1, {"dw": "#DW", "dw_failure_tolerance": tolerance})
    assert reason is not None
    assert f"dw_failure_tolerance is {json.dumps(tolerance)}," in reason
    assert "expected an integer from 0 to 2147483647" in reason


@pytest.mark.parametrize("key", ["dw", "dw_failure_tolerance"])
def test_a_refusal_at_submission_has_no_control_character(
    manager: JobManager, key: str
) -> None:
    for code in (*range(1, 32), *range(127, 160), 0x202E, 0x2028):
        system = {"dw": "#DW", key: {"a": f"{chr(code)}%n"}}
        reason = manager.submit(code, system)
        assert reason is not None and "%n" in reason
        assert reason.isprintable()


@pytest.mark.parametrize(
    "conf,problem",
    [
        (
            {"epilog-timout": 1},
            "expected epilog-timeout, found unknown key epilog-timout",
        ),
        ({"epilog-timeout": 0}, "epilog-timeout is 0, expected seconds > 0"),
        ({"epilog-timeout": "1m"}, 'epilog-timeout is "1m", expected seconds > 0'),
    ],
)
def test_bad_configuration_fails_the_load(conf: dict[str, Any], problem: str) -> None:
    with pytest.raises(OSError, match=problem):
        JobManager(conf)


def test_exclude_is_anded_with_the_users_constraints(manager: JobManager) -> None:
    user = {"properties": ["fast"]}
    job = submitted(manager, constraints=user)
    ours = {"not": [{"properties": ["badrabbit"]}]}
    manager.request("resource-update", {"id": 1, "resources": [], "exclude": ours})
    assert job.jobspec["attributes"]["system"]["constraints"] == {"and": [user, ours]}


def test_errmsg_of_resource_update_becomes_the_exception(manager: JobManager) -> None:
    job = up_to(manager, "depend")
    manager.request("resource-update", {"id": 1, "errmsg": "no such profile"})
    assert notes(job) == ["no such profile"]
    assert job.state == CLEANUP


@pytest.mark.parametrize("topic", ["dws.create", "dws.setup"])
def test_a_refusal_ends_the_job_with_its_text(manager: JobManager, topic: str) -> None:
    if topic == "dws.create":
        job = submitted(manager)
    else:
        job = up_to(manager, "sched")
        manager.post(job, "alloc")
        manager.answer_lookups()
    refusal = {"success": False, "errstr": "it is %s wrong", "reason": "barred"}
    manager.take(topic)[1](0, "", refusal)
    assert notes(job) == ["it is %s wrong"]
    assert job.state == CLEANUP and not job.open["dws-setup"]


def test_a_refused_post_run_does_not_leave_the_job_stuck(manager: JobManager) -> None:
    job = up_to(manager, "running")
    finish(manager, job)
    manager.take("dws.post_run")[1](0, "", {"success": False, "errstr": "?"})
    assert job.state == INACTIVE


@pytest.mark.parametrize("pad", range(4))
def test_a_reason_that_is_too_long_is_cut_between_characters(
    manager: JobManager, pad: int
) -> None:
    job = submitted(manager)
    errstr = "x" * pad + "ƒ…𝄞" * 500
    manager.take("dws.create")[1](0, "", {"success": False, "errstr": errstr})
    (note,) = notes(job)
    assert 900 < len(note.encode()) < 1000 and errstr.startswith(note)


@pytest.mark.parametrize(
    "errnum, text, told",
    [
        (errno.ENOSYS, "", "the dws module is not loaded"),
        (errno.EHOSTUNREACH, "", "the dws module went away"),
        (errno.EAGAIN, "the dws service is starting", "the dws service is starting"),
    ],
)
def test_jobs_wait_for_the_module_with_one_log_line(
    manager: JobManager, errnum: int, text: str, told: str
) -> None:
    for jobid in (1, 2, 3):
        manager.submit(jobid, {"dw": "#DW a"})
        manager.take("dws.create")[1](errnum, text, None)
    assert all(job.state == DEPEND for job in manager.jobs.values())
    assert all(job.memo["dws"] == told for job in manager.jobs.values())
    assert len(manager.logged) == 1
    manager.request("hello", {})
    for _ in range(3):
        manager.take("dws.create")[1](0, "", OK)
    assert all(job.memo["dws"] is None for job in manager.jobs.values())


def change_urgency(manager: JobManager, urgency: int, jobid: int = 1) -> None:
    job = manager.jobs[jobid]
    job.urgency = urgency
    manager.post(job, "urgency", {"userid": job.userid, "urgency": urgency})


def test_a_job_that_changes_again_and_again_has_one_create_in_flight(
    manager: JobManager,
) -> None:
    submitted(manager)
    for urgency in (1, 2, 3):
        change_urgency(manager, urgency)
    payload, respond = manager.take("dws.create")
    assert payload["urgency"] == 16 and "dws.create" not in manager.topics()
    respond(0, "", OK)
    payload, respond = manager.take("dws.create")
    assert payload["urgency"] == 3
    respond(0, "", OK)
    assert "dws.create" not in manager.topics()
    change_urgency(manager, 4)
    assert manager.take("dws.create")[0]["urgency"] == 4


def test_a_change_of_a_job_whose_create_was_lost_is_sent_once_after_hello(
    manager: JobManager,
) -> None:
    submitted(manager)
    change_urgency(manager, 1)
    manager.take("dws.create")[1](errno.EAGAIN, "too much to do", None)
    assert "dws.create" not in manager.topics()
    manager.request("hello", {})
    payload, respond = manager.take("dws.create")
    respond(0, "", OK)
    assert payload["urgency"] == 1 and "dws.create" not in manager.topics()


def test_a_change_before_a_job_is_admitted_has_no_later_request_sent_again(
    manager: JobManager,
) -> None:
    job = submitted(manager)
    change_urgency(manager, 1)
    manager.request("resource-update", {"id": 1, "resources": [], "exclude": None})
    manager.rpcs.clear()
    manager.post(job, "alloc")
    manager.answer_lookups()
    manager.take("dws.setup")[1](0, "", OK)
    assert "dws.setup" not in manager.topics()


def test_a_job_whose_request_never_got_out_needs_no_epilog(manager: JobManager) -> None:
    job = submitted(manager)
    manager.take("dws.create")[1](errno.ENOSYS, "", None)
    manager.raise_exception(1, "cancel", 0, "")
    assert job.state == INACTIVE and not job.has("epilog-start")


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("failure", ["", "unanswered", "refused", "not sent"])
def test_a_look_up_of_its_dependencies_is_no_request_of_a_job(
    manager: JobManager, changes: bool, failure: str
) -> None:
    """The job had another dependency first, and no module is loaded."""
    if failure == "not sent":
        manager.unsendable["job-manager.getattr"] = 1
    assert manager.submit(1, {"dw": "#DW jobdw name=a"}, after=True) is None
    job = manager.jobs[1]
    if changes:
        manager.post(job, "dependency-remove", {"description": "after"})
        manager.post(job, "dependency-add", {"description": "another"})
    if failure == "refused":
        while "job-manager.getattr" in manager.topics():
            manager.take("job-manager.getattr")[1](errno.ENOMEM, "", None)
    elif failure == "":
        manager.answer_eventlogs()
    while "dws.create" in manager.topics():
        manager.take("dws.create")[1](errno.ENOSYS, "", None)
    manager.raise_exception(1, "cancel", 0, "")
    assert job.state == INACTIVE and not job.has("epilog-start")


def test_dependencies_are_counted_from_none_where_they_cannot_be_looked_up(
    manager: JobManager,
) -> None:
    before, another = {"description": "before"}, {"description": "another"}

    def add(manager: JobManager, job: Job) -> None:
        manager.post(job, "dependency-add", before)

    manager.hostile.append(Hostile("job.event.submit", add))
    job = submitted(manager)
    while "job-manager.getattr" in manager.topics():
        manager.take("job-manager.getattr")[1](errno.ENOMEM, "", None)
    manager.take("dws.create")[1](0, "", OK)
    manager.post(job, "dependency-remove", before)
    manager.post(job, "dependency-add", another)
    payload, answer = manager.take("dws.create")
    assert payload["depends"]
    answer(0, "", OK)
    manager.post(job, "dependency-remove", another)
    assert not manager.take("dws.create")[0]["depends"]


def test_a_dependency_that_goes_while_the_eventlog_is_read_is_gone(
    manager: JobManager,
) -> None:
    assert manager.submit(1, {"dw": "#DW jobdw name=a"}, after=True) is None
    manager.unload()
    manager.load()
    manager.post(manager.jobs[1], "dependency-remove", {"description": "after"})
    manager.answer_eventlogs()
    assert manager.take("dws.create")[0]["depends"] is False


@pytest.mark.parametrize("looked_up", [False, True])
def test_a_request_that_follows_a_look_up_may_have_got_out(
    manager: JobManager, looked_up: bool
) -> None:
    if not looked_up:
        manager.unsendable["job-manager.getattr"] = 1
    assert manager.submit(1, {"dw": "#DW jobdw name=a"}, after=True) is None
    manager.answer_eventlogs()
    assert "dws.create" in manager.topics()
    manager.raise_exception(1, "cancel", 0, "")
    assert manager.jobs[1].open["dws-epilog"] == 1


def test_a_job_whose_request_may_have_got_out_gets_its_epilog(
    manager: JobManager,
) -> None:
    job = submitted(manager)
    manager.take("dws.create")[1](errno.EHOSTUNREACH, "", None)
    manager.raise_exception(1, "cancel", 0, "")
    assert job.open["dws-epilog"] == 1
    payload, _ = manager.take("dws.post_run")
    assert payload == {"jobid": 1, "run_started": False}


def test_cancel_in_the_prolog_finishes_the_prolog(manager: JobManager) -> None:
    job = up_to(manager, "prolog")
    manager.raise_exception(1, "cancel", 0, "")
    assert job.context("prolog-finish")["status"] == 1
    payload, _ = manager.take("dws.post_run")
    assert payload == {"jobid": 1, "run_started": False}


def test_post_run_waits_until_the_tasks_of_a_cancelled_job_have_ended(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, "cancel", 0, "")
    assert job.state == CLEANUP and "dws.post_run" not in manager.topics()
    assert manager.request("hello", {})["jobs"][0]["phase"] == "running"
    finish(manager, job)
    payload, _ = manager.take("dws.post_run")
    assert payload == {"jobid": 1, "run_started": True}


@pytest.mark.parametrize("type", ["cancel", "dws", "exec"])
def test_a_fatal_exception_in_the_epilog_asks_for_teardown_once(
    manager: JobManager, type: str
) -> None:
    up_to(manager, "epilog")
    manager.raise_exception(1, type, 0, "")
    manager.raise_exception(1, type, 0, "")
    assert manager.topics().count("dws.teardown") == 1


def test_neither_a_time_limit_nor_a_mild_exception_asks_for_teardown(
    manager: JobManager,
) -> None:
    up_to(manager, "epilog")
    manager.raise_exception(1, "timeout", 0, "")
    manager.raise_exception(1, "cancel", 1, "")
    assert "dws.teardown" not in manager.topics()


def test_a_timeout_that_somebody_raises_asks_for_teardown(manager: JobManager) -> None:
    """The time limit itself cannot pass any more."""
    job = up_to(manager, "epilog")
    manager.post(job, "release", {"ranks": "all", "final": True})
    manager.raise_exception(1, "timeout", 0, "enough")
    assert "dws.teardown" in manager.topics()


def test_a_time_limit_that_ends_the_job_leaves_its_data_movement_alone(
    manager: JobManager,
) -> None:
    job = up_to(manager, "running")
    manager.raise_exception(1, "timeout", 0, "")
    manager.raise_exception(1, "exec", 0, "a task was killed")
    finish(manager, job)
    assert manager.topics() == ["dws.hello", "dws.post_run"]


@WITH_TIMEOUT
def test_at_the_epilog_timeout_the_module_has_ten_seconds_to_release_the_job(
    manager: JobManager,
) -> None:
    job = up_to(manager, "epilog")
    manager.advance(59)
    assert job.state == CLEANUP
    manager.advance(1)
    assert job.state == CLEANUP
    assert job.context("exception")["type"] == "dws-epilog-timeout"
    payload, answer = manager.take("dws.abort")
    assert payload == {"jobid": 1}
    answer(0, "", OK)
    assert "dws.teardown" not in manager.topics()
    manager.advance(9)
    assert job.state == CLEANUP
    manager.advance(1)
    assert job.state == INACTIVE
    assert "may still be mounted on node[1-2],node7," in notes(job)[-1]
    assert "the dws module has not finished in time" in notes(job)[-1]


@WITH_TIMEOUT
def test_after_an_abort_the_module_releases_the_epilog(manager: JobManager) -> None:
    job = up_to(manager, "epilog")
    manager.advance(60)
    manager.take("dws.abort")[1](0, "", OK)
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE
    assert job.context("epilog-finish")["status"] == 1


@WITH_TIMEOUT
@pytest.mark.parametrize("errnum", [errno.ENOSYS, errno.EPROTO])
def test_without_the_module_an_abort_releases_the_job_at_once(
    manager: JobManager, errnum: int
) -> None:
    job = up_to(manager, "epilog")
    manager.advance(60)
    manager.take("dws.abort")[1](errnum, "", None)
    assert job.state == INACTIVE
    assert "may still be mounted on node[1-2],node7," in notes(job)[-1]
    assert "(Workflow fluxjob-1)" in notes(job)[-1]
    why = {errno.ENOSYS: "is not loaded"}
    assert why.get(errnum, os.strerror(errnum)) in notes(job)[-1]


@WITH_TIMEOUT
@pytest.mark.parametrize("errnum", [errno.EAGAIN, errno.EHOSTUNREACH])
@pytest.mark.parametrize("back", [True, False])
def test_an_abort_waits_its_ten_seconds_for_a_service_that_is_started_again(
    manager: JobManager, errnum: int, back: bool
) -> None:
    """Its nodes may be mounted, and only the service knows which."""
    job = up_to(manager, "epilog")
    manager.advance(60)
    manager.take("dws.abort")[1](errnum, "", None)
    manager.advance(2)
    assert job.state == CLEANUP
    if back:
        manager.request("hello", {})
        manager.take("dws.abort")[1](0, "", OK)
        manager.request("epilog-remove", {"id": 1})
    else:
        manager.advance(8)
    assert job.state == INACTIVE
    assert ("may still be mounted" in str(notes(job))) is not back


def test_any_exception_of_type_dws_epilog_timeout_aborts(manager: JobManager) -> None:
    up_to(manager, "epilog")
    manager.raise_exception(1, "dws-epilog-timeout", 0, "")
    assert "dws.abort" in manager.topics()
    assert "dws.teardown" not in manager.topics()


@pytest.mark.parametrize(("userid", "aborts"), [(0, True), (4711, True), (500, False)])
def test_of_the_users_the_instance_owner_and_root_abort_so(
    manager: JobManager, userid: int, aborts: bool
) -> None:
    manager.unload()
    manager.owner = 4711
    manager.load()
    job = up_to(manager, "epilog")
    exception = {"type": "dws-epilog-timeout", "severity": 0, "note": ""}
    manager.post(job, "exception", {**exception, "userid": userid})
    assert ("dws.abort" in manager.topics()) is aborts


def test_an_abort_is_asked_for_again_after_a_reload(manager: JobManager) -> None:
    """The module may have lost it before it was done."""
    job = up_to(manager, "epilog")
    manager.raise_exception(1, "dws-epilog-timeout", 0, "")
    manager.take("dws.abort")[1](0, "", OK)
    manager.unload()
    manager.load()
    manager.answer_eventlogs()
    assert "dws.abort" in manager.topics()
    manager.advance(10)
    assert job.state == INACTIVE


def test_an_abort_is_asked_for_again_when_the_module_comes_back(
    manager: JobManager,
) -> None:
    up_to(manager, "epilog")
    manager.raise_exception(1, "dws-epilog-timeout", 0, "")
    manager.take("dws.abort")[1](0, "", OK)
    manager.request("hello", {})
    assert "dws.abort" in manager.topics()


@WITH_TIMEOUT
def test_an_abort_that_was_not_delivered_is_sent_again_after_hello(
    manager: JobManager,
) -> None:
    up_to(manager, "epilog")
    manager.advance(60)
    manager.take("dws.abort")[1](errno.ENOSYS, "", None)
    manager.request("hello", {})
    manager.take("dws.abort")[1](0, "", OK)
    manager.request("hello", {})
    assert "dws.abort" not in manager.topics()


@WITH_TIMEOUT
@pytest.mark.parametrize("before", [0.5, 40])
def test_the_epilog_timeout_goes_on_where_it_was_after_a_reload(
    manager: JobManager, before: float
) -> None:
    job = up_to(manager, "epilog")
    manager.advance(before)
    manager.unload()
    manager.load()
    manager.answer_eventlogs()
    manager.advance(59 - before)
    assert job.state == CLEANUP
    manager.advance(1)
    assert job.context("exception")["type"] == "dws-epilog-timeout"
    assert "dws.abort" in manager.topics()


@pytest.mark.parametrize(
    "phase,request_sent",
    [
        ("depend", "dws.create"),
        ("sched", None),
        ("prolog", "dws.setup"),
        ("running", None),
        ("epilog", "dws.post_run"),
    ],
)
@pytest.mark.parametrize("how", ["reload", "restart"])
def test_a_plugin_loaded_later_finds_back_to_each_phase(
    manager: JobManager, phase: str, request_sent: str, how: str
) -> None:
    if how == "restart" and phase == "running":
        pytest.skip("no job runs on across a restart of the instance")
    job = up_to(manager, phase)
    events = [entry["name"] for entry in job.eventlog]
    if how == "reload":
        manager.unload()
        manager.load()
    else:
        manager.restart()
    manager.answer_eventlogs()
    manager.answer_lookups()
    expected = {"dws.hello", request_sent} - {None}
    assert set(manager.topics()) == expected
    (told,) = manager.request("hello", {})["jobs"]
    assert told["phase"] == phase and told["t_submit"] == 900.5
    assert told["userid"] == 100
    assert [entry["name"] for entry in job.eventlog] == events


def test_hello_is_refused_until_all_eventlogs_are_read(manager: JobManager) -> None:
    up_to(manager, "prolog")
    manager.unload()
    manager.load()
    assert error_of(manager, "hello", {}).errno == errno.EAGAIN
    assert error_of(manager, "epilog-remove", {"id": 1}).errno == errno.EAGAIN
    manager.rpcs = [rpc for rpc in manager.rpcs if rpc[0] != "dws.hello"]
    manager.answer_eventlogs()
    assert "dws.hello" in manager.topics()
    assert manager.request("hello", {})["jobs"][0]["phase"] == "prolog"


MANY = 100


def many(manager: JobManager) -> None:
    for jobid in range(1, MANY + 1):
        manager.submit(jobid, {"dw": "#DW a"})


def pages(manager: JobManager) -> Iterator[tuple[list[int], list[str]]]:
    """The IDs of the jobs in each answer to hello, and what was sent after it."""
    payload: Optional[dict[str, Any]] = {}
    while payload is not None:
        manager.rpcs.clear()
        answer = manager.request("hello", payload)
        yield [job["id"] for job in answer["jobs"]], manager.topics()
        payload = {"cursor": answer["cursor"]} if "cursor" in answer else None


def creates(manager: JobManager, error: int = 0) -> list[int]:
    """Answer each dws.create that is sent, one by one; the jobs. A request is in flight
    for no more than some of the jobs, although there are more to be asked for."""
    jobs = []
    manager.advance(0.0)
    while "dws.create" in manager.topics():
        assert manager.topics().count("dws.create") < MANY / 1.5
        payload, done = manager.take("dws.create")
        done(error, "", None if error else OK)
        jobs.append(payload["jobid"])
        manager.advance(0.0)
    return jobs


def test_hello_is_answered_in_portions_and_all_requests_are_sent_again(
    manager: JobManager,
) -> None:
    many(manager)
    assert creates(manager) == list(manager.jobs)
    told = []
    for ids, topics in pages(manager):
        assert 0 < len(ids) < MANY / 2
        assert topics == ["dws.create"] * len(ids)
        assert creates(manager) == ids
        told += ids
    assert told == list(manager.jobs)


def test_a_hello_that_is_faster_than_the_answers_has_each_request_sent_once(
    manager: JobManager,
) -> None:
    many(manager)
    assert creates(manager) == list(manager.jobs)
    payload: dict[str, Any] = {}
    while "cursor" in (answer := manager.request("hello", payload)):
        payload = {"cursor": answer["cursor"]}
    assert creates(manager) == list(manager.jobs)


def test_requests_that_wait_do_so_no_longer_than_their_jobs(
    manager: JobManager,
) -> None:
    """Of those in flight, and of those that wait for them, each second job ends."""
    many(manager)
    for jobid in range(1, MANY + 1, 2):
        manager.raise_exception(jobid, "cancel", 0, "")
    assert all(manager.jobs[i].state == INACTIVE for i in range(MANY - 9, MANY, 2))
    rest = [jobid for jobid in creates(manager) if jobid % 2 == 0]
    assert rest == list(range(2, MANY + 1, 2))


def test_all_jobs_in_flight_may_end_at_once(manager: JobManager) -> None:
    many(manager)
    sent = manager.topics().count("dws.create")
    for jobid in range(1, sent + 1):
        manager.raise_exception(jobid, "cancel", 0, "")
        manager.request("epilog-remove", {"id": jobid})
    manager.rpcs.clear()
    assert creates(manager) == list(range(sent + 1, MANY + 1))


@pytest.mark.parametrize("jobid", [1, MANY])
def test_the_nodes_of_a_job_do_not_wait_for_the_storage_of_others_to_be_planned(
    manager: JobManager, jobid: int
) -> None:
    many(manager)
    creates(manager)
    update = {"id": jobid, "resources": [], "exclude": None}
    manager.request("resource-update", update)
    for other in set(manager.jobs) - {jobid}:
        change_urgency(manager, 1, other)
    manager.post(manager.jobs[jobid], "alloc")
    while "dws.setup" not in manager.topics():
        manager.take("dws.create")[1](0, "", OK)
        manager.advance(0.0)
        manager.answer_lookups()
    sent = MANY - 1 - manager.topics().count("dws.create")
    assert 0 < sent < MANY / 1.5


def test_no_request_waits_for_ever_behind_those_of_jobs_that_change_again_and_again(
    manager: JobManager,
) -> None:
    """Each job changes as soon as its last change was sent."""
    many(manager)
    rest = set(manager.jobs)
    for number in range(2 * MANY):
        payload, done = manager.take("dws.create")
        done(0, "", OK)
        rest.discard(payload["jobid"])
        change_urgency(manager, number % 16, payload["jobid"])
        manager.advance(0.0)
    assert not rest


def test_a_job_that_changes_while_its_request_waits_keeps_its_place(
    manager: JobManager,
) -> None:
    many(manager)
    change_urgency(manager, 1, MANY - 1)
    assert creates(manager) == list(manager.jobs)


def test_a_job_that_ends_before_its_request_is_sent_again_may_have_a_workflow(
    manager: JobManager,
) -> None:
    many(manager)
    payload, _ = manager.take("dws.create")
    manager.request("hello", {})
    assert payload["jobid"] == 1
    manager.raise_exception(1, "cancel", 0, "")
    assert manager.jobs[1].open["dws-epilog"]


def test_each_of_many_jobs_says_that_it_waits_for_the_module(
    manager: JobManager,
) -> None:
    many(manager)
    assert creates(manager, errno.ENOSYS) == list(manager.jobs)
    memo = "the dws module is not loaded"
    assert all(job.memo["dws"] == memo for job in manager.jobs.values())


def test_jobs_may_come_and_go_between_the_portions_of_hello(
    manager: JobManager,
) -> None:
    many(manager)
    told = []
    for ids, _ in pages(manager):
        told += ids
        gone = manager.jobs[ids[-1]]
        manager.raise_exception(gone.id, "cancel", 0, "")
        manager.request("epilog-remove", {"id": gone.id})
        assert gone.state == INACTIVE
        if len(manager.jobs) == MANY:
            manager.submit(MANY + 1, {"dw": "#DW a"})
    assert told == list(manager.jobs)


def test_a_cursor_beyond_all_jobs_ends_hello(manager: JobManager) -> None:
    many(manager)
    answer = manager.request("hello", {"cursor": 2**40})
    assert answer["jobs"] == [] and "cursor" not in answer


def test_the_plugin_says_of_which_version_it_is(manager: JobManager) -> None:
    answer = manager.request("hello", {"version": "9.9\n", "protocol": 7})
    assert (answer["version"], answer["protocol"]) == (UNKNOWN, PROTOCOL)
    (line,) = [text for _, text in manager.logged if "hello from" in text]
    assert line.startswith("dws: hello from the dws module 9.9") and line.isprintable()
    assert line.endswith(f"; dws-jobtap.so {UNKNOWN}, protocol {PROTOCOL}")


def test_eventlogs_of_many_jobs_are_read_in_portions(manager: JobManager) -> None:
    many(manager)
    manager.unload()
    manager.load()
    read = 0
    while "job-manager.getattr" in manager.topics():
        assert 0 < manager.topics().count("job-manager.getattr") < MANY / 2
        assert error_of(manager, "hello", {}).errno == errno.EAGAIN
        payload, done = manager.take("job-manager.getattr")
        done(0, "", {"eventlog": payload["as it was"]})
        read += 1
    assert read == MANY
    assert [ids for ids, _ in pages(manager)][-1][-1] == MANY


def test_jobs_that_end_while_others_wait_to_be_read_hold_up_none(
    manager: JobManager,
) -> None:
    many(manager)
    manager.unload()
    for job in list(manager.jobs.values())[::2]:
        manager.post(job, "exception", {"type": "cancel", "severity": 0, "note": ""})
    manager.load()
    for jobid in range(2, MANY + 1, 4):
        job = manager.jobs[jobid]
        manager.post(job, "exception", {"type": "cancel", "severity": 0, "note": ""})
    manager.answer_eventlogs()
    told = [jobid for ids, _ in pages(manager) for jobid in ids]
    assert set(range(4, MANY + 1, 4)) <= set(told)


def test_jobs_that_end_while_they_are_read_hold_up_none(manager: JobManager) -> None:
    many(manager)
    manager.unload()
    ending = list(manager.jobs.values())[:40]
    for job in ending:
        manager.post(job, "epilog-start", {"description": "other"})
        manager.post(job, "exception", {"type": "cancel", "severity": 0, "note": ""})
    manager.load()
    for job in ending:
        manager.post(job, "epilog-finish", {"description": "other", "status": 0})
        assert job.state == INACTIVE
    manager.answer_eventlogs()
    told = [jobid for ids, _ in pages(manager) for jobid in ids]
    assert told == list(range(41, MANY + 1))


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("memo", {"rabbit_waits_for": "me"}),
        ("exception", {"type": "cancel", "severity": 0, "note": "", "userid": 1001}),
    ],
)
def test_a_guest_who_posts_without_end_does_not_keep_hello_from_being_answered(
    manager: JobManager, name: str, context: dict[str, Any]
) -> None:
    manager.submit(1, {"dw": "#DW a"})
    job = manager.jobs[1]
    manager.post(job, "epilog-start", {"description": "other"})
    manager.post(job, "exception", {"type": "x", "severity": 0, "note": ""})
    manager.unload()
    manager.load()
    for _ in range(10):
        if "job-manager.getattr" not in manager.topics():
            break
        payload, done = manager.take("job-manager.getattr")
        manager.clock += 0.001
        manager.post(job, name, context)
        done(0, "", {"eventlog": payload["as it was"]})
    (told,) = manager.request("hello", {})["jobs"]
    assert told["waits"] == ("me" if name == "memo" else None)


@pytest.mark.parametrize("known", [0, 1, 2])
@pytest.mark.parametrize("last", ["me", None])
def test_memos_that_come_while_an_eventlog_is_read_count_in_their_order(
    manager: JobManager, known: int, last: Optional[str]
) -> None:
    manager.submit(1, {"dw": "#DW a"})
    job = manager.jobs[1]
    manager.unload()
    manager.load()
    payload, done = manager.take("job-manager.getattr")
    eventlog = list(payload["as it was"])
    for memo in ("first", last):
        manager.clock += 0.001
        manager.post(job, "memo", {"rabbit_waits_for": memo})
    eventlog += job.eventlog[len(eventlog) :][:known]
    done(0, "", {"eventlog": eventlog})
    (told,) = manager.request("hello", {})["jobs"]
    assert told["waits"] == last


@pytest.mark.parametrize("text", ["", "DWS in Setup: 1 of 2", "é" * 2048])
@pytest.mark.parametrize("reload", [False, True])
def test_hello_has_the_text_of_the_memo(
    manager: JobManager, text: str, reload: bool
) -> None:
    """The next module does not post it again."""
    manager.submit(1, {"dw": "#DW a"})
    for memo in (None, "first", text):
        manager.clock += 0.001
        manager.post(manager.jobs[1], "memo", {"rabbit_waits_for": memo})
    if reload:
        manager.unload()
        manager.load()
        manager.answer_eventlogs()
    (told,) = manager.request("hello", {})["jobs"]
    assert told["waits"] == text


@pytest.mark.parametrize("memo", [1, True, {"a": []}, [], "x" * 4097, "é" * 2049])
def test_a_memo_that_no_module_has_posted_is_not_kept(
    manager: JobManager, memo: Any
) -> None:
    manager.submit(1, {"dw": "#DW a"})
    manager.post(manager.jobs[1], "memo", {"rabbit_waits_for": memo})
    (told,) = manager.request("hello", {})["jobs"]
    assert told["waits"] == ""


@pytest.mark.parametrize("failures", [1, 2, 40, 69])
def test_an_eventlog_that_cannot_be_asked_for_holds_up_no_other_job(
    manager: JobManager, failures: int
) -> None:
    many(manager)
    manager.unload()
    manager.load()
    while manager.topics().count("job-manager.getattr") > 1:
        payload, done = manager.take("job-manager.getattr")
        done(0, "", {"eventlog": payload["as it was"]})
    payload, done = manager.take("job-manager.getattr")
    job = manager.jobs[payload["id"]]
    manager.post(job, "dependency-remove", {"description": "dws-create"})
    manager.unsendable["job-manager.getattr"] = failures
    done(0, "", {"eventlog": payload["as it was"]})
    manager.answer_eventlogs()
    stuck = [line for _, line in manager.logged if "may be stuck" in line]
    told = [jobid for ids, _ in pages(manager) for jobid in ids]
    assert len(stuck) == failures and len(told) == MANY - failures
    assert job.id not in told


def test_an_eventlog_of_which_there_is_none_holds_up_no_other_job(
    manager: JobManager,
) -> None:
    many(manager)
    manager.unload()
    manager.load()
    while "job-manager.getattr" in manager.topics():
        payload, done = manager.take("job-manager.getattr")
        found = payload["id"] % 2
        done(0 if found else errno.ENOENT, "", {"eventlog": payload["as it was"]})
    told = [jobid for ids, _ in pages(manager) for jobid in ids]
    assert told == list(range(1, MANY + 1, 2))


def test_a_teardown_that_was_asked_for_survives_a_reload(manager: JobManager) -> None:
    up_to(manager, "epilog")
    manager.raise_exception(1, "cancel", 0, "")
    manager.unload()
    manager.load()
    manager.answer_eventlogs()
    manager.take("dws.post_run")[1](0, "", OK)
    assert "dws.teardown" in manager.topics()


def test_a_teardown_waits_for_the_module_as_any_request_does(
    manager: JobManager,
) -> None:
    job = up_to(manager, "epilog")
    manager.raise_exception(1, "cancel", 0, "")
    manager.take("dws.teardown")[1](errno.ENOSYS, "", None)
    assert job.memo["dws"] == "the dws module is not loaded"


def test_a_job_submitted_before_the_first_load_fails_with_a_reason(
    manager: JobManager,
) -> None:
    manager.unload()
    job = submitted(manager)
    assert job.state == SCHED
    manager.load()
    manager.answer_eventlogs()
    manager.post(job, "alloc")
    assert job.state == INACTIVE
    assert "submitted while dws-jobtap was not loaded" in notes(job)[0]


def test_a_job_that_was_started_while_the_plugin_was_away_fails(
    manager: JobManager,
) -> None:
    job = up_to(manager, "sched")
    manager.unload()
    manager.post(job, "alloc")
    manager.load()
    manager.answer_eventlogs()
    assert "started without its storage" in notes(job)[0]


def test_services_refuse_guests(manager: JobManager) -> None:
    for method in ("hello", "resource-update", "prolog-remove", "epilog-remove"):
        with pytest.raises(OSError) as caught:
            manager.request(method, {"id": 1}, owner=False)
        assert caught.value.errno == errno.EPERM


@pytest.mark.parametrize(
    "method,payload",
    [
        ("resource-update", {}),
        ("resource-update", {"id": "1"}),
        ("resource-update", {"id": 1, "exclude": None}),
        ("resource-update", {"id": 1, "resources": None, "exclude": None}),
        ("resource-update", {"id": 1, "resources": {}, "exclude": None}),
        ("resource-update", {"id": 1, "resources": []}),
        ("resource-update", {"id": 1, "resources": [], "exclude": []}),
        ("prolog-remove", {"id": 1}),
        ("prolog-remove", {"id": 1, "variables": []}),
        ("prolog-remove", {"id": 1, "variables": {"A": 1}}),
        ("prolog-remove", {"id": 1, "variables": {}, "copy_out": []}),
        ("epilog-remove", {}),
    ],
)
def test_malformed_requests_get_eproto_and_change_nothing(
    manager: JobManager, method: str, payload: dict[str, Any]
) -> None:
    job = up_to(manager, "depend" if method == "resource-update" else "prolog")
    events = len(job.eventlog)
    error = error_of(manager, method, payload)
    assert error.errno == errno.EPROTO and "expected" in str(error)
    assert len(job.eventlog) == events


def test_the_event_of_the_variables_says_what_is_copied_later(
    manager: JobManager,
) -> None:
    job = up_to(manager, "prolog")
    context = {"variables": {"A": "b"}, "copy_out": "$A/é to /lustre"}
    manager.request("prolog-remove", {"id": 1, **context})
    assert job.context("dws_environment") == context


def test_requests_that_come_late_or_twice_succeed_without_effect(
    manager: JobManager,
) -> None:
    job = up_to(manager, "epilog")
    manager.request("epilog-remove", {"id": 1})
    events = len(job.eventlog)
    manager.request("epilog-remove", {"id": 1})
    manager.request("prolog-remove", {"id": 1, "variables": {}})
    manager.request("resource-update", {"id": 1, "errmsg": "late"})
    assert len(job.eventlog) == events


def test_an_unknown_job_gets_enoent(manager: JobManager) -> None:
    manager.submit(1, {})
    for jobid in (1, 99):
        assert error_of(manager, "epilog-remove", {"id": jobid}).errno == errno.ENOENT


def test_values_of_variables_are_never_logged(manager: JobManager) -> None:
    up_to(manager, "prolog")
    variables = {"DW_WORKFLOW_TOKEN": "secret", "OTHER": ["secret"]}
    error = error_of(manager, "prolog-remove", {"id": 1, "variables": variables})
    assert "secret" not in str(error)
    manager.request("prolog-remove", {"id": 1, "variables": {"A": "secret"}})
    assert not [line for _, line in manager.logged if "secret" in line]


def test_run_state_is_left_to_flux_when_the_lookup_of_R_fails(
    manager: JobManager,
) -> None:
    job = up_to(manager, "sched")
    manager.post(job, "alloc")
    assert job.state == RUN
    manager.lookups.pop()[1](errno.ENOENT, None)
    (note,) = notes(job)
    assert note == "error reading R: No such file or directory; please submit it again"
    assert not job.open["dws-setup"]


def test_a_prolog_that_nobody_finished_before_a_restart_is_finished(
    manager: JobManager,
) -> None:
    job = up_to(manager, "prolog")
    manager.unload()
    manager.raise_exception(1, "cancel", 0, "")
    assert job.state == CLEANUP
    manager.restart()
    manager.answer_eventlogs()
    assert job.context("prolog-finish")["description"] == "dws-setup"
    manager.take("dws.post_run")[1](0, "", OK)
    manager.request("epilog-remove", {"id": 1})
    assert job.state == INACTIVE
