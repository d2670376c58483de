# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Large R's are read in another process, and whatever happens to it, only the job
whose R it was can fail."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterator

import pytest

from flux_k8s.broker import readerprocess
from flux_k8s.broker.readerprocess import ReaderProcess
from flux_k8s.formats import rset
from flux_k8s.formats.rset import Summary, UnreadableR
from flux_k8s.jobs import setupreader
from flux_k8s.jobs.setupreader import LargeSetup, Result, load, read_setup
from flux_k8s.objects import mapping
from flux_k8s.rules.directivebreakdown.allocation import ssd_per_rabbit
from rabbitsim.setups import READING
from rabbitsim.system import VirtualSystem
from support.queries import query
from support.rset import fluxion_r
from support.service import LIFE, exceptions, jobspec, names, settle

JOBID = 1234
PATIENCE = 60.0

ANSWERS_AND_STAYS = (
    sys.executable,
    "-c",
    "import signal, flux_k8s.broker.readerprocess as it; it.main(); signal.pause()",
)


class Reading:
    """A process that reads, and the thread that owns the service."""

    def __init__(self) -> None:
        self._mails: queue.Queue[Callable[[], None]] = queue.Queue()
        self.lines: list[str] = []
        self.process = ReaderProcess(
            self._mails.put, lambda level, line, reason: self.lines.append(line)
        )
        self.results: list[Result] = []

    def begin(self, text: bytes) -> None:
        self.process.read(memoryview(text), self.results.append)

    def end(self) -> Result:
        while not self.results:
            self._mails.get(timeout=PATIENCE)()
        return self.results.pop(0)

    def read(self, text: bytes) -> Result:
        self.begin(text)
        return self.end()

    def await_end(self) -> None:
        """Wait until the process has ended."""
        end = time.monotonic() + PATIENCE
        while self.process.pid is not None:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.fixture
def reading() -> Iterator[Reading]:
    reading = Reading()
    yield reading
    reading.process.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Reading]:
    """For tests that do nothing to the process."""
    reading = Reading()
    yield reading
    reading.process.close()


def some_R() -> Any:
    return fluxion_r({"n1": "rab0", "n2": "rab1"}, {"rab0": [7], "rab1": [5]})


def payload(R: Any) -> bytes:
    """What the plugin sends."""
    return b'{"jobid":%d,"R":%s}' % (JOBID, json.dumps(R).encode())


def large_R(size: int) -> Any:
    """A valid R of about ``size`` bytes."""
    core = {"metadata": {"type": "core", "paths": {"containment": "/cluster0/n0/c0"}}}
    R = some_R()
    nodes = R["scheduling"]["graph"]["nodes"]
    nodes += [core] * (size // len(json.dumps(core)))
    return R


def inline(text: bytes) -> Any:
    """What comes of a payload that is not large."""
    try:
        return read_setup(load("setup", text))[1]
    except Exception as error:
        return str(error)


def test_a_large_R_says_the_same_in_another_process(shared: Reading) -> None:
    text = payload(large_R(1_000_000))
    result = shared.read(text)
    assert isinstance(result, Summary)
    assert result == inline(text)
    assert len(result.graph().ssd) == 2


@pytest.mark.parametrize(
    "R",
    [
        "[]",
        "{",
        '{"version": 2}',
        '{"version": 1, "execution": {"R_lite": [], "nodelist": []}}',
        '{}, "R": []',
        pytest.param("[" * 200_000, id="deep"),  # is put into the environment
        '{"version": 1, "execution": "\udcff"}',
    ],
)
def test_a_malformed_R_gets_the_same_sentence(shared: Reading, R: str) -> None:
    text = b'{"jobid":1,"R":%s}' % R.encode(errors="surrogateescape")
    result = shared.read(text)
    assert isinstance(result, UnreadableR)
    assert str(result) == inline(text)


def test_a_malformed_graph_gets_its_sentence_when_it_is_needed(
    shared: Reading,
) -> None:
    R = some_R()
    R["scheduling"]["graph"]["nodes"].append({"metadata": {"type": "ssd"}})
    result = shared.read(payload(R))
    assert isinstance(result, Summary) and result.hosts == rset.parse(R).hosts
    with pytest.raises(UnreadableR, match=r"^R of job .*nodes\[[0-9]+\].* expected"):
        ssd_per_rabbit(result, mapping.parse({"computes": {}, "rabbits": {}}))


def test_one_process_reads_several_R_until_there_is_nothing_or_too_much_to_read(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a very large R is given back. One that dies is replaced."""
    reading.read(payload(some_R()))
    pid = reading.process.pid
    reading.read(b"no JSON")
    reading.read(payload(some_R()))
    assert reading.process.pid == pid is not None
    reading.read(payload(large_R(readerprocess.MAX_REUSE_SIZE)))
    reading.await_end()
    assert isinstance(reading.read(payload(some_R())), Summary)
    pid = reading.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(readerprocess, "IDLE_LIMIT", 0.1)
    assert isinstance(reading.read(payload(some_R())), Summary)
    reading.await_end()
    assert isinstance(reading.read(payload(some_R())), Summary)


def test_the_process_that_reads_imports_little() -> None:
    script = "import sys, flux_k8s.broker.readerprocess; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE)
    folders = ("broker", "config", "control", "dws", "jobs", "kube", "rabbits")
    ours = tuple(f"flux_k8s.{folder}." for folder in folders)
    found = {name for name in run.stdout.decode().split() if name.startswith(ours)}
    assert found == {
        "flux_k8s.broker.readerprocess",
        "flux_k8s.jobs.setupreader",
    }


def await_input(pid: int) -> None:
    """Wait until there is something for a process to read."""
    with open(f"/proc/{pid}/fd/0", "rb", buffering=0) as pipe:
        select.select([pipe], [], [], PATIENCE)


def test_a_reader_process_that_dies_fails_the_job_of_its_R(reading: Reading) -> None:
    reading.read(payload(some_R()))
    pid = reading.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    reading.begin(payload(large_R(1_000_000)))
    reading.begin(payload(some_R()))
    await_input(pid)
    os.kill(pid, signal.SIGKILL)
    result = reading.end()
    assert str(result) == "the process that reads R was ended by signal 9"
    assert isinstance(reading.end(), Summary)


def test_a_reader_process_that_does_not_answer_is_replaced(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading.read(payload(some_R()))
    assert reading.process.pid is not None
    os.kill(reading.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(readerprocess, "FIRST_LIMIT", 0.1)
    assert isinstance(reading.read(payload(some_R())), Summary)
    (line,) = reading.lines
    assert "was ended by signal 9; another one reads it" in line


def test_a_job_fails_if_a_second_reader_process_does_not_answer_either(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readerprocess, "COMMAND", ("sleep", "100"))
    monkeypatch.setattr(readerprocess, "FIRST_LIMIT", 0.1)
    monkeypatch.setattr(readerprocess, "TIME_LIMIT", 0.1)
    result = reading.read(payload(some_R()))
    assert str(result) == "the process that reads R was ended by signal 9"


@pytest.mark.parametrize("is_last", [False, True])
def test_a_reader_process_that_does_not_end_keeps_no_R_waiting(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    """It has stopped, either with nothing to read or after its last answer."""
    monkeypatch.setattr(readerprocess, "COMMAND", ANSWERS_AND_STAYS)
    monkeypatch.setattr(readerprocess, "FIRST_LIMIT", 1.0)
    limit = ("MAX_REUSE_SIZE", 0) if is_last else ("IDLE_LIMIT", 0.1)
    monkeypatch.setattr(readerprocess, *limit)
    assert isinstance(reading.read(payload(some_R())), Summary)
    reading.await_end()
    assert isinstance(reading.read(payload(some_R())), Summary)


def test_only_a_large_setup_is_left_unread() -> None:
    small = payload(some_R())
    assert setupreader.parse("setup", small) == json.loads(small)
    large = payload(large_R(2 * setupreader.LARGE))
    assert setupreader.parse("setup", large) == LargeSetup(JOBID, large)
    assert setupreader.parse("create", large) == json.loads(large)


# ---- whole systems ----------------------------------------------------------


class System(VirtualSystem):
    """Each R is taken for a large one."""

    def has_large_R(self, jobid: int) -> bool:
        return True


def started() -> tuple[System, int]:
    system = System()
    system.start()
    return system, system.instance.submit(jobspec())


def run_until(system: System, jobid: int, event: str, more: float = 0.0) -> None:
    assert system.loop.run(lambda: event in names(system, jobid), timeout=60.0)
    system.loop.run(lambda: False, timeout=more)


def test_an_R_that_cannot_be_read_fails_its_job_only() -> None:
    system, jobid = started()
    run_until(system, jobid, "prolog-start")
    system.setup_reader.failure = "the process that reads R was ended by signal 9"
    system.loop.run(lambda: False, timeout=READING)
    system.setup_reader.failure = None
    other = system.instance.submit(jobspec())
    settle(system)
    (exception,) = exceptions(system, jobid)
    assert exception["note"] == "the process that reads R was ended by signal 9"
    assert "start" not in names(system, jobid)
    assert names(system, other) == LIFE


@pytest.mark.parametrize("more", [0.0, READING / 2, READING])
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_job_is_cancelled_or_the_module_dies_while_its_R_is_read(
    more: float, cancelled: bool
) -> None:
    system, jobid = started()
    run_until(system, jobid, "prolog-start", more)
    if cancelled:
        system.instance.cancel(jobid)
    else:
        system.kill_module()
        system.load_module()
    settle(system)
    system.loop.run(lambda: False, timeout=10 * READING)
    if cancelled:
        assert "start" not in names(system, jobid)
    else:
        assert names(system, jobid) == LIFE
    assert query(system, "stats-get")["jobs"] == 0
