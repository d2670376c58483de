# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled plugin and jobs that wait for the data of others: dws-out:JOBID."""

from __future__ import annotations

import errno
import json
from functools import partial
from typing import Any, Optional, Union

import pytest

from support.jobtap import (
    DEPEND,
    INACTIVE,
    SCHED,
    Hostile,
    Job,
    JobManager,
)
from support.jobtap_jobs import STATES, WITH_TIMEOUT, Act, notes, play, up_to

NO_SUCH_JOB = "this user has no such job, or it was purged"
OUT = json.dumps({"success": True})
SECRET = json.dumps({"success": False, "errstr": "secret", "reason": "no-room"})


def submit(
    manager: JobManager, jobid: int, *targets: Union[int, str], **options: Any
) -> Optional[str]:
    """A job that waits for the data of others; the reason if it is refused."""
    dependencies = [{"scheme": "dws-out", "value": str(t)} for t in targets]
    system = {"dependencies": dependencies, **options.pop("system", {})}
    return manager.submit(jobid, system, **options)


def tell(manager: JobManager, errstr: Optional[str] = None, jobid: int = 1) -> None:
    error = {} if errstr is None else {"errstr": errstr, "reason": "dws-failed"}
    assert manager.request("data-out", {"id": jobid, **error}) is None
    manager.settle()


def note(problem: str, target: str = "ƒ2") -> list[str]:
    return [f"dws-out: {target}: {problem}"]


def waiting(manager: JobManager, jobid: int, *targets: Union[int, str]) -> Job:
    assert submit(manager, jobid, *targets) is None
    manager.settle()
    job = manager.jobs[jobid]
    assert job.state == DEPEND and not notes(job)
    return job


def ended(manager: JobManager, moving: bool = False) -> Job:
    """Job 1, whose epilog has ended, perhaps before its data was out."""
    job = play(manager, "epilog moving" if moving else "epilog released")
    assert job.state == INACTIVE and job.has("dws_released") is moving
    return job


def reload(manager: JobManager, restart: bool) -> None:
    if restart:
        manager.restart()
    else:
        manager.unload()
        manager.load()
    manager.rpcs = [rpc for rpc in manager.rpcs if rpc[0] != "dws.hello"]


# ---- what becomes of who waits ---------------------------------------------------


def wait(manager: JobManager) -> None:
    assert submit(manager, 2, 1) is None
    manager.settle()


def ask(manager: JobManager) -> None:
    """Nobody answers yet."""
    assert submit(manager, 2, 1) is None
    manager.advance(0)


def record(manager: JobManager, text: str = OUT) -> None:
    manager.jobs[1].record = text


def end_without_plugin(manager: JobManager) -> None:
    job, context = manager.jobs[1], {"description": "dws-epilog", "status": 0}
    manager.post(job, "epilog-finish", context)
    manager.act(job)
    assert job.state == INACTIVE


def wait_for_two(manager: JobManager) -> None:
    manager.submit(3, {"dw": "#DW b"})
    waiting(manager, 2, 1, 3)


def forge(manager: JobManager, name: str) -> None:
    """As a user may do."""
    forged = '\n{"timestamp":1.0,"name":"dws_released"}\n'
    context = {"note": forged, "dws_released": 1, "name": "dws_released"}
    context |= {"type": "dws_released", "severity": 7}
    manager.post(manager.jobs[1], name, context)


RECORDS = {
    "recorded": OUT,
    "full": '{"success": false, "errstr": "disk\\nfull"}',
    "unexplained": '{"success": false}',
    "unread-1": '{"success": "yes"}',
    "unread-2": '{"success": true, "errstr": 1}',
    "unread-3": "[]",
    "unread-4": "",
    "unread-5": "{",
}
WORDS: dict[str, Act] = {
    "wait": wait,
    "wait-for-two": wait_for_two,
    "another-waits": lambda m: waiting(m, 4, 1),
    "early": lambda m: submit(m, 2, 1, validated=False),
    "validated": lambda m: m.post(m.jobs[2], "validate"),
    "ask": ask,
    **{name: partial(record, text=text) for name, text in RECORDS.items()},
    "out": lambda m: tell(m),
    "lost": lambda m: tell(m, "gone"),
    "out-3": lambda m: tell(m, jobid=3),
    "lost-3": lambda m: tell(m, "gone", jobid=3),
    "asked": lambda m: m.take("dws.report_data"),
    "purged": lambda m: m.purge(1),
    "plugin-anew": lambda m: reload(m, restart=False),
    "all-anew": lambda m: reload(m, restart=True),
    "settled": lambda m: m.settle(),
    "ends": end_without_plugin,
    **{name: partial(forge, name=name) for name in ("memo", "exception", "released2")},
}
REPORT = "DEPEND report_data"
LOST = "ƒ2: the data is not out: "
GONE = f"{LOST}gone"
PURGED = f"ƒ2: {NO_SUCH_JOB}"
COURSES = [
    # its job is active
    *(
        (f"{phase} wait {told}", expected)
        for phase in ("depend", "sched", "prolog", "running", "epilog")
        for told, expected in (
            ("", "DEPEND"),
            ("out", "SCHED"),
            ("lost", GONE),
        )
    ),
    ("epilog recorded out wait", "SCHED"),
    ("epilog wait recorded released", "SCHED"),
    ("epilog wait released", REPORT),
    ("epilog wait +60 +10", REPORT),
    ("sched wait cancel released", REPORT),
    # it goes out later: the module is asked for a report, once
    ("epilog wait moving", REPORT),
    ("epilog wait moving settled asked another-waits", "DEPEND"),
    ("epilog wait moving settled asked out", "SCHED"),
    ("epilog moving wait", REPORT),
    ("epilog moving wait asked out", "SCHED"),
    ("epilog moving wait asked lost", GONE),
    ("epilog moving all-anew wait", REPORT),
    ("epilog moving wait asked hello settled asked hello", REPORT),
    ("epilog moving wait asked out hello", "SCHED"),
    ("epilog moving wait asked recorded hello", "SCHED"),
    ("epilog moving wait asked purged out", "SCHED"),
    ("out epilog moving out wait asked", "DEPEND"),
    ("out epilog moving out wait asked out out lost", "SCHED"),
    # its job has ended
    ("epilog released recorded wait", "SCHED"),
    ("epilog released wait", REPORT),
    ("epilog released ask purged", PURGED),
    ("epilog released full wait", f"{LOST}disk\\x0afull"),
    ("epilog released unexplained wait", f"{LOST}no reason is given"),
    *(
        (f"epilog released {name} wait", f"{LOST}its record cannot be read")
        for name in RECORDS
        if "unread" in name
    ),
    *(
        (f"epilog {name} released all-anew wait", REPORT)
        for name in ("memo", "exception", "released2")
    ),
    # two
    ("epilog moving wait-for-two asked out-3", "DEPEND"),
    ("epilog moving wait-for-two asked out-3 out", "SCHED"),
    ("epilog moving wait-for-two asked lost-3 lost", GONE.replace("2", "4")),
    # the plugin goes away
    *(
        (f"{before} {how} {later}", expected)
        for how in ("plugin-anew", "all-anew")
        for before, later, expected in (
            ("running wait", "", "DEPEND"),
            ("running wait", "out", "SCHED"),
            ("epilog moving wait asked", "", REPORT),
            ("epilog moving wait asked", "out", "SCHED"),
            ("epilog moving wait asked", "lost", GONE),
            ("epilog moving wait asked recorded", "", "SCHED"),
            ("epilog moving wait asked purged", "out", PURGED),
            ("epilog moving early", "validated", REPORT),
            ("epilog moving early", "validated out", "SCHED"),
            ("epilog moving early purged", "validated", PURGED),
            (
                "epilog moving wait-for-two asked out",
                "settled out",
                REPORT,
            ),
            ("epilog moving wait-for-two asked out purged", "settled out", "DEPEND"),
            (
                "epilog moving wait-for-two asked out",
                "settled out-3",
                "SCHED report_data",
            ),
        )
    ),
    ("epilog wait unload ends load", REPORT),
]


@WITH_TIMEOUT
@pytest.mark.parametrize(("course", "expected"), COURSES)
def test_a_job_waits_for_the_data_of_another(
    manager: JobManager, course: str, expected: str
) -> None:
    """``expected`` is its state, and what is asked for, or why it fails."""
    for word in course.split():
        if word in WORDS:
            WORDS[word](manager)
        else:
            play(manager, word)
    manager.settle()
    job = manager.jobs[2]
    names = [entry["name"] for entry in job.eventlog]
    assert names.count("dependency-add") == len(job.used)
    if job.state == INACTIVE:
        assert notes(job) == [f"dws-out: {expected}"]
        assert job.context("exception")["type"] == "dependency"
        assert job.context("exception")["severity"] == 0
    else:
        asked = ["report_data"] * manager.topics().count("dws.report_data")
        assert " ".join([STATES[job.state], *asked]) == expected
        assert not notes(job) and "dws-out=f2" in job.used
        assert job.state == DEPEND or names.count("dependency-remove") == len(job.used)


@pytest.mark.parametrize("phase", ["depend", "running"])
def test_nothing_is_looked_up_before_a_job_has_ended(
    manager: JobManager, phase: str
) -> None:
    up_to(manager, phase)
    waiting(manager, 2, 1)
    assert manager.sent["job-info.lookup"] == 0


# ---- what is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ("dependency", "refusal"),
    [
        *(
            ({"value": value}, f"'{value}': not a job ID")
            for value in ("", "bar", "-1", "1.2.3", "f0", "ƒ", "18446744073709551615")
        ),
        ({"value": "9" * 30}, f"'{'9' * 30}': not a job ID"),
        *(
            ({"value": value}, f"'{json.dumps(value)}': not a job ID")
            for value in (None, 7, ["1"], {"a": "%n"})
        ),
        ({}, "'?': it has no value"),
        ({"value": "2"}, "'2': a job cannot wait for its own data"),
    ],
)
def test_what_is_not_the_id_of_another_job_is_refused(
    manager: JobManager, dependency: dict[str, Any], refusal: str
) -> None:
    system = {"dependencies": [{"scheme": "dws-out", **dependency}], "dw": "#DW a"}
    assert manager.submit(2, system) == f"dws-out: {refusal}"


def test_a_refusal_has_no_control_character_and_is_no_format(
    manager: JobManager,
) -> None:
    reason = submit(manager, 2, "%n\x1b[31m\x85é" + "x" * 500)
    assert reason is not None and reason.isprintable() and len(reason) < 100
    assert reason.startswith("dws-out: '%n\\x1b[31m\\x85éxxx")


def test_a_job_waits_for_64_others_at_most(manager: JobManager) -> None:
    for target in range(100, 165):
        manager.submit(target, {"dw": "#DW a"})
    assert submit(manager, 2, *range(100, 164)) is None
    reason = submit(manager, 3, *range(100, 165))
    assert reason == "dws-out: a job may wait for the data of at most 64 others"


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("dw", [None, "", []])
def test_who_waits_for_a_job_without_storage_is_refused(
    manager: JobManager, dw: Any, active: bool
) -> None:
    manager.submit(1, {} if dw is None else {"dw": dw})
    if not active:
        manager.raise_exception(1, "cancel", 0, "dws_released dws-create")
    assert submit(manager, 2, 1) == "dws-out: '1': the job has no #DW storage"


@pytest.mark.parametrize("dw", ["", "#DW a"])
@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("record", [OUT, SECRET, None])
def test_a_job_of_another_user_is_as_one_that_does_not_exist(
    manager: JobManager, dw: str, active: bool, record: Optional[str]
) -> None:
    if active:
        manager.submit(1, {"dw": dw})
    else:
        ended(manager, moving=True)
    manager.jobs[1].record = record
    refusals = [submit(manager, 2, target, userid=7) for target in (1, 3)]
    assert refusals == [f"dws-out: '{t}': {NO_SUCH_JOB}" for t in (1, 3)]
    assert manager.sent["job-info.lookup"] == 0


# ---- the target is active --------------------------------------------------------


def test_a_look_up_that_the_end_of_the_target_overtakes_is_made_again(
    manager: JobManager,
) -> None:
    target = up_to(manager, "epilog")
    submit(manager, 2, 1)
    manager.advance(0)
    payload, done = manager.take("job-info.lookup")
    manager.rpcs.insert(0, ("job-info.lookup", payload, done))
    target.record = OUT
    manager.request("epilog-remove", {"id": 1})
    done(errno.ENOENT, "", None)  # nobody hears of it any more
    manager.rpcs.clear()
    manager.settle()
    assert manager.jobs[2].state == SCHED


# ---- the data goes out later -----------------------------------------------------


def test_a_job_that_another_plugin_ends_at_the_mark_is_forgotten(
    manager: JobManager,
) -> None:
    def cancel(manager: JobManager, job: Job) -> None:
        manager.raise_exception(job.id, "cancel", 0, "another plugin")

    job = up_to(manager, "epilog")
    manager.hostile.append(Hostile("job.event.dws_released", cancel))
    manager.request("epilog-remove", {"id": 1, "data": "moving"})
    assert job.state == INACTIVE


def asked_for_reports(manager: JobManager) -> list[int]:
    """The jobs that the module is to report on; it takes the requests."""
    topic = "dws.report_data"
    count = manager.topics().count(topic)
    return [manager.take(topic)[0]["jobid"] for _ in range(count)]


def test_a_report_that_cannot_be_asked_for_is_asked_for_again(
    manager: JobManager,
) -> None:
    ended(manager, moving=True)
    manager.unsendable["dws.report_data"] = 3
    waiting(manager, 2, 1)
    for _ in range(3):
        assert not asked_for_reports(manager) and len(errors(manager)) == 1
        manager.advance(2.0)
        manager.settle()
    assert asked_for_reports(manager) == [1]


def errors(manager: JobManager) -> list[str]:
    """The lines of the log about look-ups that fail."""
    return [text for _, text in manager.logged if "looking up" in text]


# ---- the target has ended --------------------------------------------------------


def test_a_report_that_comes_before_the_look_up_ends_is_not_lost(
    manager: JobManager,
) -> None:
    ended(manager, moving=True)
    manager.restart()  # so that both records are looked up
    for answers in range(2):
        jobid = 2 + answers
        submit(manager, jobid, 1)
        manager.advance(0)
        for _ in range(answers):
            manager.take("job-info.lookup")[1](errno.ENOENT, "", None)
        assert manager.topics().count("job-info.lookup") == 1
        manager.request("data-out", {"id": 1})
        manager.rpcs.clear()
        manager.settle()
        assert manager.jobs[jobid].state == SCHED


def test_the_eventlog_of_a_job_that_others_wait_for_is_not_read(
    manager: JobManager,
) -> None:
    """Its user can make it as long as he likes."""
    ended(manager)
    submit(manager, 2, 1)
    manager.advance(0)
    asked = []
    for _ in range(2):
        payload, done = manager.take("job-info.lookup")
        asked += payload["keys"]
        done(errno.ENOENT, "", None)
    manager.settle()
    assert asked == ["rabbit_data_out", "rabbit_nodes_released"]
    assert manager.sent["job-info.lookup"] == 2
    assert "dws.report_data" in manager.topics()


@pytest.mark.parametrize("errnum", [errno.ENOSYS, errno.EHOSTUNREACH, errno.EIO])
@pytest.mark.parametrize("which", [0, 1])
def test_a_look_up_that_fails_is_made_again(
    manager: JobManager, errnum: int, which: int
) -> None:
    target = ended(manager)
    submit(manager, 2, 1)
    for _ in range(3):
        manager.advance(0)
        for _ in range(which):
            manager.take("job-info.lookup")[1](errno.ENOENT, "", None)
        manager.take("job-info.lookup")[1](errnum, "", None)
        manager.advance(1.0)
        assert "job-info.lookup" not in manager.topics()
        manager.advance(1.0)
    assert len(errors(manager)) == (errnum == errno.EIO)
    target.record = OUT
    manager.settle()
    assert manager.jobs[2].state == SCHED


# ---- several ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["0x1", "0000.0000.0000.0001", "job.0000.0000.0000.0001", "f2", "ƒ2", " 1"]
)
def test_every_encoding_of_a_job_id_is_the_same_dependency(
    manager: JobManager, value: str
) -> None:
    up_to(manager, "running")
    job = waiting(manager, 2, 1, value)
    assert job.used == {"dws-out=f2"}
    tell(manager)
    assert job.state == SCHED


def test_a_job_with_storage_waits_and_is_told_of(manager: JobManager) -> None:
    ended(manager, moving=True)
    submit(manager, 2, 1, system={"dw": "#DW b"})
    submit(manager, 3, 2)
    manager.settle()
    update = {"id": 2, "resources": [], "exclude": None}
    manager.request("resource-update", update)
    assert manager.jobs[2].state == DEPEND
    tell(manager)
    assert manager.jobs[2].state == SCHED and manager.jobs[3].state == DEPEND
    tell(manager, jobid=2)
    assert manager.jobs[3].state == SCHED


def test_a_job_that_is_cancelled_while_it_waits_is_left_alone(
    manager: JobManager,
) -> None:
    ended(manager, moving=True)
    jobs = [waiting(manager, jobid, 1) for jobid in (2, 3, 4)]
    manager.raise_exception(3, "cancel", 0, "")
    tell(manager, "gone")
    assert [len(notes(job)) for job in jobs] == [1, 1, 1]
    assert notes(jobs[1]) == [""]


def test_many_jobs_are_told_in_portions(manager: JobManager) -> None:
    ended(manager, moving=True)
    for jobid in range(2, 302):
        assert submit(manager, jobid, 1) is None
    manager.settle()
    jobs = [manager.jobs[jobid] for jobid in range(2, 302)]
    assert manager.sent["job-info.lookup"] == 2 and asked_for_reports(manager) == [1]
    manager.request("data-out", {"id": 1})
    for portion in range(1, 10):
        manager.advance(0)
        assert sum(job.state == SCHED for job in jobs) == 8 * portion
    manager.settle()
    assert all(job.state == SCHED for job in jobs)


def many(manager: JobManager, count: int) -> list[Job]:
    """Jobs that wait, each for a job that has ended without a record."""
    jobids = range(2, 2 + count)
    for jobid in jobids:
        manager.submit(10_000 + jobid, {"dw": "#DW a"})
        manager.raise_exception(10_000 + jobid, "cancel", 0, "")
        manager.request("epilog-remove", {"id": 10_000 + jobid})
        assert submit(manager, jobid, 10_000 + jobid) is None
    manager.rpcs.clear()
    return [manager.jobs[jobid] for jobid in jobids]


def are_asked_about(manager: JobManager, jobs: list[Job]) -> bool:
    """Jobs wait, and the module is asked for a report for each."""
    asked = manager.sent["dws.report_data"]
    return asked == len(jobs) and all(job.state == DEPEND for job in jobs)


def test_look_ups_do_not_go_round_when_job_info_is_away(manager: JobManager) -> None:
    jobs = many(manager, 100)
    for _ in range(50):
        manager.advance(0)
        while "job-info.lookup" in manager.topics():
            manager.take("job-info.lookup")[1](errno.ENOSYS, "", None)
    assert manager.sent["job-info.lookup"] <= 64
    for _ in range(6):
        manager.advance(2.0)
        manager.settle()
    assert are_asked_about(manager, jobs)


@pytest.mark.parametrize("errstr", [None, "gone"])
@pytest.mark.parametrize(
    "topic", ["job.event.dependency-remove", "job.event.exception", "job.event.clean"]
)
def test_another_plugin_may_end_those_who_wait_while_they_are_told(
    manager: JobManager, topic: str, errstr: Optional[str]
) -> None:
    def cancel_all(manager: JobManager, job: Job) -> None:
        for other in list(manager.jobs.values()):
            if other.state == DEPEND:
                manager.raise_exception(other.id, "cancel", 0, "another plugin")

    ended(manager, moving=True)
    jobs = [waiting(manager, jobid, 1) for jobid in range(2, 8)]
    manager.hostile.append(Hostile(topic, cancel_all, first=True))
    tell(manager, errstr)
    assert all(job.state != DEPEND and len(notes(job)) <= 2 for job in jobs)


# ---- the plugin goes away --------------------------------------------------------


both_ways = pytest.mark.parametrize("restart", [False, True], ids=["reload", "restart"])


@both_ways
def test_an_eventlog_that_cannot_be_had_is_asked_for_again(
    manager: JobManager, restart: bool
) -> None:
    target = ended(manager, moving=True)
    job = waiting(manager, 2, 1)
    target.record = OUT
    reload(manager, restart)
    manager.unsendable["job-manager.getattr"] = 1
    manager.settle()
    manager.advance(2.0)
    manager.answer_job_info()
    manager.advance(0)
    manager.take("job-manager.getattr")[1](errno.ENOMEM, "", None)
    manager.settle()
    assert job.state == DEPEND
    manager.advance(2.0)
    manager.settle()
    assert job.state == SCHED


@both_ways
def test_many_who_waited_are_recovered_in_portions(
    manager: JobManager, restart: bool
) -> None:
    target = ended(manager, moving=True)
    jobs = [waiting(manager, jobid, 1) for jobid in range(2, 102)]
    target.record = OUT
    reload(manager, restart)
    for _ in range(5):
        manager.advance(0)
        manager.answer_job_info()
        assert len(manager.topics()) <= 32
    manager.settle()
    assert all(job.state == SCHED for job in jobs)


@pytest.mark.parametrize("steps", range(6))
def test_the_plugin_may_be_unloaded_whatever_it_waits_for(
    manager: JobManager, steps: int
) -> None:
    target = ended(manager, moving=True)
    manager.submit(3, {"dw": "#DW b"})
    jobs = [submit(manager, jobid, 1, 3) or manager.jobs[jobid] for jobid in (2, 4)]
    manager.raise_exception(3, "cancel", 0, "")
    manager.request("epilog-remove", {"id": 3})
    target.record = OUT
    for _ in range(steps):
        manager.advance(0)
        manager.answer_job_info()
    reload(manager, restart=False)
    for _ in range(steps):
        manager.advance(0)
        manager.answer_job_info()
        manager.answer_eventlogs()
    reload(manager, restart=False)
    manager.settle()
    for job in jobs:
        assert isinstance(job, Job) and job.state == DEPEND
    assert "dws.report_data" in manager.topics()
