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
from dataclasses import replace
from typing import Optional, Union

from flux_k8s.ports import (
    SERVERS,
    WORKFLOW,
    Json,
    Kind,
    Kube,
    KubeDone,
    KubeError,
    Patch,
    Request,
    Watch,
    WatchHandler,
)

ALONE = ("directiveBreakdowns", "computes")
"""Fields of a Workflow's status that are written alone, after its drivers."""


class SeparateWrites(Kube):
    """A Kubernetes API in which one patch of a Workflow or of its Servers is several.

    Args:
        kube: carries the patches out, one after the other.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._drivers: dict[str, list[Json]] = {}

    def watch(
        self,
        kind: Kind,
        namespace: Optional[str],
        handler: WatchHandler,
    ) -> Watch:
        return self._kube.watch(kind, namespace, handler)

    def send(self, request: Request, done: KubeDone, *, key: str) -> None:
        """Send a request, or the parts of a write one after the other, until one
        fails."""
        parts = list(self._parts(request))

        def answered(answer: Union[Json, KubeError]) -> None:
            if isinstance(answer, KubeError) or not parts:
                done(answer)
            else:
                self._kube.send(replace(request, body=parts.pop(0)), answered, key=key)

        self._kube.send(replace(request, body=parts.pop(0)), answered, key=key)

    def _parts(self, request: Request) -> Iterator[Optional[Patch]]:
        verb, kind, body = request.verb, request.kind, request.body
        if verb == "patch" and kind == WORKFLOW and isinstance(body, dict):
            yield from self._workflow_parts(request.name or "", body)
        elif verb == "patch_status" and kind == SERVERS and isinstance(body, dict):
            yield from _servers_parts(body["status"])
        else:
            yield body

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
