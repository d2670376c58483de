# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws list."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import Any, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dwscli.ended import AT_A_TIME, TIMINGS
from dwscli.instance import PORTION
from dwscli.width import columns
from support import commands
from support.dwscli import (
    FIRST,
    FRESH,
    GIB,
    NOT_LOADED,
    NOW,
    OLD,
    WORKFLOW,
    FixedInstance,
    dws,
    ended_job,
    is_golden,
    jobspec,
    kvs_of,
    refused,
    row,
)
from support.tree import TOP

STRANGER = 54321
TOTALS = {"jobs": 4, "states": {"PreRun": 1, "DataIn": 3}, "capacity": 640 * GIB}


def listed(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An answer of ``dws.job-list``."""
    return {**FRESH, "jobs": [*rows], "next": None, "totals": TOTALS, **changes}


ROWS = (
    row(FIRST),
    row(
        FIRST + 5,
        state="DataIn",
        percent=43.2,
        moved=int(4.3 * GIB),
        total=10 * GIB,
        since=NOW - 4000,
        waits="",
        types=["xfs", "lustre"],
    ),
    row(
        FIRST + 9,
        userid=STRANGER,
        state="Proposal",
        status="Error",
        nodes="",
        nnodes=0,
        rabbits="",
        capacity=0,
        types=[],
        since=None,
        waits="DWS: no profile",
    ),
)


def instance(*rows: Any, **options: Any) -> FixedInstance:
    rabbits = {**FRESH, "rabbits": [{"name": name} for name in ("tuo201", "tuo202")]}
    answers = {"dws.job-list": listed(*rows or ROWS), "dws.rabbit-list": rabbits}
    return FixedInstance(answers, **options)


def test_active_jobs_are_a_table() -> None:
    done = dws(instance(), "list", "-A")
    assert done.err == "" and done.status == 0
    assert is_golden("list.txt", done.out)


def test_more_is_in_the_long_format() -> None:
    assert is_golden("list-long.txt", dws(instance(), "list", "-A", "-o", "long").out)


def test_a_job_has_its_nodes_also_after_a_reload_of_the_module() -> None:
    unknown = {"nodes": "", "nnodes": 0}
    rows = (row(FIRST, **unknown), row(FIRST + 5, wants="planned", **unknown))
    found = instance(*rows, jobs=[ended_job(FIRST, state=16)])
    done = dws(found, "list", "-n", "-o", "{id.dec} {nnodes} {nodelist}")
    assert done.out == f"{FIRST} 2 tuo[1001-1002]\n{FIRST + 5}\n"


def test_jobs_that_ended_are_listed_by_the_records_that_flux_has_of_them() -> None:
    jobs = [ended_job(), ended_job(1, annotations={}), ended_job(2, state=16)]
    done = dws(instance(jobs=jobs, kvs=kvs_of()), "list", "-a", "-A")
    assert is_golden("list-ended.txt", done.out)


def test_the_time_of_a_job_that_ended_does_not_count_while_it_had_no_storage() -> None:
    never = {**WORKFLOW, "metadata": {"creationTimestamp": "2025-11-24T15:50:00Z"}}
    for workflow, time in ((WORKFLOW, "480.0"), (never, "")):
        kvs = kvs_of(rabbit_workflow=json.dumps(workflow))
        found = instance(jobs=[ended_job()], kvs=kvs)
        done = dws(found, "list", "-f", "ended", "-n", "-o", "{elapsed}")
        assert done.out.strip() == time


def test_a_job_that_ends_meanwhile_is_listed_once() -> None:
    found = instance(jobs=[ended_job(FIRST), ended_job()], kvs=kvs_of())
    done = dws(found, "list", "-a", "-A", "-n", "-o", "{id.dec} {state}")
    assert done.out.splitlines() == [
        f"{FIRST} PreRun",
        f"{FIRST + 5} DataIn",
        f"{FIRST + 9} Proposal",
        f"{FIRST + 20} ended",
    ]


def test_each_field_of_an_ended_job_is_what_its_records_say() -> None:
    found = instance(jobs=[ended_job()], kvs=kvs_of())
    done = dws(found, "list", "-f", "ended", "--json")
    (job,) = json.loads(done.out)["jobs"]
    assert job["capacity"] == 20 * GIB and job["types"] == ["xfs"]
    assert job["moved"] == 1.5 * GIB and job["seconds"] == 540
    assert (job["result"], job["state"], job["rabbits"]) == (
        "COMPLETED",
        "ended",
        "tuo201",
    )
    assert job["jobid"] == "ƒ3gDmDv6tjHd"
    assert found.requests == []


def test_a_line_below_the_table_says_that_more_jobs_have_ended() -> None:
    ids = range(FIRST, FIRST + 5)
    kvs = {key: text for id in ids for key, text in kvs_of(id).items()}

    def lines(*words: str) -> tuple[int, str]:
        found = FixedInstance(jobs=map(ended_job, ids), kvs=kvs)
        done = dws(found, "list", "-f", "ended", *words)
        return len(done.out.splitlines()), done.err

    warning = "flux-dws: WARNING: output truncated at 4 jobs that have ended: "
    assert lines("-c", "4") == (5, f"{warning}see --count, --since\n")
    assert lines("-c", "4", "-n") == (4, "")
    assert lines("-c", "5") == lines("-c", "0") == lines() == (6, "")


def test_memos_that_a_user_has_changed_show_no_storage() -> None:
    memos = {"rabbit_workflow": "fluxjob-1", "rabbits": "not-mine"}
    jobs = [
        ended_job(id, annotations={"user": memos}) for id in (FIRST + 20, FIRST + 21)
    ]
    kvs = {**kvs_of(), (FIRST + 21, "jobspec"): json.dumps({"attributes": {}})}
    del kvs[FIRST + 20, "rabbit_hostlist"]
    found = instance(jobs=jobs, kvs=kvs)
    done = dws(found, "list", "-f", "ended", "-n", "-o", "{id.dec} {rabbits}")
    assert done.out == f"{FIRST + 20}\n"


def test_a_job_that_ended_without_records_is_shown_all_the_same() -> None:
    job = ended_job(
        exception_type="dws",
        exception_severity=0,
        exception_note="no room\x1b[2J",
        result=2,
    )
    kvs = {(job["id"], "jobspec"): jobspec("#DW jobdw")}
    done = dws(instance(jobs=[job], kvs=kvs), "list", "-f", "ended", "-n")
    assert done.out == (
        "ƒ3gDmDv6tjHd root     ended           -      2        -"
        r" no room\x1b[2J" + "\n"
    )


def test_one_s_own_jobs_are_listed_unless_others_are_asked_for() -> None:
    asked = []
    for words in ([], ["-A"], ["-u", "all"], ["-u", "1234"], ["-u", "root"]):
        found = instance(userid=1000)
        assert dws(found, "list", *words).status == 0
        asked.append(found.requests[0][1].get("userid"))
    assert asked == [1000, None, None, 1234, 0]


def test_filters_are_sent_with_the_request_and_checked_in_the_answer() -> None:
    found = instance()
    words = ("-A", "--rabbit=tuo201", "--type=lustre", "-f", "datain")
    done = dws(found, "list", *words, "-n", "-o", "{id.dec} {types}")
    assert done.out == f"{FIRST + 5} xfs,lustre\n"
    assert found.requests == [
        (
            "dws.job-list",
            {
                "state": "DataIn",
                "rabbit": "tuo201",
                "type": "lustre",
                "after": 0,
                "max": PORTION,
            },
        )
    ]


def test_several_states_and_rabbits_are_any_of_them() -> None:
    def ids(*words: str) -> list[int]:
        done = dws(instance(), "list", "-A", "-n", "-o", "{id.dec}", *words)
        return [int(line) - FIRST for line in done.out.split()]

    assert ids("-f", "proposal,DataIn") == [5, 9]
    assert ids("-f", "active") == [0, 5, 9]
    assert ids("--rabbit=tuo[202,300]") == [0, 5]
    assert ids("--rabbit=tuo201", "--type=raw") == []


def test_a_rabbit_that_is_not_there_is_an_error_unless_it_had_jobs() -> None:
    error = "flux-dws: ERROR: no such Rabbit: tuo[300-301]\n"
    wanted = ("--rabbit=tuo[201,300-301]", "--type=raw")
    for words in (["-A"], ["-a"], ["-f", "ended"], ["--json"]):
        assert dws(instance(), "list", *wanted, *words) == (1, "", error)
    was_there = kvs_of(rabbit_hostlist="tuo300")
    found = instance(jobs=[ended_job()], kvs=was_there)
    words = ("-a", "--rabbit=tuo[300-301]", "-n", "-o", "{id.dec}")
    assert dws(found, "list", *words) == (0, f"{FIRST + 20}\n", "")


def test_without_the_module_the_name_of_a_rabbit_is_not_checked() -> None:
    done = dws(FixedInstance(), "list", "-f", "ended", "-n", "--rabbit=tuo300")
    assert done == (0, "", "")


def test_a_table_is_sorted_by_any_field() -> None:
    def ids(key: str) -> list[int]:
        words = ("-A", "-n", "-o", "{id.dec}", f"--sort={key}")
        return [
            int(line) - FIRST for line in dws(instance(), "list", *words).out.split()
        ]

    assert ids("elapsed") == [9, 0, 5]
    assert ids("-elapsed") == [5, 0, 9]
    assert ids("capacity,state") == [9, 5, 0]
    done = dws(instance(), "list", "--sort=nothing")
    assert done == (1, "", "flux-dws: ERROR: Invalid sort key: nothing\n")
    error = "flux-dws: ERROR: Invalid sort key: capacty (did you mean capacity?)\n"
    assert dws(instance(), "list", "--sort=capacty") == (1, "", error)


def test_all_portions_are_asked_for() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        after = request["after"]
        jobs = [row(after + i + 1) for i in range(500)]
        return listed(*jobs, next=after + 500 if after < 9500 else None)

    found = FixedInstance({"dws.job-list": answer})
    assert len(dws(found, "list", "-n").out.splitlines()) == 10000
    assert [request["after"] for _, request in found.requests] == [
        *range(0, 10000, 500)
    ]


def test_a_portion_that_does_not_go_on_is_the_last() -> None:
    found = FixedInstance({"dws.job-list": listed(row(5), next=0)})
    assert len(dws(found, "list", "-n").out.splitlines()) == 1


def test_json_has_all_that_the_module_says() -> None:
    found = json.loads(dws(instance(), "list", "-A", "--json").out)
    assert found["totals"] == TOTALS and found["kubernetes"] == "ok"
    assert [job["id"] for job in found["jobs"]] == [FIRST, FIRST + 5, FIRST + 9]
    assert found["jobs"][0]["jobid"] == "ƒ3gDmDv6tjHH"


def test_totals_count_the_jobs_of_all_users() -> None:
    line = "4 jobs, 3 DataIn, 1 PreRun, 640GiB of storage\n"
    assert dws(instance(), "list", "--stats-only") == (0, line, "")
    assert dws(instance(), "list", "--stats").out.startswith(line + " ")
    old = FixedInstance({"dws.job-list": {**listed(*ROWS), **OLD}})
    for option in ("--stats", "--stats-only"):
        warnings = dws(old, "list", option).err.splitlines()
        assert len(warnings) == 1 and "Kubernetes was last heard of" in warnings[0]
    totals = {"jobs": 0, "states": {}, "capacity": 0}
    idle = FixedInstance({"dws.job-list": listed(totals=totals)})
    assert dws(idle, "list", "--stats-only") == (1, "0 jobs, 0B of storage\n", "")


def test_a_guest_who_asks_for_the_jobs_of_others_gets_the_totals() -> None:
    guest = instance(row(FIRST, userid=1000), userid=1000, is_owner=False)
    done = dws(guest, "list", "-A", "-n", "-o", "{userid}")
    assert done == (
        0,
        "1000\n",
        "flux-dws: WARNING: jobs of other users are shown to the instance owner only;"
        " all: 4 jobs, 3 DataIn, 1 PreRun, 640GiB of storage\n",
    )


def test_a_guest_sees_their_own_jobs_that_ended_only() -> None:
    jobs = [ended_job(userid=1000), ended_job(2, userid=0)]
    guest = instance(jobs=jobs, kvs=kvs_of(), userid=1000, is_owner=False)
    done = dws(guest, "list", "-f", "ended", "-A", "-n", "-o", "{userid}")
    assert done == (0, "1000\n", "")
    for words in (["-u", "root"], ["-u", "root", "-f", "ended"]):
        done = dws(guest, "list", *words)
        error = "flux-dws: ERROR: the jobs of user 'root' are not yours\n"
        assert done == (1, "", error)


def test_jobs_are_listed_with_the_age_of_their_state_while_kubernetes_is_away() -> None:
    found = FixedInstance({"dws.job-list": listed(*ROWS, **OLD)})
    done = dws(found, "list", "-A")
    assert len(done.out.splitlines()) == 4
    assert done.err == (
        "flux-dws: WARNING: Kubernetes was last heard of 3.5m ago, what follows may be"
        " old: connection refused\n"
    )


def test_a_list_that_may_lack_jobs_says_that_the_plugin_is_not_loaded() -> None:
    new = {"kubernetes": "dws-jobtap.so is not loaded", "incomplete": True, "age": 0.0}
    done = dws(FixedInstance({"dws.job-list": listed(*ROWS, **new)}), "list", "-A")
    assert done.err == (
        "flux-dws: WARNING: what follows may lack jobs: dws-jobtap.so is not loaded\n"
    )


def test_list_without_the_module_is_an_error_of_one_line() -> None:
    assert dws(FixedInstance(), "list") == (1, "", NOT_LOADED)


def test_list_in_a_batch_job_names_the_way_to_the_instance_around_it() -> None:
    done = dws(FixedInstance(is_job=True), "list")
    assert done.status == 1 and done.err.count("\n") == 1
    assert (
        "not loaded: this Flux instance is a job, and 'flux --parent dws'" in done.err
    )


@pytest.mark.parametrize(
    "words", [["list"], ["show", "f1"], ["wait", "f1"], ["rabbits"]]
)
def test_a_query_outside_of_flux_is_an_error_that_says_so(words: list[str]) -> None:
    assert commands.refused(commands.run("dws", *words)) == [
        "flux-dws: ERROR: needs Flux's own Python modules: run it as flux dws"
    ]


def test_jobs_that_ended_are_shown_without_the_module() -> None:
    found = FixedInstance(jobs=[ended_job()], kvs=kvs_of())
    done = dws(found, "list", "-a", "-n", "-o", "{state}")
    assert done == (1, "ended\n", NOT_LOADED)


def test_a_request_that_comes_too_soon_is_sent_again() -> None:
    busy = refused(errno.EAGAIN, "too many queries")
    found = FixedInstance({"dws.job-list": [busy, busy, listed(*ROWS)]})
    assert dws(found, "list").status == 0 and found.slept > 0.2
    found = FixedInstance({"dws.job-list": busy})
    assert dws(found, "list") == (1, "", "flux-dws: ERROR: too many queries\n")


def test_a_module_that_ends_before_it_answers_is_named() -> None:
    found = FixedInstance({"dws.job-list": refused(errno.EHOSTUNREACH)})
    error = "flux-dws: ERROR: the dws module ended before it answered: try again\n"
    assert dws(found, "list") == (1, "", error)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["-f", "Running"],
            "--filter: 'Running' is no state, expected Proposal, Setup,",
        ),
        (["-u", "nobody-here"], "--user: there is no user 'nobody-here'"),
        (["--rabbit=a[b"], "--rabbit: hostlist 'a[b': misplaced bracket"),
        (["--type=xsf"], "--type: 'xsf' is no type, expected xfs, gfs2, raw, lustre"),
        (["--json", "--stats"], "--json incompatible with --stats or --stats-only"),
        (["--count=-1"], "--count: -1 is negative, expected 0 or more"),
        (["--since=sometime"], "--since: 'sometime' is no moment: expected one like"),
        (["--since=2100-01-01"], "--since=2100-01-01 appears to be in the future"),
    ],
)
def test_a_wrong_option_is_refused(words: list[str], problem: str) -> None:
    done = dws(instance(), "list", *words)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"flux-dws: ERROR: {problem}")
    assert len(done.err.splitlines()) == 1


def test_since_means_jobs_that_ended_after_it() -> None:
    jobs = [ended_job(FIRST + i, t_inactive=NOW - 100 * i) for i in range(1, 5)]
    kvs = {key: text for job in jobs for key, text in kvs_of(job["id"]).items()}
    words = ("list", "-n", "-o", "{state}")
    found = FixedInstance({"dws.job-list": listed()}, jobs=jobs, kvs=kvs)
    assert dws(found, *words, f"--since={NOW - 250}").out == "ended\n" * 2
    assert dws(found, *words, "--since=2025-11-24T15:58:00").out == "ended\n"
    assert dws(found, *words, "--since=-2h").out == ""


@pytest.mark.parametrize(
    "others", [{"annotations": {}}, {}], ids=["without the memo", "with the memo"]
)
def test_of_few_jobs_with_storage_as_many_are_found_as_are_asked_for(
    others: dict[str, Any],
) -> None:
    """Users may give the memo to jobs without storage."""
    jobs = [ended_job(i, **others) for i in range(1, 400)]
    jobs[100], jobs[350] = ended_job(1000), ended_job(2000)
    kvs = {**kvs_of(1000), **kvs_of(2000)}
    found = FixedInstance({"dws.job-list": listed()}, jobs=jobs, kvs=kvs)
    words = ("list", "-f", "ended", "-n", "-o", "{id.dec}", "-c")
    assert dws(found, *words, "1").out == "1000\n"
    assert dws(found, *words, "5").out == "1000\n2000\n"
    assert dws(found, *words, "0").out == "1000\n2000\n"


def test_a_made_up_type_makes_no_other_line_long() -> None:
    rows = (row(FIRST), row(FIRST + 1, types=["x" * 60000]))
    done = dws(instance(*rows), "list", "-A", "-o", "long")
    assert max(map(len, done.out.splitlines())) < 1000


def test_a_failed_job_is_listed_whose_user_has_removed_the_memo() -> None:
    failed = {"annotations": {}, "exception_type": "dws", "exception_severity": 0}
    jobs = [ended_job(FIRST + i, **failed) for i in range(2)]
    kvs = {**kvs_of(FIRST), (FIRST + 1, "jobspec"): jobspec("#DW jobdw")}
    words = ("list", "-f", "ended", "-n", "-o", "{id.dec}")
    assert dws(instance(jobs=jobs, kvs=kvs), *words).out == f"{FIRST}\n"


def test_a_job_is_listed_that_no_nodes_could_have() -> None:
    denied = {"annotations": {}, "exception_type": "alloc", "exception_severity": 0}
    jobs = [ended_job(FIRST + i, **denied) for i in range(2)]
    kvs = {**kvs_of(FIRST), (FIRST + 1, "jobspec"): jobspec()}
    words = ("list", "-f", "ended", "-n", "-o", "{id.dec}")
    assert dws(instance(jobs=jobs, kvs=kvs), *words).out == f"{FIRST}\n"


@pytest.mark.parametrize(
    "state, ready, awaited",
    [
        ("Proposal", False, ""),
        ("Proposal", True, "nodes"),
        ("Setup", True, ""),
        ("PreRun", False, "mounts"),
        ("PreRun", True, "end of the job"),
        ("PostRun", False, "unmounts"),
        ("PostRun", True, ""),
    ],
)
def test_a_job_that_runs_is_told_from_one_that_mounts(
    state: str, ready: bool, awaited: str
) -> None:
    words = ("list", "-n", "-o", "{state}: {waits}")
    quiet = row(state=state, ready=ready, waits="")
    assert dws(instance(quiet), *words).out.strip() == f"{state}: {awaited}".strip()
    told = row(state=state, ready=ready, waits="DWS: busy")
    assert dws(instance(told), *words).out.strip() == f"{state}: DWS: busy"


def test_the_note_of_an_exception_is_cut() -> None:
    raised = {"exception_type": "dws", "exception_note": "x" * 10**6}
    job = ended_job(exception_severity=0, **raised)
    done = dws(instance(jobs=[job], kvs=kvs_of()), "list", "-f", "ended", "--json")
    assert json.loads(done.out)["jobs"][0]["waits"] == "x" * 4093 + "..."


def test_a_terminal_of_40_columns_gets_a_table_that_fits() -> None:
    done = dws(instance(), "list", "-A", "--color=never", columns=40)
    assert is_golden("list-40.txt", done.out)
    assert max(map(columns, done.out.splitlines())) <= 40
    wide = dws(instance(), "list", "-A", "--color=never", columns=200).out
    assert wide == dws(instance(), "list", "-A").out
    assert done.out.split() == wide.split()


def test_lines_are_cut_at_the_width_that_is_given() -> None:
    lines = dws(instance(), "list", "-A", "-w", "40").out.splitlines()
    assert max(map(columns, lines)) == 40
    assert all(line.endswith("+") for line in lines)
    words = ("list", "-A", "-w", "--color=never")
    lines = dws(instance(), *words, columns=50).out.splitlines()
    assert max(map(columns, lines)) == 50


def test_colors_are_for_terminals_that_want_them() -> None:
    red = "\x1b[01;31mƒ3gDmDv6tjHS"
    assert red in dws(instance(), "list", "-A", columns=99).out
    assert red in dws(instance(), "list", "-A", "--color").out
    assert "\x1b" not in dws(instance(), "list", "-A").out
    assert "\x1b" not in dws(instance(), "list", "-A", columns=99, NO_COLOR="1").out
    assert "\x1b" not in dws(instance(), "list", "-A", "--color=never", columns=9).out


def test_job_ids_are_in_ascii_where_the_locale_is() -> None:
    done = dws(instance(), "list", "-n", "-o", "{id} {id.f58plain}", unicode=False)
    assert done.out.splitlines()[0] == "f3gDmDv6tjHH f3gDmDv6tjHH"


CLOSED = """
import sys
sys.path.insert(0, "t/python")
from support.dwscli import *
answer = {**FRESH, "jobs": [row(i + 1) for i in range(5000)], "next": None}
fluxinstance.FluxInstance = lambda: FixedInstance({"dws.job-list": answer})
args = COMMAND["arguments"](["list"])
sys.exit(run("dws", lambda: args.function(args)))
"""


def test_a_reader_that_ends_early_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", CLOSED],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": str(TOP / "src/pymod")},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


# Anything that the contract allows

amounts = st.one_of(st.none(), st.integers(0, 2**63 - 1))
hosts = st.sampled_from(["", "tuo[1001-1016]", "a", "a[", "名前"])
rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**63 - 1),
        "userid": st.integers(0, 2**32 - 1),
        "state": st.sampled_from([*TIMINGS, "none"]),
        "status": st.text(max_size=20),
        "since": st.one_of(st.none(), st.floats(-1e12, 1e18)),
        "ready": st.booleans(),
        "wants": st.sampled_from(["planned", "ready", "released"]),
        "nodes": hosts,
        "nnodes": st.integers(0, 2**31),
        "rabbits": hosts,
        "capacity": st.integers(0, 2**63 - 1),
        "types": st.lists(st.text(max_size=9), max_size=3),
        "moved": amounts,
        "total": amounts,
        "percent": st.one_of(st.none(), st.floats(0, 100)),
        "waits": st.text(max_size=60),
    }
)


@given(
    st.lists(rows, max_size=4),
    st.sampled_from(["default", "long", "data"]),
    st.integers(1, 120),
)
def test_any_row_is_shown_within_the_width_and_without_control_characters(
    found: list[dict[str, Any]], format: str, width: int
) -> None:
    answer = FixedInstance({"dws.job-list": listed(*found)})
    done = dws(answer, "list", "-A", "-o", format, "-w", str(width))
    assert done.status == 0 and done.err == ""
    lines = done.out.split("\n")[:-1]
    assert len(lines) == len(found) + 1
    assert all(line.isprintable() and columns(line) <= width for line in lines)


keys = ["id", "state", "since", "nodes", "rabbits", "types", "moved", "percent"]
junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.integers()),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(keys), junk))
@example({"id": -1})
def test_a_row_of_another_version_is_no_traceback(changes: dict[str, Any]) -> None:
    done = dws(instance(row(**changes) | changes), "list", "-A", "-o", "long")
    assert done.status == 0


class Counting(FixedInstance):
    """Counts the texts of any size that are asked for at a time."""

    most = 0

    def kvs(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], str]:
        asked = list(wanted)
        count = sum(key in ("jobspec", "eventlog") for _, key in asked)
        self.most = max(self.most, count)
        return super().kvs(asked)


@pytest.mark.parametrize("words", ["list -f ended -A", "report", "timeline -A"])
def test_few_texts_of_any_size_are_in_memory_at_a_time(words: str) -> None:
    """A guest may write a jobspec or an eventlog of many MB, and have many jobs."""
    ids = range(FIRST, FIRST + 100)
    kvs = {key: text for id in ids for key, text in kvs_of(id).items()}
    for id in ids[::2]:
        kvs[id, "jobspec"] = jobspec()
        del kvs[id, "rabbit_workflow"]
    answers = {"dws.job-list": listed(), "dws.rabbit-list": {**FRESH}}
    found = Counting(answers, jobs=map(ended_job, ids), kvs=kvs)
    since = [] if words.startswith("list") else [f"--since={NOW - 1200}"]
    done = dws(found, *words.split(), *since)
    assert done.status == 0 and 0 < found.most <= AT_A_TIME
    if not since:
        assert len(done.out.splitlines()) == 1 + 50
