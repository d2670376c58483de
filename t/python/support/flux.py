# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The stand-in Flux by itself, and plugins in Python for it."""

from __future__ import annotations

import errno
from typing import Any, Optional

from flux_k8s.dws import mapping
from flux_k8s.ports import Json
from rabbitsim.flux.broker import Respond
from rabbitsim.flux.events import JobState
from rabbitsim.flux.execution import VirtualExecutor
from rabbitsim.flux.instance import Instance
from rabbitsim.flux.jobtap import Jobtap
from rabbitsim.flux.options import submit_jobspec
from rabbitsim.loop import VirtualLoop

GUEST = 4711


def topology(nodes: int = 4, rabbits: int = 2, gib: int = 100) -> mapping.RabbitMapping:
    each = nodes // rabbits
    hosts = [f"node{i}" for i in range(nodes)]
    return mapping.parse(
        {
            "computes": {h: f"rabbit{i // each}" for i, h in enumerate(hosts)},
            "rabbits": {
                f"rabbit{r}": {
                    "capacity": gib * 2**30,
                    "hostlist": ",".join(hosts[r * each : (r + 1) * each]),
                }
                for r in range(rabbits)
            },
        }
    )


class System:
    """An instance under virtual time."""

    def __init__(self, **options: Any) -> None:
        self.loop = VirtualLoop()
        self.log: list[str] = []
        self.instance = Instance(
            self.loop,
            [f"node{i}" for i in range(4)],
            topology(),
            VirtualExecutor(self.loop),
            log=lambda level, message: self.log.append(message),
            **options,
        )

    def submit(self, *args: str, seconds: float = 1.0, **kwargs: Any) -> int:
        test = f"exec.test.run_duration={seconds}s"
        jobspec = submit_jobspec(["true"], [*args, "-S", test])
        return self.instance.submit(jobspec, **kwargs)

    def run(self, timeout: Optional[float] = None) -> None:
        """Run until nothing is left to do, or for ``timeout`` seconds."""
        if timeout is not None:
            self.loop.call_later(timeout, lambda: None)  # time passes in any case
        self.loop.run(timeout=timeout)

    def names(self, jobid: int) -> list[str]:
        return [event.name for event in self.instance.eventlog(jobid)]

    def times(self, jobid: int) -> dict[str, float]:
        """When the last event of each name was posted."""
        return {event.name: event.timestamp for event in self.instance.eventlog(jobid)}

    def context(self, jobid: int, name: str) -> Json:
        for event in self.instance.eventlog(jobid):
            if event.name == name:
                return event.context or {}
        raise AssertionError(f"no {name} in {self.names(jobid)}")

    def state(self, jobid: int) -> JobState:
        return self.instance.job(jobid).state


class Plugin:
    """A plugin in Python that does what its ``script`` says: topic to a
    function that gets the host and the arguments."""

    def __init__(self, host: Jobtap, script: dict[str, Any]) -> None:
        self.host = host
        self.script = script
        self.calls: list[str] = []

    def call(self, topic: str, args: Json) -> tuple[int, Json]:
        self.calls.append(topic)
        if topic in self.script:
            return self.script[topic](self.host, args) or (0, {})
        return 0, {}

    def request(
        self, method: str, payload: Optional[Json], respond: Respond, owner: bool
    ) -> None:
        if owner:
            respond(0, "", {"method": method})
        else:
            respond(errno.EPERM, "owner only", None)

    def job_destroyed(self, jobid: int) -> None:
        self.calls.append("destroyed")

    def unload(self) -> None:
        self.calls.append("unload")


def load(system: System, **script: Any) -> Plugin:
    """Load a plugin; keywords are topics with ``_`` for ``.``."""
    topics = {topic.replace("_", "."): f for topic, f in script.items()}
    made: list[Plugin] = []

    def factory(host: Jobtap, conf: Optional[Json]) -> Plugin:
        made.append(Plugin(host, topics))
        return made[0]

    system.instance.load_plugin(factory)
    return made[0]


def hold(host: Jobtap, args: Json) -> None:
    host.dependency_add(args["id"], "storage")


def prolog(host: Jobtap, args: Json) -> None:
    host.prolog_start(args["id"], "setup")


def epilog(host: Jobtap, args: Json) -> None:
    host.epilog_start(args["id"], "teardown")


PLAIN = "submit validate depend priority alloc start finish release free clean".split()
