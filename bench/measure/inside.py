# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program in a real Flux: the initial program of an instance.

Jobs are simulated by Flux's own execution service (``exec.test``): neither job
shells nor tasks are measured.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any, Optional

from flux.constants import FLUX_RPC_STREAMING
from flux.job.submit import submit_async, submit_get_id

import flux

from . import idealmodule
from .child import cpu_of, descendants, memory, serve, stat_of
from .workload import jobspec

JOB_PREFIX = "fluxjob-"


class Jobs:
    """Submits jobs, and waits for them to become inactive."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._times: dict[int, dict[str, float]] = {}
        self._left = 0
        self._failed: set[int] = set()
        allow = {"submit": 1, "exception": 1, "clean": 1}
        request = {"full": False, "allow": allow}
        journal = handle.rpc(
            "job-manager.events-journal", request, flags=FLUX_RPC_STREAMING
        )
        journal.then(self._take)

    def _take(self, journal: Any) -> None:
        response = journal.get()
        journal.reset()
        for event in response["events"]:
            times = self._times.setdefault(response["id"], {})
            times[event["name"]] = event["timestamp"]
            if event["name"] == "clean":
                self._left -= 1
            elif event["name"] == "exception" and event["context"]["severity"] == 0:
                self._failed.add(response["id"])
        if self._left == 0:
            self._handle.reactor_stop()

    def run(self, count: int, directive: bool) -> dict[str, tuple[float, float]]:
        """Submit jobs at once; when each was submitted, and inactive.

        Raises:
            OSError: jobs failed: they end sooner than others, and would be called fast.
        """
        spec = json.dumps(jobspec(directive))
        self._times, self._left = {}, count
        self._failed.clear()
        futures = [
            submit_async(self._handle, spec, novalidate=True) for _ in range(count)
        ]
        for future in futures:
            submit_get_id(future)
        self._handle.reactor_run()
        if self._failed:
            raise OSError(f"{len(self._failed)} of {count} jobs failed")
        return {
            f"{JOB_PREFIX}{jobid}": (times["submit"], times["clean"])
            for jobid, times in self._times.items()
        }


class Inside:
    """The commands."""

    def __init__(self) -> None:
        self._handle = flux.Flux()
        self._broker = int(self._handle.attr_get("broker.pid"))
        self._module: Optional[int] = None
        self._jobs: Optional[Jobs] = None
        self._ideal: Optional[subprocess.Popen[str]] = None

    def load_module(self, arguments: list[str]) -> None:
        """``flux module load dws``; returns when it knows its Workflows."""
        # A Flux that has flux-dws installed loads it at its start.
        _run("flux", "module", "remove", "--force", "dws")
        _run("flux", "module", "load", "dws", *arguments)
        self._module = _module_process(self._broker)
        while self._stats()["kubernetes"] != "ok":
            time.sleep(0.02)

    def unload_module(self) -> None:
        _run("flux", "module", "remove", "dws")
        self._module = None

    def load_ideal(self, url: str, mapping: str) -> None:
        """The ideal client in place of the module."""
        _run("flux", "module", "remove", "--force", "dws")
        words = [sys.executable, "-m", idealmodule.__name__, url, mapping]
        self._ideal = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._ideal.stdout is not None
        if self._ideal.stdout.readline().strip() != idealmodule.READY:
            raise OSError("the ideal client has ended")
        self._module = self._ideal.pid

    def unload_ideal(self) -> None:
        assert self._ideal is not None
        self._module = None
        with self._ideal:
            self._ideal.terminate()

    def load_plugin(self, path: str) -> None:
        self._handle.rpc("job-manager.jobtap", {"load": path}).get()

    def remove_plugin(self, name: str) -> None:
        self._handle.rpc("job-manager.jobtap", {"remove": name}).get()

    def jobs(self, count: int, directive: bool = True) -> dict[str, Any]:
        """Run jobs at once: when each was submitted and inactive, by the name of
        its Workflow, and the processor time that broker and module took."""
        if self._jobs is None:
            self._jobs = Jobs(self._handle)
        before = self._cpu()
        times = self._jobs.run(count, directive)
        broker, module = (now - then for now, then in zip(self._cpu(), before))
        return {"times": times, "cpu": broker + module, "module": module}

    def _cpu(self) -> tuple[float, float]:
        return cpu_of(self._broker), sum(map(cpu_of, self._processes()))

    def _processes(self) -> list[int]:
        """Those of the module: its supervisor, and its service below that."""
        return [] if self._module is None else descendants(self._module)

    def service(self) -> int:
        """The process of the service."""
        return self._processes()[-1]

    def settle(self, seconds: float) -> float:
        """Let what follows the end of jobs happen, and say how much processor
        time it took the module."""
        _, before = self._cpu()
        time.sleep(seconds)
        return self._cpu()[1] - before

    def stats(self, count: int, interval: float) -> list[float]:
        """Ask for ``flux module stats dws``; the seconds until each answer."""
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self._stats()
            seconds.append(time.perf_counter() - begin)
            time.sleep(interval)
        return seconds

    def stats_commands(self, count: int) -> list[float]:
        """Run the command itself; the seconds that each took."""
        return self.command(["flux", "module", "stats", "dws"], count)

    def active(self) -> dict[str, Any]:
        """The totals of the jobs with storage that the module knows."""
        request = {"max": 1, "userid": 0}
        totals: dict[str, Any] = self._handle.rpc("dws.job-list", request).get()[
            "totals"
        ]
        return totals

    def command(self, words: list[str], count: int) -> list[float]:
        """Run a command; the seconds that each took."""
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            _run(*words)
            seconds.append(time.perf_counter() - begin)
        return seconds

    def validated(self, count: int, guest: list[str], note: str = "") -> list[float]:
        """Submit jobs without directives that Flux's validator looks at, each right
        behind a guest's with these directives, and with a note that nothing reads; the
        seconds until each was taken."""
        plain, evil = jobspec(False), jobspec(False)
        evil["attributes"]["user"] = {"note": note}
        text = json.dumps(plain)
        seconds = []
        for _ in range(count):
            others = []
            for directive in guest:
                evil["attributes"]["system"]["dw"] = directive
                others.append(submit_async(self._handle, json.dumps(evil)))
            begin = time.perf_counter()
            submit_get_id(submit_async(self._handle, text))
            seconds.append(time.perf_counter() - begin)
            for other in others:
                if not _refused(other):
                    raise OSError("the validator does not know flux-dws")
        return seconds

    def submit(self, count: int) -> None:
        """Submit jobs and do not wait for them."""
        self._submit(jobspec(True), count)

    def occupy(self, directive: str, running: int, waiting: int) -> None:
        """Submit jobs that run until ``cancel``, or wait for storage."""
        spec = jobspec(True)
        system = spec["attributes"]["system"]
        system.update(dw=directive, exec={"test": {"run_duration": "1d"}})
        self._submit(spec, running + waiting)
        wanted = {"run": running, "sched": waiting}
        while not wanted.items() <= self._states().items():
            time.sleep(0.1)

    def cancel(self) -> None:
        """Cancel all jobs."""
        _run("flux", "cancel", "--all", "--quiet")
        self.drain()

    def _states(self) -> dict[str, int]:
        """The number of jobs in each state."""
        stats = self._handle.rpc("job-list.job-stats").get()
        states: dict[str, int] = stats["job_states"]
        return states

    def _submit(self, spec: dict[str, Any], count: int) -> None:
        text = json.dumps(spec)
        futures = [
            submit_async(self._handle, text, novalidate=True) for _ in range(count)
        ]
        for future in futures:
            submit_get_id(future)

    def drain(self) -> None:
        """Wait until no job is active."""
        _run("flux", "queue", "drain", "--timeout=60s")

    def memory(self) -> float:
        """That of the module's processes, in MiB. What they share counts for each."""
        return sum(memory(pid=str(process)) for process in self._processes())

    def scheduler(self) -> float:
        """Seconds of processor time that Fluxion's ``sched-fluxion-resource`` has
        taken, which does nothing else meanwhile."""
        return self._taken("sched-fluxion-r")

    def broker_memory(self) -> float:
        """That of the broker, with its modules that are threads, in MiB."""
        return memory(pid=str(self._broker))

    def threads(self) -> dict[str, float]:
        """Seconds of processor time that each of the broker's threads has taken, by its
        name. Modules are threads."""
        return _threads([self._broker])

    def module_threads(self) -> dict[str, float]:
        """The same of the processes of the module."""
        return _threads(self._processes())

    def _taken(self, thread: str) -> float:
        """Seconds of processor time of a module whose thread is called so."""
        try:
            return self.threads()[thread]
        except KeyError:
            raise OSError(f"there is no thread {thread}") from None

    def restart(self, count: int) -> dict[str, Any]:
        """Load the module again: the seconds until it has this many jobs and nothing
        to do, and the most processor time that the job manager took meanwhile between
        two answers, in seconds."""
        self.unload_module()
        most = 0.0
        begin = time.monotonic()
        command = ["flux", "module", "load", "dws", "scheduler=none"]
        with subprocess.Popen(command) as loading:
            before = self._taken("job-manager")
            stats = None
            while True:
                self._handle.rpc("job-manager.ping", {"seq": 0, "pad": ""}).get()
                now = self._taken("job-manager")
                most, before = max(most, now - before), now
                if loading.poll() is None:
                    continue
                if loading.returncode:
                    raise OSError("the module was not loaded")
                # The job manager is asked further while the module has yet to answer.
                if stats is None:
                    stats = self._handle.rpc("dws.stats-get", {})
                elif _is_ready(stats):
                    if _has_settled(stats.get(), count):
                        break
                    stats = None
        seconds = time.monotonic() - begin
        self._module = _module_process(self._broker)
        return {"seconds": seconds, "most": most}

    def switched(self, down: int) -> float:
        """Wait until the module has so many ``ssd`` out of service, and Fluxion has
        nothing to do for a second; the seconds as above, then."""
        while self._stats()["rabbits"]["fluxion"]["ssd_down"] != down:
            time.sleep(0.02)
        before = -1.0
        while (now := self.scheduler()) > before + 1e-3:
            before = now
            time.sleep(1.0)
        return now

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self._handle.rpc("dws.stats-get", {}).get()
        return stats


def _is_ready(future: Any) -> bool:
    """Whether the answer is there; a wait of no time would not let it in."""
    try:
        future.wait_for(1e-3)
    except TimeoutError:
        return False
    return True


def _has_settled(stats: dict[str, Any], count: int) -> bool:
    return stats.get("jobs") == count and stats.get("busy") == 0


def _refused(future: Any) -> bool:
    try:
        submit_get_id(future)
    except OSError:
        return True
    return False


def _run(*command: str) -> None:
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if result.returncode:
        raise OSError(f"{' '.join(command)}: {result.stdout.strip()}")


def _module_process(broker: int) -> int:
    """The module's supervisor, a child of the broker's."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = stat_of(folder.name)[1]
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if int(parent) == broker and any(b"/dws" in word for word in command):
            return int(folder.name)
    raise OSError("the module has no process of its own")


def _threads(processes: Iterable[int]) -> dict[str, float]:
    """Seconds of processor time that each thread has taken, by its name."""
    found: dict[str, float] = {}
    for process in processes:
        for folder in pathlib.Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                taken = int((folder / "schedstat").read_text().split()[0]) / 1e9
                name = (folder / "comm").read_text().strip()
                found[name] = found.get(name, 0.0) + taken
    return found


def main() -> None:
    inside = Inside()
    names = (
        "load_module unload_module load_ideal unload_ideal load_plugin remove_plugin"
        " jobs settle stats stats_commands active command validated submit drain memory"
        " occupy cancel restart scheduler service switched threads module_threads"
        " broker_memory"
    )
    serve({name: getattr(inside, name) for name in names.split()})


if __name__ == "__main__":
    main()
