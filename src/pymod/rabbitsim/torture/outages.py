# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What happens to Flux, Kubernetes and DWS in a story."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any, Collection, Optional

from msgspec import to_builtins

from flux_k8s.ports import (
    CLIENTMOUNT,
    Json,
    Kind,
    KubeError,
    Request,
    RpcError,
)
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.flux.broker import Offered, Respond
from rabbitsim.kube.direct import Fault
from rabbitsim.torture.api import WRITES
from rabbitsim.torture.deeds import patch_workflows
from rabbitsim.torture.interruptions import FAULT
from rabbitsim.torture.story import FOREVER, NODE, Deed, deed

if TYPE_CHECKING:
    from rabbitsim.torture.life import StorySystem

READ_TIMEOUT = 30.0
"""Seconds after which no answer is an error."""

TELL = ("job-info", "job-list")
"""The services of Flux that tell what becomes of jobs, and which nodes they have."""

AWAY = KubeError(0, "ConnectionRefused", "connection refused")


@deed
def fail_flux(
    system: StorySystem, service: str, seconds: float = FOREVER, errnum: int = errno.EIO
) -> None:
    """The requests to a service of Flux fail for some seconds."""

    def fail(method: str, payload: Json, user: int, respond: Respond) -> None:
        respond(errnum, "it broke", None)

    restore = system.instance.broker.stand_in(service, lambda before: fail)
    system.blind = system.blind or service in TELL

    def over() -> None:
        system.blind = system.blind and service not in TELL
        restore()

    system.loop.call_later(seconds, over)


@deed
def slow_flux(system: StorySystem, service: str, seconds: float, delay: float) -> None:
    """The requests to a service of Flux take longer, for some seconds."""

    def slow(before: Offered) -> Offered:
        def wait(method: str, payload: Json, user: int, respond: Respond) -> None:
            asked = partial(before, method, payload, user, respond)
            system.loop.call_later(delay, asked)

        return wait

    restore = system.instance.broker.stand_in(service, slow)
    system.loop.call_later(seconds, restore)


def slow_kvs(delay: float) -> Deed:
    """A commit to the KVS takes so many seconds from now on."""
    return lambda system: setattr(system.instance, "commit_delay", delay)


@deed
def break_reader(system: StorySystem, seconds: float, text: str) -> None:
    """The process that reads a large R fails, for some seconds."""

    def fail(error: Optional[OSError]) -> None:
        system.unreadable = error
        if system.port is not None:
            system.port.reader.failure = error

    fail(OSError(errno.EIO, text))
    system.loop.call_later(seconds, partial(fail, None))


@deed
def refuse_drains(system: StorySystem, seconds: float) -> None:
    """Flux drains no node for some seconds."""
    instance = system.instance
    instance.drain_error = RpcError(errno.EHOSTUNREACH, "no resource module")
    system.loop.call_later(seconds, partial(setattr, instance, "drain_error", None))


def lose_watches(system: StorySystem) -> None:
    """Kubernetes is out of reach for a moment."""
    if system.service_kube is not None:
        system.service_kube.drop_watches()


@deed
def silence_watches(system: StorySystem, kind: Kind) -> None:
    """Nothing comes from the watch of a kind any more."""
    if system.service_kube is not None:
        system.service_kube.silence_watches(kind)


@deed
def outage(
    system: StorySystem,
    seconds: float,
    error: KubeError = AWAY,
    *,
    done: bool = False,
    hangs: bool = False,
) -> None:
    """Kubernetes answers each request by an error, for some seconds.

    Args:
        done: it carries out what it is asked for all the same.
        hangs: it says nothing for a while before, and watches do not notice.
    """
    until, kube = system.loop.now() + seconds, system.service_kube

    def fault(request: Request) -> Optional[Fault]:
        left = until - system.loop.now()
        if left <= 0:
            return None
        writes = request.verb in WRITES
        delay = min(left, READ_TIMEOUT) if hangs else 0.0
        return Fault(delay, error, done and writes)

    system.api_fault = fault
    if kube is not None and hangs:
        kube.silence_watches()
        system.loop.call_later(seconds, kube.drop_watches)
    elif kube is not None:
        kube.drop_watches(error)


def slow_kube(
    seconds: float, delay: float, *verbs: str, kind: Optional[Kind] = None
) -> Deed:
    """Requests of some verbs, about a kind if there is one, take longer, for some
    seconds."""
    return lambda system: system.disturb(Fault(delay), verbs, kind, seconds)


def fail_for(
    seconds: float, error: KubeError, *verbs: str, kind: Optional[Kind] = None
) -> Deed:
    """Requests of some verbs, about a kind if there is one, fail for some seconds."""
    return partial(_disturb, Fault(error=error), verbs, kind, seconds)


def _disturb(
    how: Fault,
    verbs: Collection[str],
    kind: Optional[Kind],
    seconds: float,
    system: StorySystem,
) -> None:
    system.disturb(how, verbs, kind, seconds)


def fail_next(
    count: int,
    error: KubeError,
    *verbs: str,
    kind: Optional[Kind] = None,
    done: bool = False,
) -> Deed:
    """So many requests of some verbs, about a kind if there is one, fail; or they are
    ``done``, and are answered by the error all the same."""
    how = Fault(error=error, carried_out=done)
    return lambda system: system.disturb(how, verbs, kind, count=count)


def empty_next(kind: Kind, delay: float = 0.0) -> Deed:
    """The next list of a kind that is asked for, in a minute, is empty by mistake, and
    may be late."""
    how = Fault(delay, answer={"kind": f"{kind.name}List", "items": []})
    return lambda system: system.disturb(how, ("list",), kind, seconds=60.0, count=1)


class Broken(dict[str, Any]):
    """An object that breaks whoever reads it, or asks what is malformed in it."""

    def get(self, key: str, default: Any = None) -> Any:
        if key != "metadata":
            raise RuntimeError(FAULT)
        return super().get(key, default)


def break_next(kind: Kind) -> Deed:
    """The service has an internal error when it reads the next list of a kind."""
    items = [Broken(metadata={"name": "x", "namespace": NODE}, status=0)]
    answer: Json = {"kind": f"{kind.name}List", "metadata": {}, "items": items}
    return lambda system: system.disturb(Fault(answer=answer), ("list",), kind, count=1)


@deed
def begin(system: StorySystem, fault: DwsFault) -> None:
    """DWS begins to have a trouble."""
    system.check_fault(fault)
    system.dws_faults.append(fault)


def report(status: str, message: str = "it broke") -> Deed:
    """DWS says of the Workflows that something is wrong."""
    body: Json = {"status": {"status": status, "message": message}}
    return lambda system: patch_workflows(system, body)


@deed
def mount(system: StorySystem, host: str = NODE) -> None:
    """A node mounts the job's storage, whatever it was said to do."""
    body: Json = {"status": {"mounts": [{"state": "mounted", "ready": True}]}}
    for each in system.store.list(CLIENTMOUNT, host)["items"]:
        name = each["metadata"]["name"]
        system.store.merge_patch(CLIENTMOUNT, host, name, body, subresource="status")


@deed
def hide(system: StorySystem, kind: Kind, times: int = 1, but_for: int = 0) -> None:
    """So many lists of a kind are answered as if there were nothing, but for the last
    ones, and all watches begin with a list again."""
    left = iter(range(times))

    def fault(request: Request) -> Optional[Fault]:
        lists = request.verb in ("list", "watch") and not request.token
        if request.kind != kind or not lists or next(left, None) is None:
            return None
        found = to_builtins(system.store.list(kind, request.namespace))
        del found["items"][: len(found["items"]) - but_for]
        return Fault(answer=found)

    system.api_fault = fault
    lose_watches(system)


@deed
def pause_dws(system: StorySystem, seconds: float) -> None:
    """The controllers of DWS do nothing for some seconds."""
    system.controllers.pause()
    system.loop.call_later(seconds, system.controllers.resume)
