# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled job manager plugin: what it sends, and what answers do."""

from __future__ import annotations

import errno
import json
import syslog
from typing import Any, Optional

import pytest

from support.jobtap import (
    DEPEND,
    INACTIVE,
    RUN,
    SCHED,
    JobManager,
)
from support.jobtap_jobs import (
    OK,
    error_of,
    notes,
    submitted,
    up_to,
)


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


BAD_R = "error reading R: Protocol error; please submit it again"
NO_R = "error reading R: No such file or directory; please submit it again"


@pytest.mark.parametrize(
    ("R", "sent"),
    [
        ('{"version": 1, "scheduling": {}}', {"version": 1, "scheduling": {}}),
        ('\n {"version": 1} \n', {"version": 1}),
        (None, NO_R),
        *((text, BAD_R) for text in ("", "[1]", "{", '"{}"', "null", "{}{} x")),
    ],
)
def test_setup_carries_the_R_of_the_kvs_if_it_is_an_object(
    manager: JobManager, R: Optional[str], sent: Any
) -> None:
    job = up_to(manager, "sched")
    manager.post(job, "alloc")
    assert job.state == RUN
    assert manager.lookups[0][0] == "job.0000.0000.0000.0001.R"
    while manager.lookups:
        _, done = manager.lookups.pop(0)
        done(errno.ENOENT if R is None else 0, R)
    if isinstance(sent, str):
        assert notes(job) == [sent] and not job.open["dws-setup"]
        assert "dws.setup" not in manager.topics()
    else:
        assert manager.take("dws.setup")[0] == {"jobid": 1, "R": sent}


@pytest.mark.parametrize("system", [{}, {"dw": ""}, {"dw": []}, {"dw": " \n\t"}])
def test_a_job_without_directives_costs_no_request(
    manager: JobManager, system: dict[str, Any]
) -> None:
    manager.rpcs.clear()
    assert manager.submit(1, system) is None
    if not manager.jobs[1].wants_storage:  # which blanks seem to do
        manager.post(manager.jobs[1], "alloc")
    assert manager.rpcs == [] and not manager.jobs[1].subscribed


EMPTY = "attributes.system.dw has an empty string, expected a #DW directive in quotes"
STRINGS = "expected a string of #DW directives or a list of them"
INTEGER = "expected an integer from 0 to 2147483647"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        *(("dw", dw, EMPTY) for dw in (["#DW a", ""], [" \n"], ["", 1])),
        *(("dw", dw, STRINGS) for dw in ([1], 7, None, {"a": 1})),
        *(
            ("dw_failure_tolerance", tolerance, INTEGER)
            for tolerance in (-1, 1.5, "2", True, None, 2**40)
        ),
        ("dw_release", "soon", 'expected "teardown" or "unmounted"'),
    ],
)
def test_bad_attributes_are_refused_at_submission(
    manager: JobManager, key: str, value: Any, problem: str
) -> None:
    reason = manager.submit(1, {"dw": "#DW", key: value})
    assert reason is not None and reason.endswith(problem)
    assert problem == EMPTY or f"attributes.system.{key} is {json.dumps(value)}, " in (
        reason
    )


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
    assert not [text for level, text in manager.logged if level <= syslog.LOG_ERR]


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


@pytest.mark.parametrize(
    "method", ["hello", "resource-update", "prolog-remove", "epilog-remove", "data-out"]
)
def test_services_refuse_guests(manager: JobManager, method: str) -> None:
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
        *(("epilog-remove", {"id": 1, "data": d}) for d in ("out", "", 1, None, {})),
        *(("data-out", {**p}) for p in ({}, {"id": "x"}, {"id": 1, "errstr": 5})),
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


def test_values_of_variables_are_never_logged(manager: JobManager) -> None:
    up_to(manager, "prolog")
    variables = {"DW_WORKFLOW_TOKEN": "secret", "OTHER": ["secret"]}
    error = error_of(manager, "prolog-remove", {"id": 1, "variables": variables})
    assert "secret" not in str(error)
    manager.request("prolog-remove", {"id": 1, "variables": {"A": "secret"}})
    assert not [line for _, line in manager.logged if "secret" in line]
