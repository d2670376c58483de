# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Writes as small as those of the real controllers.

Several controllers work on each object, and each writes what it has just done: a
watch shows about 45 events of a Workflow and 12 of its Servers. The stand-in
controllers write all that they know at once. :class:`SeparateWrites` takes such a write
apart, so that a watch shows as many events, of the same kinds and in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Callable, Union

from flux_k8s.ports import (
    SERVERS,
    WORKFLOW,
    Json,
    Kind,
    Kube,
    KubeDone,
    KubeError,
    Patch,
)

ALONE = ("directiveBreakdowns", "computes")
"""Fields of a Workflow's status that are written alone, after its drivers."""


class SeparateWrites:
    """A Kubernetes API in which one patch of a Workflow or of its Servers is several.

    Args:
        kube: carries the patches out, one after the other.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._drivers: dict[str, list[Json]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Patch,
        done: KubeDone,
        *,
        key: str,
    ) -> None:
        parts: list[Patch] = [body]
        if kind == WORKFLOW and isinstance(body, dict):
            parts = list(self._workflow_parts(name, body))
        _send(partial(self._kube.patch, kind, namespace, name, key=key), parts, done)

    def patch_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        done: KubeDone,
        *,
        key: str,
    ) -> None:
        parts = list(_servers_parts(body["status"])) if kind == SERVERS else [body]
        send = partial(self._kube.patch_status, kind, namespace, name, key=key)
        _send(send, parts, done)

    def _workflow_parts(self, name: str, body: Json) -> Iterator[Patch]:
        """First what it is, then what each driver does, last that the state is over."""
        status = dict(body.get("status", {}))
        others = {key: value for key, value in body.items() if key != "status"}
        if others:
            yield others
        if not status:  # its finalizers go
            self._drivers.pop(name, None)
        drivers = status.pop("drivers", None)
        if drivers is not None:
            env = {"env": status.pop("env")} if "env" in status else {}
            yield from self._driver_parts(name, drivers, env)
        for field in [field for field in ALONE if field in status]:
            yield {"status": {field: status.pop(field)}}
        if status:
            yield {"status": status}

    def _driver_parts(
        self, name: str, drivers: list[Json], env: Json
    ) -> Iterator[Patch]:
        """A driver says that it works, and for what the Workflow waits, before it has
        completed a state."""
        before = self._drivers.get(name, [])
        self._drivers[name] = drivers
        known = [entry["status"] for entry in before]
        running, messages = list(drivers), []
        for position, entry in enumerate(drivers):
            if entry["completed"] and known[position : position + 1] == ["Pending"]:
                running[position] = {
                    **{key: entry[key] for key in entry if key != "completeTime"},
                    "completed": False,
                    "status": "Running",
                    "message": "pending",
                }
                messages.append(f"DW Directive {entry['dwdIndex']}: pending")
        if messages:
            yield {"status": {"drivers": running, **env}}
            yield {"status": {"message": messages[0]}}
            yield {"status": {"drivers": drivers}}
            yield {"status": {"message": None}}
        else:
            yield {"status": {"drivers": drivers, **env}}


def _send(
    request: Callable[[Any, KubeDone], None], parts: list[Any], done: KubeDone
) -> None:
    """Send one part after the other, until one fails."""

    def answered(answer: Union[Json, KubeError]) -> None:
        if isinstance(answer, KubeError) or len(parts) == 1:
            done(answer)
        else:
            _send(request, parts[1:], done)

    request(parts[0], answered)


def _servers_parts(status: Json) -> Iterator[Json]:
    """What becomes of the allocations, then of all that there are. They are not ready
    before they are made and while they are removed."""
    sets = status.get("allocationSets") or ()
    unready = [
        {
            **each,
            "storage": {
                rabbit: {**allocation, "ready": False}
                for rabbit, allocation in each["storage"].items()
            },
        }
        for each in sets
    ]
    made = any(
        allocation["ready"] for each in sets for allocation in each["storage"].values()
    )
    ready = status["ready"] and not made
    if sets:
        yield {"status": {**status, "allocationSets": unready, "ready": ready}}
    if made:
        yield {"status": {**status, "ready": False}}
    yield {"status": status}
