# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws list."""

from __future__ import annotations

import errno
import json
import re
import shlex
from typing import Any, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dwscli.ended import AT_A_TIME
from dwscli.instance import PORTION
from flux_k8s.text import columns
from support import commands
from support.dwscli import (
    FIRST,
    FRESH,
    GIB,
    NOW,
    OLD,
    STATE,
    WORKFLOW,
    FixedInstance,
    dws,
    ended_job,
    is_golden,
    jobspec,
    kvs_of,
    like,
    refused,
    row,
    shows,
)
from support.tables import rows

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


@pytest.mark.parametrize(
    ("golden", "words"),
    [
        ("list.txt", "-A"),
        ("list-long.txt", "-A -o long"),
        ("list-40.txt", "-A --color=never"),
        ("list-ended.txt", "-a -A"),
    ],
)
def test_jobs_are_a_table(golden: str, words: str) -> None:
    jobs = [ended_job(), ended_job(1, annotations={}), ended_job(2, state=16)]
    width = 40 if golden == "list-40.txt" else 0
    found = instance(jobs=jobs, kvs=kvs_of())
    done = dws(found, "list", *words.split(), columns=width)
    assert (done.status, done.err) == (0, "")
    assert is_golden(golden, done.out)
    if width:
        assert max(map(columns, done.out.splitlines())) <= 40
        wide = dws(found, "list", *words.split(), columns=200).out
        assert wide == dws(found, "list", "-A").out
        assert done.out.split() == wide.split()


# Instances, and what they list of the fields that are asked for.

RAISED = {"exception_type": "dws", "exception_severity": 0}
GONE = {"annotations": {}, **RAISED}
DENIED = {**GONE, "exception_type": "alloc"}
NOTE = {**RAISED, "exception_note": "no room\x1b[2J", "result": 2}
MEMOS = {"user": {"rabbit_workflow": "fluxjob-1", "rabbits": "not-mine"}}
STARTED = {**WORKFLOW, "metadata": {"creationTimestamp": "2025-11-24T15:50:00Z"}}
LOST = {"nodes": "", "nnodes": 0}
NO_PLUGIN = {
    "kubernetes": "dws-jobtap.so is not loaded",
    "incomplete": True,
    "age": 0.0,
}
IDLE = {"jobs": 0, "states": {}, "capacity": 0}


def ended(*changes: dict[str, Any], more: Any = (), **texts: Any) -> FixedInstance:
    """Jobs that ended, from FIRST + 20 on. The first has records, of which some have
    other texts or, with None, are missing; ``more`` are those of others."""
    jobs = [ended_job(FIRST + 20 + i, **one) for i, one in enumerate(changes or [{}])]
    kvs = {**kvs_of(), **{(FIRST + 20, key): text for key, text in texts.items()}}
    kvs.update({(FIRST + 21, key): text for key, text in more})
    return instance(
        jobs=jobs, kvs={k: text for k, text in kvs.items() if text is not None}
    )


def answering(answer: Any, **options: Any) -> FixedInstance:
    return FixedInstance({"dws.job-list": answer}, **options)


ASKED, UNASKED = [("jobspec", jobspec("#DW jobdw"))], [("jobspec", jobspec())]
OF_SEVERAL = [kvs_of(FIRST + i) for i in range(1, 5)]
INSTANCES = {
    "active": instance(),
    # After a reload of the module, which does not know their nodes.
    "reloaded": instance(
        row(FIRST, **LOST),
        row(FIRST + 5, wants="planned", **LOST),
        jobs=[ended_job(FIRST, state=16)],
    ),
    "ended": ended(),
    "never set up": ended(rabbit_workflow=json.dumps(STARTED)),
    "meanwhile": instance(jobs=[ended_job(FIRST), ended_job()], kvs=kvs_of()),
    "memos": ended(*[{"annotations": MEMOS}] * 2, more=UNASKED, rabbit_hostlist=None),
    # A failed job whose user has removed the memo, and one that no nodes could have.
    "failed": ended(GONE, GONE, more=ASKED),
    "denied": ended(DENIED, DENIED, more=UNASKED),
    "no records": instance(
        jobs=[ended_job(**NOTE)], kvs={(FIRST + 20, "jobspec"): ASKED[0][1]}
    ),
    # Its first exception was another one, or its data was lost after its end.
    "lost": ended(
        {"exception_type": "timeout", "exception_severity": 0},
        rabbit_data_out='{"success": false, "errstr": "not copied: x"}',
    ),
    "refused": ended(NOTE, rabbit_data_out='{"success": false, "reason": "not-run"}'),
    "tuo300": ended(rabbit_hostlist="tuo300"),
    "several": answering(
        listed(),
        jobs=[ended_job(FIRST + i, t_inactive=NOW - 100 * i) for i in range(1, 5)],
        kvs={key: text for kvs in OF_SEVERAL for key, text in kvs.items()},
    ),
    "guest": instance(
        row(FIRST, userid=1000),
        jobs=[ended_job(userid=1000), ended_job(2, userid=0)],
        kvs=kvs_of(),
        userid=1000,
        is_owner=False,
    ),
    "idle": answering(listed(totals=IDLE)),
    "old": answering(listed(*ROWS, **OLD)),
    "no plugin": answering(listed(*ROWS, **NO_PLUGIN)),
    "no module": FixedInstance(),
    "inside": FixedInstance(is_job=True),
    "no module, ended": FixedInstance(jobs=[ended_job()], kvs=kvs_of()),
    "busy": answering(refused(errno.EAGAIN, "too many queries")),
    "unloaded": answering(refused(errno.EHOSTUNREACH)),
}

# F is the ID of the first job. What is said has no header, and stands between bars.

SAID = r"""
reloaded: -o '{id.dec} {nnodes} {nodelist}' -> 0 -> |F+0 2 tuo[1001-1002] F+5|
ended: -f ended -o '{elapsed}' -> 0 -> |480.0|
never set up: -f ended -o '{elapsed}' -> 0 -> ||
meanwhile: -a -A -o '{id.dec} {state}' -> 0
  -> |F+0 PreRun F+5 DataIn F+9 Proposal F+20 ended|
memos: -f ended -o '{id.dec} {rabbits}' -> 0 -> |F+20|
failed: -f ended -o '{id.dec}' -> 0 -> |F+20|
denied: -f ended -o '{id.dec}' -> 0 -> |F+20|
no records: -f ended -> 0
  -> |ƒ3gDmDv6tjHd root ended - 2 - no room\x1b[2J|
lost: -f ended -o '{waits}' -> 0 -> |not copied: x|
refused: -f ended -o '{waits}' -> 0 -> |no room\x1b[2J|
# What is chosen: several states and Rabbits are any of them.
active: -A -f proposal,DataIn -o '{id.dec}' -> 0 -> |F+5 F+9|
active: -A -f active -o '{id.dec}' -> 0 -> |F+0 F+5 F+9|
active: -A --rabbit=tuo[202,300] -o '{id.dec}' -> 0 -> |F+0 F+5|
active: -A --rabbit=tuo201 -o '{id.dec}' -> 0 -> |F+0 F+5|
active: -A --rabbit=tuo201 --type=raw -o '{id.dec}' -> 0 -> ||
active: -A --rabbit=tuo[201,300-301] --type=raw -> 1 -> no such Rabbit: tuo[300-301]
active: -a --rabbit=tuo[201,300-301] --type=raw -> 1 -> no such Rabbit: tuo[300-301]
active: -f ended --rabbit=tuo[300-301] -> 1 -> no such Rabbit: tuo[300-301]
active: --json --rabbit=tuo[300-301] --type=raw -> 1 -> no such Rabbit: tuo[300-301]
tuo300: -a --rabbit=tuo[300-301] -o '{id.dec}' -> 0 -> |F+20|
no module: -f ended --rabbit=tuo300 -> 0 -> ||
active: -A --sort=elapsed -o '{id.dec}' -> 0 -> |F+9 F+0 F+5|
active: -A --sort=-elapsed -o '{id.dec}' -> 0 -> |F+5 F+0 F+9|
active: -A --sort=capacity,state -o '{id.dec}' -> 0 -> |F+9 F+5 F+0|
active: --sort=nothing -> 1 -> ERROR: Invalid sort key: nothing
active: --sort=capacty -> 1 -> Invalid sort key: capacty (did you mean capacity?)
several: -o '{state}' --since=1763999750 -> 0 -> |ended ended|
several: -o '{state}' --since=2025-11-24T15:58:00 -> 0 -> |ended|
several: -o '{state}' --since=-2h -> 0 -> ||
several: -f ended -c 3 -o '{state}' -> 0 -> |ended ended ended|
# Totals are of all users.
active: --stats-only -> 0 -> |4 jobs, 3 DataIn, 1 PreRun, 640GiB of storage|
active: --stats -> 0 -> 4 jobs, 3 DataIn, 1 PreRun, 640GiB of storage ƒ3gD
idle: --stats-only -> 1 -> |0 jobs, 0B of storage|
guest: -A -o '{userid}' -> 0 -> 1000 flux-dws: WARNING: jobs of other users are shown to
  the instance owner only; all: 4 jobs, 3 DataIn, 1 PreRun, 640GiB of storage
guest: -f ended -A -o '{userid}' -> 0 -> |1000|
guest: -u root -> 1 -> ERROR: the jobs of user 'root' are not yours
guest: -u root -f ended -> 1 -> ERROR: the jobs of user 'root' are not yours
# Outages
old: -A -> 0 -> ƒ3gD; flux-dws: WARNING: Kubernetes was last heard of 3.5m ago, what
  follows may be old: connection refused
old: --stats -> 0 -> Kubernetes was last heard of
old: --stats-only -> 0 -> Kubernetes was last heard of
no plugin: -A -> 0 -> ƒ3gD; what follows may lack jobs: dws-jobtap.so is not loaded
no module: -> 1 -> ERROR: the dws module is not loaded: an administrator can load it
  with 'flux module load dws'
inside: -> 1 -> not loaded: this Flux instance is a job, and 'flux --parent dws'
no module, ended: -a -o '{state}' -> 1 -> ended flux-dws: ERROR: the dws module is not
busy: -> 1 -> ERROR: too many queries
unloaded: -> 1 -> ERROR: the dws module ended before it answered: try again
# Wrong options
active: -f Running -> 1 -> --filter: 'Running' is no state, expected Proposal, Setup,
active: -u nobody-here -> 1 -> --user: there is no user 'nobody-here'
active: --rabbit=a[b -> 1 -> --rabbit: hostlist 'a[b': misplaced bracket
active: --type=xsf -> 1 -> --type: 'xsf' is no type, expected xfs, gfs2, raw, lustre
active: --json --stats -> 1 -> --json incompatible with --stats or --stats-only
active: --count=-1 -> 1 -> --count: -1 is negative, expected 0 or more
active: --since=sometime -> 1 -> --since: 'sometime' is no moment: expected one like
active: --since=2100-01-01 -> 1 -> --since=2100-01-01 appears to be in the future
"""


@pytest.mark.parametrize(("words", "status", "said"), rows(SAID, 3))
def test_list_shows_the_jobs_that_are_asked_for(
    words: str, status: str, said: str
) -> None:
    name, _, words = words.partition(":")
    done = dws(INSTANCES[name], "list", "-n", *shlex.split(words))
    said = re.sub(r"F\+([0-9]+)", lambda found: str(FIRST + int(found[1])), said)
    if said.startswith("|"):
        assert done.err == "" and f"|{' '.join(done.out.split())}|" == said
    assert shows(done, int(status), *said.strip("|").split("; "))


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


@pytest.mark.parametrize(
    "words", [["list"], ["show", "f1"], ["wait", "f1"], ["rabbits"]]
)
def test_a_query_outside_of_flux_is_an_error_that_says_so(words: list[str]) -> None:
    assert commands.refused(commands.run("dws", *words)) == [
        "flux-dws: ERROR: needs Flux's own Python modules: run it as flux dws"
    ]


def test_a_request_that_comes_too_soon_is_sent_again() -> None:
    busy = refused(errno.EAGAIN, "too many queries")
    found = FixedInstance({"dws.job-list": [busy, busy, listed(*ROWS)]})
    assert dws(found, "list").status == 0 and found.slept > 0.2


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


# Anything that the contract allows

amounts = st.none() | st.integers(0, 2**63 - 1)
hosts = st.sampled_from(["", "tuo[1001-1016]", "a", "a[", "名前"])
any_rows = like(
    row(),
    since=st.none() | st.floats(-1e12, 1e18),
    percent=st.none() | st.floats(0, 100),
    wants=st.sampled_from(["planned", "ready", "released"]),
    **{"state": STATE, "nodes": hosts, "rabbits": hosts},
    **{"moved": amounts, "total": amounts, "userid": st.integers(0, 2**32 - 1)},
)


@given(
    st.lists(any_rows, max_size=4),
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
