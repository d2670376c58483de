# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job still uses when it is let go, or is about to be.

A node that still has a job's storage mounted must not get another job, and DWS is not
to wait for it: it is drained, and :mod:`flux_k8s.rabbits.systemstatus` has it Disabled.
After an abort (seed 001, "Epilog timeout and abort") a Rabbit that still has an
allocation is disabled as well. As with all of :mod:`flux_k8s.jobs.steps`, nothing is
lost by doing it again.
"""

from __future__ import annotations

import syslog
from functools import partial
from typing import Callable, Iterable, Mapping, Optional, Sequence, Union

from flux_k8s.config.settings import Settings
from flux_k8s.control.gather import Result, gather_each
from flux_k8s.dws import cleanup
from flux_k8s.dws.drainreason import (
    IN_USE,
    NOT_SERVED,
    NOT_UNMOUNTED,
    UNKNOWN,
    drain_reason,
)
from flux_k8s.dws.workflowview import CUT_OFF
from flux_k8s.errors import BadObject
from flux_k8s.jobs.jobexception import DWS, FATAL, NODE_FAILURE, WARNING
from flux_k8s.jobs.machine import Nodes
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.json_reader import Reader
from flux_k8s.ports import (
    CLIENTMOUNT,
    SERVERS,
    STORAGE,
    WORKFLOW,
    Flux,
    Json,
    Kind,
    Kube,
    KubeDone,
    KubeError,
    RpcError,
)
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.jobid import f58

SILENCE = 4.0
"""Seconds without an answer until an abort takes all nodes of the job for mounted.
The plugin waits a little longer for it."""

PERSISTENCE = 120.0
"""Seconds that a part of an abort is tried while Kubernetes answers otherwise. An
outage does not count."""

Bind = Callable[[Callable[..., None]], Callable[..., None]]
InUseDone = Callable[[Optional[KubeError]], None]


def _is_judged(info: WorkflowInfo) -> bool:
    """Whether it is known what an abort has to take out of service, be it by an
    earlier module."""
    recorded = info.view is not None and info.view.cut_off
    return bool(info.found) or info.cut_off or recorded


class InUse:
    """Takes out of service what a job still uses.

    Args:
        nodes: what is known of the nodes.
        bind: makes a callback one of the job for which something is done.
    """

    def __init__(
        self, flux: Flux, kube: Kube, settings: Settings, nodes: Nodes, bind: Bind
    ) -> None:
        self._bind = bind
        self._flux = flux
        self._kube = kube
        self._settings = settings
        self._nodes = nodes

    def drain_mounted(self, info: WorkflowInfo, note: str, done: InUseDone) -> None:
        """Drain the nodes that have not unmounted the job's storage."""

        def answer(result: Result) -> None:
            if isinstance(result, KubeError):
                done(result)
                return
            failed = self._failed(info)
            hosts = tuple(h for h in self._mounted(result) if h not in failed)

            def drained() -> None:
                info.stuck = hosts
                info.unmounted = True
                done(None)

            reason = drain_reason(info.jobid, NOT_UNMOUNTED)
            news = [host for host in hosts if self._drained.get(host) != reason]
            if not news:
                drained()
                return
            names = hostlist.encode(news)
            text = f"{names}: {note}, and {NOT_UNMOUNTED}; drained until that is mended"
            self._flux.log(syslog.LOG_WARNING, f"{f58(info.jobid)}: {text}")
            # A module that dies before the drain was sent raises this again.
            self._raise(info, NODE_FAILURE, WARNING, text)
            self._nodes.drain(news, reason, self._bind(drained))

        self._list(info, CLIENTMOUNT, None, answer)

    @property
    def _drained(self) -> Mapping[str, str]:
        """The nodes that are known to be drained, with the reason."""
        states = self._nodes.states
        return {} if states is None else states.drained

    def _failed(self, info: WorkflowInfo) -> frozenset[str]:
        """The nodes that the job went on without: they are drained already."""
        reasons = {drain_reason(info.jobid, why) for why in NOT_SERVED.values()}
        return info.told | {
            host for host, why in self._drained.items() if why in reasons
        }

    def _mounted(self, clientmounts: Json) -> tuple[str, ...]:
        """Rabbits have mounts of their own, and are no nodes of Flux."""
        states = self._nodes.states
        return tuple(
            node
            for node in cleanup.mounted_nodes(clientmounts.get("items", []))
            if node not in self._settings.mapping.rabbits
            and (states is None or node in states.hosts)
        )

    def _raise(self, info: WorkflowInfo, type: str, severity: int, note: str) -> None:
        if not info.released:
            self._flux.raise_exception(info.jobid, type, severity, note)

    # After an abort: nothing that is still in use may be given to other jobs

    def cut_off(self, info: WorkflowInfo, done: InUseDone) -> None:
        """Drain the nodes and disable the Rabbits that a job still uses, and tell
        which. No part holds up another. What Kubernetes refuses is given up in the end,
        if it answers otherwise; a drain is sent until Flux carries it out."""

        def listed(results: list[Result]) -> None:
            clientmounts, servers = results
            problems: list[tuple[str, KubeError]] = []
            if isinstance(clientmounts, KubeError):
                self.drain_all(info)
                problems.append(("nodes may still mount its storage", clientmounts))
                nodes: Optional[tuple[str, ...]] = None
            else:
                nodes = self._mounted(clientmounts)
            if isinstance(servers, KubeError):
                problems.append(("Rabbits may still hold its storage", servers))
                rabbits: tuple[str, ...] = ()
            else:
                rabbits = cleanup.allocated_rabbits(servers.get("items", []))
            gather_each(
                [
                    partial(self._drain, info, nodes or ()),
                    *self._disabling(info, rabbits),
                ],
                partial(finish, nodes, rabbits, problems),
            )

        def finish(
            nodes: Optional[tuple[str, ...]],
            rabbits: tuple[str, ...],
            problems: list[tuple[str, KubeError]],
            results: list[Result],
        ) -> None:
            out = []
            for rabbit, result in zip(rabbits, results[1:]):  # the first is the drain
                if isinstance(result, KubeError):
                    problems.append((f"{rabbit} still holds its storage", result))
                else:
                    out.append(rabbit)
            if nodes is not None:
                self._tell(info, nodes, out, problems)
            self._finish(info, problems, done)

        gather_each(
            [
                partial(self._list, info, CLIENTMOUNT, None),
                partial(self._list, info, SERVERS, self._settings.namespace),
            ],
            listed,
        )

    def _drain(
        self, info: WorkflowInfo, nodes: Sequence[str], answer: KubeDone
    ) -> None:
        """Drain the nodes that are in use. The answer says nothing."""
        drained = self._bind(partial(answer, {}))
        if nodes:
            self._nodes.drain(nodes, drain_reason(info.jobid, IN_USE), drained)
        else:
            drained()

    def _disabling(
        self, info: WorkflowInfo, names: Sequence[str]
    ) -> list[Callable[[KubeDone], None]]:
        """The requests that disable the Rabbits that are in use."""
        reason = drain_reason(info.jobid, IN_USE)
        if names and not info.found:
            text = f"disabling {', '.join(names)}: {reason}"
            self._flux.log(syslog.LOG_WARNING, text)
        body = cleanup.disable_patch(reason, self._flux.now())

        def disable(name: str, answer: KubeDone) -> None:
            namespace, key = self._settings.namespace, f"storages/{name}"
            self._kube.patch(STORAGE, namespace, name, body, answer, key=key)

        return [partial(disable, name) for name in names]

    def await_verdict(self, info: WorkflowInfo) -> None:
        """An abort has begun. The plugin does not wait long for it: another step of
        the job may still be under way, and Kubernetes silent."""
        self._flux.call_later(SILENCE, partial(self.drain_all, info))

    def drain_all(self, info: WorkflowInfo) -> None:
        """Drain all nodes of a job: Kubernetes does not say which of them still
        have its storage mounted."""
        if info.all_drained or _is_judged(info):
            return
        info.all_drained = True
        if info.allocation is not None:
            self._drain_all(info, info.allocation.hosts)
            return

        def answer(result: Union[Json, RpcError]) -> None:
            try:
                if isinstance(result, RpcError):
                    raise result
                job = Reader("job-list.list-id", result).object("job")
                hosts = hostlist.decode(job.string("nodelist"))
            except (RpcError, BadObject, ValueError) as error:
                text = f"{f58(info.jobid)}: cannot tell which nodes to drain: {error}"
                self._flux.log(syslog.LOG_ERR, text)
            else:
                if not _is_judged(info):
                    self._drain_all(info, hosts)

        # R may have 100 MB.
        payload = {"id": info.jobid, "attrs": ["nodelist"]}
        self._flux.rpc("job-list.list-id", payload, answer)

    def _drain_all(self, info: WorkflowInfo, hosts: Iterable[str]) -> None:
        names = hostlist.encode(hosts)
        silent = "epilog-timeout: Kubernetes does not say what still uses the storage"
        drained = f"{names}: drained until it does"
        text = "; ".join([silent, drained, *self._unsaved(info)])
        self._flux.log(syslog.LOG_WARNING, f"{f58(info.jobid)}: {text}")
        self._nodes.drain(hosts, drain_reason(info.jobid, UNKNOWN))
        self._verdict(info, text)

    def _tell(
        self,
        info: WorkflowInfo,
        nodes: Iterable[str],
        rabbits: Iterable[str],
        problems: Iterable[tuple[str, KubeError]],
    ) -> None:
        """Say what was found in use, and what is lost."""
        view = info.view
        state = "" if view is None or view.desired is None else view.desired.name
        parts = []
        if nodes:
            parts.append(f"{hostlist.encode(nodes)}: still mounted, drained")
        if rabbits:
            parts.append(f"{hostlist.encode(rabbits)}: still allocated, disabled")
        parts += [f"{what}: {error}" for what, error in problems]
        if not parts:
            parts.append("nothing is in use any more")
        parts += self._unsaved(info)
        text = f"epilog-timeout in {state}: {'; '.join(parts)}"
        if text != info.found:
            info.found = text
            self._flux.log(syslog.LOG_WARNING, f"{f58(info.jobid)}: {text}")
        self._verdict(info, text)

    def _unsaved(self, info: WorkflowInfo) -> list[str]:
        """What a job that ran loses, if anything."""
        if info.view is None and info.ran:  # it is not known either
            return ["what was to be copied may not be copied"]
        if info.view is None or not (info.ran and info.view.unsaved):
            return []
        return [f"not copied: {', '.join(info.view.unsaved)}"]

    def _verdict(self, info: WorkflowInfo, note: str) -> None:
        """Tell the job's owner, once, as long as there is a job to tell about. An
        abort itself is told by a fatal exception; so is the loss of data."""
        if not info.verdict:
            severity = FATAL if self._unsaved(info) and not info.failed else WARNING
            info.verdict = info.failed = True
            self._raise(info, DWS, severity, note)

    def _finish(
        self,
        info: WorkflowInfo,
        problems: list[tuple[str, KubeError]],
        done: InUseDone,
    ) -> None:
        """Note that the abort was carried out, or try again what failed. That is
        given up only when Kubernetes has answered for long: what met an outage may
        be carried out once that is over."""
        if not problems:
            self._note_cut_off(info, problems, done)
            return

        def answer(result: Result) -> None:
            now = self._flux.now()
            if isinstance(result, KubeError):
                info.failing_since = None
            elif info.failing_since is None:
                info.failing_since = now
            since = info.failing_since
            if since is None or now < since + PERSISTENCE:
                done(problems[0][1])
            else:
                self._note_cut_off(info, problems, done)

        namespace = self._settings.namespace
        self._kube.get(WORKFLOW, namespace, info.name, answer, key=info.name)

    def _note_cut_off(
        self,
        info: WorkflowInfo,
        problems: list[tuple[str, KubeError]],
        done: InUseDone,
    ) -> None:
        """Note in the Workflow that the abort was carried out."""

        def noted(result: Result) -> None:
            # A 404 is believed when the watch has seen the Workflow go as well.
            gone = info.view is None
            if isinstance(result, KubeError) and not (gone and result.status == 404):
                done(result)
                return
            info.cut_off = True
            for what, error in problems:
                text = f"given up, see to it by hand: {what}: {error}"
                self._flux.log(syslog.LOG_ERR, f"{f58(info.jobid)}: {text}")
            done(None)

        body = {"metadata": {"annotations": {CUT_OFF: "true"}}}
        namespace = self._settings.namespace
        self._kube.patch(WORKFLOW, namespace, info.name, body, noted, key=info.name)

    def _list(
        self, info: WorkflowInfo, kind: Kind, namespace: Optional[str], done: KubeDone
    ) -> None:
        selector = cleanup.workflow_selector(info.name)
        self._kube.list(kind, namespace, done, key=info.name, label_selector=selector)
