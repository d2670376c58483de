# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux dws on the stand-in, with a service, jobs and data: what it shows is what it
shows on a real Flux (t/t1035-dws-transcript.t)."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Optional
from unittest import mock

import pytest

from dwscli.units import user_name
from flux_k8s.config.table import Config
from rabbitsim.cli.save import kvs_of
from rabbitsim.commands import VirtualInstance
from rabbitsim.dws import Topology
from rabbitsim.dws.files import Files
from rabbitsim.dws.topology import Rabbit
from rabbitsim.flux.options import submit_jobspec
from support.dwscli import GIB, GOLDEN, dws, is_golden
from support.service import (
    HOUR,
    TIB,
    XFS,
    long,
    run_until,
    running,
    settle_jobs,
    started,
)
from support.tree import TOP

MIB = 2**20
COPY_IN = "#DW copy_in source=/lustre/input destination=$DW_JOB_p1/"
COPY_OUT = "#DW copy_out source=$DW_JOB_p1/input destination=/lustre/output/"
NO_DATA = "#DW copy_in source=/lustre/none destination=$DW_JOB_p1/"
TABLE = {
    "save_datamovements": 10,
    "presets": {"scratch": "#DW jobdw type=xfs capacity=100GiB name=scratch"},
}
"""The ``[rabbit]`` table."""
TRANSCRIPT = runpy.run_path(str(TOP / "t/transcript.py"))
STATES = "Proposal Setup DataIn PreRun PostRun DataOut Teardown".split()
STAY = 1.0
"""Seconds that a job that is followed stays in each state."""
"""A user ID."""

TOPOLOGY = Topology.of(
    [
        Rabbit("rabbit-01", TIB, tuple(f"compute-0{i}" for i in (1, 2, 5, 6))),
        Rabbit("rabbit-02", TIB, tuple(f"compute-0{i}" for i in (3, 4, 7, 8))),
    ]
)
"""That of t/tap.sh."""


class Scenario:
    """Jobs in different states.

    Attributes:
        jobs: the name and the ID of each.
        user: whose jobs they are.
    """

    def __init__(self, folder: Path) -> None:
        with mock.patch.object(sys, "path", [*sys.path, str(TOP / "t")]):
            gated = runpy.run_path(str(TOP / "t/gates.py"))["GatedOptions"]
        self._gates = folder / "gates"
        self._gates.mkdir()
        self.input = folder / "lustre/input"
        self.system = started(
            topology=TOPOLOGY,
            scheduler=False,
            dynamic_properties=False,
            files=Files(folder),
            options=gated(gates=self._gates, copy_rate=2 * MIB),
            config=Config.parse(TABLE),
        )
        owner = self.system.instance.broker.owner
        self.user = user_name(owner) or str(owner)
        self.jobs: dict[str, int] = {}
        (folder / "lustre/output").mkdir()
        self.input.write_text("1\n")

    def submit(self, name: str, host: str, *directives: str) -> int:
        dw = "\n".join([XFS, *directives])
        options = ["-N1", "-n1", f"--requires=host:{host}", "-S", f"dw={dw}"]
        jobid = self.system.instance.submit(submit_jobspec(["true"], options))
        self.jobs[name] = jobid
        return jobid

    def gate(self, state: str, is_shut: bool = True) -> None:
        path = self._gates / state
        path.touch() if is_shut else path.unlink()

    def arrive(self, jobid: int, state: str) -> None:
        """Run until DWS is in a state of a job."""
        name = f"fluxjob-{jobid}"

        def there() -> bool:
            return any(
                workflow["metadata"]["name"] == name
                and workflow.get("status", {}).get("state") == state
                for workflow in self.system.workflows()
            )

        assert self.system.loop.run(there, HOUR)

    def save(self, jobid: int) -> Path:
        """A folder with what Flux has of a job."""
        folder = self._gates / str(jobid)
        folder.mkdir()
        for key, text in kvs_of(self.system.instance.job(jobid)).items():
            (folder / key).write_text(text, encoding="utf-8")
        return folder

    def follow(self, jobid: int) -> str:
        """What ``show --follow`` shows of a job that stays a while in each state."""
        loop = self.system.loop

        def go_on() -> None:
            for workflow in self.system.workflows():
                gate = self._gates / workflow["status"]["state"]
                gate.unlink(missing_ok=True)
                loop.call_later(STAY, go_on)

        loop.call_later(STAY, go_on)
        done = dws(VirtualInstance(self.system), "show", "--follow", str(jobid))
        assert (done.status, done.err) == (0, "")
        masked: str = TRANSCRIPT["masked"](done.out, self.user, self.jobs)
        return masked

    def transcript(self, userid: Optional[int] = None) -> str:
        """What the commands of the transcript show."""
        instance = VirtualInstance(self.system, userid, TABLE)

        def run(words: list[str]) -> tuple[int, str]:
            if words[0] == "job-object":
                words = [words[0], f"--from={self.save(int(words[1]))}"]
            with mock.patch("time.time", self.system.loop.now):
                done = dws(instance, *words)
            instance.sleep(1.0)
            return done.status, done.err + done.out

        commands = (GOLDEN / "transcript.txt").read_text(encoding="utf-8")
        text: str = TRANSCRIPT["run_again"](commands, self.user, self.jobs, run)
        return text


def ended(scenario: Scenario) -> None:
    """One job completes, one fails, and one is cancelled."""
    system = scenario.system
    for name, copies in (("complete", [COPY_IN, COPY_OUT]), ("failed", [NO_DATA])):
        run_until(system, scenario.submit(name, "compute-01", *copies), "clean")
    scenario.gate("Proposal")
    jobid = scenario.submit("cancelled", "compute-01")
    scenario.arrive(jobid, "Proposal")
    system.instance.cancel(jobid)
    run_until(system, jobid, "clean")
    scenario.gate("Proposal", False)


def active(scenario: Scenario) -> None:
    """One job mounts, one copies, and one waits for its Workflow."""
    scenario.gate("PreRun")
    scenario.arrive(scenario.submit("mounting", "compute-01"), "PreRun")
    os.truncate(scenario.input, 512 * MIB)
    jobid = scenario.submit("copying", "compute-02", COPY_IN, COPY_OUT)
    scenario.arrive(jobid, "DataIn")
    scenario.gate("Proposal")
    scenario.arrive(scenario.submit("waiting", "compute-02"), "Proposal")
    scenario.system.loop.run(timeout=20.0)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    found = Scenario(tmp_path_factory.mktemp("scenario"))
    ended(found)
    active(found)
    return found


def test_each_subcommand_shows_what_the_service_answers(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TOP / "t/data")
    assert is_golden("transcript.txt", scenario.transcript())


def test_each_state_of_a_job_that_is_followed_is_shown(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    for state in STATES:
        scenario.gate(state)
    jobid = scenario.submit("complete", "compute-01", COPY_IN, COPY_OUT)
    scenario.arrive(jobid, "Proposal")
    assert is_golden("follow.txt", scenario.follow(jobid))
    settle_jobs(scenario.system)


@pytest.mark.parametrize("kind", ["xfs", "gfs2", "lustre"])
def test_the_capacity_of_a_job_is_the_same_when_it_has_ended(kind: str) -> None:
    """What the directives ask for is less than what is allocated."""
    system = started()
    directive = f"#DW jobdw type={kind} capacity=10GiB name=p1"
    jobid = system.instance.submit(long(directive, 2))
    running(system, jobid)
    words = ("list", "-a", "-n", "-o", "{state} {rabbits} {capacity}")
    before = dws(VirtualInstance(system), *words).out
    settle_jobs(system)
    system.loop.run(timeout=1.0)
    after = dws(VirtualInstance(system), *words).out
    assert before.startswith("PreRun ") and int(before.split()[-1]) > 10 * GIB
    assert after.split() == ["ended", *before.split()[1:]]
