# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Running jobs as real processes, all on this machine.

Each task is a process group of its own, so that ending a job ends whatever its
tasks have started.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import selectors
import signal
import subprocess
import threading
from functools import partial
from typing import Callable, Mapping, Optional

from rabbitsim.flux.execution import Launch
from rabbitsim.flux.fluid import encode
from rabbitsim.flux.tasks import Task, make_tasks, output_path
from rabbitsim.loop import RealLoop
from rabbitsim.signals import signals_held

CHUNK = 65536

Output = Callable[[int, str, bytes], None]
"""Gets the task's rank, ``stdout`` or ``stderr``, and what it wrote."""

Prepare = Callable[[Launch, int], Mapping[str, str]]
"""Initialises one shell of a job; gives the variables that it sets. What it
raises (``OSError``) keeps the job from running."""


class ProcessExecutor:
    """Runs jobs. What tasks write goes to the file that the jobspec names, else
    to ``output``."""

    def __init__(
        self, loop: RealLoop, scratch: pathlib.Path, prepare: Prepare, output: Output
    ) -> None:
        """
        Args:
            scratch: the directory for the jobs' own temporary directories.
        """
        self._loop = loop
        self._scratch = scratch
        self._prepare = prepare
        self._output = output
        self._jobs: dict[int, _RunningJob] = {}

    def start(self, launch: Launch) -> None:
        launch.started()
        job = self._jobs[launch.jobid] = _RunningJob(launch, self._end)
        try:
            for task in self._tasks(launch):
                job.spawn(task, self._loop, self._sink(launch))
        except (OSError, ValueError) as error:
            launch.failed(_explain(error, launch))
            job.give_up()

    def kill(self, jobid: int, signum: int) -> None:
        if jobid in self._jobs:
            self._jobs[jobid].kill(signum)

    def _end(self, launch: Launch, status: int) -> None:
        del self._jobs[launch.jobid]
        launch.finished(status)
        launch.released()

    def _tasks(self, launch: Launch) -> list[Task]:
        system = launch.jobspec["attributes"]["system"]
        tmpdir = self._scratch / f"job-{encode(launch.jobid, 'f')}"
        tmpdir.mkdir(parents=True, exist_ok=True)
        for name, file in system.get("files", {}).items():
            path = tmpdir / name
            path.write_text(file["data"], encoding="utf-8")
            path.chmod(file["mode"] & 0o7777)
        environment = system.get("environment", {})
        variables = [
            {**environment, **self._prepare(launch, rank)}
            for rank in range(len(launch.hosts))
        ]
        return make_tasks(launch, str(tmpdir), variables)

    def _sink(self, launch: Launch) -> Output:
        """The function that takes the output of a job's tasks."""
        cwd = launch.jobspec["attributes"]["system"].get("cwd", "/")
        paths = {s: output_path(launch, s) for s in ("stdout", "stderr")}
        for path in dict.fromkeys(paths.values()):
            if path is not None:
                open(os.path.join(cwd, path), "wb").close()

        def sink(rank: int, stream: str, data: bytes) -> None:
            path = paths[stream]
            if path is None:
                self._output(rank, stream, data)
                return
            with open(os.path.join(cwd, path), "ab") as file:
                file.write(data)

        return sink


class _RunningJob:
    """The processes of one job. All methods are for the loop's thread."""

    def __init__(self, launch: Launch, end: Callable[[Launch, int], None]) -> None:
        self._launch = launch
        self._end = end
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._status = 0

    def spawn(self, task: Task, loop: RealLoop, sink: Output) -> None:
        with signals_held():
            process = subprocess.Popen(
                task.argv,
                cwd=self._launch.jobspec["attributes"]["system"].get("cwd"),
                env=dict(task.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._processes[task.rank] = process

        def watch() -> None:
            _copy_output(process, task.rank, loop, sink)
            status = process.wait()
            loop.call_soon_threadsafe(partial(self._ended, task.rank, status))

        threading.Thread(target=watch, daemon=True).start()

    def kill(self, signum: int) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signum)

    def give_up(self) -> None:
        """A task could not be started: end the others; the job fails."""
        self._status = 127 << 8
        if self._processes:
            self.kill(signal.SIGKILL)
        else:
            self._end(self._launch, self._status)

    def _ended(self, rank: int, status: int) -> None:
        code = 128 - status if status < 0 else status
        self._status = max(self._status, code << 8)
        del self._processes[rank]
        if not self._processes:
            self._end(self._launch, self._status)


def _copy_output(
    process: subprocess.Popen[bytes], rank: int, loop: RealLoop, sink: Output
) -> None:
    """Hand a process' output to ``sink`` on the loop's thread, until its end."""
    with selectors.DefaultSelector() as selector:
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, name)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, CHUNK)
                if data:
                    loop.call_soon_threadsafe(partial(sink, rank, key.data, data))
                else:
                    selector.unregister(key.fileobj)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _explain(error: Exception, launch: Launch) -> str:
    """The reason why a job could not be started, in the words of Flux."""
    filename: Optional[str] = getattr(error, "filename", None)
    if isinstance(error, OSError) and filename is not None:
        return f"task 0 (host {launch.hosts[0]}): start failed: {filename}: " + str(
            error.strerror
        )
    return str(error)
