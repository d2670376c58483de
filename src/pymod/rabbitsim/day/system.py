# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The system of a day: the simulated one, with a module whose work takes time and is
counted."""

from __future__ import annotations

import random
import syslog
from collections import Counter
from typing import Any, Callable, Mapping, Optional

import msgspec

from flux_k8s.config.settings import Settings
from flux_k8s.config.table import Config
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.service import Service
from flux_k8s.kube.cache import identify
from flux_k8s.ports import SERVERS, Json, KubeError, Payload, Request
from flux_k8s.rules.jgfwriter import DEFAULT_CHUNKS
from rabbitsim.day.copies import SharedFiles
from rabbitsim.day.jobs import PlannedJob
from rabbitsim.day.reactor import PARSE, Meter, Reactor, ReactorModule, ReactorPort
from rabbitsim.day.site import COSTS, EVENTS, R_NODES, R_SECONDS, SPREAD, STATES, Site
from rabbitsim.dws import Controllers
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.dws.storage import wanted
from rabbitsim.dws.topology import TIB, Topology
from rabbitsim.flux.broker import FluxPort, VirtualReader
from rabbitsim.flux.execution import Launch
from rabbitsim.kube.direct import DirectKube, Fault
from rabbitsim.kube.objects import managed_fields
from rabbitsim.kube.watch import Stored
from rabbitsim.setups import Receiver
from rabbitsim.system import VirtualSystem

CONFIG = {
    "setup_timeout": 3600,
    "prerun_timeout": 900,
    "postrun_timeout": 900,
    "teardown_after": 86400,
}
"""The time limits of the example configuration."""

RABBIT_CAPACITY = 30 * TIB

EPILOG_TIMEOUT = 3600.0

BACKFILL = 64
"""Jobs behind the first that waits which the scheduler looks at."""

CAPACITY_INTERVAL = 60.0
"""Seconds between two writes of the free capacity of the Rabbits."""

PARSED = 64
"""Every so many objects that the service gets, one is parsed as JSON."""

REFUSED = KubeError(0, "ConnectionRefused", "connection refused")


class DaySystem(VirtualSystem):
    """The system.

    Attributes:
        planned: the jobs by their IDs, once they are submitted.
        faults: what goes wrong in DWS now.
        meter: what the module does.
        requests: how many requests of the module of each verb arrived; ``by_second``
            how many in each second (UNIX time).
        api_is_down: whether the API server is away.
        files: where data is copied to and from.
        readers: the readers of large R of all modules.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.planned: dict[int, PlannedJob] = {}
        self._ids: dict[int, int] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self.faults: list[DwsFault] = []
        self.meter = Meter()
        self.requests: Counter[str] = Counter()
        self.by_second: Counter[int] = Counter()
        self.api_is_down = False
        self.readers: list[VirtualReader] = []
        super().__init__(
            site.seed,
            options=Options(
                latency=table(STATES, spread=SPREAD),
                faults=self.faults,
                progress_after=1.0,
                capacity_interval=CAPACITY_INTERVAL,
                report_interval=site.report_interval,
                full_events=True,
            ),
            config=Config.parse(
                {**CONFIG, "stage": site.stage, "release": site.release}
            ),
            plugin_conf={"epilog-timeout": EPILOG_TIMEOUT},
            message_latency=site.message_latency,
            kube_latency=site.kube_latency,
            topology=Topology.regular(
                site.nodes, site.rabbits, capacity=RABBIT_CAPACITY
            ),
            chunks=DEFAULT_CHUNKS,
        )
        self.instance.scheduler.depth = BACKFILL

    def submit(self, job: PlannedJob) -> int:
        """Submit a job; its ID."""
        jobid = self.instance.submit(job.jobspec(), userid=job.user)
        self.planned[jobid] = job
        self._ids[job.number] = jobid
        self._sizes[job.number] = job.copy_in, job.copy_out
        return jobid

    def forget(self, jobid: int) -> None:
        """A job is over: let go of what is large."""
        job = self.instance.job(jobid)
        job.kvs.clear()
        job.R = None
        job.events.clear()
        self.executor.environments.pop(jobid, None)

    def load_module(self) -> None:
        def make(port: FluxPort) -> ReactorModule:
            reactor = Reactor(port, self.meter, COSTS, EVENTS)
            kube = DirectKube(self.store, port, self._kube_latency, self._arrived)
            kube.encode = encoder = _Encoder(self.meter, self.loop.now)
            kube.listed = encoder.listed
            kube.receive = self.meter.receive
            kube.deliver = self._deliver_by(reactor)
            self.service_kube = kube
            port.reader.seconds = _reading
            self.readers.append(port.reader)
            flux = ReactorPort(port, reactor)
            self.service = Service(
                flux,
                kube,
                Settings(self.config, self.mapping, owner=self.instance.broker.owner),
                rng=random.Random(self.rng.getrandbits(32)),
            )
            receiver = Receiver(port, self.service, self.has_large_R)
            return ReactorModule(receiver, reactor, self.meter)

        self.instance.load_module(make)

    def has_large_R(self, jobid: int) -> bool:
        job = self.planned.get(jobid)
        return job is not None and job.nodes > R_NODES

    def _deliver_by(self, reactor: Reactor) -> Any:
        by_second, now = self.meter.by_second, self.loop.now

        def deliver(what: str, call: Any) -> None:
            if what != "answer":
                by_second[int(now())] += 1
            reactor.add(what, call)

        return deliver

    def _arrived(self, request: Request) -> Optional[Fault]:
        """A request of the service arrives at the API server."""
        self.requests[request.verb] += 1
        self.by_second[int(self.loop.now())] += 1
        return Fault(error=REFUSED) if self.api_is_down else None

    def _make_controllers(self, options: Options, seed: int) -> Controllers:
        self.files = SharedFiles(
            self.loop,
            self.site.node_rate * self.site.nodes,
            self.site.rabbit_rate,
            lambda number, way: self._sizes[number][way == "out"],
            self._rabbits_of,
            self.site.copy_failures,
            self.site.report_interval,
            random.Random(f"copies {seed}"),
        )
        self._files = self.files
        return super()._make_controllers(options, seed)

    def _rabbits_of(self, number: int) -> int:
        """On how many Rabbits the storage of a job is."""
        name = f"{workflow_name(self._ids[number])}-0"
        servers = self.store.find(SERVERS, "default", name)
        return 1 if servers is None else max(1, len(wanted(servers["spec"])))

    def _prepare(self, launch: Launch, rank: int) -> Mapping[str, str]:
        """Run the shell plugin in the first shell of a job: all are alike."""
        return {} if rank else super()._prepare(launch, rank)

    def _add_log(self, level: int, message: str) -> None:
        """Keep warnings and errors only: a day has many lines."""
        if level <= syslog.LOG_WARNING:
            super()._add_log(level, message)


class _Encoder:
    """Makes JSON of what the API server shows. Of some objects it makes what a real
    server sends, and measures how long it takes the client to find out which they
    are."""

    def __init__(self, meter: Meter, now: Callable[[], float]) -> None:
        self._meter = meter
        self._now = now
        self._count = 0

    def __call__(self, found: Json) -> bytes:
        self._count += 1
        if self._count % PARSED == 0 and isinstance(found, Stored):
            metadata = dict(found["metadata"])
            metadata["managedFields"] = managed_fields(found, self._now())
            text = msgspec.json.encode({**found, "metadata": metadata})
            self._meter.bytes += len(text)
            self._meter.measure(PARSE, lambda: identify(text))
        return msgspec.json.encode(found)

    def listed(self, page: Json) -> None:
        self._meter.listed[page["kind"]] += len(page["items"])


def _reading(text: Payload) -> float:
    """Seconds that the reader of large R takes."""
    return bytes(text).count(b'"type":"node"') * R_SECONDS
