# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Trouble that requests to Kubernetes meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from flux_k8s.ports import DWS_GROUP, KubeError, Request
from rabbitsim.dws.directive import STATES
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault
from rabbitsim.system import VirtualSystem
from support.service import (
    COPY_OUT,
    HOUR,
    XFS,
    jobspec,
    started,
)

READ_TIMEOUT = 30.0
"""Seconds until a watch tries again, at most."""


@dataclass(frozen=True)
class Outage:
    """A fault of a request, or of a watch that is opened.

    Attributes:
        error: the error of the client.
        carried_out: a write is carried out all the same.
        hangs: the answer takes a while, and silent watches stay unnoticed.
    """

    error: KubeError
    carried_out: bool = False
    hangs: bool = False


MISSING = f"the API server has no API group {DWS_GROUP}: are its CRDs installed?"
OUTAGES = {
    "refused": Outage(KubeError(0, "ConnectionRefused", "connection refused")),
    "hang": Outage(KubeError(0, "Timeout", "no answer in time"), hangs=True),
    "late": Outage(KubeError(0, "Timeout", "no answer in time"), True, True),
    "TLS": Outage(KubeError(0, "TLS", "the certificate is not valid")),
    "401": Outage(KubeError(401, "Unauthorized", "Unauthorized")),
    "403": Outage(KubeError(403, "Forbidden", "workflows is forbidden")),
    "409": Outage(KubeError(409, "Conflict", "the object has been modified")),
    "410": Outage(KubeError(410, "Expired", "too old resource version")),
    "429": Outage(KubeError(429, "TooManyRequests", "please wait", retry_after=7.0)),
    "500": Outage(KubeError(500, "InternalError", "etcd has no leader")),
    "503": Outage(KubeError(503, "ServiceUnavailable", "the lights are out")),
    "504": Outage(KubeError(504, "Timeout", "too slow"), carried_out=True),
    "cut": Outage(KubeError(0, "ConnectionLost", "the connection was cut"), True),
    "malformed": Outage(KubeError(0, "BadResponse", "no JSON object"), True),
    "no version": Outage(KubeError(404, "KindNotFound", "no workflows in v1")),
    "no CRD": Outage(KubeError(404, "GroupNotFound", MISSING)),
}


def slow(**options: object) -> VirtualSystem:
    """A system in which each state of a Workflow takes a second."""
    latency = table(dict.fromkeys(STATES, 1.0))
    return started(options=Options(latency=latency), **options)


def inject(system: VirtualSystem, outage: Outage, seconds: float = HOUR) -> None:
    """Begin an outage."""
    kube = system.service_kube
    assert kube is not None
    until = system.loop.now() + seconds

    def fault(request: Request) -> Optional[Fault]:
        left = until - system.loop.now()
        if left <= 0:
            return None
        delay = min(left, READ_TIMEOUT) if outage.hangs else 0.0
        writes = request.verb in ("create", "patch", "delete")
        return Fault(delay, outage.error, outage.carried_out and writes)

    kube.faults = fault
    if outage.hangs:
        kube.silence_watches()
        system.loop.call_later(seconds, kube.drop_watches)
    else:
        kube.drop_watches(outage.error)


def job_in(system: VirtualSystem, where: str, seconds: int = 1) -> int:
    """A job whose Workflow has just got to a state, or that just "runs", or was
    just "submitted"; it runs for some seconds."""
    test = {"test": {"run_duration": f"{seconds}s"}}
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT], exec=test))
    job = system.instance.job(jobid)

    def there() -> bool:
        if where == "runs":
            return job.state is JobState.RUN and job.was_posted("start")
        return any(w["spec"]["desiredState"] == where for w in system.workflows())

    if where != "submitted":
        assert system.loop.run(there, HOUR)
    return jobid
