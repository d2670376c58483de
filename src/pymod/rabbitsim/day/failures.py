# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What fails in a day, at the rates of the site, and who mends it."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Callable, Optional, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.ports import STORAGE, Json
from rabbitsim.day.idle import Window
from rabbitsim.day.site import DAY, HOUR
from rabbitsim.day.system import DaySystem
from rabbitsim.dws.options import Fault
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.job import Job

ROUND = HOUR
"""Seconds between two rounds of the administrator, who puts nodes and Rabbits back into
service."""

API_SECONDS, CONTROLLER_SECONDS, MODULE_SECONDS = 20.0, 60.0, 2.0

HANGS = 1800.0
"""Seconds until a node that does not unmount is rebooted."""

Function = Callable[[], None]


class Failures:
    """Lets things fail until ``end``, and has them mended.

    Attributes:
        outages: when the API server, the controllers or the module were away.
        counts: how often each thing has failed.
    """

    def __init__(self, system: DaySystem, end: float) -> None:
        self._system = system
        self._end = end
        self._rng = random.Random(f"failures {system.site.seed}")
        self._down: set[str] = set()
        self.outages: list[Window] = []
        self.counts: Counter[str] = Counter()
        site, days = system.site, DAY
        for rate, fail in (
            (site.rabbits / site.rabbit_mtbf, self._rabbit),
            (site.nodes / site.node_mtbf, self._node),
            (site.nodes / site.link_mtbf, self._link),
            (site.api_restarts / days, self._api),
            (site.controller_restarts / days, self._controllers),
            (site.module_restarts / days, self._module),
        ):
            if rate > 0:
                self._next(rate, fail)
        self._later(ROUND, self._round)

    def submitted(self, jobid: int) -> None:
        """A job was submitted. Its Setup may be before it has nodes."""
        self._choose(jobid, "Setup", "error", self._system.site.setup_failures)

    def seen(self, job: Job, event: Event, before: JobState) -> None:
        """An event of a job, after it was processed."""
        if event.name == "alloc" and job.R is not None:
            self._choose_nodes(
                job.id, hostlist.decode_all(job.R["execution"]["nodelist"])
            )
        elif event.name == "clean":
            name, faults = workflow_name(job.id), self._system.faults
            faults[:] = [fault for fault in faults if fault.match != name]

    def _choose_nodes(self, jobid: int, hosts: tuple[str, ...]) -> None:
        """Decide which nodes of a job fail to mount its storage, and to unmount it."""
        site, count = self._system.site, len(hosts)
        fails, hangs = (
            _any(site.mount_failures, count),
            _any(site.unmount_failures, count),
        )
        self._choose(jobid, "PreRun", "mount", fails, hosts)
        self._choose(jobid, "PostRun", "mount", hangs, hosts, HANGS)

    def _choose(
        self,
        jobid: int,
        state: str,
        kind: str,
        chance: float,
        hosts: Sequence[str] = ("",),
        seconds: float = 0.0,
    ) -> None:
        """Decide whether something is going to go wrong with the storage of a job."""
        number, seed = self._system.planned[jobid].number, self._system.site.seed
        rng = random.Random(f"job {number} {seed} {state}")
        if rng.random() < chance:
            self.counts[f"{state} {kind}"] += 1
            host, name = rng.choice(hosts), workflow_name(jobid)
            found = Fault(state, kind, name, seconds, host, "a device failed")
            self._system.faults.append(found)

    def _later(self, seconds: float, function: Function) -> None:
        self._system.loop.call_later(seconds, function)

    def _next(self, rate: float, fail: Function) -> None:
        """Have something fail after a random time, and again and again."""

        def happen() -> None:
            if self._system.loop.now() < self._end:
                self.counts[fail.__name__.strip("_")] += 1
                fail()
                self._next(rate, fail)

        self._later(self._rng.expovariate(rate), happen)

    def _away(self, seconds: float) -> None:
        """Something is away for a while from now on."""
        now = self._system.loop.now()
        begin = max(now, self.outages[-1][1]) if self.outages else now
        if now + seconds > begin:
            self.outages.append((begin, now + seconds))

    def _rabbit(self) -> None:
        rabbits = self._system.controllers.rabbits
        name = self._rng.choice(list(self._system.topology.rabbits))
        rabbits.set_status(name, "Offline")
        self._later(self._repair(), partial(rabbits.set_status, name, "Ready"))

    def _node(self) -> None:
        """A node dies, and does not unmount."""
        system, host = self._system, self._host()
        if host is None:
            return
        self._down.add(host)
        dead = [
            Fault(state, "mount", "*", 0.0, host) for state in ("PreRun", "PostRun")
        ]
        system.faults.extend(dead)
        system.instance.set_up(host, False)

        def back() -> None:
            self._down.discard(host)
            system.faults[:] = [fault for fault in system.faults if fault not in dead]
            system.instance.set_up(host, True)

        self._later(self._repair(), back)

    def _link(self) -> None:
        rabbits, host = self._system.controllers.rabbits, self._host()
        if host is not None:
            rabbits.set_link(host, False)
            self._later(self._repair(), partial(rabbits.set_link, host, True))

    def _host(self) -> Optional[str]:
        host = self._rng.choice(list(self._system.topology.rabbit_of))
        return None if host in self._down else host

    def _repair(self) -> float:
        return self._rng.uniform(0.5, 1.5) * self._system.site.repair

    def _api(self) -> None:
        system = self._system
        self._away(API_SECONDS)
        system.api_is_down = True
        system.controllers.pause()
        if system.service_kube is not None:
            system.service_kube.drop_watches()

        def back() -> None:
            system.api_is_down = False
            system.controllers.resume()

        self._later(API_SECONDS, back)

    def _controllers(self) -> None:
        self._away(CONTROLLER_SECONDS)
        self._system.controllers.pause()
        self._later(CONTROLLER_SECONDS, self._system.controllers.resume)

    def _module(self) -> None:
        if self._system.instance.module_loaded:
            self._away(MODULE_SECONDS)
            self._system.kill_module()
            self._later(MODULE_SECONDS, self._system.load_module)

    def _round(self) -> None:
        """Put nodes that are up, and Rabbits, back into service."""
        system = self._system
        for node in system.instance.scheduler.pool.nodes:
            if node.drained is not None and node.up:
                system.instance.undrain(node.host)
        for storage in system.store.list(STORAGE, None)["items"]:
            if storage["spec"].get("state") == "Disabled":
                body: Json = {"spec": {"state": "Enabled"}}
                name = storage["metadata"]["name"]
                system.store.merge_patch(STORAGE, "default", name, body)
        self._later(ROUND, self._round)


def _any(chance: float, times: int) -> float:
    """The chance that something happens at least once."""
    return 1.0 - float((1.0 - chance) ** times)
