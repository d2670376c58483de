# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws wait, and flux dws show --follow: each change of a job's storage."""

from __future__ import annotations

import errno
import json
import re
from typing import Any

import pytest

from flux_k8s.text import columns
from support.dwscli import (
    FIRST,
    GIB,
    NEVER,
    NOW,
    OLD,
    FixedInstance,
    detail,
    dws,
    ended_job,
    jobspec,
    kvs_of,
    refused,
)

F58 = "ƒ3gDmDv6tjHH"
TOPIC = "dws.job-show"
GONE = refused(errno.ENOENT, "no active job with #DW directives")
FATAL = {
    "timestamp": NOW,
    "name": "exception",
    "context": {"type": "dws", "severity": 0, "note": "DWS: no room"},
}


def step(serial: int, state: str, **changes: Any) -> dict[str, Any]:
    return detail(
        FIRST, serial=serial, state=state, now=NOW + serial, **{"waits": "", **changes}
    )


LIFE = [
    step(1, "Setup"),
    step(2, "DataIn", percent=3, moved=3 * GIB, total=100 * GIB),
    step(3, "DataIn", percent=7, moved=7 * GIB, total=100 * GIB),
    step(4, "DataIn", percent=50, moved=50 * GIB, total=100 * GIB),
    step(
        5, "PreRun", mounts={"wanted": 16, "mounted": 12, "waiting": "tuo[1003,1007]"}
    ),
    step(6, "PreRun", ready=True),
    step(7, "Teardown"),
    GONE,
]


def instance(*answers: Any, **texts: str) -> FixedInstance:
    """One whose job has ended when it is asked for."""
    listed = [*(answers or LIFE)]
    kvs = kvs_of(FIRST, **texts)
    return FixedInstance({TOPIC: listed}, jobs=[ended_job(FIRST)], kvs=kvs)


def ends_after(requests: int, *answers: Any) -> FixedInstance:
    """One whose job runs until so many requests have come."""
    found = instance(*answers)
    found.jobs[0]["state"] = 16
    running = found.job
    found.job = lambda id: (  # type: ignore[method-assign]
        ended_job(FIRST) if len(found.requests) > requests else running(id)
    )
    return found


def test_each_change_is_a_line_where_there_is_no_terminal() -> None:
    found = instance()
    done = dws(found, "wait", F58)
    assert done.err == ""
    asked = [request.get("seen") for _, request in found.requests]
    assert asked == [None, 1, 2, 3, 4, 5, 6, 7]
    assert done.out.splitlines() == [
        "2025-11-24T16:00:01 Setup",
        "2025-11-24T16:00:02 DataIn 3GiB of 100GiB (3%)",
        "2025-11-24T16:00:04 DataIn 50GiB of 100GiB (50%)",
        "2025-11-24T16:00:05 PreRun: 12/16 mounted, waiting for: tuo[1003,1007]",
        "2025-11-24T16:00:06 PreRun complete",
        "2025-11-24T16:00:07 Teardown",
        "2025-11-24T15:59:00 storage is gone, data was copied out",
    ]
    assert dws(instance(), "show", "--follow", F58).out == done.out


def test_the_exit_status_is_the_fate_of_the_storage() -> None:
    assert dws(instance(), "wait", F58).status == 0
    assert dws(instance(), "show", "--follow", F58).status == 0
    failed = instance(*LIFE, eventlog=json.dumps(FATAL))
    error = f"flux-dws: ERROR: job {F58}: DWS: no room\n"
    for words in (["wait"], ["show", "--follow"]):
        done = dws(failed, *words, F58)
        assert (done.status, done.err) == (1, error)
    early = [step(1, "Setup", failed="lost tuo1"), step(2, "Teardown"), GONE]
    done = dws(instance(*early), "wait", F58)
    assert (done.status, done.err) == (1, f"flux-dws: ERROR: job {F58}: lost tuo1\n")
    # At once, if it ended long ago.
    line = "2025-11-24T15:59:00 storage is gone, data was copied out\n"
    assert dws(instance(GONE), "wait", F58) == (0, line, "")
    assert dws(instance(GONE, eventlog=json.dumps(FATAL)), "wait", F58).status == 1


def test_each_change_is_a_line_of_json_if_that_is_asked_for() -> None:
    again = {**LIFE[0], "now": NOW + 30}
    done = dws(instance(LIFE[0], again, *LIFE[1:]), "wait", "--json", F58)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["serial"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert {line["jobid"] for line in lines} == {F58}


def test_the_module_may_be_reloaded_meanwhile() -> None:
    away = refused(errno.ENOSYS)
    lost = refused(errno.EHOSTUNREACH)
    found = ends_after(5, LIFE[0], lost, away, away, LIFE[-2], GONE)
    done = dws(found, "wait", F58)
    assert done.status == 0 and found.slept >= 1
    assert done.err == "flux-dws: WARNING: the dws module is away: waiting for it\n"
    assert [line.split()[1] for line in done.out.splitlines()] == [
        "Setup",
        "Teardown",
        "storage",
    ]


def test_a_module_that_is_reloaded_while_data_goes_out_is_waited_for() -> None:
    class MovingData(FixedInstance):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.slept > 5:
                self.texts[FIRST, "rabbit_data_out"] = '{"success": true}'

    asked = jobspec("#DW jobdw")
    kvs = kvs_of(FIRST, rabbit_nodes_released="1764000000.0", jobspec=asked)
    del kvs[FIRST, "rabbit_workflow"], kvs[FIRST, "rabbit_data_out"]
    answers = [LIFE[6], refused(errno.EHOSTUNREACH), refused(errno.ENOENT)]
    found = MovingData({TOPIC: answers}, jobs=[ended_job(FIRST)], kvs=kvs)
    assert dws(found, "wait", F58).status == 0 and found.slept > 5


def test_a_request_that_is_one_too_many_to_be_held_is_sent_without_waiting() -> None:
    busy = refused(errno.EAGAIN, "too many")
    found = instance(LIFE[0], *[busy] * 7, LIFE[1], GONE)
    assert dws(found, "wait", F58).status == 0
    assert "seen" not in found.requests[8][1] and found.requests[9][1]["seen"] == 2


def test_an_outage_of_kubernetes_is_a_change_of_a_job_that_is_followed() -> None:
    found = instance(LIFE[0], {**LIFE[0], **OLD}, {**LIFE[0], **OLD, "age": 240}, GONE)
    lines = dws(found, "wait", F58).out.splitlines()
    assert len(lines) == 3
    reason = "Kubernetes was last heard of 3.5m ago: connection refused"
    assert lines[1].endswith(f" Setup: {reason}")
    never = dws(instance({**LIFE[0], **NEVER}, GONE), "wait", F58).out.splitlines()[0]
    reason = "Kubernetes was never reached since the dws service was started"
    assert never.endswith(f" Setup: {reason}: connection refused")
    waits = {**LIFE[0], **OLD, "waits": "Kubernetes: connection refused"}
    assert dws(instance(waits, GONE), "wait", F58).out.splitlines()[0] == lines[1]


def test_a_workflow_that_is_gone_after_its_teardown_is_no_state() -> None:
    done = dws(instance(step(7, "Teardown"), step(8, "none"), GONE), "wait", F58)
    assert [line.split(" ", 1)[1] for line in done.out.splitlines()] == [
        "Teardown",
        "storage is gone, data was copied out",
    ]


def test_the_last_state_is_shown_until_a_new_module_hears_of_the_workflow() -> None:
    new = {**step(9, "none"), "kubernetes": "connecting", "age": 210.0}
    lacking = {"kubernetes": "dws-jobtap.so is not loaded", "incomplete": True}
    alone = {**step(10, "none"), **lacking}
    known = step(11, "PreRun", ready=True)
    done = dws(instance(LIFE[5], new, alone, known, GONE), "wait", F58)
    assert [line.split(" ", 1)[1] for line in done.out.splitlines()] == [
        "PreRun complete",
        "PreRun complete: Kubernetes was last heard of 3.5m ago: connecting",
        "PreRun complete: Flux: dws-jobtap.so is not loaded",
        "PreRun complete",
        "storage is gone, data was copied out",
    ]


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET])
def test_a_broker_that_ends_is_one_line(number: int) -> None:
    done = dws(instance(LIFE[0], refused(number)), "wait", F58)
    error = "the connection to Flux is lost: its broker on this node has ended"
    assert (done.status, done.err) == (1, f"flux-dws: ERROR: {error}\n")
    listed = dws(FixedInstance({"dws.job-list": refused(number)}), "list")
    assert listed == (1, "", f"flux-dws: ERROR: {error}\n")


# On a terminal

ESCAPE = re.compile(r"\033\[[0-9;]*[A-Za-z]|\r")


def shown(text: str, width: int) -> list[str]:
    """What stands on a terminal in the end: what of the subcommands' control sequences
    it has to understand."""
    lines, at = [""], 0
    for part in re.split(r"(\r\033\[K|\033\[\d+F\033\[J|\n)", text):
        if part == "\n":
            lines.append("")
            at = len(lines) - 1
        elif part == "\r\033[K":
            lines[at] = ""
        elif part.endswith("F\033[J"):
            at -= int(part[2:].partition("F")[0])
            del lines[at + 1 :]
            lines[at] = ""
        else:
            lines[at] += ESCAPE.sub("", part)
            assert columns(lines[at]) <= width
    return lines


@pytest.mark.parametrize("width", [40, 100])
def test_a_terminal_has_the_states_and_a_line_that_lives(width: int) -> None:
    found = instance()
    found.ticks = 2
    done = dws(found, "wait", F58, columns=width, NO_COLOR="1")
    lines = shown(done.out, 1000)
    assert [line.split(" ")[1] for line in lines[:-1]] == [
        "Setup",
        "DataIn",
        "PreRun:",
        "PreRun",
        "Teardown",
        "storage",
    ]
    assert lines[-1] == ""
    live = re.findall(r"\r\033\[K([^\r\n]+)(?=\r)", done.out)
    assert all(columns(line) < width for line in live)
    assert any(re.search("DataIn .*│.*│ 50%", line) for line in live)


def test_the_line_that_lives_is_gone_when_an_error_follows() -> None:
    found = instance(LIFE[0], refused(errno.EPERM, "not yours"))
    done = dws(found, "wait", F58, columns=80)
    assert done.status == 1 and done.out.endswith("\r\033[K")


def test_the_page_is_written_again_in_its_place() -> None:
    found = instance()
    found.ticks = 3
    done = dws(found, "show", "--follow", F58, columns=60, NO_COLOR="1")
    alone = dws(instance(GONE), "show", F58, columns=60, NO_COLOR="1")
    assert shown(done.out, 60) == shown(alone.out, 60)
    assert done.out.count("State:") == 7 * 4 + 1


def test_a_page_that_is_longer_than_the_terminal_is_cut() -> None:
    many = [f"#DW jobdw type=xfs capacity=1GiB name=p{i}" for i in range(100)]
    found = instance(step(1, "Setup", directives=many), GONE)
    done = dws(found, "show", "--follow", F58, columns=60, NO_COLOR="1")
    first = done.out.partition("\033[")[0].splitlines()
    assert len(first) == 49 and first[-1].startswith("... ")
