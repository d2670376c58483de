# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the service makes of answers to its hello."""

from __future__ import annotations

import errno
import syslog
from typing import Any, Callable, Optional

import pytest

from flux_k8s.jobs import hello
from flux_k8s.jobs.hello import held_job
from flux_k8s.ports import KubeError, Request
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options
from rabbitsim.flux.broker import Respond
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.queries import query
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    XFS,
    jobspec,
    lines,
    names,
    settle,
    started,
)

HELLO = "job-manager.dws.hello"
GARBAGE: list[dict[str, Any]] = [{}, {"jobs": 1}, {"jobs": [], "cursor": "x"}]


def altered(system: VirtualSystem, answer: Callable[[Respond], Respond]) -> list[float]:
    """When each hello is sent, whose answers are these from now on."""
    broker = system.instance.broker
    send = broker.send
    times: list[float] = []

    def send_altered(
        topic: str,
        payload: dict[str, Any],
        respond: Respond,
        userid: Optional[int] = None,
    ) -> None:
        if topic == HELLO:
            times.append(system.loop.now())
            respond = answer(respond)
        send(topic, payload, respond, userid)

    # Of this one object only.
    broker.send = send_altered  # type: ignore[method-assign]
    return times


def with_answers(
    count: int, errnum: int, text: str, answer: Optional[dict[str, Any]]
) -> tuple[VirtualSystem, list[float]]:
    """A system in which the first answers to hello are these, and when each hello
    was sent."""
    system = VirtualSystem()

    def first(respond: Respond) -> Respond:
        other = len(times) <= count
        return lambda *found: (
            respond(errnum, text, answer) if other else respond(*found)
        )

    times = altered(system, first)
    system.start()
    return system, times


@pytest.mark.parametrize(
    ("version", "protocol", "warns"),
    [("1.2.3", 1, False), ("1.2.4", 1, True), ("1.2.3", 2, True), (None, None, True)],
)
def test_the_versions_of_module_and_plugin_are_logged_and_a_difference_is_warned_of(
    version: Optional[str],
    protocol: Optional[int],
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hello, "version", lambda: "1.2.3")
    answer: dict[str, Any] = {"jobs": []}
    if version is not None:
        answer.update(version=version, protocol=protocol)
    system, _ = with_answers(1, 0, "", answer)
    system.loop.run(timeout=10.0)
    plugin = version or "unknown"
    text = f"dws module 1.2.3, dws-jobtap.so {plugin}, protocol 1"
    assert len(lines(system, text)) == 1
    found = [line for _, level, line in system.log if level == syslog.LOG_WARNING]
    assert bool(found) == warns
    if warns:
        said = (
            f"dws-jobtap.so {plugin} (protocol {protocol or 0}) is not of the version"
        )
        assert said in found[0]
    stats = query(system, "metrics")
    assert stats["plugin_version"] == plugin and stats["protocol"] == 1


@pytest.mark.parametrize("answer", GARBAGE, ids=str)
def test_a_hello_whose_answer_cannot_be_read_is_sent_again_ever_later(
    answer: dict[str, Any],
) -> None:
    system, times = with_answers(6, 0, "", answer)
    jobid = system.instance.submit(jobspec())
    system.loop.run(timeout=200.0)
    pauses = [later - earlier for earlier, later in zip(times, times[1:])]
    assert all(earlier < later for earlier, later in zip(pauses[:6], pauses[1:6]))
    assert len(times) == 7 and max(pauses) <= 60.0
    assert len(lines(system, HELLO)) == 1
    settle(system)
    assert names(system, jobid) == LIFE


@pytest.mark.parametrize(
    ("waits", "memo"),
    [("no room", "no room"), (None, None), (True, ""), (False, None)],
)
def test_jobs_are_taken_over_from_a_plugin_that_says_only_whether_there_is_a_memo(
    waits: Any, memo: Optional[str]
) -> None:
    """Plugin and module may be upgraded in any order."""
    assert held_job({"id": 1, "phase": "running", "waits": waits}).memo == memo


@pytest.mark.parametrize(("errnum", "logged"), [(errno.EAGAIN, 0), (errno.ENOMEM, 1)])
def test_each_failure_of_hello_is_logged_once_but_not_that_the_plugin_is_not_ready(
    errnum: int, logged: int
) -> None:
    system, times = with_answers(4, errnum, "no memory", None)
    system.loop.run(timeout=60.0)
    assert len(times) == 5
    assert len(lines(system, f"{HELLO}: no memory; trying again")) == logged
    assert len(lines(system, "hello:")) == logged and not lines(system, "not loaded")


def test_a_request_that_overtakes_the_answer_to_hello_waits_for_it() -> None:
    """The answer says that the job was failed already."""
    refused = KubeError(500, "InternalError", "etcd has no leader")
    away = [True]

    def fault(request: Request) -> Optional[Fault]:
        asks = request.verb == "patch" and "Teardown" in str(request.body)
        return Fault(error=refused) if away and asks else None

    options = Options(faults=(DwsFault("DataOut", "error"),))
    system = started(options=options, faults=fault)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    assert system.loop.run(lambda: "exception" in names(system, jobid), HOUR)
    system.unload_module()
    away.clear()
    altered(
        system,
        lambda respond: (
            lambda *found: system.loop.call_later(1.0, lambda: respond(*found))
        ),
    )
    system.load_module()
    settle(system)
    assert names(system, jobid).count("exception") == 1
