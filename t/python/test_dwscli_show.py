# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws show: all about the storage of one job."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli.bars import bar, gauge
from dwscli.ended import TIMINGS
from dwscli.page import page
from dwscli.terminal import UNKNOWN_HEIGHT, UNKNOWN_WIDTH, Screen, screen
from dwscli.width import columns
from flux_k8s.dws.workflowmarks import REQUESTED
from support.dwscli import (
    FIRST as JOB,
)
from support.dwscli import (
    GIB,
    NOT_LOADED,
    NOW,
    OLD,
    WORKFLOW,
    FixedInstance,
    detail,
    dws,
    ended_job,
    is_golden,
    jobspec,
    kvs_of,
    refused,
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


def test_a_job_is_shown_on_a_page() -> None:
    done = dws(instance(), "show", F58)
    assert (done.status, done.err) == (0, "")
    assert is_golden("show.txt", done.out)


def test_a_terminal_of_40_columns_gets_a_page_that_fits() -> None:
    done = dws(instance(), "show", F58, "--color=never", columns=40)
    assert is_golden("show-40.txt", done.out)
    assert max(map(columns, done.out.splitlines())) <= 40


def test_a_state_whose_seconds_are_not_known_does_not_last_if_another_follows() -> None:
    states = [{**state, "seconds": None} for state in BUSY["states"]]
    lines = dws(instance({**BUSY, "states": states}), "show", F58).out.splitlines()
    marked = [line.split()[1] for line in lines if line.startswith("> ")]
    assert marked == ["DataIn"]
    assert [line.split()[1] for line in lines if "  Setup " in line] == ["-"]


def test_a_locale_without_unicode_gets_bars_of_ascii() -> None:
    done = dws(instance(), "show", F58, unicode=False)
    assert is_golden("show-ascii.txt", done.out)
    assert done.out.isascii()


def test_a_job_that_ended_is_shown_from_the_kvs() -> None:
    gone = instance(refused(errno.ENOENT), jobs=[ended_job(JOB)], kvs=kvs_of(JOB))
    done = dws(gone, "show", F58)
    assert (done.status, done.err) == (0, "")
    assert is_golden("show-ended.txt", done.out)


def test_a_job_that_ended_is_shown_without_the_module() -> None:
    without = FixedInstance(jobs=[ended_job(JOB)], kvs=kvs_of(JOB))
    assert is_golden("show-ended.txt", dws(without, "show", F58).out)


def failed_job(
    *events: dict[str, Any], waitstatus: Optional[int] = 0, **workflow: Any
) -> str:
    """What the page of a job that ended says of its failure."""
    document = json.loads(json.dumps(WORKFLOW))
    for path, value in workflow.items():
        section, key = path.split("_")
        document[section][key] = value
    kvs = kvs_of(
        JOB,
        rabbit_workflow=json.dumps(document),
        eventlog="\n".join(map(json.dumps, events)),
    )
    job = ended_job(JOB, **({} if waitstatus is None else {"waitstatus": waitstatus}))
    gone = instance(refused(errno.ENOENT), jobs=[job], kvs=kvs)
    lines = dws(gone, "show", F58, COLUMNS="500").out.splitlines()
    return "".join(line[12:] for line in lines if line.startswith("Failed:"))


def test_of_many_exceptions_the_last_ones_are_shown() -> None:
    events = [exception("dws", 5, f"no. {n}") for n in range(1000)]
    kvs = kvs_of(JOB, eventlog="\n".join(map(json.dumps, events)))
    gone = instance(refused(errno.ENOENT), jobs=[ended_job(JOB)], kvs=kvs)
    lines = dws(gone, "show", F58).out.splitlines()
    found = lines[lines.index("Exceptions:") + 1 :]
    assert found[0] == f"  984 earlier ones: flux job eventlog {F58}"
    assert found[1:] == [f"  dws: no. {n}" for n in range(984, 1000)]


def test_why_the_storage_of_a_job_failed_is_told() -> None:
    assert failed_job() == ""
    cancel = exception("cancel", 0, "not needed")
    warning = exception("dws-node-failure", 1, "tuo1 is drained")
    fatal = exception("dws", 0, "DWS: no room")
    assert failed_job(cancel, warning) == ""
    assert failed_job(cancel, warning, fatal) == "DWS: no room"
    ran = {REQUESTED: "PostRun=2025-11-24T15:55:00Z"}
    lost = "not copied: $DW_JOB_p1/out to /lustre/out"
    assert failed_job(cancel, status_drivers=[], metadata_annotations=ran) == lost
    mounted = {"watchState": "PreRun", "completed": True, "dwdIndex": 0}
    mounted["completeTime"] = "2025-11-24T15:50:00Z"
    assert failed_job(cancel, status_drivers=[mounted]) == lost
    in_prolog = failed_job(cancel, status_drivers=[mounted], waitstatus=None)
    assert in_prolog == ""  # it was cancelled there, and no task was started
    seen = "its storage was last seen in PreRun: busy"
    assert failed_job(status_state="PreRun", status_message="busy") == seen
    assert failed_job(spec_desiredState=7).startswith(
        "Workflow : spec.desiredState is 7"
    )


def released(**texts: str) -> FixedInstance:
    """An instance with a job that ended long before its data was out, which the module
    does not know."""
    texts = {"jobspec": jobspec("#DW jobdw"), **texts}
    kvs = kvs_of(JOB, rabbit_nodes_released="1764000000.0", **texts)
    del kvs[JOB, "rabbit_workflow"]
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


class LateRecord(FixedInstance):
    """An instance in which the end of a job's storage is recorded late."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.texts = kvs_of(JOB)


def unrecorded(**options: Any) -> LateRecord:
    """An instance with a job whose record is about DataOut."""
    kvs = kvs_of(JOB)
    workflow = json.loads(kvs[JOB, "rabbit_workflow"])
    workflow["status"] = {"state": "DataOut", "status": "Completed", "ready": True}
    kvs[JOB, "rabbit_workflow"] = json.dumps(workflow)
    jobs = [ended_job(JOB, **options)]
    return LateRecord({"dws.job-show": refused(errno.ENOENT)}, jobs=jobs, kvs=kvs)


def test_the_record_of_a_job_that_ended_just_now_is_waited_for() -> None:
    found = unrecorded(t_inactive=time.time())
    done = dws(found, "show", F58, "--json")
    assert json.loads(done.out)["failed"] == "" and 0 < found.slept < 1
    found = unrecorded(t_inactive=time.time())
    assert dws(found, "wait", F58).status == 0
    found.texts, found.slept = {(JOB, "jobspec"): jobspec("#DW jobdw")}, 0.0
    assert dws(found, "wait", F58).status == 0 and 0 < found.slept < 1


def test_the_record_of_a_job_that_ended_earlier_is_shown_as_it_is() -> None:
    found = unrecorded()
    done = dws(found, "show", F58, "--json")
    assert "last seen in DataOut" in json.loads(done.out)["failed"]
    assert found.slept == 0


def test_nothing_is_waited_for_that_does_not_come() -> None:
    events = "\n".join(map(json.dumps, [exception("dws", 0, "no room")]))
    found = unrecorded(t_inactive=time.time())
    found.texts[JOB, "eventlog"] = events
    assert "no room" in dws(found, "wait", F58).err and found.slept == 0
    found.texts = {(JOB, "jobspec"): jobspec()}
    assert "no #DW directives" in dws(found, "wait", F58).err and found.slept == 0


def test_a_job_that_was_cancelled_before_it_ran_has_lost_no_data() -> None:
    cancel = exception("cancel", 0, "not needed")
    assert failed_job(cancel, status_drivers=[]) == ""
    kvs = kvs_of(JOB)
    workflow = json.loads(kvs[JOB, "rabbit_workflow"])
    workflow["status"]["drivers"] = []
    kvs[JOB, "rabbit_workflow"] = json.dumps(workflow)
    for state in ("postrun", "dataout"):
        del kvs[JOB, f"rabbit_{state}_timing"]
    report = {"success": False, "errstr": "the job did not run"}
    kvs[JOB, "rabbit_data_out"] = json.dumps(report)
    gone = instance(refused(errno.ENOENT), jobs=[ended_job(JOB)], kvs=kvs)
    done = dws(gone, "wait", F58)
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith(" storage is gone\n")


def test_a_job_that_is_followed_is_shown_with_its_exceptions() -> None:
    found = instance([BUSY, BUSY, refused(errno.EINVAL)])
    done = dws(found, "show", "--follow", F58, columns=80)
    assert done.out.count("  dws-node-failure: tuo1003 has no storage\n") == 2


@pytest.mark.parametrize("utf8", [False, True])
def test_show_says_once_why_a_job_failed_and_does_not_lead_to_itself(
    utf8: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dwscli.units.is_utf8", lambda: utf8)
    why = "DWS failed in Setup: it broke"
    note = f"{why}; flux dws show {F58} says more"
    eventlog = "\n".join(
        json.dumps(exception(*each))
        for each in (("dws", 0, note), ("cancel", 0, "enough"))
    )
    found = instance(detail(JOB, failed=why), kvs=kvs_of(JOB, eventlog=eventlog))
    done = dws(found, "show", F58, columns=80)
    assert done.out.count(why) == 1 and "says more" not in done.out
    assert "  cancel: enough\n" in done.out


def test_an_exception_without_a_note_is_its_type_alone() -> None:
    kvs = kvs_of(JOB, eventlog=json.dumps(exception("cancel", 0, "")))
    gone = instance(refused(errno.ENOENT), jobs=[ended_job(JOB)], kvs=kvs)
    found = json.loads(dws(gone, "show", "--json", F58).out)
    assert found["exceptions"] == ["cancel"]


def test_a_job_without_records_is_shown_with_what_flux_has() -> None:
    kvs = {(JOB, "jobspec"): jobspec("#DW jobdw")}
    gone = instance(refused(errno.ENOENT), jobs=[ended_job(JOB)], kvs=kvs)
    done = dws(gone, "show", F58)
    assert done.out.splitlines() == [
        f"Job:        {F58} of root",
        "State:      ended at 2025-11-24T15:59:00, COMPLETED",
        "Failed:     nothing is recorded of its storage",
        "Nodes:      2: tuo[1001-1002]",
    ]


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


@pytest.mark.parametrize(
    ("state", "ready", "line"),
    [
        ("Proposal", True, "Waits for:  nodes"),
        ("PreRun", True, "Waits for:  end of the job"),
        ("PreRun", False, ""),
        ("DataOut", True, ""),
    ],
)
def test_a_job_whose_storage_is_ready_waits_for_nodes_or_for_its_end(
    state: str, ready: bool, line: str
) -> None:
    shown = {**BUSY, "state": state, "ready": ready, "waits": ""}
    done = dws(instance(shown), "show", F58)
    found = [text for text in done.out.splitlines() if text.startswith("Waits for")]
    assert found == ([line] if line else [])


def test_show_names_an_argument_that_is_no_job_id() -> None:
    error = "flux-dws: ERROR: not the ID of a job: tuo1\\x1b\n"
    assert dws(instance(), "show", "tuo1\x1b") == (1, "", error)


def test_a_job_that_is_not_there_is_named() -> None:
    done = dws(instance(refused(errno.ENOENT)), "show", F58)
    assert done == (1, "", f"flux-dws: ERROR: job {F58} not found\n")


@pytest.mark.parametrize("job", [active(), ended_job(JOB)])
def test_a_job_without_directives_is_named(job: dict[str, Any]) -> None:
    found = instance(
        refused(errno.ENOENT), jobs=[job], kvs={(JOB, "jobspec"): jobspec()}
    )
    done = dws(found, "show", F58)
    assert done == (1, "", f"flux-dws: ERROR: job {F58} has no #DW directives\n")
    assert found.slept == 0


@pytest.mark.parametrize("job", [active(userid=7), ended_job(JOB, userid=7)])
def test_the_job_of_another_user_is_not_shown(job: dict[str, Any]) -> None:
    found = instance(
        refused(errno.ENOENT), jobs=[job], kvs=kvs_of(JOB), userid=8, is_owner=False
    )
    done = dws(found, "show", F58)
    assert done == (1, "", f"flux-dws: ERROR: job {F58} is not yours\n")
    # The module writes job IDs in ASCII.
    told = refused(errno.EPERM, f"job f{F58[1:]} is not yours")
    assert dws(instance(told), "show", F58) == done
    assert f"job f{F58[1:]} is" in dws(instance(told), "show", F58, unicode=False).err


def test_an_active_job_needs_the_module() -> None:
    found = FixedInstance(jobs=[active()])
    assert dws(found, "show", F58) == (1, "", NOT_LOADED)


def test_a_job_that_was_just_submitted_is_waited_for() -> None:
    kvs = {(JOB, "jobspec"): jobspec("#DW jobdw")}
    unknown = refused(errno.ENOENT)
    found = instance([unknown, unknown, BUSY], jobs=[active()], kvs=kvs)
    assert dws(found, "show", F58).status == 0 and found.slept > 0
    found = instance(unknown, jobs=[active()], kvs=kvs)
    error = f"flux-dws: ERROR: job {F58}: the dws module does not know it yet\n"
    assert dws(found, "show", F58) == (1, "", error)


# Anything that the contract allows

texts = st.text(max_size=40)
numbers = st.floats(0, 1e18)
maybe = st.one_of(st.none(), numbers)
details = st.fixed_dictionaries(
    {
        "now": st.floats(0, 1e12),
        "kubernetes": st.one_of(st.just("ok"), texts),
        "age": numbers,
        "userid": st.integers(0, 2**32),
        "state": st.sampled_from([*TIMINGS, "none"]),
        "status": texts,
        "since": maybe,
        "ready": st.booleans(),
        "nodes": texts,
        "nnodes": st.integers(0, 2**31),
        "rabbits": texts,
        "types": st.lists(texts, max_size=2),
        "moved": maybe,
        "total": maybe,
        "percent": st.one_of(st.none(), st.floats(0, 100)),
        "waits": texts,
        "directives": st.lists(texts, max_size=3),
        "message": texts,
        "failed": texts,
        "exceptions": st.lists(texts, max_size=2),
        "limits": st.lists(
            st.fixed_dictionaries({"name": texts, "at": numbers}), max_size=2
        ),
        "states": st.lists(
            st.fixed_dictionaries({"state": texts, "begun": maybe, "seconds": maybe}),
            max_size=3,
        ),
        "allocations": st.lists(
            st.fixed_dictionaries(
                {
                    "label": texts,
                    "type": texts,
                    "size": numbers,
                    "rabbits": st.dictionaries(
                        texts, st.integers(0, 2**31), max_size=3
                    ),
                }
            ),
            max_size=2,
        ),
        "mounts": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {"wanted": numbers, "mounted": numbers, "waiting": texts}
            ),
        ),
        "movements": st.lists(
            st.fixed_dictionaries(
                {
                    "name": texts,
                    "source": texts,
                    "destination": texts,
                    "state": texts,
                    "percent": st.one_of(st.none(), st.floats(0, 100)),
                    "bytes": maybe,
                    "rate": maybe,
                    "left": maybe,
                    "message": texts,
                }
            ),
            max_size=2,
        ),
    }
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
