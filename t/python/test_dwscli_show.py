# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws show: all about the storage of one job."""

from __future__ import annotations

import errno
import json
import os
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.page import page
from dwscli.terminal import UNKNOWN_HEIGHT, UNKNOWN_WIDTH, Screen, screen
from dwscli.width import bar, gauge
from flux_k8s.objects.workflowmarks import RESCUED
from flux_k8s.text import columns
from support.dwscli import (
    FIRST as JOB,
)
from support.dwscli import (
    GIB,
    NOW,
    OLD,
    STATE,
    WORKFLOW,
    FixedInstance,
    detail,
    dws,
    ended_job,
    is_golden,
    jobspec,
    kvs_of,
    like,
    refused,
    shows,
)

F58 = "ƒ3gDmDv6tjHH"
TOPIC = "dws.job-show"

BUSY = detail(
    JOB,
    state="DataIn",
    status="DriverWait",
    since=NOW - 58,
    waits="",
    percent=43,
    moved=int(4.3 * GIB),
    total=10 * GIB,
    directives=[
        "#DW jobdw type=xfs capacity=10GiB name=p1",
        "#DW copy_in source=/lustre/user/data/set1 destination=$DW_JOB_p1/data",
    ],
    mounts={"wanted": 16, "mounted": 12, "waiting": "tuo[1003,1007]"},
    allocations=[
        {
            "label": "xfs",
            "type": "xfs",
            "size": 10 * GIB,
            "rabbits": {"tuo202": 8, "tuo201": 8},
        },
        {"label": "mgt", "type": "lustre", "size": GIB, "rabbits": {"tuo201": 1}},
    ],
    states=[
        {"state": "Proposal", "begun": NOW - 100, "seconds": 0.12},
        {"state": "Setup", "begun": NOW - 99, "seconds": 41.2},
        {"state": "DataIn", "begun": NOW - 58, "seconds": None},
    ],
    movements=[
        {
            "name": "fluxjob-1-1-0",
            "source": "/lustre/user/data/set1",
            "destination": "/mnt/nnf/x-0/",
            "state": "Running",
            "percent": 43,
            "bytes": int(4.3 * GIB),
            "rate": 1.2 * GIB,
            "left": 62.0,
            "message": "slow: 3 of 4 ranks",
        }
    ],
    limits=[{"name": "setup_timeout", "at": NOW + 300}],
)


def exception(type: str, severity: int, note: str) -> dict[str, Any]:
    context = {"type": type, "severity": severity, "note": note}
    return {"timestamp": NOW, "name": "exception", "context": context}


WARNING = json.dumps(exception("dws-node-failure", 1, "tuo1003 has no storage"))


def instance(answer: Any = BUSY, **options: Any) -> FixedInstance:
    options.setdefault("kvs", {(JOB, "eventlog"): WARNING})
    return FixedInstance({TOPIC: answer}, **options)


def test_a_job_has_its_nodes_also_after_a_reload_of_the_module() -> None:
    unknown = detail(JOB, nodes="", nnodes=0)
    found = instance(unknown, jobs=[ended_job(JOB, state=16)])
    assert "\nNodes:      2: tuo[1001-1002]\n" in dws(found, "show", F58).out
    waits = detail(JOB, nodes="", nnodes=0, wants="planned")
    assert "Nodes:" not in dws(instance(waits), "show", F58).out


GONE = refused(errno.ENOENT)


def gone(**texts: str) -> FixedInstance:
    """An instance in which the job has ended, with records that have other texts."""
    return instance(GONE, jobs=[ended_job(JOB)], kvs=kvs_of(JOB, **texts))


@pytest.mark.parametrize(
    ("golden", "found", "options"),
    [
        ("show.txt", instance(), {}),
        ("show-40.txt", instance(), {"columns": 40}),
        ("show-ascii.txt", instance(), {"unicode": False}),
        ("show-ended.txt", gone(), {}),
        # Without the module.
        ("show-ended.txt", FixedInstance(jobs=[ended_job(JOB)], kvs=kvs_of(JOB)), {}),
    ],
)
def test_a_job_is_shown_on_a_page(
    golden: str, found: FixedInstance, options: Any
) -> None:
    done = dws(found, "show", F58, "--color=never", **options)
    assert (done.status, done.err) == (0, "")
    assert is_golden(golden, done.out)
    assert max(map(columns, done.out.splitlines())) <= options.get("columns", 80)
    assert done.out.isascii() == (golden == "show-ascii.txt")


def test_a_state_whose_seconds_are_not_known_does_not_last_if_another_follows() -> None:
    states = [{**state, "seconds": None} for state in BUSY["states"]]
    lines = dws(instance({**BUSY, "states": states}), "show", F58).out.splitlines()
    marked = [line.split()[1] for line in lines if line.startswith("> ")]
    assert marked == ["DataIn"]
    assert [line.split()[1] for line in lines if "  Setup " in line] == ["-"]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("copied", "the data is copied out when the tasks have ended"),
        ("lost", "the storage is freed at once, and what is not copied out is lost"),
        ("nothing", "it changes nothing"),
    ],
)
def test_a_page_says_what_a_cancel_would_do(word: str, sentence: str) -> None:
    shown = dws(instance({**BUSY, "cancel": word}), "show", F58).out
    assert f"\nCancel:     {sentence}\n" in shown


CANCEL = exception("cancel", 0, "not needed")
NODE_LOST = exception("dws-node-failure", 1, "tuo1 is drained")
FATAL = exception("dws", 0, "DWS: no room")
NOT_COPIED = "not copied: $DW_JOB_p1/out to /lustre/out"
OUT = {"success": True}
LOST = {"success": False, "errstr": NOT_COPIED, "reason": "stalled"}
NOT_RUN = {"success": False, "errstr": "the job did not run", "reason": "not-run"}
RESCUED_AT = {RESCUED: "2025-11-24T15:58:00Z"}


@pytest.mark.parametrize(
    ("events", "outcome", "marks", "why"),
    [
        ([], OUT, {}, ""),
        ([CANCEL, NODE_LOST], OUT, {}, ""),
        ([CANCEL, NODE_LOST, FATAL], OUT, {}, "DWS: no room"),
        ([CANCEL], LOST, {}, NOT_COPIED),
        # The exception has more.
        ([FATAL], LOST, {}, "DWS: no room"),
        # It was cancelled before it ran, or could not have its storage.
        ([CANCEL], NOT_RUN, {}, ""),
        ([FATAL], NOT_RUN, {}, "DWS: no room"),
        # Its data was kept when the exception was raised.
        ([FATAL], OUT, RESCUED_AT, ""),
        ([FATAL], LOST, RESCUED_AT, NOT_COPIED),
        ([FATAL], {}, RESCUED_AT, "DWS: no room"),
        # A module that was killed, or refused to release it, has recorded nothing.
        ([CANCEL], {}, {}, "nothing is recorded of its storage"),
        ([FATAL], {}, {}, "DWS: no room"),
    ],
)
def test_why_the_storage_of_a_job_failed_is_told(
    events: list[Any], outcome: Any, marks: Any, why: str
) -> None:
    document = {**WORKFLOW, "metadata": {**WORKFLOW["metadata"], "annotations": marks}}
    found = gone(
        eventlog="\n".join(map(json.dumps, events)),
        rabbit_workflow=json.dumps(document),
        rabbit_data_out=json.dumps(outcome),
    )
    lines = dws(found, "show", F58, COLUMNS="500").out.splitlines()
    told = [line[12:] for line in lines if line.startswith("Failed:")]
    assert told == [why] * bool(why)


def test_of_many_exceptions_the_last_ones_are_shown() -> None:
    events = [exception("dws", 5, f"no. {n}") for n in range(1000)]
    eventlog = "\n".join(map(json.dumps, events))
    lines = dws(gone(eventlog=eventlog), "show", F58).out.splitlines()
    found = lines[lines.index("Exceptions:") + 1 :]
    assert found[0] == f"  984 earlier ones: flux job eventlog {F58}"
    assert found[1:] == [f"  dws: no. {n}" for n in range(984, 1000)]


def released(**texts: str) -> FixedInstance:
    """An instance with a job that ended long before its data was out, which the module
    does not know."""
    texts = {"jobspec": jobspec("#DW jobdw"), **texts}
    kvs = {(JOB, key): text for key, text in texts.items()}
    kvs[JOB, "rabbit_nodes_released"] = "1764000000.0"
    jobs = [ended_job(JOB, waitstatus=0)]
    return FixedInstance({"dws.job-show": refused(errno.ENOENT)}, jobs=jobs, kvs=kvs)


def test_a_job_whose_data_still_goes_out_has_not_ended_for_its_storage() -> None:
    moving = released()
    assert "does not know it yet" in dws(moving, "wait", F58).err
    unloaded = FixedInstance(jobs=moving.jobs, kvs=moving.texts)
    done = dws(unloaded, "show", F58)
    assert done.status and "nothing is recorded" not in done.err


def test_the_report_about_the_data_of_a_job_is_its_fate() -> None:
    out = released(rabbit_data_out='{"success": true}')
    assert dws(out, "wait", F58).status == 0
    lost = '{"success": false, "errstr": "not copied: x"}'
    done = dws(released(rabbit_data_out=lost), "wait", F58)
    assert done.status == 1 and done.err.endswith("not copied: x\n")


@pytest.mark.parametrize("utf8", [False, True])
def test_show_says_once_why_a_job_failed_and_does_not_lead_to_itself(
    utf8: bool,
) -> None:
    why = "DWS failed in Setup: it broke"
    note = f"{why}; flux dws show {F58} says more"
    eventlog = "\n".join(
        json.dumps(exception(*each))
        for each in (("dws", 0, note), ("cancel", 0, "enough"))
    )
    found = instance(detail(JOB, failed=why), kvs=kvs_of(JOB, eventlog=eventlog))
    done = dws(found, "show", F58, columns=80, unicode=utf8)
    assert done.out.count(why) == 1 and "says more" not in done.out
    assert "  cancel: enough\n" in done.out


def test_a_job_without_records_is_shown_with_what_flux_has() -> None:
    kvs = {(JOB, "jobspec"): jobspec("#DW jobdw")}
    assert dws(instance(GONE, jobs=[ended_job(JOB)], kvs=kvs), "show", F58).out == (
        f"Job:        {F58} of root\n"
        "State:      ended at 2025-11-24T15:59:00, COMPLETED\n"
        "Failed:     nothing is recorded of its storage\n"
        "Nodes:      2: tuo[1001-1002]\n"
    )


def test_json_is_the_answer_of_the_module() -> None:
    found = json.loads(dws(instance(), "show", "--json", F58).out)
    exceptions = ["dws-node-failure: tuo1003 has no storage"]
    assert found == {**BUSY, "exceptions": exceptions, "jobid": F58}


def test_a_job_shown_while_kubernetes_is_away_has_the_age_of_its_state() -> None:
    done = dws(instance({**BUSY, **OLD}), "show", F58, COLUMNS="100")
    line = "Kubernetes: last heard of 3.5m ago, what follows may be old: connection"
    assert line in done.out and done.status == 0


# Bad input


def active(id: int = JOB, **changes: Any) -> dict[str, Any]:
    return {**ended_job(id), "state": 16, "annotations": {}, **changes}


def without(jobspec: str = "", **job: Any) -> FixedInstance:
    """An instance whose module knows no job, and whose KVS has a jobspec."""
    kvs = {(JOB, "jobspec"): jobspec} if jobspec else {}
    return instance(GONE, jobs=[active(**job)] if job else [], kvs=kvs)


GUEST: Any = {"kvs": kvs_of(JOB), "userid": 8, "is_owner": False}
DENIED = refused(errno.EPERM, f"job f{F58[1:]} is not yours")
UNKNOWN = "the dws module does not know it yet"


@pytest.mark.parametrize(
    ("found", "id", "error"),
    [
        (instance(), "tuo1\x1b", "not the ID of a job: tuo1\\x1b"),
        (without(), F58, f"job {F58} not found"),
        (without(jobspec(), state=16), F58, "has no #DW directives"),
        (without(jobspec(), state=64), F58, "has no #DW directives"),
        (instance(GONE, jobs=[active(userid=7)], **GUEST), F58, "is not yours"),
        (instance(GONE, jobs=[ended_job(JOB, userid=7)], **GUEST), F58, "not yours"),
        # The module writes job IDs in ASCII.
        (instance(DENIED), F58, f"job {F58} is not yours"),
        (FixedInstance(jobs=[active()]), F58, "the dws module is not loaded"),
        (without(jobspec("#DW jobdw"), state=16), F58, UNKNOWN),
        (
            FixedInstance(is_job=True),
            F58,
            f"job {F58} not found: this Flux instance is",
        ),
    ],
)
def test_a_job_that_cannot_be_shown_or_followed_is_named(
    found: FixedInstance, id: str, error: str
) -> None:
    for words in (["show"], ["show", "--follow"], ["wait"]):
        done = dws(found, *words, id)
        assert shows(done, 1, "flux-dws: ERROR: ", error) and done.out == ""
        # One that was just submitted is waited for.
        assert bool(found.slept) == (error == UNKNOWN)


def test_a_job_that_was_just_submitted_is_waited_for() -> None:
    kvs = {(JOB, "jobspec"): jobspec("#DW jobdw")}
    found = instance([GONE, GONE, BUSY], jobs=[active()], kvs=kvs)
    assert dws(found, "show", F58).status == 0 and found.slept > 0


# Anything that the contract allows

maybe = st.none() | st.floats(0, 1e18)
percents = st.none() | st.floats(0, 100)
counts = st.dictionaries(st.text(max_size=40), st.integers(0, 2**31), max_size=3)
details = like(
    {**BUSY, "exceptions": [""]},
    **{"age": st.floats(0, 1e18), "since": maybe, "moved": maybe, "total": maybe},
    **{"begun": maybe, "seconds": maybe, "bytes": maybe, "rate": maybe, "left": maybe},
    **{"percent": percents, "rabbits": st.text(max_size=40), "state": STATE},
    allocations=st.lists(like(BUSY["allocations"][0], rabbits=counts), max_size=2),
    kubernetes=st.just("ok") | st.text(max_size=40),
)


@given(details, st.integers(20, 120), st.booleans())
def test_any_answer_is_a_page_that_fits_and_has_no_control_character(
    answer: dict[str, Any], width: int, has_unicode: bool
) -> None:
    lines = page({"id": 1, **answer}, Screen(width, has_unicode=has_unicode))
    assert all(line.isprintable() and columns(line) <= width for line in lines)


@given(st.floats(0, 1), st.integers(0, 60), st.booleans())
def test_a_bar_is_as_long_as_its_share(
    share: float, width: int, has_unicode: bool
) -> None:
    found = bar(share, width, has_unicode)
    assert abs(columns(found) - share * width) <= 1
    assert bool(found) == (share > 0 and width > 0)
    assert columns(gauge(share, width, has_unicode)) in (0, width)


def test_a_bar_in_a_frame_takes_two_columns_at_least() -> None:
    assert [gauge(1.0, width, False) for width in (3, 4, 5)] == ["", "|##|", "|###|"]


def test_a_terminal_that_has_no_size_is_taken_for_one_of_the_usual_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    with redirect_stdout(StringIO()) as out:
        monkeypatch.setattr(out, "isatty", lambda: True, raising=False)
        shown = screen()
    assert (shown.width, shown.height) == (UNKNOWN_WIDTH, UNKNOWN_HEIGHT)


@pytest.mark.parametrize(
    "word, problem",
    [
        ("lst", "'lst' is no subcommand: did you mean list?"),
        ("x\x1b", "'x\\\\x1b' is no subcommand: flux dws lists them"),
    ],
)
def test_a_subcommand_that_is_misspelt_is_named(word: str, problem: str) -> None:
    done = dws(FixedInstance(), word)
    assert done.status == 2 and done.err.endswith(f"error: {problem}\n")


def test_without_a_subcommand_all_are_described() -> None:
    done = dws(FixedInstance())
    assert done.status == 2 and "list jobs with storage" in done.err
