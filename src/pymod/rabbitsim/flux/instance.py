# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A stand-in Flux instance: its parts, put together.

The system that it stands for is one broker per node. All of it runs on one
thread, on one clock; under a virtual clock a run is the same every time.
"""

from __future__ import annotations

import errno
import os
import syslog
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from flux_k8s.formats import hostlist
from flux_k8s.jobs.work import OWNER_QUERIES, QUERIES
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Clock, Json, RpcError, Sender
from rabbitsim.flux import services
from rabbitsim.flux.broker import (
    COMMIT_DELAY,
    DRAIN_DELAY,
    NOT_OWNER,
    Broker,
    FluxPort,
    Module,
    Respond,
)
from rabbitsim.flux.events import URGENCY_DEFAULT, Event, JobState
from rabbitsim.flux.execution import Execution, Executor
from rabbitsim.flux.fluxion import MODULE, Fluxion
from rabbitsim.flux.job import Job
from rabbitsim.flux.jobtap import Jobtap, PluginFactory, RpcDone
from rabbitsim.flux.manager import JobManager
from rabbitsim.flux.pool import Node, Pool, make_nodes
from rabbitsim.flux.scheduler import Scheduler

OWNER = 500
"""The user ID of the instance owner, ``flux`` on a system instance."""

Log = Callable[[int, str], None]


class Instance:
    """The instance.

    Attributes:
        manager: the job manager; ``manager.listeners`` sees all events.
        jobtap: the host of the plugin.
        broker: the message broker; services may be registered there.
        scheduler: the scheduler; ``scheduler.pool.nodes`` are the nodes.
        fluxion: the requests of Fluxion that change its graph while it runs.
        programs: what the administrator's programs print, by path. They get the
            arguments.
        commit_delay: the seconds until what is committed is in the KVS.
        kvs_left: what was written to the KVS directories of purged jobs, which made
            these anew.
        groups: the primary group of a user, None for an unknown one.
        group_delay: the seconds that the user database takes.
        drain_error: the answer to requests to drain nodes, which stay as they are.
    """

    def __init__(
        self,
        clock: Clock,
        hosts: Sequence[str],
        mapping: RabbitMapping,
        executor: Executor,
        *,
        cores: int = 4,
        gpus: int = 0,
        properties: Optional[Mapping[str, Sequence[str]]] = None,
        latency: Callable[[], float] = lambda: 0.0,
        log: Log = lambda level, message: None,
        owner: int = OWNER,
        groups: Callable[[int], Optional[int]] = lambda userid: userid,
        dynamic_properties: bool = True,
        chunks: Optional[int] = None,
        scheduler_module: str = MODULE,
    ) -> None:
        """
        Args:
            hosts: the compute nodes; the broker ranks are in this order.
            mapping: which of them have which Rabbit.
            latency: seconds that a message takes, asked for each.
            groups: as the attribute.
            dynamic_properties: the scheduler lets properties of nodes be set, as
                Fluxion does; sched-simple does not.
            chunks: as in :class:`Pool`.
            scheduler_module: the name of the module that lets properties be set.
        """
        self._clock = clock
        self._scheduler_module = scheduler_module
        self._log = log
        self.groups = groups
        self.broker = Broker(clock, owner, latency)
        self.jobtap = Jobtap(clock, log, self.broker.send)
        self.execution = Execution(clock, executor)
        self.manager = JobManager(clock, self, owner)
        self.jobtap.manager = self.execution.manager = self.manager
        nodes = make_nodes(
            hosts, mapping, cores, gpus, properties or {}, dynamic_properties
        )
        self.scheduler = Scheduler(
            clock,
            Pool(nodes, mapping, chunks),
            lambda: [job for job in self.manager.active_jobs if job.alloc_queued],
            self.manager.allocated,
            self.manager.denied,
        )
        self._port: Optional[FluxPort] = None
        self._module: Optional[Module] = None
        self._node_watchers: list[Callable[[], None]] = []
        self._module_watchers: dict[str, list[Callable[[], None]]] = {}
        self.fluxion = Fluxion(self.scheduler)
        self.programs: dict[str, Callable[[Sequence[str]], str]] = {}
        self.published: list[tuple[str, Json]] = []
        self.commit_delay = COMMIT_DELAY
        self.kvs_left: dict[int, dict[str, str]] = {}
        self.drain_error: Optional[RpcError] = None
        self.group_delay = 0.0
        self.broker.register("job-manager.dws", self._plugin_service)
        services.register(
            self.broker,
            self.manager,
            self.scheduler,
            self.execution,
            self.fluxion if dynamic_properties else None,
            scheduler_module,
            self.published,
        )

    # Jobs

    def submit(
        self,
        jobspec: Json,
        *,
        userid: Optional[int] = None,
        urgency: int = URGENCY_DEFAULT,
        flags: int = 0,
    ) -> int:
        """Submit a job; its ID.

        Raises:
            rabbitsim.flux.manager.SubmitError: it was refused.
        """
        user = self.broker.owner if userid is None else userid
        return self.manager.submit(jobspec, user, urgency, flags)

    def cancel(self, jobid: int, note: str = "", userid: Optional[int] = None) -> None:
        """Cancel a job, as ``flux cancel`` does. One that ended is left alone."""
        user = self.broker.owner if userid is None else userid
        try:
            self.manager.raise_exception(jobid, "cancel", 0, note, user)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def job(self, jobid: int) -> Job:
        """A job. ``OSError(ENOENT)`` for an unknown ID."""
        return self.manager.lookup(jobid)

    def eventlog(self, jobid: int) -> list[Event]:
        return list(self.job(jobid).events)

    def log(self, level: int, message: str) -> None:
        self._log(level, message)

    def primary_group(self, userid: int) -> Optional[int]:
        return self.groups(userid)

    def run_program(self, argv: Sequence[str]) -> Union[str, OSError]:
        """What a program of the administrator prints."""
        program = self.programs.get(argv[0])
        if program is None:
            return OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return program(argv[1:])

    def idle(self) -> bool:
        """Whether all jobs are inactive."""
        return not self.manager.active_jobs

    # The plugin and the module

    def load_plugin(self, factory: PluginFactory, conf: Optional[Json] = None) -> None:
        """``flux jobtap load dws-jobtap.so``. ``OSError`` when it refuses."""
        self.jobtap.load(factory, conf)

    @property
    def plugin_loaded(self) -> bool:
        return self.jobtap.plugin is not None

    def unload_plugin(self) -> None:
        """``flux jobtap remove dws-jobtap.so``."""
        self.jobtap.unload()

    def load_module(self, factory: Callable[[FluxPort], Module]) -> Module:
        """``flux module load dws``: make the module with its port, start it.

        Raises:
            OSError: EEXIST when it is loaded.
        """
        if self._module is not None:
            raise OSError(errno.EEXIST, "module dws is already loaded")
        port = FluxPort(self, self._clock)
        module = factory(port)
        self._port, self._module = port, module
        self.broker.register("dws", self._dws)
        module.start()
        return module

    def unload_module(self) -> None:
        """``flux module remove dws``."""
        if self._module is None:
            raise OSError(errno.ENOENT, "module dws is not loaded")
        self._module.stop()
        if self._port is not None:
            self._port.close()
        self.kill_module()

    def kill_module(self) -> None:
        """The module dies on the spot, whatever it was doing."""
        if self._port is not None:
            self._port.alive = False
        self._port = self._module = None
        self.broker.unregister("dws")

    @property
    def module_loaded(self) -> bool:
        return self._module is not None

    def request(
        self, topic: str, payload: Json, respond: Respond, userid: Optional[int] = None
    ) -> None:
        """Send a request as some user (the owner when ``userid`` is None)."""
        self.broker.send(topic, payload, respond, userid)

    def _dws(self, method: str, payload: Json, userid: int, respond: Respond) -> None:
        owner = userid == self.broker.owner
        if not (owner or method in QUERIES):
            respond(errno.EPERM, NOT_OWNER, None)
        elif self._module is not None and method in QUERIES | OWNER_QUERIES:
            self._module.query(method, payload, respond, Sender(userid, owner))
        elif self._module is not None:
            self._module.request(method, payload, respond)

    def _plugin_service(
        self, method: str, payload: Json, userid: int, respond: RpcDone
    ) -> None:
        if self.jobtap.plugin is None:
            text = f"No service matching job-manager.dws.{method} is registered"
            respond(errno.ENOSYS, text, None)
            return
        self.jobtap.request(method, payload, respond, userid == self.broker.owner)

    # Nodes

    def drain(self, host: str, reason: str, overwrite: bool = False) -> None:
        """Drain a node; one that is drained keeps its reason, unless told otherwise."""
        node = self._node(host)
        if node is not None and (overwrite or node.drained is None):
            node.drained = reason
            self._clock.call_later(DRAIN_DELAY, node.close)
            self.log(syslog.LOG_INFO, f"resource: drained {host}: {reason}")
            self._nodes_changed()

    def undrain(self, host: str) -> None:
        node = self._node(host)
        if node is not None and node.drained is not None:
            node.drained = None
            node.closed = False
            self.scheduler.wake()
            self._nodes_changed()

    def set_up(self, host: str, up: bool) -> None:
        """A node comes up or goes down; jobs on one that goes down fail."""
        node = self._node(host)
        if node is None or node.up == up:
            return
        node.up = up
        self.scheduler.wake()
        self._nodes_changed()
        for job in self.manager.active_jobs if not up else ():
            if job.state is JobState.RUN and host in _hosts(job):
                note = f"lost contact with {host} (rank {node.rank})"
                self.manager.raise_exception(
                    job.id, "node-failure", 0, note, self.manager.owner
                )

    def reload_fluxion(self) -> None:
        """``flux module reload sched-fluxion-resource``."""
        self.fluxion.reload()
        for loaded in self._module_watchers.get(self._scheduler_module, ()):
            loaded()

    def reload_exec(self) -> None:
        """``flux module reload job-exec``."""
        self.execution.reload()
        self.manager.exec_loaded()

    def reload_manager(self, factory: PluginFactory, conf: Optional[Json]) -> None:
        """``flux module reload job-manager``. What runs is left alone, and ends
        unheard."""
        loaded = self.jobtap.plugin is not None
        if loaded:
            self.unload_plugin()
        self.execution.cut_off()
        self.manager.restarted()
        if loaded:
            self.load_plugin(factory, conf)

    def watch_nodes(self, changed: Callable[[], None]) -> None:
        """Have a function called whenever a node's state changes."""
        self._node_watchers.append(changed)

    def watch_module(self, name: str, loaded: Callable[[], None]) -> None:
        """Have a function called whenever a module is loaded."""
        self._module_watchers.setdefault(name, []).append(loaded)

    def _nodes_changed(self) -> None:
        for changed in self._node_watchers:
            changed()

    def _node(self, host: str) -> Optional[Node]:
        node = self.scheduler.node(host)
        if node is None:
            self.log(syslog.LOG_ERR, f"resource: there is no node {host}")
        return node

    # The hooks that the job manager calls

    def jobtap_call(
        self, topic: str, job: Job, extra: Mapping[str, Any]
    ) -> tuple[int, Json]:
        return self.jobtap.call(topic, job, extra)

    def tap_event(self, job: Job, event: Event) -> None:
        self.jobtap.event(job, event)

    def tap_destroy(self, job: Job) -> None:
        self.jobtap.job_destroyed(job)

    def alloc_queue_changed(self) -> None:
        self.scheduler.wake()

    def release(self, job: Job) -> None:
        self.scheduler.release(job)

    def start(self, job: Job) -> None:
        self.execution.start(job)

    def kill(self, job: Job, exception: Json) -> None:
        self.execution.kill(job, exception)


def _hosts(job: Job) -> tuple[str, ...]:
    if job.R is None:
        return ()
    return hostlist.decode_all(job.R["execution"]["nodelist"])
