# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Undrains nodes that were drained because Kubernetes did not answer whether a job's
storage is still mounted there (:data:`~flux_k8s.rules.drainreason.UNKNOWN`).

Once Kubernetes answers, ClientMounts are watched for as long as there are such nodes.
A node is undrained when all of its mounts are unmounted or gone: the agent on the node
keeps a ClientMount there, by a finalizer, until it has unmounted. The mounts of other
jobs count as well: a node that two jobs share is drained with the text of one.
The text of the drain names the job, so a module that is loaded later goes on with these
nodes.
"""

from __future__ import annotations

import syslog
from typing import Callable, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.formats import hostlist
from flux_k8s.formats.jobid import f58, workflow_name
from flux_k8s.formats.resourcestatus import NodeStates
from flux_k8s.machine.nodes import Nodes
from flux_k8s.objects.cleanup import mounted_nodes, workflow_selector
from flux_k8s.objects.clientmount import ClientMount
from flux_k8s.ports import CLIENTMOUNT, KubeError, Seen, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rules.drainreason import unknown_of

DEBOUNCE = 0.05
"""Seconds from a first change until nodes are undrained: mounts go many at once."""

KEY = "clientmounts"


class MountWatch:
    """Undrains nodes once they have unmounted (a ``WatchHandler``).

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
        self._kube = context.kube
        self._calls = KubeCalls(context.kube)
        self._nodes = nodes
        self._has_mounts = has_mounts
        self._drained: Mapping[str, int] = {}
        self._mounts: set[tuple[str, str]] = set()
        self._watch: Optional[Watch] = None
        self._synced = False
        self._trouble_logged = False
        self._controller = Controller[str](
            context.clock, self._reconcile, options=Options(debounce=DEBOUNCE)
        )

    def stop(self) -> None:
        self._controller.stop()
        self._close()

    def nodes_changed(self, states: NodeStates) -> None:
        """The states of the nodes have changed."""
        found = ((host, unknown_of(text)) for host, text in states.drained.items())
        drained = {host: jobid for host, jobid in found if jobid is not None}
        news = drained.items() - self._drained.items()
        self._drained = drained
        if news or not drained:
            self._close()
        if news:
            # A new watch begins with a list, which is newer than the drain.
            self._watch = self._kube.watch(CLIENTMOUNT, None, self)

    def jobs_changed(self) -> None:
        """A job may have got to a state in which its storage is not mounted."""
        if self._synced:
            self._controller.add(KEY)

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        self._watch = None
        self._synced = self._trouble_logged = False
        self._mounts.clear()

    async def _reconcile(self, key: str) -> None:
        """Undrain the nodes that have unmounted."""
        if not self._synced:
            return
        mounted = {host for host, _ in self._mounts}
        back: dict[int, list[str]] = {}
        for host, jobid in self._drained.items():
            if host not in mounted and self._has_mounts(jobid) is not None:
                back.setdefault(jobid, []).append(host)
        for jobid, found in back.items():
            hosts = await self._still_unmounted(jobid, found)
            if not hosts:
                continue
            names = hostlist.encode(sorted(hosts, key=hostlist.natural_key))
            text = f"undraining {names}: storage is not mounted there"
            line = f"{f58(jobid)}: {text}"
            self._flux.log(syslog.LOG_NOTICE, line, Reason.NODE_BACK)
            self._nodes.undrain(hosts)

    async def _still_unmounted(self, jobid: int, hosts: list[str]) -> list[str]:
        """Those of the nodes on which another list shows no mount of the job either:
        one list may lack what there is. One of none is no answer where there are some.

        Raises:
            KubeError: the list failed, and is to be repeated.
        """
        found = await self._calls.list(
            CLIENTMOUNT,
            None,
            key=KEY,
            label_selector=workflow_selector(workflow_name(jobid)),
            some=bool(self._has_mounts(jobid)),
        )
        mounted = frozenset(mounted_nodes(found.get("items", [])))
        return [host for host in hosts if host not in mounted]

    # The WatchHandler of ClientMounts

    def event(self, type: str, object: Seen) -> None:
        """A ClientMount changed."""
        mount = object.namespace, object.name
        if type == "DELETED" or ClientMount.read(object.encoded).is_unmounted:
            self._mounts.discard(mount)
        else:
            self._mounts.add(mount)
        self.jobs_changed()

    def synced(self) -> None:
        self._synced = True
        self.jobs_changed()

    def trouble(self, error: KubeError) -> None:
        """No job depends on this: it is logged once, unless it is an outage, which is
        logged as one."""
        if error.status and not self._trouble_logged:
            self._trouble_logged = True
            text = f"ClientMounts: {error}; drained nodes stay so until they are seen"
            self._flux.log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)
