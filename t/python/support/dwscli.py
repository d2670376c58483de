# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Runs of ``flux dws`` in this process, with an instance that has fixed answers."""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import Any, Callable, Iterable, NamedTuple, Optional, Union
from unittest import mock

from hypothesis import strategies as st

from dwscli import units
from dwscli.ended import TIMINGS
from dwscli.instance import Nodes
from flux_k8s.command import run
from flux_k8s.config.submission import Site
from flux_k8s.formats import jobid
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.rules.directiverules import NO_RULES
from support.tree import TOP

COMMAND = runpy.run_path(str(TOP / "src/cmd/flux-dws.py"))
Json = dict[str, Any]
Answer = Union[Json, OSError]

GIB = 2**30
NOW = 1764000000.0
"""The time of all answers (2025-11-24T16:00:00 UTC)."""

FRESH = {"now": NOW, "kubernetes": "ok", "age": 0}
FIRST = 1 << 60
"""A job ID."""

OLD = {"now": NOW, "kubernetes": "connection refused", "age": 210.0}
NEVER = {**OLD, "age": None}

STATES = [
    {"state": "Setup", "begun": NOW - 500, "seconds": 40.0},
    {"state": "DataIn", "begun": NOW - 460, "seconds": 60.0},
    {"state": "PreRun", "begun": NOW - 400, "seconds": 10.0},
    {"state": "PostRun", "begun": NOW - 100, "seconds": 5.0},
    {"state": "DataOut", "begun": NOW - 95, "seconds": None},
]
"""The states of a job, the last of which has not ended."""


def row(id: int = 1, **changes: Any) -> Json:
    """A row of ``dws.job-list``."""
    return {
        "id": id,
        "userid": 0,
        "state": "PreRun",
        "status": "DriverWait",
        "since": NOW - 12.34,
        "ready": False,
        "wants": "ready",
        "nodes": "tuo[1001-1016]",
        "nnodes": 16,
        "rabbits": "tuo[201-202]",
        "capacity": 160 * GIB,
        "types": ["xfs"],
        "moved": None,
        "total": None,
        "percent": None,
        "waits": "12/16 mounted",
        "cancel": "freed",
        **changes,
    }


def detail(id: int = 1, **changes: Any) -> Json:
    """An answer of ``dws.job-show``."""
    return {
        **FRESH,
        **row(id),
        "serial": 1,
        "directives": ["#DW jobdw type=xfs capacity=10GiB name=p1"],
        "message": "",
        "states": [
            {"state": "Proposal", "begun": NOW - 100, "seconds": 0.12},
            {"state": "PreRun", "begun": NOW - 12.34, "seconds": None},
        ],
        "allocations": [],
        "mounts": None,
        "movements": [],
        "limits": [],
        "failed": "",
        **changes,
    }


def rabbit(name: str = "tuo201", **changes: Any) -> Json:
    """A Rabbit of ``dws.rabbit-list`` with 16 nodes and room for all of them."""
    return {
        **{"name": name, "state": "Ready", "reason": "", "capacity": 200 * GIB},
        **{"free": 160 * GIB, "withheld": 0, "ssd_size": 1, "ssds": 200},
        **{"ssds_withheld": 0, "ssds_free": 176, "nodes": "tuo[1001-1016]"},
        **{"broken": "", "njobs": 0, "jobs": [], "job_ssds": {}, "disabled": None},
        **changes,
    }


STATE = st.sampled_from([*TIMINGS, "none"])


def like(example: Any, **others: Any) -> st.SearchStrategy[Any]:
    """Whatever has the fields of an example, and their types.

    Args:
        others: what fields of these names have, wherever they are.
    """
    if isinstance(example, dict):
        return st.fixed_dictionaries(
            {
                key: others[key] if key in others else like(example[key], **others)
                for key in example
            }
        )
    if isinstance(example, list):
        return (
            st.lists(like(example[0], **others), max_size=3) if example else st.just([])
        )
    of_type: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(0, 2**63 - 1),
        float: st.floats(0, 1e12),
        str: st.text(max_size=40),
        type(None): st.none() | st.floats(0, 1e18),
    }
    return of_type[type(example)]


ANY_RABBITS = st.lists(
    like(
        rabbit(jobs=[1]),
        free=st.none() | st.integers(0, 2**63 - 1),
        withheld=st.none() | st.integers(0, 2**63 - 1),
        nodes=st.text(max_size=20) | st.just("n[1-4]"),
        job_ssds=st.dictionaries(st.integers(0).map(str), st.integers(0), max_size=3),
        disabled=st.none() | like({"by": "", "at": 1.0, "reason": ""}),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda rabbit: str(rabbit["name"]),
)
"""Any Rabbits that the contract of ``dws.rabbit-list`` allows."""

WORKFLOW = {
    "metadata": {
        "uid": "u",
        "resourceVersion": "9",
        "creationTimestamp": "2025-11-24T15:50:00Z",
        "annotations": {
            "flux-framework.readthedocs.io/requested": "Setup=2025-11-24T15:51:00Z"
        },
    },
    "spec": {
        "desiredState": "Teardown",
        "wlmID": "flux",
        "jobID": "f1",
        "dwDirectives": [
            "#DW jobdw type=xfs capacity=10GiB name=p1",
            "#DW copy_out source=$DW_JOB_p1/out destination=/lustre/out",
        ],
    },
    "status": {
        "state": "Teardown",
        "status": "Completed",
        "ready": True,
        "drivers": [
            {"driverID": "d", "dwdIndex": 1, "watchState": "DataOut", "completed": True}
        ],
    },
}
MOVEMENTS = [
    {
        "metadata": {"name": "fluxjob-1-0", "namespace": "tuo201"},
        "spec": {
            "source": {"path": "/mnt/nnf/1-0/out"},
            "destination": {"path": "/lustre/out"},
        },
        "status": {
            "state": "Finished",
            "status": "Success",
            "commandStatus": {"progress": 100, "data": "1.500 GiB"},
        },
    }
]


MOVED = [
    {
        "phase": "DataOut",
        "movements": 1,
        "bytes": 3 * GIB // 2,
        "begun": None,
        "ended": None,
    },
]

ALLOCATIONS = [
    {"label": "xfs", "type": "xfs", "size": 10 * GIB, "rabbits": {"tuo201": 2}}
]


def ended_job(id: int = FIRST + 20, **changes: Any) -> Json:
    """A job that ended, as job-list has it."""
    return {
        "id": id,
        "userid": 0,
        "state": 64,
        "result": 1,
        "nnodes": 2,
        "nodelist": "tuo[1001-1002]",
        "annotations": {"user": {"rabbit_workflow": "fluxjob-1", "rabbits": "tuo201"}},
        "t_inactive": NOW - 60,
        **changes,
    }


def kvs_of(id: int = FIRST + 20, **texts: str) -> dict[tuple[int, str], str]:
    """The KVS of a job that ended."""
    found = {
        "rabbit_workflow": json.dumps(WORKFLOW),
        "rabbit_datamovements": json.dumps(MOVEMENTS),
        "rabbit_moved": json.dumps(MOVED),
        "rabbit_hostlist": "tuo201",
        "rabbit_data_out": '{"success": true}',
        "rabbit_allocations": json.dumps(ALLOCATIONS),
        "eventlog": "",
        **{key: "1.5" for key in TIMINGS.values()},
        **texts,
    }
    return {(id, key): text for key, text in found.items()}


def jobspec(*directives: str) -> str:
    """The jobspec of a job, as the KVS has it."""
    return json.dumps({"attributes": {"system": {"dw": [*directives]}}})


NOT_LOADED = (
    "flux-dws: ERROR: the dws module is not loaded: an administrator can load it with"
    " 'flux module load dws'\n"
)


def refused(number: int, message: str = "") -> OSError:
    return OSError(number, message or os.strerror(number))


class FixedInstance:
    """An instance with fixed answers.

    Attributes:
        answers: of each topic, one after the other; the last one again and again.
        requests: what was asked, in its order.
        raised: the exceptions that were raised, each with its job.
        slept: the seconds that were waited.
        table, rules, mapping: the ``[rabbit]`` table, None without one, the rules of
            DWS, and the mapping.
        free, allocated, down: the nodes.
        jobspecs: the jobspecs that ``flux batch`` makes of scripts, or its errors.
    """

    def __init__(
        self,
        answers: Optional[dict[str, Union[Answer, list[Answer], Callable]]] = None,
        jobs: Iterable[Json] = (),
        kvs: Optional[dict[tuple[int, str], str]] = None,
        userid: int = 0,
        is_owner: bool = True,
        is_job: bool = False,
    ) -> None:
        self.answers = dict(answers or {})
        self.jobs = list(jobs)
        self.texts = kvs or {}
        self.userid = userid
        self.is_owner = is_owner
        self.is_job = is_job
        self.requests: list[tuple[str, Json]] = []
        self.raised: list[tuple[int, str]] = []
        self.ticks = 0
        self.slept = 0.0
        self.table: Optional[Json] = {}
        self.rules = NO_RULES
        self.mapping: Optional[RabbitMapping] = None
        self.jobspecs: dict[str, Json] = {}
        self.free: frozenset[str] = frozenset()
        self.allocated: frozenset[str] = frozenset()
        self.down: frozenset[str] = frozenset()

    def ask(
        self, topic: str, request: Json, tick: Optional[Callable[[], None]] = None
    ) -> Json:
        self.requests.append((topic, request))
        answer: Any = self.answers.get(topic, refused(errno.ENOSYS))
        if callable(answer):
            return answer(request)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        for _ in range(self.ticks if tick else 0):
            assert tick is not None
            tick()
        if isinstance(answer, OSError):
            raise answer
        return dict(answer)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        assert self.slept < 1000

    def parse_id(self, text: str) -> int:
        return jobid.decode(text)

    def raise_exception(self, id: int, type: str, note: str) -> None:
        if not self.is_owner and (self.job(id) or {}).get("userid") != self.userid:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.raised.append((id, type))

    def job(self, id: int) -> Optional[Json]:
        return next((job for job in self.jobs if job["id"] == id), None)

    def ended_jobs(self, userid: Optional[int], since: float, most: int) -> list[Json]:
        found = [
            job
            for job in self.jobs
            if job["state"] == 64
            and job["t_inactive"] > since
            and userid in (None, job["userid"])
        ]
        return found[:most]

    def running_jobs(self) -> list[Json]:
        return [job for job in self.jobs if job["state"] in (16, 32)]

    def nodes(self) -> Nodes:
        return Nodes(self.free, self.allocated, self.down)

    def site(self) -> Optional[Site]:
        if self.table is None:
            return None
        return Site(self.table, self.rules, self.mapping)

    def batch_jobspec(self, script: str, nodes: Optional[int]) -> Json:
        if script not in self.jobspecs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), script)
        found = self.jobspecs[script]
        if isinstance(found, Exception):
            raise found
        return found

    def kvs(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], str]:
        listed = list(wanted)
        if not self.is_owner:
            owners = {job["id"]: job["userid"] for job in self.jobs}
            for id, _ in listed:
                if owners.get(id) != self.userid:
                    raise PermissionError(errno.EPERM, "Operation not permitted")
        return {one: self.texts[one] for one in listed if one in self.texts}


class Done(NamedTuple):
    """What a run has written, and its exit status."""

    status: int
    out: str
    err: str


class _Stream(TextIOWrapper):
    """A standard stream, perhaps of a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__(BytesIO(), encoding="utf-8", newline="", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def getvalue(self) -> str:
        self.seek(0)
        return self.read()


def dws(
    instance: FixedInstance,
    *words: str,
    columns: int = 0,
    unicode: bool = True,
    **environment: str,
) -> Done:
    """Run ``flux dws WORDS``.

    Args:
        columns: those of the terminal; 0 for none.
    """
    out, err = _Stream(columns > 0), _Stream(False)
    if columns:
        environment.update(COLUMNS=str(columns), LINES="50", TERM="xterm")
    environment = {"TZ": "UTC", "XDG_CONFIG_HOME": "/nowhere", **environment}

    def main() -> None:
        args = COMMAND["arguments"](words)
        status = args.function(args, instance)
        if status:
            sys.exit(status)

    with (
        mock.patch.object(units, "is_utf8", lambda: unicode),
        mock.patch.dict(os.environ, environment),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        if not columns:
            os.environ.pop("COLUMNS", None)
        time.tzset()
        try:
            status = run("dws", main)
        except SystemExit as end:
            status = int(end.code or 0)
    time.tzset()
    return Done(status, out.getvalue(), err.getvalue())


def shows(done: Done, status: int, *parts: str) -> bool:
    """Whether a run has this exit status, and these parts in what it wrote, in whatever
    lines. A part that begins with ``-- `` must be absent. An error is one line."""
    assert done.status == status, done
    written = " ".join(f"{done.out} {done.err}".split())
    for part in parts:
        text, _, absent = part.strip().partition("-- ")
        assert " ".join(text.split()) in written, (part, done)
        assert not absent or absent not in written, (part, done)
    if status == 1 and "flux-dws: ERROR" in done.err:
        assert done.err.count("\n") == 1, done
    return True


GOLDEN = TOP / "t/data/dws"
"""What the subcommands print. With DWS_GOLDEN=write in the environment, a test writes
it instead of comparing with it."""


def is_golden(name: str, text: str) -> bool:
    """Whether a text is that of the file in :data:`GOLDEN`."""
    path = GOLDEN / name
    if os.environ.get("DWS_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    return True
