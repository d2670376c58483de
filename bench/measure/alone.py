# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program with the service, and nothing else that costs anything."""

from __future__ import annotations

import json
import os
import random
import time
from functools import partial
from typing import Any, Callable, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.queries import ROWS
from flux_k8s.jobs.service import Service, collect_rarely
from flux_k8s.kube.client import KubeClient
from flux_k8s.objects import mapping
from flux_k8s.ports import Json, Respond, Sender

from .child import memory, serve
from .plainflux import PlainFlux
from .reactor import Reactor
from .workload import FIRST_JOB

PATIENCE = 900.0
"""Seconds: a slow machine with a real cluster on it takes minutes for 100 jobs."""

INTERVAL = 0.02
"""Seconds between two looks at whether something has come about."""


class Alone:
    """The service, its event loop, and the commands.

    Args:
        kubeconfig: how to reach Kubernetes.
        rabbits: the rabbitmapping.
        running, ended: how many jobs run, and how many have ended while the
            service was away. Their Workflows are in PreRun.
    """

    def __init__(
        self, kubeconfig: str, rabbits: Json, running: int = 0, ended: int = 0
    ) -> None:
        self.reactor = Reactor()
        known = mapping.parse(rabbits)
        hosts = [host for rabbit in known.rabbits for host in known.hosts_of(rabbit)]
        self.flux = PlainFlux(self.reactor, hosts)
        self.flux.held = [
            {
                "id": FIRST_JOB + index,
                "phase": "running" if index < running else "epilog",
                "run_started": True,
            }
            for index in range(running + ended)
        ]
        self._next = FIRST_JOB + running + ended
        self._kube = KubeClient(kubeconfig, loop=self.reactor, log=self.flux.log)
        settings = Settings(Config(), known, scheduler=False, owner=os.getuid())
        self.service = Service(
            self.flux,
            self._kube,
            settings,
            rng=random.Random(1),
        )
        self.flux.service = self.service
        stop = self.reactor.beat()
        self.service.start()
        self._wait(partial(self._knows, running + ended), "Workflows are known")
        stop()
        self.flux.held = []

    def jobs(self, count: int) -> dict[str, Any]:
        """Run jobs at once: when each was submitted and released, by the name of
        its Workflow, and the processor time that it took."""
        cpu = time.process_time()
        jobids = self._submit(count, 0.0, 0.0)
        ended = self.flux.ended
        self._wait(lambda: all(jobid in ended for jobid in jobids), "jobs end")
        self.drain()
        return {
            "times": {
                workflow_name(jobid): (self.flux.submitted[jobid], ended[jobid])
                for jobid in jobids
            },
            "cpu": time.process_time() - cpu,
            "memory": memory(),
        }

    def begin(self, count: int, run_seconds: float, spread: float) -> None:
        """Have jobs come within ``spread`` seconds, and wait for them to."""
        self._submit(count, run_seconds, spread)
        self.reactor.run(lambda: False, spread)

    def run(self, seconds: float) -> dict[str, Any]:
        """Go on for a while: the number of jobs, the processor time, and how late
        the event loop was."""
        stop = self.reactor.beat()
        cpu = time.process_time()
        self.reactor.run(lambda: False, seconds)
        stop()
        return {
            "jobs": self._stats()["jobs"],
            "cpu": time.process_time() - cpu,
            "gaps": self.reactor.gaps,
        }

    def allocate(self, directive: str, path: str) -> dict[str, Any]:
        """Have a job come with this directive, which gets the R in a file, and wait
        until its Workflow is in Setup: its name, when it got R, and how late the
        event loop was."""
        with open(path, "rb") as file:
            self.flux.R = file.read()
        self.flux.directive = directive
        before = self._in_setup()
        stop = self.reactor.beat()
        (jobid,) = self._submit(1, 0.0, 0.0)
        self._wait(lambda: self._in_setup() > before, "the Workflow is in Setup")
        stop()
        return {
            "name": workflow_name(jobid),
            "allocated": self.flux.allocated[jobid],
            "gaps": self.reactor.gaps,
        }

    def _in_setup(self) -> int:
        return int(self._stats()["workflows"].get("Setup", 0))

    def submit(self, count: int) -> None:
        """Have jobs come at once; what becomes of them is seen in ``run``."""
        self._submit(count, 0.0, 0.0)

    def stats(self, count: int, interval: float) -> list[float]:
        """Ask for ``dws.stats-get``, at times that nothing can shift; the
        seconds from each to its answer."""
        seconds: list[float] = []

        def ask(due: float) -> None:
            self._ask_stats(lambda _: seconds.append(self.reactor.now() - due))

        begin = self.reactor.now()
        for number in range(1, count + 1):
            due = begin + number * interval
            self.reactor.call_later(number * interval, partial(ask, due))
        self._wait(lambda: len(seconds) == count, "requests are answered")
        return seconds

    def queries(self, guests: int) -> dict[str, Any]:
        """Ask for all jobs, portion by portion, for the Rabbits, the metrics, the
        statistics of the module and one job, and have as many guests ask for theirs
        meanwhile: how late the event loop was, the processor time that it took between
        two beats, and the seconds until all jobs were listed. Each answer is encoded,
        as it is for Flux."""
        left, jobs, with_rabbits = 4 + 2 * guests, 0, 0
        begin, listed = self.reactor.now(), 0.0

        def respond(errnum: int, text: str, answer: Optional[Json]) -> None:
            nonlocal left
            if errnum:
                raise RuntimeError(text)
            json.dumps(answer).encode()
            left -= 1

        def rabbits(sender: Sender) -> Callable[[int, str, Optional[Json]], None]:
            def answered(errnum: int, text: str, answer: Optional[Json]) -> None:
                if answer is not None and answer["next"] is not None:
                    json.dumps(answer).encode()
                    payload = {"after": answer["next"]}
                    self.service.query("rabbit-list", payload, answered, sender)
                else:
                    respond(errnum, text, answer)

            return answered

        def portion(errnum: int, text: str, answer: Optional[Json]) -> None:
            nonlocal listed, jobs, with_rabbits
            assert answer is not None, text
            json.dumps(answer).encode()
            jobs += len(answer["jobs"])
            with_rabbits += sum(bool(row["rabbits"]) for row in answer["jobs"])
            if answer["next"] is None:
                listed = self.reactor.now()
            else:
                self._list(answer["next"], portion)

        owner = Sender(os.getuid(), True)
        stop = self.reactor.beat()
        self._list(0, portion)
        self.service.query("rabbit-list", {}, rabbits(owner), owner)
        self.service.query("metrics", {}, respond, owner)
        self.service.request("stats-get", {}, respond)
        self.service.query("job-show", {"id": FIRST_JOB}, respond, owner)
        for userid in range(1, guests + 1):
            guest = Sender(userid, False)
            self.service.query("job-list", {}, respond, guest)
            self.service.query("rabbit-list", {}, rabbits(guest), guest)
        self._wait(lambda: left == 0 and listed > 0, "queries are answered")
        stop()
        return {
            "jobs": jobs,
            "with_rabbits": with_rabbits,
            "gaps": self.reactor.gaps,
            "used": self.reactor.used,
            "listed": listed - begin,
        }

    def _list(self, after: int, respond: Respond) -> None:
        payload = {"after": after, "max": ROWS}
        self.service.query("job-list", payload, respond, Sender(os.getuid(), True))

    def drain(self) -> None:
        """Wait until the storage of all jobs is gone."""
        self._wait(lambda: self._stats()["jobs"] == 0, "Workflows go")

    def end(self, first: int, count: int) -> None:
        """Let some of the jobs end that were there at the start."""
        for jobid in range(FIRST_JOB + first, FIRST_JOB + first + count):
            self.flux.end(jobid)

    def _submit(self, count: int, run_seconds: float, spread: float) -> range:
        self.flux.run_seconds = run_seconds
        jobids = range(self._next, self._next + count)
        self._next += count
        for index, jobid in enumerate(jobids):
            delay = spread * index / count
            self.reactor.call_later(delay, partial(self.flux.submit, jobid))
        return jobids

    def _knows(self, jobs: int) -> bool:
        stats = self._stats()
        workflows = sum(
            number for state, number in stats["workflows"].items() if state != "none"
        )
        ready = stats["kubernetes"] == "ok" and stats["busy"] == 0
        return bool(ready and stats["jobs"] == workflows == jobs)

    def _stats(self) -> Json:
        answers: list[Json] = []
        self._ask_stats(answers.append)
        self.reactor.run(lambda: bool(answers), PATIENCE)
        return answers[0]

    def _ask_stats(self, done: Callable[[Json], None]) -> None:
        def respond(errnum: int, text: str, answer: Optional[Json]) -> None:
            json.dumps(answer).encode()
            done(answer or {})

        self.service.request("stats-get", {}, respond)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        end = self.reactor.now() + PATIENCE
        while not condition():
            if self.reactor.now() > end:
                raise TimeoutError(f"not after {PATIENCE:g} s: {what}: {self._stats()}")
            self.reactor.run(lambda: False, INTERVAL)

    def stop(self) -> None:
        self.service.stop()
        self._kube.close()


class Program:
    """The commands: those of :class:`Alone`, and the one that begins."""

    def __init__(self) -> None:
        self._alone: Optional[Alone] = None

    def start(self, **options: Any) -> dict[str, Any]:
        """Start the service, and wait until it knows all Workflows: when it began,
        how much memory it takes, and how late its event loop was."""
        begin = time.time()
        self._alone = Alone(**options)
        return {
            "begin": begin,
            "memory": memory(),
            "most": memory("VmHWM"),
            "gaps": self._alone.reactor.gaps,
        }

    def do(self, command: str, **arguments: Any) -> Any:
        return getattr(self._alone, command)(**arguments)

    def stop(self) -> None:
        if self._alone is not None:
            self._alone.stop()


def main() -> None:
    collect_rarely()
    program = Program()
    commands: dict[str, Callable[..., Any]] = {"start": program.start}
    for command in "jobs begin run allocate submit stats queries drain end".split():
        commands[command] = partial(program.do, command)
    serve(commands)
    program.stop()


if __name__ == "__main__":
    main()
