# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Keeps the SystemStatus of DWS as the nodes of Flux are
(:mod:`flux_k8s.objects.systemstatus` has its rules).

Jobs with Rabbit storage avoid the nodes that others have disabled there until those
are Enabled again.
"""

from __future__ import annotations

import syslog
from typing import Callable, Iterable, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import Call
from flux_k8s.control.kubecalls import Watched, absent_or_forbidden
from flux_k8s.errors import BadObject
from flux_k8s.machine.nodes import Nodes
from flux_k8s.objects.systemstatus import (
    ENABLED,
    NAME,
    SystemStatusView,
    changes,
    patch,
)
from flux_k8s.ports import (
    SYSTEMSTATUS,
    Encoded,
    Json,
    KubeError,
    Seen,
    gone,
)
from flux_k8s.reasons import Reason

DEBOUNCE = 0.1
"""Seconds from a first change until it is written: nodes change many at once."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds until a write that failed is tried again."""


class SystemStatus(Watched):
    """Keeps the SystemStatus as the nodes are.

    Args:
        disabled: returns the nodes that are to be Disabled, given those that Flux has
            disabled already; None as long as they are not known.
        changed: is called when another SystemStatus has been seen.
    """

    kind = SYSTEMSTATUS

    def __init__(
        self,
        context: Context,
        nodes: Nodes,
        disabled: Callable[[frozenset[str]], Optional[frozenset[str]]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(context.kube)
        self._flux = context.flux
        self._namespace = context.settings.namespace
        self._nodes = nodes
        self._disabled = disabled
        self._changed = changed
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._controller = Controller[str](
            context.clock,
            self._reconcile,
            self._failed,
            Options(
                debounce=DEBOUNCE,
                backoff=lambda key: self._backoff,
                forgets=False,
                expected=(KubeError,),
            ),
        )
        self._view: Optional[SystemStatusView] = None
        self._trouble: Optional[KubeError] = None
        self._constant_since = float("inf")

    def close(self) -> None:
        self._controller.stop()
        super().close()

    @property
    def disabled_by_others(self) -> frozenset[str]:
        """The nodes of Flux that another program has disabled."""
        states, view = self._nodes.states, self._view
        if states is None or view is None:
            return frozenset()
        return view.disabled_by_others.intersection(states.hosts)

    def check(self) -> None:
        """Others may have to be Disabled now."""
        self._controller.add(NAME)

    async def was_any_disabled(
        self, hosts: Optional[Iterable[str]], since: Optional[float]
    ) -> bool:
        """Whether DWS may have passed over some of ``hosts`` (None is for all nodes)
        in a state that was requested at ``since`` (None: it is not known), because
        one of them is Disabled, or may have been since.

        A watch may lag behind that of the Workflows, so Kubernetes is asked. Jobs do
        not wait for each other.

        Raises:
            KubeError: the request failed.
        """
        try:
            found = await self._get(apart=True)
        except KubeError as error:
            if not absent_or_forbidden(error):
                raise
            if self._view is not None or not gone(error):
                return True  # the service may not read it, or the watch has shown it
        else:
            version = found.get("metadata", {}).get("resourceVersion")
            if self._view is None or self._view.version != version:
                # Until the watch shows it, others may have been Disabled for a while.
                self._constant_since = self._flux.now()
                self._see(found)
        if since is None or since < self._constant_since:
            return True
        disabled = frozenset[str]() if self._view is None else self._view.disabled
        return bool(disabled if hosts is None else disabled.intersection(hosts))

    async def enable(self, hosts: Iterable[str]) -> None:
        """Have DWS wait for nodes before storage is mounted on them: Flux may have
        given them to a job before the SystemStatus shows that they are back. Those
        that somebody else has disabled stay so.

        Raises:
            KubeError: a request failed.
        """
        if not self.listed or self._controller.busy(NAME):
            try:
                self._see(await self._get())
            except KubeError as error:
                if not self._is_kept_from_us(error):
                    raise
        view = self._view or SystemStatusView()
        ours = view.disabled_by_flux.intersection(hosts)
        if ours:
            body = patch(view, dict.fromkeys(ours, ENABLED))
            self._see(await self._patch(body))

    def _is_kept_from_us(self, error: KubeError) -> bool:
        """Whether there is no SystemStatus, or the service may not read it, as the
        watch says as well: then Flux has disabled no node there. A refusal that the
        watch does not know of passes."""
        trouble = self._trouble
        known = trouble is not None and absent_or_forbidden(trouble)
        is_answer = gone(error) or (known and absent_or_forbidden(error))
        return self._view is None and is_answer

    def _get(self, apart: bool = False) -> Call[Json]:
        return self._kube.get(SYSTEMSTATUS, self._namespace, NAME, apart=apart)

    def _create(self, body: Json) -> Call[Json]:
        body["metadata"].update(name=NAME, namespace=self._namespace)
        return self._kube.create(SYSTEMSTATUS, self._namespace, body)

    async def _patch(self, body: Json) -> Json:
        """Send a patch. After a conflict the SystemStatus is read before the next one:
        the watch may hang."""
        try:
            return await self._kube.patch(SYSTEMSTATUS, self._namespace, NAME, body)
        except KubeError as error:
            if error.status == 409:
                self._see(await self._get())
            raise

    # What Kubernetes shows

    def event(self, type: str, object: Seen) -> None:
        if object.name == NAME:
            self._see(None if type == "DELETED" else object.encoded)

    def _see(self, object: Optional[Encoded]) -> None:
        """Take in what an event or an answer has shown; None: there is none."""
        view = None if object is None else self._parse(object)
        if view is not None and self._view is not None:
            if self._view.is_newer_than(view):
                return  # the answer to a request came before this event
        before = frozenset[str]() if self._view is None else self._view.disabled
        if not before <= (frozenset() if view is None else view.disabled):
            self._constant_since = self._flux.now()
        self._view = view
        self._changed()
        self._controller.add(NAME)

    def _parse(self, object: Encoded) -> SystemStatusView:
        try:
            return SystemStatusView.parse(object)
        except BadObject as error:
            self._flux.log(syslog.LOG_ERR, str(error), error.reason)
            return SystemStatusView()

    def synced(self) -> None:
        super().synced()
        self._constant_since = self._flux.now()
        self._trouble = None
        self._controller.add(NAME)

    def trouble(self, error: KubeError) -> None:
        """No job depends on this watch: its loss is logged once. An outage of all of
        Kubernetes is logged elsewhere."""
        super().trouble(error)
        if not error.status:
            return
        if self._trouble is None:
            text = f"SystemStatus: {error}"
            self._flux.log(syslog.LOG_WARNING, text, Reason.OBJECTS_UNSEEN)
        self._trouble = error  # no outage hides that it is forbidden

    # Reconciling

    async def _reconcile(self, key: str) -> None:
        """Write the changes to the SystemStatus. Create it if it does not exist."""
        states, view = self._nodes.states, self._view
        if states is None or not self.listed:
            return
        disabled = self._disabled(
            frozenset() if view is None else view.disabled_by_flux
        )
        if disabled is None:
            return
        nodes = changes(states.hosts, view or SystemStatusView(), disabled)
        if view is None:
            written = await self._create(patch(SystemStatusView(), nodes))
        elif nodes:
            written = await self._patch(patch(view, nodes))
        else:
            return
        self._backoff.reset()
        self._see(written)

    def _failed(self, key: str, error: KubeError) -> None:
        """Log the first failure. An outage is logged elsewhere; a conflict, or an
        object that has just gone, is no failure."""
        if not self._backoff.failures and error.status not in (0, 404, 409):
            text = f"SystemStatus: cannot tell about nodes: {error}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, Reason.KUBERNETES_ERROR)
