# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The program with the stand-in Flux, which hosts the shipped plugin and service.

Jobs have no processes: a machine with two processors would measure those.
"""

from __future__ import annotations

import os
import random
import sys
import syslog
import time
from typing import Any, Optional

from flux_k8s.config.settings import Settings
from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.service import Service, collect_rarely
from flux_k8s.kube.client import KubeClient
from flux_k8s.reasons import log_line
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.execution import VirtualExecutor
from rabbitsim.flux.instance import Instance
from rabbitsim.flux.job import Job
from rabbitsim.loop import RealLoop
from rabbitsim.system import hosts_of, load_plugin, mapping_of, primary_group

from .child import memory, serve
from .hardware import topology
from .workload import jobspec

PATIENCE = 60.0


class StandIn:
    """The commands."""

    def __init__(self) -> None:
        self._loop = RealLoop()
        self._instance: Optional[Instance] = None
        self._kube: Optional[KubeClient] = None
        self._times: dict[str, tuple[float, float]] = {}

    def start(self, kubeconfig: str, nodes: int) -> None:
        """Start Flux, load the plugin and the module."""
        hardware = topology(nodes)
        mapping = mapping_of(hardware)
        self._instance = instance = Instance(
            self._loop,
            hosts_of(hardware),
            mapping,
            VirtualExecutor(self._loop),
            log=_log,
            owner=os.getuid(),
            groups=primary_group,
        )
        self._kube = kube = KubeClient(
            kubeconfig,
            loop=self._loop,
            log=lambda level, text, reason: _log(level, log_line(text, reason)),
        )
        load_plugin(instance)

        def make(port: FluxPort) -> Service:
            settings = Settings(Config(), mapping, owner=os.getuid())
            return Service(port, kube, settings, rng=random.Random(1))

        instance.load_module(make)
        instance.manager.listeners.append(self._listen)
        self._wait_for_kubernetes(instance)

    def _wait_for_kubernetes(self, instance: Instance) -> None:
        ready: list[bool] = []

        def answer(errnum: int, text: str, payload: Any) -> None:
            if payload is not None and payload["kubernetes"] == "ok":
                ready.append(True)
            else:
                self._loop.call_later(0.005, ask)

        def ask() -> None:
            instance.request("dws.stats-get", {}, answer)

        ask()
        if not self._loop.run(lambda: bool(ready), PATIENCE):
            raise TimeoutError("Kubernetes does not answer")

    def jobs(self, count: int, directive: bool = True) -> dict[str, Any]:
        """Run jobs at once: when each was submitted and inactive, by the name of
        its Workflow, and the processor time that it took."""
        instance = self._instance
        assert instance is not None
        self._times = {}
        cpu = time.process_time()
        spec = jobspec(directive)
        for _ in range(count):
            instance.submit(spec)
        if not self._loop.run(lambda: len(self._times) == count, PATIENCE):
            raise TimeoutError(self._stuck(instance))
        return {
            "times": self._times,
            "cpu": time.process_time() - cpu,
            "memory": memory(),
        }

    def _stuck(self, instance: Instance) -> str:
        jobs = instance.manager.active_jobs
        events = " ".join(event.name for event in jobs[0].events)
        return f"{len(jobs)} jobs do not end, one of them after {events}"

    def settle(self, seconds: float) -> None:
        """Let what follows the end of jobs happen."""
        self._loop.run(timeout=seconds)

    def _listen(self, job: Job, event: Event, before: JobState) -> None:
        if event.name == "clean":
            self._times[workflow_name(job.id)] = (job.t_submit, event.timestamp)

    def stop(self) -> None:
        if self._instance is not None:
            self._instance.unload_module()
        if self._kube is not None:
            self._kube.close()


def _log(level: int, message: str) -> None:
    if level <= syslog.LOG_WARNING:
        print(message, file=sys.stderr)


def main() -> None:
    collect_rarely()
    standin = StandIn()
    serve(
        {"start": standin.start, "jobs": standin.jobs, "settle": standin.settle},
    )
    standin.stop()


if __name__ == "__main__":
    main()
