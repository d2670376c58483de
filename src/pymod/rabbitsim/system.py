# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A whole system: Flux, Kubernetes and DWS, with the code that ships.

:class:`VirtualSystem` has all of it on one virtual clock, where a seed gives
one and the same run each time. With :class:`LocalKube` and :class:`LocalFlux`
jobs are real processes, time is real, and the service reaches Kubernetes over
HTTP, as in production.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import random
import time
from concurrent.futures import Future
from typing import Any, Callable, Mapping, Optional, Sequence

from msgspec import to_builtins

from flux_k8s.config.arguments import FLUXION
from flux_k8s.config.settings import Identity, Queues, Settings
from flux_k8s.config.table import Config
from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.jobs.service import Service
from flux_k8s.jobs.work import NoteWork, Work
from flux_k8s.kube.client import KubeClient
from flux_k8s.machine.fluxion import RABBIT_MODULE
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json, Kind, KubeError
from flux_k8s.reasons import log_line
from rabbitsim.dws import (
    Controllers,
    Options,
    Topology,
    admission,
    install,
)
from rabbitsim.dws.files import FileSystems
from rabbitsim.flux.broker import FluxPort
from rabbitsim.flux.execution import Executor, Launch, VirtualExecutor
from rabbitsim.flux.instance import Instance
from rabbitsim.flux.jobtap import Jobtap
from rabbitsim.flux.process import Output, ProcessExecutor
from rabbitsim.flux.shells import initialize_shell
from rabbitsim.jobtap import Plugin
from rabbitsim.kube.direct import DirectKube, Faults
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store
from rabbitsim.loop import RealLoop, VirtualLoop
from rabbitsim.setups import Receiver

Log = Callable[[int, str], None]


def mapping_of(topology: Topology) -> RabbitMapping:
    """The rabbitmapping of a topology."""
    return rabbitmapping.parse(
        {
            "computes": dict(topology.rabbit_of),
            "rabbits": {
                name: {
                    "capacity": rabbit.capacity,
                    "hostlist": hostlist.encode(rabbit.computes),
                }
                for name, rabbit in topology.rabbits.items()
            },
        }
    )


def hosts_of(topology: Topology) -> list[str]:
    """All compute nodes: those of each Rabbit in turn, then those without."""
    return [*topology.rabbit_of, *topology.external]


def make_plugin(host: Jobtap, conf: Optional[Json]) -> Plugin:
    """The shipped plugin. Raises ``OSError`` when it refuses ``conf``."""
    return Plugin(host, conf)


def load_plugin(instance: Instance, conf: Optional[Json] = None) -> None:
    """Load the shipped plugin. Raises ``OSError`` when it refuses ``conf``."""
    instance.load_plugin(make_plugin, conf)


class VirtualSystem:
    """All of the system in virtual time, without files, processes, threads or I/O.

    Attributes:
        loop: the clock; ``run`` it.
        rng: the source of all randomness.
        instance: Flux.
        store: the objects in Kubernetes.
        controllers: DWS and NNF.
        service: the service of the module ``dws``, or None if it is not loaded.
        service_kube: Kubernetes as the service reaches it, with ``faults`` and
            ``drop_watches``.
        service_port: Flux as the service reaches it, with a clock that may be set.
        log: all log lines.
        note_work: is called by the next services with their work.
        barred: the work that the next services are not to do.
        clock_ahead: the seconds by which the clock of the service's machine is ahead,
            as the next services find it.
    """

    def __init__(
        self,
        seed: int = 0,
        nodes: int = 4,
        rabbits: int = 2,
        *,
        options: Optional[Options] = None,
        config: Optional[Config] = None,
        plugin_conf: Optional[Json] = None,
        message_latency: float = 0.0,
        kube_latency: float = 0.0,
        faults: Optional[Faults] = None,
        properties: Optional[Mapping[str, Sequence[str]]] = None,
        topology: Optional[Topology] = None,
        files: Optional[FileSystems] = None,
        scheduler: bool = True,
        dynamic_properties: bool = True,
        queues: Queues = None,
        chunks: Optional[int] = None,
        rabbit_nodes: bool = False,
        scheduler_module: str = "",
    ) -> None:
        """
        Args:
            rabbit_nodes: the Rabbits are nodes of Flux as well.
            scheduler: false for the module argument ``scheduler=none``.
            scheduler_module: the scheduler that takes properties: Fluxion by default,
                and sched-rabbit with ``scheduler=none``.
            dynamic_properties: the scheduler takes properties while it runs.
            queues: as in the service's settings.
            chunks: the number of ``ssd`` of each Rabbit; by default, each has a GiB.
            files: where storage is; without it, storage exists on paper only.
            message_latency: the most seconds that a message within Flux takes.
            kube_latency: the most seconds that one way to Kubernetes takes.
            faults: the failures of the service's requests to Kubernetes.
        """
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.log: list[tuple[float, int, str]] = []
        self.topology = topology or Topology.regular(nodes, rabbits)
        self.config = config or Config()
        self._plugin_conf = plugin_conf
        self._faults = faults
        self._kube_latency = self._up_to(kube_latency)
        self._files = files
        options = options or Options()
        self.store = Store(self.loop.now, random.Random(seed))
        self.store.admission.append(admission(options.rules))
        self.controllers = self._make_controllers(options, seed)
        self.executor = VirtualExecutor(self.loop, self._prepare)
        self.mapping = mapping_of(self.topology)
        self.instance = Instance(
            self.loop,
            hosts_of(self.topology) + [*self.topology.rabbits] * rabbit_nodes,
            self.mapping,
            self.executor,
            properties=properties,
            latency=self._up_to(message_latency),
            log=self._add_log,
            dynamic_properties=dynamic_properties,
            chunks=chunks,
            scheduler_module=scheduler_module
            or (FLUXION if scheduler else RABBIT_MODULE),
        )
        self._scheduler = scheduler
        self.queues = queues
        self.identity = Identity("rabbitsim")
        self.service: Optional[Service] = None
        self.service_port: Optional[FluxPort] = None
        self.service_kube: Optional[DirectKube] = None
        self.note_work: NoteWork = lambda work: None
        self.barred: set[Work] = set()
        self.clock_ahead = 0.0

    def start(self) -> None:
        """Load the plugin and the module."""
        self.load_plugin()
        self.load_module()

    def load_plugin(self) -> None:
        load_plugin(self.instance, self._plugin_conf)

    def has_large_R(self, jobid: int) -> bool:
        """Whether the R of a job is taken for one that is read elsewhere."""
        return False

    def reload_manager(self) -> None:
        """Load the job manager anew, with the plugin if that is loaded."""
        self.instance.reload_manager(make_plugin, self._plugin_conf)

    def load_module(self) -> None:
        """Load a module with a new connection to Kubernetes."""

        def make(port: FluxPort) -> Receiver:
            port.ahead = self.clock_ahead
            kube = DirectKube(self.store, port, self._kube_latency, self._faults)
            settings = Settings(
                self.config,
                self.mapping,
                self._scheduler,
                self.instance.broker.owner,
                queues=self.queues,
                identity=self.identity,
            )
            seed = self.rng.getrandbits(32)
            self.service_port, self.service_kube = port, kube
            self.service = Service(
                port,
                kube,
                settings,
                rng=random.Random(seed),
                note_work=self.note_work,
                barred=self.barred,
            )
            return Receiver(port, self.service, self.has_large_R)

        self.instance.load_module(make)

    def unload_module(self) -> None:
        """``flux module remove dws``."""
        self.instance.unload_module()
        self._disconnect()

    def kill_module(self) -> None:
        """The module dies, whatever it was doing."""
        self.instance.kill_module()
        self._disconnect()

    def workflows(self) -> list[Json]:
        """All Workflows in Kubernetes."""
        return objects(self.store, "workflows")

    def _disconnect(self) -> None:
        if self.service_kube is not None:
            self.service_kube.drop_watches()
        self.service = self.service_port = self.service_kube = None

    def _make_controllers(self, options: Options, seed: int) -> Controllers:
        kube = DirectKube(self.store, self.loop)
        # Controllers change nothing that they get.
        kube.copy = kube.encode = lambda found: found
        installed: list[Optional[KubeError]] = []
        install(kube, self.topology, options.rules, installed.append)
        self.loop.run(lambda: bool(installed))
        if installed[0] is not None:
            raise installed[0]
        controllers = Controllers(
            kube,
            self.loop,
            topology=self.topology,
            options=options,
            rng=random.Random(seed),
            files=self._files,
            is_active=self._is_active,
            log=lambda line: self._add_log(3, f"controllers: {line}"),
        )
        controllers.start()
        return controllers

    def _is_active(self, workflow: str) -> bool:
        job = self.instance.manager.jobs.get(jobid_of_workflow(workflow) or 0)
        return job is not None and job.active

    def _prepare(self, launch: Launch, rank: int) -> Mapping[str, str]:
        job = self.instance.job(launch.jobid)
        return initialize_shell(launch, rank, list(job.events), job.kvs, self._add_log)

    def _up_to(self, limit: float) -> Callable[[], float]:
        return lambda: self.rng.uniform(0.0, limit) if limit > 0 else 0.0

    def _add_log(self, level: int, message: str) -> None:
        self.log.append((self.loop.now(), level, message))


def objects(store: Store, plural: str) -> list[Json]:
    """All objects of a kind that is named by its plural."""
    for resource in store.kinds.resources.values():
        if resource.kind.plural == plural:
            items: list[Any] = store.list(resource.kind, None)["items"]
            return items
    raise ValueError(f"there are no {plural}")


class LocalKube:
    """Kubernetes and DWS on this machine, on a thread of their own.

    Attributes:
        name: which Kubernetes it is.
        storage: which DWS and NNF are in it.
        topology: the hardware that they know.
        server: the API server.
        kubeconfig: the path of a kubeconfig for it.
        installed: done when the objects of the system are there and DWS runs, or with
            the KubeError why not.
    """

    storage = "stand-in DWS and NNF"

    def __init__(
        self,
        topology: Topology,
        *,
        options: Options,
        files: FileSystems,
        seed: int,
        kubeconfig: pathlib.Path,
        log: Callable[[str], None],
        tokens: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Start it. Raises ``OSError`` when it cannot listen, or write the kubeconfig.

        Args:
            tokens: bearer token → user name; None lets everybody in.
        """
        self.topology = topology
        self._options = options
        self._files = files
        self._seed = seed
        self._log = log
        self._controllers: Optional[Controllers] = None
        self.installed: Future[None] = Future()
        store = Store(
            time.time, random.Random(seed), managed_fields=options.full_events
        )
        store.admission.append(admission(options.rules))
        self.server = KubeServer(store, tokens=tokens)
        self.name = f"stand-in Kubernetes at {self.server.start()}"
        self.kubeconfig = kubeconfig
        self.server.write_kubeconfig(str(kubeconfig))
        self.server.call(self._install)

    def _install(self) -> None:
        kube = DirectKube(self.server.store, self.server.clock)
        install(
            kube,
            self.topology,
            self._options.rules,
            lambda error: self._installed(kube, error),
        )

    def _installed(self, kube: DirectKube, error: Optional[KubeError]) -> None:
        if error is not None:
            self._log(f"cannot make the system's objects: {error}")
            self.installed.set_exception(error)
            return
        self._controllers = Controllers(
            kube,
            self.server.clock,
            topology=self.topology,
            options=self._options,
            rng=random.Random(self._seed),
            files=self._files,
            log=self._log,
        )
        self._controllers.start()
        self.installed.set_result(None)

    def watch(self, kind: Kind, function: Callable[[str, Json], None]) -> None:
        """Have ``function`` called with each change (its type, the object) of
        objects of a kind from now on, on the server's thread. Unlike a client,
        it sees every single one."""
        store = self.server.store

        def open() -> None:
            store.watch(
                kind,
                None,
                lambda event: function(event.type, to_builtins(event.object)),
                resource_version=str(store.version),
            )

        self.server.call(open)

    def stop(self) -> None:
        if self._controllers is not None:
            self.server.call(self._controllers.stop)
        self.server.stop()


class LocalFlux:
    """The stand-in Flux in real time, with plugin and module loaded.

    Attributes:
        loop: the clock; ``run`` it.
        instance: Flux.
    """

    def __init__(
        self,
        topology: Topology,
        kubeconfig: Optional[pathlib.Path],
        scratch: pathlib.Path,
        *,
        output: Output,
        config: Optional[Config] = None,
        seed: int,
        log: Log,
    ) -> None:
        """
        Args:
            kubeconfig: its path, or None for the client's default.
            scratch: a directory for the files of jobs.
            output: gets the output of tasks.

        Raises:
            flux_k8s.errors.ConfigError: the kubeconfig cannot be used.
        """
        self.loop = RealLoop()
        self._log = log
        self._config = config or Config()
        self._seed = seed
        self._mapping = mapping_of(topology)
        executor: Executor = ProcessExecutor(
            self.loop, scratch / "jobs", self._prepare, output
        )
        self.instance = Instance(
            self.loop,
            hosts_of(topology),
            self._mapping,
            executor,
            log=log,
            owner=os.getuid(),
            groups=primary_group,
        )
        self._kube = KubeClient(
            None if kubeconfig is None else str(kubeconfig),
            loop=self.loop,
            rng=random.Random(seed),
            log=lambda level, text, reason: log(level, log_line(text, reason)),
        )
        load_plugin(self.instance)
        self.instance.load_module(self._make_service)

    def _make_service(self, port: FluxPort) -> Receiver:
        settings = Settings(self._config, self._mapping, owner=os.getuid())
        rng = random.Random(self._seed)
        return Receiver(port, Service(port, self._kube, settings, rng=rng))

    def _prepare(self, launch: Launch, rank: int) -> Mapping[str, str]:
        job = self.instance.job(launch.jobid)
        return initialize_shell(launch, rank, list(job.events), job.kvs, self._log)

    def wait_until_ready(self, timeout: float) -> bool:
        """Run until the service knows the objects in Kubernetes. False when that
        takes longer than ``timeout`` seconds."""
        ready: list[bool] = []

        def ask() -> None:
            self.instance.request("dws.stats-get", {}, answer)

        def answer(errnum: int, text: str, payload: Optional[Json]) -> None:
            if payload is not None and payload.get("kubernetes") == "ok":
                ready.append(True)
            else:
                self.loop.call_later(0.005, ask)

        ask()
        return self.loop.run(lambda: bool(ready), timeout)

    def stop(self) -> None:
        """Unload the module, and let go of Kubernetes."""
        self.instance.unload_module()
        self._kube.close()
        self.loop.close()


def primary_group(userid: int) -> Optional[int]:
    """A user's group on this machine, or None."""
    try:
        return pwd.getpwuid(userid).pw_gid
    except KeyError:
        return os.getgid() if userid == os.getuid() else None
