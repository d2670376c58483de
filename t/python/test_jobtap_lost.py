# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin when modules go, and when many jobs wait for one."""

from __future__ import annotations

import errno
from typing import Any, Iterator, Optional

import pytest

from flux_k8s.version import PROTOCOL, UNKNOWN
from support.jobtap import INACTIVE, JobManager
from support.jobtap_jobs import (
    OK,
    WITH_TIMEOUT,
    change_urgency,
    notes,
    submitted,
    up_to,
)


@WITH_TIMEOUT
def test_an_abort_is_sent_until_it_is_answered(manager: JobManager) -> None:
    job = up_to(manager, "epilog")
    manager.advance(60.0)
    manager.advance(10.0)
    for _ in range(20):
        manager.take("dws.abort")[1](errno.EHOSTUNREACH, "", None)
        assert job.state == INACTIVE
        manager.request("hello", {})
    manager.take("dws.abort")[1](0, "", {"success": False, "errstr": "barred"})
    assert "may still be in use: barred" in manager.logged[-1][1]
    manager.request("hello", {})
    assert "dws.abort" not in manager.topics()


@pytest.mark.parametrize(
    "text, shown",
    [
        ("%n%s%p", "%n%s%p"),
        ("a\x1b[31mb\r\nc\x7f", "a\\x1b[31mb\\x0d\\x0ac\\x7f"),
        ("\x85\x9bm", "\\x85\\x9bm"),
        ("Grüße, 日本", "Grüße, 日本"),
    ],
)
def test_control_characters_are_escaped_in_notes_and_in_the_log(
    manager: JobManager, text: str, shown: str
) -> None:
    job = submitted(manager)
    manager.take("dws.create")[1](0, "", {"success": False, "errstr": text})
    assert notes(job) == [shown]
    manager.take("dws.post_run")[1](0, "", {"success": False, "errstr": text})
    assert manager.logged[-1][1].endswith(shown) and text.isprintable() == (
        text == shown
    )


# ---- many jobs --------------------------------------------------------------------

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


def test_a_job_that_ends_before_its_request_is_sent_again_may_have_a_workflow(
    manager: JobManager,
) -> None:
    many(manager)
    payload, _ = manager.take("dws.create")
    manager.request("hello", {})
    assert payload["jobid"] == 1
    manager.raise_exception(1, "cancel", 0, "")
    assert manager.jobs[1].open["dws-epilog"]


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
