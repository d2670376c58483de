# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws, without an instance. t/t3000-job-object.t has what needs one.

First ``flux dws job-object``, then ``flux dws submit-object``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rabbitsim.cli import main
from sssjob import Element, read
from support.commands import refused, run, run_apart
from support.jobrecords import eventlog, facts, spec

DATA = Path(__file__).parents[1] / "data"

# flux dws job-object


def save(folder: Path, jobspec: Any = None, *events: Any, **files: str) -> Path:
    """Save a job's record, as Flux's KVS has it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "eventlog": eventlog(*events),
        "jobspec": json.dumps(jobspec or spec()),
        **files,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def told(*args: Any, stderr: str = "", **environment: str) -> Element:
    """What ``flux dws job-object`` writes."""
    done = run("dws", "job-object", *args, **environment)
    assert (done.returncode, done.stderr) == (0, stderr)
    return read(done.stdout)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the simulator saved a job that it ran."""
    folder = tmp_path_factory.mktemp("saved")
    script = DATA / "copy-in-out.sh"
    stand_ins = ["--flux=sim", "--kube=sim"]
    assert main(["run", *stand_ins, "--save", str(folder), str(script)]) == 0
    return folder


def test_a_saved_job_is_written_as_an_object_without_flux(saved: Path) -> None:
    (folder,) = saved.iterdir()
    job = told(f"--from={folder}", "--environment", "--machine=tioga", PATH="")
    found = facts(job)
    assert {f"Id {folder.name}", "State Completed", "Machine tioga"} < set(found)
    assert sum("name=WorkflowState" in fact for fact in found) == 7
    assert sum("name=DataMovement" in fact for fact in found) == 2
    assert any(fact.startswith("Environment/Variable") for fact in found)
    assert told(f"--from={folder}").find("Environment") is None


def test_the_job_object_is_the_same_in_a_file_and_on_standard_output(
    tmp_path: Path,
) -> None:
    folder = save(tmp_path / "f1", spec(job={"name": "smørrebrød"}))
    output = tmp_path / "job.xml"
    written = ("dws", "job-object", "--from", folder)
    done = run_apart("", *written, "-o", output, LC_ALL="C")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    shown = run_apart("", *written, LC_ALL="C")
    document = output.read_text(encoding="utf-8")
    assert shown.stdout == document
    assert read(document).text("Name") == "smørrebrød"


def test_several_jobs_are_a_group(tmp_path: Path) -> None:
    save(tmp_path / "ƒ2", spec(), "clean")
    save(tmp_path / "20")
    depends = spec(dependencies=[{"scheme": "afterok", "value": "ƒ2"}])
    save(tmp_path / "deep" / "x", depends, id="f4\n")
    group = told("--from", tmp_path)
    assert group.name == "JobGroup"
    assert (group.text("Id"), group.text("State")) == ("group-f2", "Active")
    jobs = list(group.all("Job"))
    assert [job.text("Id") for job in jobs] == ["f2", "f4", "fM"]
    assert jobs[1].text("Dependency") == jobs[0].text("Id")
    for folder in (tmp_path, tmp_path / "20"):  # one job is a group if asked for
        assert told("--from", folder, "--group=g 1").text("Id") == "g 1"


def test_a_file_that_is_no_record_of_a_job_is_refused(tmp_path: Path) -> None:
    def lines(folder: Path) -> list[str]:
        return refused(run("dws", "job-object", "--from", folder))

    error = "flux-dws: ERROR: "
    missing = tmp_path / "missing"
    assert lines(missing) == [f"{error}{missing}: is not a directory"]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert lines(empty) == [
        f"{error}{empty}: is no record of a job: expected the files jobspec and"
        " eventlog in it, or directories with them"
    ]
    (empty / "jobspec").write_text("{}")
    assert lines(empty) == [f"{error}{empty}: has no file eventlog"]
    unnamed = save(tmp_path / "job 1")
    assert lines(unnamed) == [
        f"{error}{unnamed}: is not called as a job; put the ID of the job into a file"
        " id in it"
    ]
    (unnamed / "id").write_text("one")
    assert lines(unnamed) == [
        f"{error}{unnamed / 'id'}: 'one' is not a job ID: expected one like ƒ26cdPmUM"
    ]
    cut = save(tmp_path / "f2", eventlog=eventlog("validate")[:-5])
    (line,) = lines(cut)
    assert line.startswith(f"{error}line 2 of the eventlog of job f2 is not JSON")
    (cut / "eventlog").write_bytes(b"\xff")
    assert lines(cut) == [f"{error}{cut / 'eventlog'}: is not UTF-8 text"]
    good = save(tmp_path / "f3")
    done = run("dws", "job-object", "--from", good, "-o", tmp_path)
    assert refused(done) == [f"{error}{tmp_path}: Is a directory"]
