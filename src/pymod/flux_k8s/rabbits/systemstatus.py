# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""SystemStatus: what DWS is told about compute nodes.

DWS does not wait for nodes that are Disabled there. Those are the nodes whose
broker is not online, and those that were drained because storage could not be
mounted or unmounted on them, until they return or are undrained.

A node on which a job is to find its storage is never among them: DWS would say that
all is mounted, and the job would start without it.

Others write there as well. An annotation says which nodes are Disabled because of us;
the others that are have been disabled by somebody else, are left so, and are avoided
by jobs with Rabbit storage until they are Enabled again.
"""

from __future__ import annotations

import syslog
from dataclasses import dataclass, field
from typing import AbstractSet, Any, Callable, Iterable, Mapping, Optional, Union

from flux_k8s.dws.drainreason import cannot_mount
from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader, decimal
from flux_k8s.ports import (
    SYSTEMSTATUS,
    Flux,
    Json,
    Kube,
    KubeDone,
    KubeError,
    Timer,
    Watch,
    gone,
)
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.resourcestatus import NodeStates

NAME = "default"
"""The name of the one SystemStatus."""

ENABLED = "Enabled"
DISABLED = "Disabled"

ANNOTATION_OURS = "flux-framework.readthedocs.io/disabled-nodes"
"""The nodes that are Disabled because of us (RFC 29)."""

GATHER = 0.1
"""Seconds to wait for more nodes before a change is told."""

RETRY = 1.0
LAST_RETRY = 60.0


def disabled_nodes(states: NodeStates) -> frozenset[str]:
    """The nodes that DWS is not to wait for."""
    failed = {host for host, why in states.drained.items() if cannot_mount(why)}
    return states.offline | failed


@dataclass(frozen=True)
class Shown:
    """A SystemStatus, as far as it matters here.

    Attributes:
        version: its resourceVersion.
        nodes: the status of each node; one that is missing is Enabled.
        ours: the nodes that are Disabled because of us.
    """

    version: str = ""
    nodes: Mapping[str, Any] = field(default_factory=dict)
    ours: frozenset[str] = frozenset()

    @property
    def disabled(self) -> frozenset[str]:
        return frozenset(h for h, status in self.nodes.items() if status != ENABLED)

    @property
    def foreign(self) -> frozenset[str]:
        """The nodes that somebody else has disabled."""
        return self.disabled - self.ours

    def is_newer_than(self, other: Shown) -> bool:
        """Whether it was written after another one, as far as versions tell."""
        mine, its = decimal(self.version), decimal(other.version)
        return mine is not None and its is not None and mine > its


def parse(object: Json) -> Shown:
    """Read a SystemStatus.

    Raises:
        BadObject: it is not what its kind prescribes.
    """
    reader = Reader(f"SystemStatus {NAME}", object)
    nodes = reader.optional_object("data.nodes")
    annotations = reader.optional_object("metadata.annotations")
    text = None if annotations is None else annotations.value.get(ANNOTATION_OURS)
    try:
        ours = frozenset(hostlist.decode(text or ""))
    except (TypeError, ValueError):
        place = f"metadata.annotations[{ANNOTATION_OURS}]"
        raise BadObject(reader.name, place, text, "a hostlist (RFC 29)") from None
    version = reader.optional_string("metadata.resourceVersion") or ""
    return Shown(version, {} if nodes is None else nodes.value, ours)


def changes(
    states: NodeStates, shown: Shown, awaited: AbstractSet[str]
) -> dict[str, str]:
    """What a SystemStatus lacks. Nodes that Flux does not have, the Rabbits among
    them, and those that somebody else has disabled are not ours to tell about."""
    disabled = disabled_nodes(states) - awaited
    wanted = {host: DISABLED if host in disabled else ENABLED for host in states.hosts}
    return {
        host: status
        for host, status in wanted.items()
        if shown.nodes.get(host, ENABLED) != status and host not in shown.foreign
    }


def patch(shown: Shown, nodes: Mapping[str, str]) -> Json:
    """A merge patch that tells ``nodes``. It fails where somebody else has written
    meanwhile: they may have disabled the same node."""
    told = {host for host, status in nodes.items() if status == DISABLED}
    ours = (shown.ours & shown.disabled) - nodes.keys() | told
    names = hostlist.encode(sorted(ours, key=hostlist.natural_key))
    metadata: Json = {"annotations": {ANNOTATION_OURS: names}}
    if shown.version:
        metadata["resourceVersion"] = shown.version
    return {"metadata": metadata, "data": {"nodes": dict(nodes)}}


class SystemStatus:
    """Keeps the SystemStatus as the nodes are (a ``WatchHandler``).

    Args:
        awaited: tells the nodes of jobs that wait for their storage to be mounted;
            None as long as they are not known.
        changed: is called when others have disabled a node, or have enabled it.

    Attributes:
        foreign: the nodes that somebody else has disabled.
    """

    def __init__(
        self,
        flux: Flux,
        kube: Kube,
        namespace: str,
        awaited: Callable[[], Optional[AbstractSet[str]]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed = changed
        self.foreign: frozenset[str] = frozenset()
        self._awaited = awaited
        self._withheld = False
        self._flux = flux
        self._kube = kube
        self._namespace = namespace
        self._states: Optional[NodeStates] = None
        self._shown: Optional[Shown] = None
        self._synced = False
        self._unbroken_since = float("inf")
        self._enabled_at: dict[str, float] = {}
        self._busy = False
        self._failures = 0
        self._lost = False
        self._timer: Optional[Timer] = None
        self._watch: Optional[Watch] = None
        self._stopped = False

    def start(self) -> None:
        self._watch = self._kube.watch(SYSTEMSTATUS, self._namespace, self)

    def stop(self) -> None:
        self._stopped = True
        if self._watch is not None:
            self._watch.stop()
        if self._timer is not None:
            self._timer.cancel()

    def see(self, states: NodeStates) -> None:
        """The nodes are like this now."""
        self._states = states
        self._see_foreign()
        self._soon()

    def jobs_changed(self) -> None:
        """Jobs that wait for their mounts may not wait any more."""
        if self._withheld:
            self._soon()

    def was_any_disabled(
        self,
        hosts: Optional[Iterable[str]],
        since: Optional[float],
        key: str,
        done: Callable[[Union[bool, KubeError]], None],
    ) -> None:
        """Find out whether DWS may have passed over some of ``hosts`` (None is for all
        nodes) in a state that was requested at ``since`` (None: it is not known):
        whether one is Disabled, or may have been since. A watch may lag behind that of
        the Workflows, so Kubernetes is asked, in the order of the requests with that
        ``key``: jobs do not wait for each other."""

        def answer(result: Union[Json, KubeError]) -> None:
            if not isinstance(result, KubeError):
                self._catch_up(result)
            elif result.status not in (403, 404):
                done(result)
                return
            elif self._shown is not None or not gone(result):
                done(True)  # it is not for us, or the watch says otherwise
                return
            done(self._was_disabled(hosts, since))

        self._kube.get(SYSTEMSTATUS, self._namespace, NAME, answer, key=key)

    def _catch_up(self, object: Json) -> None:
        """Take in an answer. Where it is not what the watch has told last, nodes may
        have been Disabled for a while, and Enabled again."""
        version = object.get("metadata", {}).get("resourceVersion")
        if self._shown is None or self._shown.version != version:
            self._unbroken_since = self._flux.now()
            self.event("MODIFIED", object)

    def _was_disabled(
        self, hosts: Optional[Iterable[str]], since: Optional[float]
    ) -> bool:
        """Whether some of ``hosts`` (None is for all nodes) may have been Disabled
        since a time (None: it is not known)."""
        if since is None or since < self._unbroken_since:
            return True
        disabled = set() if self._shown is None else set(self._shown.disabled)
        disabled |= {host for host, at in self._enabled_at.items() if at > since}
        return bool(disabled if hosts is None else disabled.intersection(hosts))

    def enable(
        self, hosts: Iterable[str], done: Callable[[Optional[KubeError]], None]
    ) -> None:
        """Have DWS wait for nodes before storage is mounted on them: Flux may have
        given them to a job before it was told that they are back. Those that
        somebody else has disabled stay so."""
        names = tuple(hosts)
        if self._synced and not self._busy:
            self._enable(names, done)
            return

        def answer(result: Union[Json, KubeError]) -> None:
            if not isinstance(result, KubeError):
                self.event("MODIFIED", result)
                self._enable(names, done)
            else:  # where there is none, or it is not for us, none is disabled
                done(None if result.status in (403, 404) else result)

        namespace, key = self._namespace, "systemstatus"
        self._kube.get(SYSTEMSTATUS, namespace, NAME, answer, key=key)

    def _enable(
        self, hosts: Iterable[str], done: Callable[[Optional[KubeError]], None]
    ) -> None:
        shown = self._shown or Shown()
        ours = (shown.disabled - shown.foreign).intersection(hosts)
        if not ours:
            done(None)
            return

        def answer(result: Union[Json, KubeError]) -> None:
            if not isinstance(result, KubeError):
                self.event("MODIFIED", result)
                done(None)
            else:
                done(None if result.status in (403, 404) else result)

        self._patch(patch(shown, dict.fromkeys(ours, ENABLED)), answer)

    def _patch(self, body: Json, done: KubeDone) -> None:
        self._kube.patch(
            SYSTEMSTATUS, self._namespace, NAME, body, done, key="systemstatus"
        )

    # What Kubernetes shows: the WatchHandler

    def event(self, type: str, object: Json) -> None:
        if object.get("metadata", {}).get("name") != NAME:
            return
        shown = None if type == "DELETED" else self._parse(object)
        if shown is not None and self._shown is not None:
            if self._shown.is_newer_than(shown):
                return  # an answer came before it
        self._note_enabled(shown or Shown())
        self._shown = shown
        self._see_foreign()
        self._soon()

    def _parse(self, object: Json) -> Shown:
        try:
            return parse(object)
        except BadObject as error:
            self._flux.log(syslog.LOG_ERR, str(error))
            return Shown()

    def _note_enabled(self, shown: Shown) -> None:
        """Note which nodes are Disabled no more, and when that was seen."""
        before = frozenset[str]() if self._shown is None else self._shown.disabled
        enabled = before - shown.disabled
        self._enabled_at.update(dict.fromkeys(enabled, self._flux.now()))

    def _see_foreign(self) -> None:
        """Tell of nodes that somebody else has disabled, or has enabled again."""
        shown = self._shown or Shown()
        hosts = () if self._states is None else self._states.hosts
        foreign = shown.foreign.intersection(hosts)
        if foreign == self.foreign:
            return
        for level, nodes, what in (
            (syslog.LOG_WARNING, foreign - self.foreign, "disabled"),
            (syslog.LOG_NOTICE, self.foreign - foreign, "not disabled any more"),
        ):
            if nodes:
                names = hostlist.encode(sorted(nodes, key=hostlist.natural_key))
                avoid = (
                    ""
                    if level == syslog.LOG_NOTICE
                    else (
                        ": jobs with Rabbit storage avoid it until it is Enabled again"
                    )
                )
                text = f"SystemStatus: {names} is {what} by somebody else{avoid}"
                self._flux.log(level, text)
        self.foreign = foreign
        self._changed()

    def synced(self) -> None:
        self._synced = True
        self._unbroken_since = self._flux.now()
        self._lost = False
        self._soon()

    def trouble(self, error: KubeError) -> None:
        """No job depends on this: it is told once, unless all else is lost too."""
        if error.status and not self._lost:
            self._flux.log(syslog.LOG_WARNING, f"SystemStatus: {error}")
            self._lost = True

    def _soon(self, delay: float = GATHER) -> None:
        if self._timer is None and not (self._busy or self._stopped):
            self._timer = self._flux.call_later(delay, self._tell)

    def _tell(self) -> None:
        """Make the object show what is true."""
        self._timer = None
        if self._states is None or not self._synced:
            return
        missing = self._shown is None
        awaited = self._awaited()
        spared = frozenset(self._states.hosts) if awaited is None else awaited
        self._withheld = not spared.isdisjoint(disabled_nodes(self._states))
        shown = self._shown or Shown()
        nodes = changes(self._states, shown, spared)
        if not nodes and not missing:
            return
        self._busy = True
        body = patch(shown, nodes)
        if missing:
            body["metadata"].update(name=NAME, namespace=self._namespace)
            self._kube.create(
                SYSTEMSTATUS, self._namespace, body, self._told, key="systemstatus"
            )
        else:
            self._patch(body, self._told)

    def _told(self, result: Union[Json, KubeError]) -> None:
        self._busy = False
        if self._stopped:
            return
        if not isinstance(result, KubeError):
            self._failures = 0
            self.event("MODIFIED", result)
            return
        self._failures += 1
        if self._failures == 1 and result.status not in (0, 404, 409):
            text = f"SystemStatus: cannot tell about nodes: {result}; trying again"
            self._flux.log(syslog.LOG_WARNING, text)
        pause = min(LAST_RETRY, RETRY * 2.0 ** min(self._failures - 1, 10))
        self._soon(max(pause, result.retry_after or 0.0))
