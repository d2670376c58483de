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
from rabbitsim.flux.options import submit_jobspec
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


def test_every_task_runs_once_on_its_node(system: System) -> None:
    command = 'echo "$FLUX_TASK_RANK $FLUX_TASK_LOCAL_ID $SHELL_RANK" > $FLUX_TASK_RANK'
    assert system.run(command, "-N2", "-n5") == 0
    said = [(system.folder / str(rank)).read_text().split() for rank in range(5)]
    assert [line[2] for line in said] == ["0", "0", "0", "1", "1"]
    assert [line[1] for line in said] == ["0", "1", "2", "0", "1"]


def test_the_job_has_the_highest_exit_status_of_its_tasks(system: System) -> None:
    assert system.run("exit $FLUX_TASK_RANK", "-n4") == 3 << 8


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
