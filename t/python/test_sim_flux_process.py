# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in's jobs as real processes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from rabbitsim.dws import Topology
from rabbitsim.flux.execution import Launch
from rabbitsim.flux.instance import Instance
from rabbitsim.flux.options import batch_jobspec, submit_jobspec
from rabbitsim.flux.process import ProcessExecutor
from rabbitsim.loop import RealLoop
from rabbitsim.system import hosts_of, mapping_of

PATIENCE = 20.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GREETING": "hello"}


class System:
    """An instance that runs processes; no plugin, no module."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.loop = RealLoop()
        self.stdout = ""
        self.stderr = ""
        self.refusal: Optional[str] = None
        topology = Topology.regular(4, 2)
        self.instance = Instance(
            self.loop,
            hosts_of(topology),
            mapping_of(topology),
            ProcessExecutor(self.loop, folder / "jobs", self.prepare, self.write),
        )

    def prepare(self, launch: Launch, rank: int) -> dict[str, str]:
        if self.refusal is not None:
            raise OSError(self.refusal)
        return {"SHELL_RANK": str(rank)}

    def write(self, rank: int, stream: str, data: bytes) -> None:
        if stream == "stdout":
            self.stdout += data.decode()
        else:
            self.stderr += data.decode()

    def submit(self, command: str, *args: str) -> int:
        jobspec = submit_jobspec(
            ["sh", "-c", command],
            args,
            cwd=str(self.folder),
            environment=ENVIRONMENT,
        )
        return self.instance.submit(jobspec)

    def wait_for(self, jobid: int, event: str = "clean") -> None:
        job = self.instance.job(jobid)
        assert self.loop.run(lambda: job.was_posted(event), PATIENCE)

    def run(self, command: str, *args: str) -> int:
        """Run a job; its wait status."""
        jobid = self.submit(command, *args)
        self.wait_for(jobid)
        status = self.instance.job(jobid).wait_status
        assert status is not None
        return status

    def exception(self, jobid: int) -> dict[str, Any]:
        exception = self.instance.job(jobid).fatal_exception
        assert exception is not None
        return exception


@pytest.fixture
def system(tmp_path: pathlib.Path) -> Iterator[System]:
    system = System(tmp_path)
    yield system
    system.loop.close()


def test_a_task_gets_the_environment_of_the_job(system: System) -> None:
    assert system.run("echo $GREETING $FLUX_JOB_NNODES $FLUX_JOB_SIZE; pwd") == 0
    assert system.stdout == f"hello 1 1\n{system.folder}\n"


def test_every_task_runs_once_on_its_node(system: System) -> None:
    command = 'echo "$FLUX_TASK_RANK $FLUX_TASK_LOCAL_ID $SHELL_RANK" > $FLUX_TASK_RANK'
    assert system.run(command, "-N2", "-n5") == 0
    said = [(system.folder / str(rank)).read_text().split() for rank in range(5)]
    assert [line[2] for line in said] == ["0", "0", "0", "1", "1"]
    assert [line[1] for line in said] == ["0", "1", "2", "0", "1"]


def test_the_job_has_the_highest_exit_status_of_its_tasks(system: System) -> None:
    assert system.run("exit $FLUX_TASK_RANK", "-n4") == 3 << 8


def test_a_task_that_is_killed_counts_as_128_and_the_signal(system: System) -> None:
    assert system.run("kill -9 $$") == 137 << 8


def test_stderr_is_separate_from_stdout(system: System) -> None:
    system.run("echo oops >&2")
    assert (system.stdout, system.stderr) == ("", "oops\n")


def test_output_goes_to_the_files_that_the_job_names(system: System) -> None:
    system.run("echo a; echo b >&2", "--output=out-{{id}}", "--error=err")
    (out,) = system.folder.glob("out-ƒ*")
    assert out.read_text() == "a\n"
    assert (system.folder / "err").read_text() == "b\n"
    assert system.stdout == ""


def test_stderr_goes_where_stdout_goes(system: System) -> None:
    system.run("echo a; echo b >&2", "--output=both")
    assert sorted((system.folder / "both").read_text().split()) == ["a", "b"]


def test_a_command_that_does_not_exist_fails_the_job(system: System) -> None:
    jobspec = submit_jobspec(["/no/such/command"], cwd="/", environment=ENVIRONMENT)
    jobid = system.instance.submit(jobspec)
    system.wait_for(jobid)
    assert system.exception(jobid) == {
        "type": "exec",
        "severity": 0,
        "userid": 500,
        "note": "task 0 (host compute-01): start failed: /no/such/command:"
        " No such file or directory",
    }
    assert system.instance.job(jobid).wait_status == 127 << 8


def test_a_shell_that_refuses_keeps_the_job_from_running(system: System) -> None:
    system.refusal = "no storage"
    jobid = system.submit("echo ran")
    system.wait_for(jobid)
    assert system.exception(jobid)["note"] == "no storage"
    assert system.stdout == ""


def test_cancel_ends_whatever_the_tasks_have_started(system: System) -> None:
    jobid = system.submit("(sleep 1000; echo survived) & echo up; wait", "-n2")
    assert system.loop.run(lambda: system.stdout.count("up") == 2, PATIENCE)
    system.instance.cancel(jobid)
    system.wait_for(jobid)
    assert system.instance.job(jobid).wait_status == 143 << 8
    assert "survived" not in system.stdout


def test_the_time_limit_ends_the_job(system: System) -> None:
    jobid = system.submit("sleep 1000", "-t0.2s")
    system.wait_for(jobid)
    assert system.exception(jobid)["type"] == "timeout"
    assert system.instance.job(jobid).wait_status == 142 << 8


def test_a_batch_script_runs_once_on_the_first_node(system: System) -> None:
    script = '#!/bin/sh\n#FLUX: -N3 -n3\necho "$0 $1 $FLUX_JOB_NNODES $SHELL_RANK"\n'
    jobspec, _ = batch_jobspec(
        script, "x.sh", args=["arg"], cwd="/", environment=ENVIRONMENT
    )
    del jobspec["attributes"]["system"]["shell"]["options"]["output"]
    jobid = system.instance.submit(jobspec)
    system.wait_for(jobid)
    assert system.stdout.endswith("/script arg 3 0\n")
    assert system.stdout.count("\n") == 1
