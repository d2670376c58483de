# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws submit-object --dry-run. t/t3000-job-object.t has what needs an
instance."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sssjob.xml.markup import MAX_SIZE
from support.commands import refused, run, run_apart
from support.submissions import APP, extension, job


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
    assert line == 'flux-dws: ERROR: line 1: /Job/Machine: is "here", but this is there'
    (line,) = refused(submit("-", stdin=job("<Machine>here</Machine>")))
    assert '/Job/Machine: is "here", but nobody said what this system is' in line


def test_the_environment_and_the_home_are_those_of_the_command() -> None:
    said = '<Environment export="true"/><OutputFile>~/out</OutputFile>'
    (jobspec,) = printed("-", stdin=job(said), HOME="/home/me", EXTRA="x")
    system = jobspec["attributes"]["system"]
    assert system["environment"]["EXTRA"] == "x"
    assert system["shell"]["options"]["output"]["stdout"]["path"] == "/home/me/out"


@pytest.mark.parametrize("policy", ["warn", "ignore", "Ignore", "reject"])
def test_the_policy_of_an_object_that_has_none_can_be_given(policy: str) -> None:
    args = ["-", f"--awareness={policy}"]
    unknown = "<Memory>1</Memory><Colour/>"
    done = submit(*args, stdin=job(unknown))
    lines = done.stderr.splitlines()
    if policy == "reject":
        assert len(refused(done)) == 2
    else:
        assert done.returncode == 0
        assert len(lines) == (2 if policy == "warn" else 0)
    # One that it has counts.
    done = submit(*args, stdin=job(unknown, awarenessPolicy="Ignore"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        len(refused(submit(*args, stdin=job(unknown, awarenessPolicy="Reject")))) == 2
    )


def test_no_control_character_reaches_a_terminal() -> None:
    directive = "#DW jobdw \x1b[31m= \x07 type=xfs capacity=1GiB name=a"
    storage = '<Resource name="Storage" type="xfs" units="GB">1</Resource>'
    for said in (
        storage + extension("attributes.system.dw", [directive]),
        "<Queue>\x85\x9b31m</Queue><Requested><Queue>a</Queue></Requested>",
        "<Dependency>\u202egnp.exe</Dependency>",
        "<Name \u202e=''/>",
        "<Resource name='\x9b31m'>1</Resource>",
    ):
        for line in refused(submit("-", stdin=job(said))):
            assert line.isprintable()


def test_a_file_that_is_no_job_object_is_an_error(tmp_path: Path) -> None:
    (line,) = refused(submit("-", stdin="<Job>"))
    assert line.startswith("flux-dws: ERROR: line 1: ")
    (line,) = refused(submit("-", stdin="<Job>" + " " * MAX_SIZE))
    assert line.endswith("/: a document of more than 16 MiB")
    (line,) = refused(submit("-", stdin=job(extension("resources", [1]))))
    assert line.startswith(
        "flux-dws: ERROR: line 1: /Job/Extension: jobspec: resources[0] is"
    )
    (line,) = refused(submit(tmp_path))
    assert line == f"flux-dws: ERROR: {tmp_path}: Is a directory"


def test_a_stream_that_is_closed_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "job.xml"
    path.write_text(job(""))
    args = ("dws", "submit-object", "--dry-run")
    (line,) = refused(run_apart("<&-", *args, "-"))
    assert line == "flux-dws: ERROR: line 1: /: not well formed: no element found"
    for stream in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = run_apart(stream, *args, path)
        assert (done.returncode, done.stderr) == (0, "")
