# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The services of Flux that the plugin and the module ask: as much of them as
they need."""

from __future__ import annotations

import base64
import errno
import json
from typing import Callable, Optional

from flux_k8s.formats import hostlist, idset
from flux_k8s.ports import Json
from rabbitsim.flux import joblist
from rabbitsim.flux.broker import Broker, Respond
from rabbitsim.flux.events import encode_eventlog, given_reason
from rabbitsim.flux.execution import Execution
from rabbitsim.flux.fluid import encode
from rabbitsim.flux.fluxion import Fluxion
from rabbitsim.flux.manager import JobManager
from rabbitsim.flux.pool import Node
from rabbitsim.flux.scheduler import Scheduler

Method = Callable[[Json, int], Optional[Json]]
"""Gets the payload and the sender's user ID; gives the answer's payload. It
raises ``OSError``, or ``KeyError`` for a payload that lacks something."""


def register(
    broker: Broker,
    manager: JobManager,
    scheduler: Scheduler,
    execution: Execution,
    fluxion: Optional[Fluxion],
    scheduler_module: str,
    published: list[tuple[str, Json]],
) -> None:
    """Offer the services on ``broker``.

    Args:
        scheduler_module: the name under which ``fluxion`` is offered.
        published: gets the topic and the payload of each event that is published.
    """
    jobs, nodes = _Jobs(manager), _Resource(scheduler)

    def exec_stats(payload: Json, userid: int) -> Json:
        return {"jobs": {encode(jobid): {} for jobid in execution.jobs}}

    def publish(payload: Json, userid: int) -> Json:
        text = base64.b64decode(payload.get("payload", "")).rstrip(b"\0")
        published.append((payload["topic"], json.loads(text) if text else {}))
        return {"seq": len(published)}

    services: dict[str, dict[str, Method]] = {
        "event": {"publish": publish},
        "job-manager": {
            "raise": jobs.raise_exception,
            "memo": jobs.memo,
            "getattr": jobs.getattr,
        },
        "job-exec": {"stats-get": exec_stats},
        "job-list": {"list-id": jobs.list_id, "list": jobs.list},
        "job-info": {"lookup": jobs.lookup},
        "resource": {"status": nodes.status, "sched-status": nodes.sched_status},
    }
    if fluxion is not None:
        services[scheduler_module] = fluxion.methods
    for name, methods in services.items():
        broker.register(name, _handler(methods))


def _handler(
    methods: dict[str, Method],
) -> Callable[[str, Json, int, Respond], None]:
    def handle(method: str, payload: Json, userid: int, respond: Respond) -> None:
        try:
            if method not in methods:
                raise OSError(errno.ENOSYS, f"Unknown service method '{method}'")
            answer = methods[method](payload, userid)
        except KeyError:
            respond(errno.EPROTO, "Protocol error", None)
        except OSError as error:
            respond(error.errno or errno.EINVAL, error.strerror or "", None)
        else:
            respond(0, "", answer)

    return handle


class _Jobs:
    """The RPCs about jobs."""

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager

    def raise_exception(self, payload: Json, userid: int) -> None:
        self._manager.raise_exception(
            payload["id"],
            payload["type"],
            payload["severity"],
            payload.get("note", ""),
            userid,
            given_reason(payload),
        )

    def memo(self, payload: Json, userid: int) -> None:
        job = self._manager.lookup_active(payload["id"])
        self._manager.memo(job, payload["memo"], payload.get("volatile", False))

    def getattr(self, payload: Json, userid: int) -> Json:
        job = self._manager.jobs.get(payload["id"])
        if job is None:
            raise OSError(errno.EINVAL, "unknown job")
        args = job.jobtap_args()
        args["eventlog"] = [event.as_json() for event in job.events]
        for attr in payload["attrs"]:
            if attr not in ("jobspec", "R", "eventlog") or attr not in args:
                raise OSError(errno.ENOENT, f"unknown attr {attr}")
        return {attr: args[attr] for attr in payload["attrs"]}

    def list_id(self, payload: Json, userid: int) -> Json:
        job = self._manager.lookup(payload["id"])
        return {"job": joblist.attributes(job, payload["attrs"])}

    def list(self, payload: Json, userid: int) -> Json:
        """All jobs in one answer, where Flux has a stream of them."""
        return {"jobs": joblist.list_jobs(self._manager.jobs.values(), payload)}

    def lookup(self, payload: Json, userid: int) -> Json:
        """Keys of a job's KVS directory, as text."""
        job = self._manager.lookup(payload["id"])
        if userid not in (self._manager.owner, job.userid):
            raise OSError(errno.EPERM, "Operation not permitted")
        found = {
            **job.kvs,
            "eventlog": encode_eventlog(job.events),
            "jobspec": json.dumps(job.jobspec),
        }
        for key in payload["keys"]:
            if key not in found:
                raise OSError(errno.ENOENT, f"key {key} not found")
        return {"id": job.id, **{key: found[key] for key in payload["keys"]}}


class _Resource:
    """The resource module."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def status(self, payload: Json, userid: int) -> Json:
        nodes = self._scheduler.pool.nodes
        properties = {
            name: idset.encode(n.rank for n in nodes if name in n.properties)
            for node in nodes
            for name in node.properties
        }
        lite = [
            {"rank": str(n.rank), "children": {"core": f"0-{n.cores - 1}"}}
            for n in nodes
        ]
        execution = {
            "R_lite": lite,
            "nodelist": [hostlist.encode(n.host for n in nodes)],
            "properties": properties,
        }
        drain = {
            str(n.rank): {"timestamp": 0.0, "reason": n.drained}
            for n in nodes
            if n.drained is not None
        }
        return {
            "R": {"version": 1, "execution": execution},
            "drain": drain,
            "online": idset.encode(n.rank for n in nodes if n.up),
            "offline": idset.encode(n.rank for n in nodes if not n.up),
            "exclude": "",
        }

    def sched_status(self, payload: Json, userid: int) -> Json:
        """The nodes without their cores, which nobody looks at."""
        pool = self._scheduler.pool

        def hosts(has: Callable[[Node], bool]) -> Json:
            nodelist = hostlist.encode(n.host for n in pool.nodes if has(n))
            return {"version": 1, "execution": {"nodelist": [nodelist]}}

        return {
            "all": hosts(lambda node: True),
            "down": hosts(lambda node: node.closed or not node.up),
            "allocated": hosts(lambda node: pool.free("core", node.rank) < node.cores),
        }
