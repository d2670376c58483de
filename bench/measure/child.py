# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Programs in processes of their own, which do one command after another.

Commands and answers are JSON, one on a line, through standard input and output.
A program ends when its input does: none outlives this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Callable, Optional

_PATIENCE = 30.0
_ANSWER = "bench-answer "
_PR_SET_PDEATHSIG = 1
_CPUCLOCK_SCHED = 2


class ChildError(Exception):
    """A program failed; the message has its traceback."""


class Child:
    """A program that was started.

    Args:
        module: a module of this package, to be run as a program.
        command: what to run it with; Python by default.
        environment: what differs from ours.
        log: where its standard error goes.
    """

    def __init__(
        self,
        module: str,
        *,
        command: Sequence[str] = (sys.executable,),
        environment: Optional[Mapping[str, str]] = None,
        log: Optional[pathlib.Path] = None,
    ) -> None:
        package = pathlib.Path(__file__).parent
        paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._name = module
        self._process = subprocess.Popen(
            [*command, "-m", f"{package.name}.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if log is None else open(log, "ab"),
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(paths), **(environment or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: str, **arguments: Any) -> None:
        """Begin a command; :meth:`receive` gives its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([command, arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildError(f"{self._name} has ended") from None

    def receive(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                answer = json.loads(line[len(_ANSWER) :])
                if "error" in answer:
                    raise ChildError(f"{self._name}: {answer['error']}")
                return answer["result"]
        raise ChildError(f"{self._name} ended without an answer")

    def call(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.receive()

    def pause(self) -> None:
        """Let the process hang, as a server may."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on; one that does not hang is left alone."""
        self._process.send_signal(signal.SIGCONT)

    def close(self, patience: float = _PATIENCE) -> None:
        """End the process after its work, or after some seconds."""
        self.resume()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self._process.wait(patience)
                return
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, number)
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # After an error it may be in the middle of what will never end.
        self.close(_PATIENCE if error is None else 2.0)


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Carry out commands until there are no more. If the process that started this one
    is killed, this one is too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints is no answer
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer = {"result": commands[command](**arguments)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        output.write(_ANSWER + json.dumps(answer) + "\n")
        output.flush()


def memory(field: str = "VmRSS", pid: str = "self") -> float:
    """Memory of a process, in MiB. ``VmHWM`` is the most that it ever had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/status has no {field}")


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has used, with all its threads, and
    those of its children that have ended."""
    children = sum(map(int, stat_of(pid)[13:15])) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(_clock_of(pid)) + children


def _clock_of(pid: int) -> int:
    """The clock of clock_getcpuclockid(3), which Python lacks. What ``stat`` has are
    hundredths of a second: three in a hundred of what 200 jobs take."""
    return ~pid << 3 | _CPUCLOCK_SCHED


def descendants(pid: int) -> list[int]:
    """A process and the processes below it."""
    children: dict[int, list[int]] = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int(stat_of(folder.name)[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def stat_of(pid: object) -> list[str]:
    """The fields of a process's ``stat`` after its name."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()
