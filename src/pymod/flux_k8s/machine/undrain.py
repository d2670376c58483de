# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Undrains nodes that were drained because Kubernetes did not answer whether a job's
storage is still mounted there (:data:`~flux_k8s.rules.drainreason.UNKNOWN`).

As long as there are such nodes, ClientMounts are listed every 15 seconds. A node is
undrained when all of its mounts are unmounted or gone: the agent on the node keeps a
ClientMount there, by a finalizer, until it has unmounted. The mounts of other jobs
count as well: a node that two jobs share is drained with the text of one.
The text of the drain names the job, so a module that is loaded later goes on with these
nodes.
"""

from __future__ import annotations

import syslog
from typing import Callable, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.machine.nodes import Nodes
from flux_k8s.objects.cleanup import workflow_selector
from flux_k8s.objects.clientmount import ClientMount, not_unmounted
from flux_k8s.ports import CLIENTMOUNT, KubeError
from flux_k8s.reasons import Reason
from flux_k8s.rules.drainreason import unknown_of

DEBOUNCE = 0.05
"""Seconds from a first change of the drains until mounts are listed: most nodes are
drained many at once."""

RETRY = 5.0
"""Seconds between tries that fail, at most, and until jobs are looked at again of which
nothing can be said yet: soon after an outage most nodes are found to have unmounted."""

LOOK_AGAIN = 15.0
"""Seconds until they are listed again."""

PAGE = 500
"""ClientMounts in one answer: there may be one for each node and job."""

KEY = "clientmounts"


class Undrain:
    """Undrains nodes once they have unmounted.

    Args:
        has_mounts: returns whether there are ClientMounts of a job, which say whether
            its storage is mounted; None if it may be mounted yet, or that is not known.
    """

    def __init__(
        self,
        context: Context,
        nodes: Nodes,
        has_mounts: Callable[[int], Optional[bool]],
    ) -> None:
        self._flux = context.flux
        self._calls = context.kube
        self._nodes = nodes
        self._has_mounts = has_mounts
        self._drained: Mapping[str, int] = {}
        self._failing = False
        options = Options[str](DEBOUNCE, backoff=lambda key: Backoff(1.0, RETRY))
        self._controller = Controller[str](
            context.clock, self._look, self._failed, options
        )

    def stop(self) -> None:
        self._controller.stop()

    def nodes_changed(self, states: NodeStates) -> None:
        """The states of the nodes have changed."""
        found = ((host, unknown_of(text)) for host, text in states.drained.items())
        before = self._drained.items()
        self._drained = {host: jobid for host, jobid in found if jobid is not None}
        if not self._drained.items() <= before:
            self._controller.add(KEY)

    async def _look(self, key: str) -> Optional[float]:
        """Undrain the nodes that have unmounted."""
        known = {
            host: jobid
            for host, jobid in self._drained.items()
            if self._has_mounts(jobid) is not None
        }
        mounted = await self._mounted() if known else frozenset()
        back: dict[int, list[str]] = {}
        for host, jobid in known.items():
            if host not in mounted:
                back.setdefault(jobid, []).append(host)
        for jobid, found in back.items():
            hosts = await self._still_unmounted(jobid, found)
            if not hosts:
                continue
            names = hostlist.encode_sorted(hosts)
            text = f"undraining {names}: storage is not mounted there"
            line = f"{f58(jobid)}: {text}"
            self._flux.log(syslog.LOG_NOTICE, line, Reason.NODE_BACK)
            self._nodes.undrain(hosts)
        self._failing = False
        if len(known) < len(self._drained):
            return RETRY
        return LOOK_AGAIN if self._drained else None

    async def _mounted(self) -> frozenset[str]:
        """The nodes that have storage of any job mounted.

        Raises:
            KubeError: the list failed, and is to be repeated.
        """
        mounted: set[str] = set()
        async for items, _ in self._calls.pages(CLIENTMOUNT, limit=PAGE):
            mounted.update(not_unmounted(map(ClientMount.read, items)))
        return frozenset(mounted)

    async def _still_unmounted(self, jobid: int, hosts: list[str]) -> list[str]:
        """Those of the nodes on which another list shows no mount of the job either:
        one list may lack what there is. One of none is no answer where there are some.

        Raises:
            KubeError: the list failed, and is to be repeated.
        """
        found = await self._calls.list(
            CLIENTMOUNT,
            None,
            label_selector=workflow_selector(workflow_name(jobid)),
            some=bool(self._has_mounts(jobid)),
        )
        mounted = frozenset(not_unmounted(map(ClientMount.read, found["items"])))
        return [host for host in hosts if host not in mounted]

    def _failed(self, key: str, error: KubeError) -> None:
        """No job depends on this: it is logged once, unless it is an outage, which is
        logged as one."""
        if error.status and not self._failing:
            self._failing = True
            text = f"ClientMounts: {error}; drained nodes stay so until they are seen"
            self._flux.log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)
