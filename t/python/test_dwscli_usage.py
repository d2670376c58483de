# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws usage: the storage of jobs that ended, for accounting."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from flux_k8s.formats.jobid import f58
from flux_k8s.objects.workflowmarks import NODES_RELEASED
from support.dwscli import (
    FIRST,
    FRESH,
    GIB,
    NOW,
    FixedInstance,
    dws,
    ended_job,
    is_golden,
    kvs_of,
    shows,
)
from support.tables import rows

STRANGER = 54321


def instance(**options: Any) -> FixedInstance:
    jobs = [
        ended_job(FIRST, bank="physics"),
        ended_job(FIRST + 1, userid=STRANGER, nnodes=8, t_inactive=NOW - 7200),
        ended_job(FIRST + 2, userid=STRANGER, bank="physics"),
        ended_job(FIRST + 3, annotations={}),
    ]
    jobs[2].update(exception_type="dws", exception_severity=0, exception_note="lost")
    kvs = {key: text for i in range(3) for key, text in kvs_of(FIRST + i).items()}
    kvs[FIRST, "rabbit_hostlist"] = "tuo[201-202]"
    del kvs[FIRST, "rabbit_allocations"]
    return FixedInstance(jobs=jobs, kvs=kvs, **options)


@pytest.mark.parametrize("by", ["user", "bank", "rabbit"])
def test_storage_and_data_are_added_up(by: str) -> None:
    done = dws(instance(), "usage", f"--by={by}")
    assert (done.status, done.err) == (0, "")
    assert is_golden(f"usage-{by}.txt", done.out)


def allocations(*sizes: tuple[int, dict[str, int]]) -> str:
    """The record of some allocation sets."""
    return json.dumps([{"size": size, "rabbits": counts} for size, counts in sizes])


@pytest.mark.parametrize(
    ("recorded", "gib"),
    [
        (
            allocations((12 * GIB, {"r1": 3, "r2": 1}), (2 * GIB, {"r2": 1})),
            {"r1": 36, "r2": 14},
        ),
        # Storage that stays is not the job's.
        (allocations(), {"r1": 0, "r2": 0}),
        # As the directives ask for it.
        ("no JSON", {"r1": 10, "r2": 10}),
    ],
)
def test_storage_counts_as_it_was_allocated(
    recorded: str, gib: dict[str, float]
) -> None:
    records = kvs_of(FIRST, rabbit_allocations=recorded, rabbit_hostlist="r[1-2]")
    found = FixedInstance(jobs=[ended_job(FIRST)], kvs=records)
    hours = 8 / 60
    (user,) = json.loads(dws(found, "usage", "--json").out)["usage"]
    assert user["gibh"] == pytest.approx(sum(gib.values()) * hours)
    rabbits = json.loads(dws(found, "usage", "--by=rabbit", "--json").out)["usage"]
    assert {one["name"]: one["gibh"] / hours for one in rabbits} == pytest.approx(gib)


def test_storage_counts_until_it_is_gone_if_that_is_after_the_end_of_its_job() -> None:
    """The nodes were given back at 15:59:00, and the storage was gone at 17:00:00."""
    workflow = json.loads(kvs_of()[FIRST + 20, "rabbit_workflow"])
    workflow["metadata"]["annotations"][NODES_RELEASED] = "true"
    torn_down = {"watchState": "Teardown", "completeTime": "2025-11-24T17:00:00Z"}
    (driver,) = workflow["status"]["drivers"]
    workflow["status"]["drivers"].append({**driver, **torn_down})
    found = FixedInstance(
        jobs=[ended_job()], kvs=kvs_of(rabbit_workflow=json.dumps(workflow))
    )
    (user,) = json.loads(dws(found, "usage", "--json").out)["usage"]
    (before,) = json.loads(
        dws(FixedInstance(jobs=[ended_job()], kvs=kvs_of()), "usage", "--json").out
    )["usage"]
    assert user["gibh"] / before["gibh"] == pytest.approx(69 / 8)
    waited = dws(found, "wait", f58(FIRST + 20)).out
    assert waited == "2025-11-24T17:00:00 storage is gone, data was copied out\n"


SAID = """
guest: -n -o '{name} {njobs}' -> 0 -> 54321 2
guest: -u root -> 1 -> ERROR: the jobs of user 'root' are not yours
guest: -n -o {njobs} -u all -> 0 -> 2
guest: -n -u 54321 -> 0 -> 54321
owner: --count=-1 -> 1 -> ERROR: --count: -1 is negative, expected 0 or more
owner: --count=1 -> 0 -> WARNING: output truncated at 1 jobs that have ended
owner: --count=0 -> 0 -> -- WARNING
owner: -n -o '{name} {njobs}' -u root -> 0 -> root 1
owner: -n -o '{name} {njobs}' --since=1763999400 -> 0 -> 54321 1 | root 1
owner: -n -o '{name} {njobs}' -c 1 -> 0 -> root 1
"""


@pytest.mark.parametrize(("words", "status", "said"), rows(SAID, 3))
def test_jobs_are_chosen_by_user_time_and_number(
    words: str, status: str, said: str
) -> None:
    whose, *args = shlex.split(words)
    guest: Any = {"userid": STRANGER, "is_owner": False} if whose == "guest:" else {}
    done = dws(instance(**guest), "usage", *args)
    assert shows(done, int(status), *said.split(" | "))


def test_data_of_which_there_is_no_record_is_not_said_to_be_none() -> None:
    kvs = kvs_of()
    del kvs[FIRST + 20, "rabbit_moved"]
    found = FixedInstance(jobs=[ended_job()], kvs=kvs)
    assert dws(found, "usage", "-n").out.split()[-2:] == ["-", "0"]
    assert json.loads(dws(found, "usage", "--json").out)["usage"][0]["moved"] is None


ODD = ("NaN", "Infinity", "1e999", "-1", "true", '"x"', "[]", "{}", "null", "9" * 400)


@pytest.mark.parametrize("odd", [*ODD, "[" * 300 + "]" * 300])
@pytest.mark.parametrize("command", ["usage --by=rabbit", "list -f ended", "show ID"])
def test_records_of_another_version_spoil_no_row(command: str, odd: str) -> None:
    """A record of each field with this value. Other jobs are as before."""
    other = ended_job(FIRST + 1)
    moved = f'[{{"phase": {odd}, "movements": {odd}, "bytes": {odd}, "begun": {odd}}}]'
    sets = f'[{{"label": {odd}, "size": 1, "rabbits": {{"a": {odd}, "b": 1}}}}]'
    records = kvs_of(FIRST, rabbit_moved=moved, rabbit_allocations=sets)
    found = FixedInstance(
        jobs=[ended_job(FIRST), other], kvs={**records, **kvs_of(FIRST + 1)}
    )
    words = command.replace("ID", f58(FIRST)).split()
    done = dws(found, *words, "--json")
    assert (done.status, done.err) == (0, "")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    answer = json.loads(done.out, parse_constant=refuse)
    if words[0] == "usage":
        (good,) = [one for one in answer["usage"] if one["name"] == "tuo201"]
        assert good["moved"] == 3 * GIB // 2
        assert all(one["gibh"] >= 0 for one in answer["usage"])


def test_records_of_another_version_cannot_cancel_each_other_out() -> None:
    records = kvs_of(rabbit_allocations=allocations((GIB, {"a": 1}), (-GIB, {"b": 1})))
    found = FixedInstance(jobs=[ended_job()], kvs=records)
    done = dws(found, "usage", "--by=rabbit", "-n", "-o", "{name} {njobs}")
    assert (done.status, done.out) == (0, "a 1\nb 1\n")


def test_the_project_of_one_job_does_not_make_all_lines_long() -> None:
    jobs = [ended_job(FIRST + i, project=f"{i}" * 10**i) for i in (1, 6)]
    kvs = {key: text for job in jobs for key, text in kvs_of(job["id"]).items()}
    found = FixedInstance(jobs=jobs, kvs=kvs)
    assert len(dws(found, "usage", "--by=project").out) < 5000
    usages = json.loads(dws(found, "usage", "--by=project", "--json").out)["usage"]
    assert {len(one["name"]) for one in usages} == {10, 10**6}


@pytest.mark.parametrize("words", ["usage", "list -f ended -A", "timeline -A"])
def test_a_command_warns_that_older_jobs_are_not_counted(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = (
        "flux-dws: WARNING: only the last 4 jobs that ended were searched for storage:"
        " --since and --user leave out others\n"
    )
    since = f"--since={NOW - 10000}"
    answers = {"dws.job-list": {**FRESH, "jobs": [], "next": None, "totals": {}}}
    found = instance(answers=answers)
    assert warning not in dws(found, *words.split(), since).err
    monkeypatch.setattr("dwscli.ended.LARGEST_LIST", 4)
    assert dws(found, *words.split(), since).err == warning
