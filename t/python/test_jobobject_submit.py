# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws submit-object --dry-run. t/t3002-submit-object.t has what needs an
instance."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from commands import refused, run, run_without
from jobobjects import DATA
from submissions import APP, extension, job

from flux_k8s.jobobject.markup import MAX_SIZE


def submit(*args: Any, stdin: str = "", **environment: str) -> Any:
    return run("dws", "submit-object", "--dry-run", *args, stdin=stdin, **environment)


def printed(*args: Any, **options: Any) -> list[Any]:
    """The jobspecs that would be submitted, without a word."""
    done = submit(*args, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_job_is_a_line_and_runs_where_the_command_does(tmp_path: Path) -> None:
    path = tmp_path / "job.xml"
    path.write_text(job("<Name>é</Name>"), encoding="utf-8")
    (jobspec,) = printed(path)
    assert jobspec["attributes"] == {
        "system": {"duration": 0, "cwd": os.getcwd(), "job": {"name": "é"}}
    }


def test_the_jobs_of_a_group_are_lines_in_the_order_of_the_document() -> None:
    group = f"""<JobGroup><Id>g</Id>
    <Job><Id>b</Id>{APP}<Dependency>a</Dependency></Job>
    <Job><Id>a</Id>{APP}</Job></JobGroup>"""
    b, a = printed("-", stdin=group)
    waits = [{"scheme": "afterok", "value": "a"}]
    assert b["attributes"]["system"]["dependencies"] == waits
    assert "dependencies" not in a["attributes"]["system"]


def test_who_submits_is_who_runs_the_command() -> None:
    said = f"<User>{os.getuid()}</User><Machine>here</Machine>"
    assert printed("-", "--machine=here", stdin=job(said))
    (line,) = refused(submit("-", "--machine=there", stdin=job(said)))
    assert line == 'flux-dws: ERROR: /Job/Machine: is "here", but this is there'


def test_the_environment_and_the_home_are_those_of_the_command() -> None:
    said = '<Environment export="true"/><OutputFile>~/out</OutputFile>'
    (jobspec,) = printed("-", stdin=job(said), HOME="/home/me", EXTRA="x")
    system = jobspec["attributes"]["system"]
    assert system["environment"]["EXTRA"] == "x"
    assert system["shell"]["options"]["output"]["stdout"]["path"] == "/home/me/out"


def test_each_problem_is_a_line() -> None:
    lines = refused(submit(DATA / "elaborate.xml"))
    assert len(lines) == 11
    assert all(line.startswith("flux-dws: ERROR: /JobGroup/Job[") for line in lines)


def test_what_is_left_out_is_told_and_the_rest_submitted() -> None:
    said = job("<Quote>q</Quote><Memory>1</Memory>", awarenessPolicy="Warn")
    done = submit("-", stdin=said)
    assert done.returncode == 0
    assert json.loads(done.stdout)
    assert [line.split(": ")[1:3] for line in done.stderr.splitlines()] == [
        ["WARNING", "/Job/Memory"],
        ["WARNING", "/Job/Quote"],
    ]


def test_what_is_no_job_object_is_an_error(tmp_path: Path) -> None:
    (line,) = refused(submit("-", stdin="<Job>"))
    assert line.startswith("flux-dws: ERROR: line 1: ")
    (line,) = refused(submit("-", stdin="<Job>" + " " * MAX_SIZE))
    assert line.endswith("/: a document of more than 16 MiB")
    (line,) = refused(submit("-", stdin=job(extension("resources", [1]))))
    assert line.startswith("flux-dws: ERROR: /Job/Extension: jobspec: resources[0] is")
    (line,) = refused(submit(tmp_path))
    assert line == f"flux-dws: ERROR: {tmp_path}: Is a directory"


def test_a_stream_that_is_closed_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "job.xml"
    path.write_text(job(""))
    args = ("dws", "submit-object", "--dry-run")
    (line,) = refused(run_without("<&-", *args, "-"))
    assert line == "flux-dws: ERROR: line 1: /: not well formed: no element found"
    for stream in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = run_without(stream, *args, path)
        assert (done.returncode, done.stderr) == (0, "")
