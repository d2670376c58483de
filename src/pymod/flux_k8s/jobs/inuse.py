# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Takes the nodes and Rabbits that a job still uses at its end out of service.

A node that still has a job's storage mounted must not get another job, and DWS must not
wait for it. So the node is drained, and :mod:`flux_k8s.machine.systemstatus` makes it
Disabled. After an abort a Rabbit that still has an allocation is disabled as well. The
steps may be repeated without harm, as all of :mod:`flux_k8s.jobs.steps`.
"""

from __future__ import annotations

import errno
import syslog
from functools import partial
from itertools import filterfalse
from typing import Any, Iterable, Mapping, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call, call, pause, settle
from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.losses import UNKNOWN_LOSS
from flux_k8s.jobs.workflowinfo import NOT_HERE, WorkflowInfo
from flux_k8s.jobs.workflowrequests import TOKEN_KEY, WorkflowRequests
from flux_k8s.json_reader import Reader
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects import cleanup
from flux_k8s.objects.clientmount import ClientMount, not_unmounted
from flux_k8s.objects.storage import DISABLED
from flux_k8s.objects.workflowmarks import CUT_OFF, KEPT_FOR
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import SERVERS, STORAGE, Json, KubeError, RpcError
from flux_k8s.reasons import DWS, FATAL, NODE_FAILURE, WARNING, Note, Reason
from flux_k8s.rules.drainreason import (
    IN_USE,
    NOT_SERVED,
    NOT_UNMOUNTED,
    UNKNOWN,
    drain_reason,
    is_mounted,
)

SILENCE = 3.0
"""Seconds without an answer from Kubernetes, after which an abort drains all nodes of
the job. The plugin waits for three times as long: the service may die once before."""

SILENT = "epilog-timeout: Kubernetes does not say what still uses the storage"

RETRY = 1.0
"""Seconds until job-list is asked again for the nodes of a job. It may be loaded again
at the time."""

KEPT = (
    "the storage is kept until it is unmounted there, or the node cannot write any more"
    " (its broker is gone and its link to the Rabbit Offline, or it is fenced)"
)


class InUse:
    """Takes the nodes and Rabbits that a job still uses out of service.

    Args:
        machine: knows the states of the nodes in Flux, and finds those that could write
            to storage that they have mounted.
    """

    def __init__(
        self,
        context: Context,
        machine: RabbitManager,
        jobs: JobTable,
        workflows: WorkflowRequests,
    ) -> None:
        self._flux = context.flux
        self._calls = context.kube
        self._settings = context.settings
        self._jobs = jobs
        self._machine = machine
        self._nodes = machine.nodes
        self._find_writers = machine.find_writers
        self._system_status = machine.system_status
        self._workflows = workflows

    async def passed_over(self, info: WorkflowInfo) -> bool:
        """Whether DWS may have passed over nodes of the job in the state that was
        reached."""
        hosts = None if info.allocation is None else info.allocation.hosts
        since = None if info.view is None else info.view.since
        return await self._system_status.was_any_disabled(hosts, since)

    async def drain_mounted(self, info: WorkflowInfo, note: Note) -> None:
        """Drain the nodes that have not unmounted the job's storage in time. As long as
        DWS waits, it may yet tell others to unmount: they are to be looked for again.

        Raises:
            KubeError: the list of mounts failed, and is to be repeated.
        """
        mounts, why = await self._find_mounts(info, note.text)
        hosts = self._late(info, mounts)
        await self._drain(info, hosts, why)
        info.mounts.left = tuple(dict.fromkeys((*info.mounts.left, *hosts)))
        info.mounts.found_at = self._flux.now()

    async def find_writers(
        self, info: WorkflowInfo, note: str, told: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The nodes that have not unmounted the job's storage, and could write to it,
        and the nodes that are drained for it now: those that are found first, whether
        they could write or not, and later others (:meth:`_overdue`).

        Args:
            told: find those only that DWS has told to unmount.

        Raises:
            KubeError: the list of mounts failed, and is to be repeated.
        """
        mounts, why = await self._find_mounts(info, note)
        if info.ran:
            # Of nodes that failed before, an earlier service knew, and Flux, unless
            # somebody has put them back.
            mounts = [m for m in mounts if not m.has_failed_to_mount]
        if told:
            mounts = [m for m in mounts if m.is_to_be_unmounted]
        late, hosts = self._late(info, mounts), self._not_unmounted(info, mounts)
        # A node that the job went on without may have mounted another file system.
        mounted = not_unmounted(m for m in mounts if m.may_be_mounted)
        hosts = tuple(dict.fromkeys((*hosts, *mounted)))
        writers = await self._find_writers(late)
        overdue = self._overdue(info, late)
        able = frozenset(writers)
        # First those that are fenced: a node that is not drained counts as back.
        await self._drain(info, [host for host in overdue if host not in able], why)
        kept = [host for host in overdue if host in able]
        await self._drain(info, kept, why, f"; {KEPT}")
        if not writers or info.view is None or info.view.complete:
            # Else DWS tells the others when it goes on.
            rest = filterfalse(frozenset(late).__contains__, hosts)
            writers += await self._find_writers(tuple(rest))
        info.mounts.left = hosts
        return writers, overdue

    def _overdue(self, info: WorkflowInfo, late: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the late nodes that are to be drained. Of storage that is kept
        already, these are the nodes that it is not kept for, and that are late for
        ``postrun_timeout``, or that DWS does not wait for: DWS has told them after
        others had unmounted. Somebody may have put the others back for other jobs."""
        view, now = info.view, self._flux.now()
        limit = self._settings.config.postrun_timeout
        if view is None or not view.kept_for:
            return late
        kept_for = frozenset(view.kept_for_nodes)
        info.mounts.late = {host: info.mounts.late.get(host, now) for host in late}
        return tuple(
            host
            for host, since in info.mounts.late.items()
            if host not in kept_for
            and (view.complete or (limit is not None and now - since >= limit))
        )

    async def _find_mounts(
        self, info: WorkflowInfo, note: str
    ) -> tuple[list[ClientMount], Note]:
        """The mounts of a job, and ``note``. Unknown ones on all of its nodes, and a
        note that says so, if Kubernetes has not listed them for ``PERSISTENCE``
        seconds, though it answers other requests.

        Raises:
            KubeError: the list failed, and is to be repeated.
        """
        try:
            found = await self._workflows.list_mounts(info)
        except KubeError as error:
            if not await self._workflows.has_persisted(info):
                raise
            text = f"{note}; Kubernetes does not say which nodes have mounts: {error}"
            mounts = map(ClientMount.unknown, await self._hosts(info))
            return list(mounts), Note(text, Reason.USE_UNKNOWN)
        return self._on_computes(found), Note(note, Reason.UNMOUNT_FAILED)

    def _on_computes(self, found: Json) -> list[ClientMount]:
        """The ClientMounts of a list on compute nodes. Rabbits have some as well, but
        are no nodes of Flux."""
        states, mapping = self._nodes.states, self._settings.mapping
        return [
            mount
            for mount in map(ClientMount.read, found["items"])
            if not mapping.has(mount.node)
            and (states is None or states.has(mount.node))
        ]

    def _late(
        self, info: WorkflowInfo, mounts: Sequence[ClientMount]
    ) -> tuple[str, ...]:
        """The nodes that have not unmounted though DWS has told them to. It tells the
        nodes of one file system after those of another have unmounted. All that have
        not unmounted, if DWS has told none of them, or does not wait any more."""
        waits = info.view is not None and not info.view.complete
        told = [m for m in mounts if waits and m.is_to_be_unmounted]
        return self._not_unmounted(info, told) or self._not_unmounted(info, mounts)

    def _not_unmounted(
        self, info: WorkflowInfo, mounts: Sequence[ClientMount]
    ) -> tuple[str, ...]:
        """The nodes that have not unmounted, but for the failed ones that the job went
        on without. These are drained already."""
        reasons = {drain_reason(info.jobid, why) for why in NOT_SERVED.values()}
        failed = info.reported_nodes | {
            host for host, why in self._drained.items() if why in reasons
        }
        return tuple(host for host in not_unmounted(mounts) if host not in failed)

    async def _drain(
        self, info: WorkflowInfo, hosts: Sequence[str], why: Note, end: str = ""
    ) -> None:
        """Drain nodes that still have the job's storage mounted, unless they are
        drained for that already. ``end`` is that of the report."""
        reason = drain_reason(info.jobid, NOT_UNMOUNTED)
        known, drained = frozenset(info.mounts.left), self._drained
        texts = {host: drained.get(host, "") for host in hosts}
        # Somebody else's reason may stand before it, or another job's in its place.
        news = [
            host
            for host, text in texts.items()
            if not (text.endswith(reason) or (host in known and is_mounted(text)))
        ]
        if news:
            names, note = hostlist.encode(news), why.text
            text = f"{names}: {note}, and {NOT_UNMOUNTED}; drained until that is mended"
            text += end
            self._log(info, syslog.LOG_WARNING, text, why.reason)
            # If the service dies before it sends the drain, the next one raises again.
            self._raise(info, NODE_FAILURE, WARNING, text, why.reason)
            await call(self._nodes.drain, news, reason)

    @property
    def _drained(self) -> Mapping[str, str]:
        """The nodes that are drained in Flux, with the reason."""
        states = self._nodes.states
        return {} if states is None else states.drained

    def _raise(
        self, info: WorkflowInfo, type: str, severity: int, note: str, why: Reason
    ) -> None:
        if not info.released:
            self._flux.raise_exception(info.jobid, type, severity, note, why)

    def _log(self, info: WorkflowInfo, level: int, text: str, why: Reason) -> None:
        self._flux.log(level, f"{info.f58}: {text}", why)

    # After an abort: nothing that is still in use may be given to other jobs

    async def cut_off(self, info: WorkflowInfo) -> None:
        """Drain the nodes and disable the Rabbits that a job still uses, and report
        them. A part that fails does not delay the others. A part that Kubernetes
        refuses is given up after ``PERSISTENCE``
        seconds; a drain is repeated until Flux carries it out.

        Raises:
            KubeError: a part failed, and is to be repeated.
        """
        clientmounts, servers = await settle(
            [self._workflows.list_mounts(info), self._list_servers(info)]
        )
        problems: list[tuple[str, KubeError]] = []
        nodes: Optional[tuple[str, ...]] = None
        if isinstance(clientmounts, KubeError):
            self.drain_all(info)
            problems.append(("nodes may still mount its storage", clientmounts))
        else:
            nodes = not_unmounted(self._on_computes(clientmounts))
        rabbits: tuple[str, ...] = ()
        if isinstance(servers, KubeError):
            problems.append(("Rabbits may still hold its storage", servers))
        else:
            rabbits = self._allocated(info, servers["items"])
        reason = drain_reason(info.jobid, IN_USE)
        calls: list[Call[Any]] = [*self._disabling(info, rabbits)]
        if nodes:
            calls.insert(0, call(self._nodes.drain, nodes, reason))
        answers = await settle(calls)
        out = []
        for rabbit, answer in zip(rabbits, answers[1 if nodes else 0 :]):
            if isinstance(answer, KubeError):
                problems.append((f"{rabbit} still holds its storage", answer))
            else:
                out.append(rabbit)
        if nodes is not None:
            self._report(info, nodes, out, problems)
        await self._finish(info, nodes or (), problems)

    def _allocated(self, info: WorkflowInfo, servers: list[Json]) -> tuple[str, ...]:
        """The Rabbits on which storage of a job still exists. All that the job had are
        taken for such where one of its Servers cannot be read."""
        try:
            return cleanup.allocated_rabbits(servers)
        except BadObject:
            return tuple(sorted(self._machine.ledger.rabbits_of(info.jobid)))

    def _disabling(self, info: WorkflowInfo, names: Sequence[str]) -> list[Call[Json]]:
        """The requests that disable these Rabbits."""
        reason = drain_reason(info.jobid, IN_USE)
        rabbits = self._machine.rabbits
        news = [name for name in names if rabbits.state(name).reported != DISABLED]
        if news:
            text = f"disabling {', '.join(news)}: {reason}"
            self._flux.log(syslog.LOG_WARNING, text, Reason.EPILOG_GIVEN_UP)
        body = cleanup.disable_patch(reason, self._flux.now())
        namespace = self._settings.namespace
        return [self._calls.patch(STORAGE, namespace, name, body) for name in names]

    def begin_abort(self, info: WorkflowInfo) -> None:
        """Take the token back: the Workflow may be purged while no service is there,
        and then nothing is left that the next one would look at. Drain all nodes unless
        the abort gets an answer in :data:`SILENCE` seconds: another step of the job may
        still wait for Kubernetes, and the plugin does not wait long."""
        self._flux.kvs_put(info.jobid, TOKEN_KEY, None)
        # A deadline, not a retry: it ends beside the step that the job is in.
        drain = partial(self._jobs.scope.run, info.jobid, self.drain_all, info)
        self._flux.call_later(SILENCE, drain)

    def drain_all(self, info: WorkflowInfo) -> None:
        """Drain all nodes of a job, unless this service, or an earlier one, has found
        which of them still mount its storage, or nothing is left of that."""
        known = info.view is not None and info.view.cut_off
        if not (known or info.use_report or self._is_over(info)):
            info.use_report = SILENT
            self._jobs.scope.spawn(info.jobid, self._drain_all(info))

    def _is_over(self, info: WorkflowInfo) -> bool:
        """Whether nothing is left to be done for a job."""
        job = self._jobs.get(info.jobid)
        return job is None or job.info is not info

    async def _drain_all(self, info: WorkflowInfo) -> None:
        hosts = await self._hosts(info)
        if not hosts or info.use_report != SILENT:
            return
        names = hostlist.encode(hosts)
        drained = f"{names}: drained until it does"
        text = "; ".join([SILENT, drained, *self._unsaved(info)])
        self._log(info, syslog.LOG_WARNING, text, Reason.USE_UNKNOWN)
        # The job is told before it ends. Should the service die now, the next drains.
        self._raise_report(info, text, Reason.USE_UNKNOWN)
        self._nodes.drain(hosts, drain_reason(info.jobid, UNKNOWN))

    async def _hosts(self, info: WorkflowInfo) -> tuple[str, ...]:
        """The nodes of a job; none if job-list does not know them. While it does not
        answer, it is asked again: the plugin lets the job go, and its nodes are given
        to others."""
        logged = False
        while info.allocation is None and not self._is_over(info):
            try:
                return await self._listed_hosts(info)
            except (RpcError, BadObject, ValueError) as error:
                text = f"{info.f58}: cannot tell which nodes to drain: {error}"
                if not logged:
                    self._flux.log(syslog.LOG_ERR, text, Reason.DRAIN_FAILED)
                if not isinstance(error, RpcError) or error.errnum == errno.ENOENT:
                    return ()
            logged = True
            await pause(self._flux, RETRY)
        return () if info.allocation is None else info.allocation.hosts

    async def _listed_hosts(self, info: WorkflowInfo) -> tuple[str, ...]:
        """The nodes of a job, by job-list; none if it has ended without any. R may
        have 100 MB.

        Raises:
            RpcError: job-list does not answer, or (ENOENT) does not know the job.
            BadObject, ValueError: job-list does not know the nodes.
        """
        attrs = ["nodelist", "t_run", "t_cleanup"]
        payload = {"id": info.jobid, "attrs": attrs}
        answer = await call(self._flux.rpc, "job-list.list-id", payload)
        job = Reader("job-list.list-id", answer).object("job")
        if job.has("t_cleanup") and not job.has("t_run"):
            return ()
        return hostlist.decode(job.string("nodelist"))

    def _report(
        self,
        info: WorkflowInfo,
        nodes: Iterable[str],
        rabbits: Iterable[str],
        problems: Iterable[tuple[str, KubeError]],
    ) -> None:
        """Report the nodes and Rabbits in use, the parts that failed, and the data that
        is lost."""
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
        why = Reason.EPILOG_GIVEN_UP
        if text != info.use_report:
            self._log(info, syslog.LOG_WARNING, text, why)
        self._raise_report(info, text, why)

    def _unsaved(self, info: WorkflowInfo) -> list[str]:
        """The data that a job that may have run loses: one sentence, or none."""
        if not info.may_have_run:
            return []
        if info.view is None:
            known = info.interference
            return [UNKNOWN_LOSS if known is None else known.text]
        if not info.view.unsaved:
            return []
        return [f"not copied: {', '.join(info.view.unsaved)}"]

    def _raise_report(self, info: WorkflowInfo, note: str, why: Reason) -> None:
        """Raise an exception with the report, once, while the job is active. It is
        fatal if data is lost, unless the job has a fatal exception already."""
        if info.use_report in ("", SILENT):
            fatal = bool(self._unsaved(info)) and not info.failed
            self._raise(info, DWS, FATAL if fatal else WARNING, note, why)
            if fatal:
                info.failure = NOT_HERE
        info.use_report = note

    async def _finish(
        self,
        info: WorkflowInfo,
        nodes: Sequence[str],
        problems: list[tuple[str, KubeError]],
    ) -> None:
        """Note that the abort was carried out, or have the parts that failed repeated.
        They are given up only after Kubernetes has answered other requests for
        ``PERSISTENCE`` seconds: parts that fail in an
        outage may succeed after it.

        Raises:
            KubeError: the parts are to be repeated.
        """
        if problems and not await self._workflows.has_persisted(info):
            raise problems[0][1]
        await self._note_cut_off(info, nodes)
        for what, error in problems:
            text = f"given up, see to it by hand: {what}: {error}"
            self._log(info, syslog.LOG_ERR, text, Reason.KUBERNETES_ERROR)

    async def _note_cut_off(self, info: WorkflowInfo, nodes: Sequence[str]) -> None:
        """Annotate the Workflow: the abort was carried out, and these nodes have not
        unmounted. Before Teardown, :meth:`find_writers` finds that out."""
        annotations: dict[str, Optional[str]] = {CUT_OFF: "true"}
        ends = info.view is not None and info.view.desired is State.Teardown
        if ends and nodes and self._settings.config.keeps_mounted:
            annotations[KEPT_FOR] = hostlist.encode(nodes)
        await self._workflows.annotate(info, annotations)

    def _list_servers(self, info: WorkflowInfo) -> Call[Json]:
        return self._calls.list(
            SERVERS,
            self._settings.namespace,
            label_selector=cleanup.workflow_selector(info.name),
            some=info.view is not None and info.view.has_servers,
            certain=True,
        )
