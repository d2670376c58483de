# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Making the objects that a system with Rabbits has before any job comes."""

from __future__ import annotations

from typing import Callable, Optional, Union

from flux_k8s.ports import (
    DWDIRECTIVERULE,
    STORAGE,
    SYSTEMCONFIGURATION,
    SYSTEMSTATUS,
    Json,
    Kind,
    Kube,
    KubeError,
    Request,
)
from rabbitsim.dws import topology as hardware
from rabbitsim.dws.directive import Rules
from rabbitsim.dws.topology import Topology
from rabbitsim.kube.kinds import NAMESPACE

Installed = Callable[[Optional[KubeError]], None]


def install(kube: Kube, topology: Topology, rules: Rules, done: Installed) -> None:
    """Make namespaces, the directive rule, Storages and the system's objects.

    What exists is left as it is. ``done`` gets None, or the first error.
    """
    _Installation(kube, done).run(_bodies(topology, rules))


def _bodies(topology: Topology, rules: Rules) -> list[tuple[Kind, Json]]:
    names = dict.fromkeys(hardware.namespaces(topology))
    bodies: list[tuple[Kind, Json]] = [
        (NAMESPACE, {"metadata": {"name": name}}) for name in names
    ]
    rule = {key: rules.object[key] for key in ("metadata", "spec")}
    bodies.append((DWDIRECTIVERULE, rule))
    bodies.append((SYSTEMCONFIGURATION, hardware.system_configuration(topology)))
    bodies.append((SYSTEMSTATUS, hardware.system_status(topology)))
    for rabbit in topology.rabbits.values():
        bodies.append((STORAGE, hardware.storage(rabbit)))
    return bodies


class _Installation:
    """Creates objects side by side: all namespaces, then all that is in them."""

    def __init__(self, kube: Kube, done: Installed) -> None:
        self._kube = kube
        self._done = done
        self._left = 0
        self._error: Optional[KubeError] = None

    def run(self, bodies: list[tuple[Kind, Json]]) -> None:
        spaces = [entry for entry in bodies if entry[0] == NAMESPACE]
        rest = [entry for entry in bodies if entry[0] != NAMESPACE]
        self._create(spaces, lambda: self._create(rest, self._finish))

    def _finish(self) -> None:
        self._done(self._error)

    def _create(
        self, bodies: list[tuple[Kind, Json]], then: Callable[[], None]
    ) -> None:
        self._left = len(bodies)
        for number, (kind, body) in enumerate(bodies):
            self._create_one(kind, body, f"install-{number % 8}", then)

    def _create_one(
        self, kind: Kind, body: Json, key: str, then: Callable[[], None]
    ) -> None:
        metadata = body["metadata"]
        namespace = metadata.get("namespace", "")

        def finished(answer: Union[Json, KubeError]) -> None:
            exists = isinstance(answer, KubeError) and answer.status == 409
            if isinstance(answer, KubeError) and not exists and self._error is None:
                self._error = answer
            self._left -= 1
            if not self._left:
                then()

        def created(answer: Union[Json, KubeError]) -> None:
            if isinstance(answer, KubeError) or kind != STORAGE:
                finished(answer)
                return
            name, status = metadata["name"], {"status": body["status"]}
            request = Request("patch_status", kind, namespace, name, status)
            self._kube.send(request, finished, key=key)

        request = Request("create", kind, namespace, body=body)
        self._kube.send(request, created, key=key)
