# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs in each phase, for tests of the compiled plugin."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any, Callable

import pytest

from support.jobtap import CLEANUP, DEPEND, RUN, SCHED, Job, JobManager

OK = {"success": True}
WITH_TIMEOUT = pytest.mark.parametrize(
    "manager", [{"epilog-timeout": 60.0}], indirect=True
)


def submitted(manager: JobManager, **system: Any) -> Job:
    assert manager.submit(1, {"dw": "#DW jobdw name=a", **system}) is None
    return manager.jobs[1]


def up_to(manager: JobManager, phase: str, **system: Any) -> Job:
    """A job in "depend", "sched", "prolog", "running" or "epilog", with the
    requests so far answered."""
    job = submitted(manager, **system)
    manager.take("dws.create")[1](0, "", OK)
    if phase != "depend":
        update = {"id": 1, "resources": [{"type": "slot"}], "exclude": None}
        manager.request("resource-update", update)
    if phase in ("prolog", "running", "epilog"):
        manager.post(job, "alloc")
        manager.answer_lookups()
        manager.take("dws.setup")[1](0, "", OK)
    if phase in ("running", "epilog"):
        manager.request("prolog-remove", {"id": 1, "variables": {"DW_JOB_a": "/a"}})
        manager.post(job, "start")
    if phase == "epilog":
        finish(manager, job)
        manager.take("dws.post_run")[1](0, "", OK)
    return job


def change_urgency(manager: JobManager, urgency: int, jobid: int = 1) -> None:
    job = manager.jobs[jobid]
    job.urgency = urgency
    manager.post(job, "urgency", {"userid": job.userid, "urgency": urgency})


def finish(manager: JobManager, job: Job) -> None:
    job.start_pending = job.running = False
    manager.post(job, "finish")


def notes(job: Job) -> list[str]:
    return [
        entry["context"]["note"]
        for entry in job.eventlog
        if entry["name"] == "exception"
    ]


def error_of(manager: JobManager, method: str, payload: dict[str, Any]) -> OSError:
    with pytest.raises(OSError) as caught:
        manager.request(method, payload)
    return caught.value


# ---- a job's course in words ------------------------------------------------------

ANSWERS = {"ok": OK, "refused": {"success": False, "errstr": "it is %s wrong"}}
STATES = {DEPEND: "DEPEND", SCHED: "SCHED", RUN: "RUN", CLEANUP: "CLEANUP"}
PHASES = ("depend", "sched", "prolog", "running", "epilog")
TYPES = ("cancel", "timeout", "exec", "dws", "dws-epilog-timeout")
Act = Callable[[JobManager], object]


def reload(manager: JobManager) -> None:
    manager.unload()
    load(manager)


def load(manager: JobManager) -> None:
    manager.load()
    manager.answer_eventlogs()


def restart(manager: JobManager) -> None:
    manager.restart()
    manager.answer_eventlogs()


def tick(manager: JobManager) -> None:
    """Time enough to ask job-exec again, and its answer."""
    manager.advance(2.0)
    manager.answer_exec()


def allocate(manager: JobManager) -> None:
    manager.post(manager.jobs[1], "alloc")
    manager.answer_lookups()


EPILOG = {"description": "job-manager.epilog"}


def prolog_fails(manager: JobManager) -> None:
    """As perilog.so does it: its epilog runs from now on, but was started in RUN."""
    manager.event_post(1, "epilog-start", EPILOG)
    manager.raise_exception(1, "prolog", 0, "prolog exited with code=1")
    manager.prolog_finish(1, "job-manager.prolog", 1)


def answer_all(manager: JobManager, topic: str, errnum: int) -> None:
    while topic in manager.topics():
        manager.take(topic)[1](errnum, "", None)


def event(name: str, description: str) -> Act:
    return lambda m: m.post(m.jobs[1], name, {"description": description})


ACTS: dict[str, Act] = {
    "submit": submitted,
    "submit-after": lambda m: m.submit(1, {"dw": "#DW a"}, after=True),
    "after-gone": event("dependency-remove", "after"),
    "let-go": event("dependency-remove", "dws-create"),  # by another plugin
    "environment": lambda m: m.post(m.jobs[1], "dws_environment", {"variables": {}}),
    "another": event("dependency-add", "another"),
    "described-memo": event("memo", "by a guest"),
    "another-gone": event("dependency-remove", "another"),
    **{f"urgency-{n}": partial(change_urgency, urgency=n) for n in (1, 2, 3, 4)},
    "admitted": lambda m: m.request(
        "resource-update", {"id": 1, "resources": [], "exclude": None}
    ),
    "eventlogs": lambda m: m.answer_eventlogs(),
    "no-eventlogs": lambda m: answer_all(m, "job-manager.getattr", errno.ENOMEM),
    "eventlog-unsent": lambda m: m.unsendable.update({"job-manager.getattr": 1}),
    "no-module": lambda m: answer_all(m, "dws.create", errno.ENOSYS),
    "load-only": lambda m: m.load(),
    "alloc": allocate,
    "R": lambda m: m.answer_lookups(),
    "finish": lambda m: finish(m, m.jobs[1]),
    "finish-event": lambda m: m.post(m.jobs[1], "finish", {"status": 0}),
    "hello": lambda m: m.request("hello", {}),
    "load": load,
    "unload": lambda m: m.unload(),
    "reload": reload,
    "restart": restart,
    "mild": lambda m: m.raise_exception(1, "cancel", 1, ""),
    "errmsg": lambda m: m.request("resource-update", {"id": 1, "errmsg": "no %s"}),
    "mounted": lambda m: m.request("prolog-remove", {"id": 1, "variables": {}}),
    "released": lambda m: m.request("epilog-remove", {"id": 1}),
    "moving": lambda m: m.request("epilog-remove", {"id": 1, "data": "moving"}),
    "tasks-end": lambda m: m.tasks_end(m.jobs[1]),
    "tasks-lost": lambda m: m.tasks_end(m.jobs[1], finish=False),
    "exec-lost": lambda m: m.exec_lost(),
    "tick": tick,
    "all-nodes": lambda m: m.post(
        m.jobs[1], "release", {"ranks": "all", "final": True}
    ),
    "a-node": lambda m: m.post(m.jobs[1], "release", {"ranks": "0", "final": False}),
    "prolog-start": event("prolog-start", "job-manager.prolog"),
    "epilog-start": lambda m: m.event_post(1, "epilog-start", EPILOG),
    "prolog-fails": prolog_fails,
    "epilog-finish": lambda m: m.epilog_finish(1, "job-manager.epilog", 1),
}


def play(manager: JobManager, course: str) -> Job:
    """What happens to job 1, and what it has become.

    Args:
        course: words: a phase that it is brought to, the type of an exception,
            ``+SECONDS``, ``TOPIC=ANSWER`` to the oldest request for the topic (one of
            :data:`ANSWERS`, or the name of an error), or one of :data:`ACTS`.
    """
    for word in course.split():
        topic, _, answer = word.partition("=")
        if answer:
            topic = topic if "." in topic else f"dws.{topic}"
            errnum = 0 if answer in ANSWERS else getattr(errno, answer)
            manager.take(topic)[1](errnum, "", ANSWERS.get(answer))
        elif word in PHASES:
            up_to(manager, word)
        elif word in TYPES:
            manager.raise_exception(1, word, 0, "")
        elif word[0] == "+":
            manager.advance(float(word))
        else:
            ACTS[word](manager)
    return manager.jobs[1]


def outcome(manager: JobManager) -> str:
    """The state of job 1, and what is asked for and not answered."""
    asked = []
    for topic, payload, _ in manager.rpcs:
        if topic == "dws.hello":
            continue
        words = [topic.replace("dws.", "")]
        words += [str(payload["urgency"])] if topic == "dws.create" else []
        words += ["depends"] if payload.get("depends") else []
        words += ["started"] if payload.get("run_started") else []
        asked.append("+".join(words))
    state = STATES.get(manager.jobs[1].state, "INACTIVE")
    return " ".join([state, *sorted(asked)])
