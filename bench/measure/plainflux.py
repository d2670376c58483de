# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""As much of Flux as a job's storage needs, at next to no cost.

What the plugin does is reduced to its requests and answers, so that a process
with the service in it is as large and as busy as the module is.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import syslog
from collections.abc import Mapping
from typing import Any, Callable, Optional, Sequence

from flux_k8s.jobs import setupreader
from flux_k8s.jobs.service import Service
from flux_k8s.ports import (
    CommitDone,
    Json,
    ProgramDone,
    RpcDone,
    RpcError,
    Timer,
)
from flux_k8s.reasons import Reason

from .reactor import Reactor
from .workload import DIRECTIVE, jobspec, resource_set

RESOURCES = jobspec(True)["resources"]
HELD_AT_ONCE = 32
"""The most jobs in one answer to hello, as of dws-jobtap.so."""


class Silence:
    """A watch that never sees anything."""

    def stop(self) -> None:
        pass


class PlainFlux:
    """:class:`flux_k8s.ports.Flux` with just enough behind it for storage.

    Attributes:
        held: what hello is answered with.
        directive: that of the jobs that come.
        R: what they get, as JSON; by default one node each.
        submitted, allocated, ended: when jobs were.
        run_seconds: how long a job runs.
        service: gets the requests; set once it is there.
    """

    def __init__(self, reactor: Reactor, hosts: list[str]) -> None:
        self._reactor = reactor
        self._hosts = hosts
        self.held: list[Json] = []
        self.directive = DIRECTIVE
        self.R: Optional[bytes] = None
        self.submitted: dict[int, float] = {}
        self.allocated: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.run_seconds = 0.0
        self.service: Optional[Service] = None
        self._answers: Mapping[str, Callable[[Json], Json]] = {
            "hello": self._hello,
            "resource-update": self._planned,
            "prolog-remove": self._mounted,
            "epilog-remove": self._released,
        }

    def now(self) -> float:
        return self._reactor.now()

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer:
        return self._reactor.call_later(delay, function)

    def log(self, level: int, message: str, reason: Reason) -> None:
        if level <= syslog.LOG_WARNING:
            print(message, file=sys.stderr)

    def rpc(self, topic: str, payload: Json, done: RpcDone) -> None:
        answer = self._answers.get(topic.rpartition(".")[2])
        if answer is None:
            error = RpcError(errno.ENOSYS, f"{topic} is not offered")
            self._later(lambda: done(error))
            return
        self._later(lambda: done(answer(payload)))

    def submit(self, jobid: int) -> None:
        """A job with a directive comes."""
        self.submitted[jobid] = self.now()
        self._request(
            "create",
            jobid=jobid,
            userid=os.getuid(),
            dw_directives=[self.directive],
            resources=RESOURCES,
            failure_tolerance=0,
        )

    def end(self, jobid: int) -> None:
        """A job has run."""
        self._request("post_run", jobid=jobid, run_started=True)

    def _request(self, method: str, **payload: Any) -> None:
        self._send(method, payload)

    def _later(self, function: Callable[[], None]) -> None:
        """As a message of the broker."""
        self._reactor.messages.put(function)

    def _send(self, method: str, payload: Any) -> None:
        service = self.service
        assert service is not None

        def respond(errnum: int, text: str, answer: Optional[Json]) -> None:
            if errnum or not answer or not answer.get("success"):
                raise RuntimeError(f"dws.{method}: {text} {answer}")

        self._later(lambda: service.request(method, payload, respond))

    def _hello(self, payload: Json) -> Json:
        """A portion of the jobs that are held. After this the plugin repeats what
        it waits for: that the storage of those in the epilog is released."""
        first = payload.get("cursor", 0)
        cursor = first + HELD_AT_ONCE
        jobs = self.held[first:cursor]
        for job in jobs:
            if job["phase"] == "epilog":
                self.end(job["id"])
        return {"jobs": jobs, "cursor": cursor if cursor < len(self.held) else None}

    def _planned(self, payload: Json) -> Json:
        jobid = payload["id"]
        if "errmsg" in payload:
            raise RuntimeError(f"{jobid}: {payload['errmsg']}")
        rank = jobid % len(self._hosts)
        self.allocated[jobid] = self.now()
        R = self.R
        if R is None:
            R = json.dumps(resource_set(rank, self._hosts[rank])).encode()
        self._send(
            "setup", setupreader.parse("setup", b'{"jobid":%d,"R":%s}' % (jobid, R))
        )
        return {}

    def _mounted(self, payload: Json) -> Json:
        jobid = payload["id"]
        self._reactor.call_later(self.run_seconds, lambda: self.end(jobid))
        return {}

    def _released(self, payload: Json) -> Json:
        self.ended[payload["id"]] = self.now()
        return {}

    def raise_exception(
        self, jobid: int, type: str, severity: int, note: str, reason: Reason
    ) -> None:
        raise RuntimeError(f"{jobid}: {note}")

    def post_memo(
        self, jobid: int, memo: Mapping[str, Any], *, volatile: bool = False
    ) -> None:
        pass

    def kvs_put(
        self, jobid: int, key: str, value: Optional[str], *, last: bool = False
    ) -> None:
        pass

    def kvs_commit(self, jobid: int, key: str, value: str, done: CommitDone) -> None:
        done(None)

    def drain(
        self, hosts: str, reason: str, done: CommitDone, *, overwrite: bool = False
    ) -> None:
        raise RuntimeError(f"drain {hosts}: {reason}")

    def undrain(self, hosts: str) -> None:
        raise RuntimeError(f"undrain {hosts}")

    def watch_nodes(self, changed: Callable[[], None]) -> Silence:
        return Silence()

    def watch_module(self, name: str, loaded: Callable[[], None]) -> Silence:
        return Silence()

    def primary_group(self, userid: int, done: Callable[[Optional[int]], None]) -> None:
        self._later(lambda: done(os.getgid()))

    def run_program(
        self,
        argv: Sequence[str],
        timeout: float,
        done: ProgramDone,
        **options: Any,
    ) -> None:
        raise RuntimeError(f"no job keeps storage for a node here: {argv}")

    def job_ended(self, jobid: int, done: Callable[[Optional[bool]], None]) -> None:
        self._later(lambda: done(jobid in self.ended))
