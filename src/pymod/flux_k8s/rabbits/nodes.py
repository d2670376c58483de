# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes of the Flux instance: which are there, online and drained."""

from __future__ import annotations

import errno
import syslog
from dataclasses import dataclass, replace
from functools import partial
from typing import Callable, Iterable, Mapping, Optional

from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options, TryAgain
from flux_k8s.control.coroutines import call
from flux_k8s.dws.drainreason import replacement
from flux_k8s.errors import BadObject
from flux_k8s.ports import Flux, RpcError, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.resourcestatus import NodeStates, parse

DEBOUNCE = 0.1
"""Seconds from a first change until Flux is asked for the states: brokers come, and
are drained, many at once."""

RETRY = 5.0
"""Seconds until a request that failed is sent again."""

STATUS = "resource.status"


@dataclass(frozen=True)
class _Part:
    """Nodes that are drained by one request.

    Attributes:
        reason: the text of the drain.
        replaces: whether they are drained already, and the text is to take the place of
            another one.
    """

    hosts: tuple[str, ...]
    reason: str
    replaces: bool


@dataclass(eq=False)
class _Drain:
    """Nodes to be drained.

    Attributes:
        parts: what is not carried out yet.
        done: is called with None when all parts are done.
    """

    parts: list[_Part]
    done: Callable[[None], None]


class Nodes:
    """Follows the nodes, and drains them.

    Events only say that something may have changed; Flux is then asked for the states.

    Args:
        changed: is called when the states are known, and have changed.

    Attributes:
        states: the last known states; None until there are some.
    """

    def __init__(self, flux: Flux, changed: Callable[[], None]) -> None:
        self._flux = flux
        self._changed = changed
        self._watch: Optional[Watch] = None
        self.states: Optional[NodeStates] = None
        self._status = Controller[str](
            flux,
            self._read_states,
            self._read_failed,
            Options(
                debounce=DEBOUNCE,
                backoff=lambda key: Backoff(RETRY, RETRY),
                expected=(TryAgain,),
            ),
        )
        self._drains = Controller[_Drain](
            flux,
            self._drain_part,
            options=Options(backoff=lambda drain: Backoff(RETRY, RETRY)),
        )
        self._open: dict[_Drain, None] = {}  # not carried out yet
        self._unseen: dict[str, _Part] = {}  # drained, which the next states may lack

    def start(self) -> None:
        self._watch = self._flux.watch_nodes(lambda: self._status.add(STATUS))
        self._status.run(STATUS)

    def stop(self) -> None:
        self._status.stop()
        self._drains.stop()
        if self._watch is not None:
            self._watch.stop()

    def drain(
        self,
        hosts: Iterable[str],
        reason: str,
        done: Callable[[None], None] = lambda _: None,
    ) -> None:
        """Drain nodes that are not drained yet, or for a reason that is to be replaced
        (:func:`~flux_k8s.dws.drainreason.replacement`). The request is sent
        before this returns, and again until Flux carries it out. When ``done`` is
        called, no job is given these nodes any more."""
        known = {} if self.states is None else self.states.drained
        plain: list[str] = []
        replaced: dict[str, list[str]] = {}
        for host in hosts:
            text = replacement(known.get(host, ""), reason)
            (plain if text is None else replaced.setdefault(text, [])).append(host)
        parts = [_Part(tuple(same), text, True) for text, same in replaced.items()]
        if plain or not parts:
            parts.insert(0, _Part(tuple(plain), reason, False))
        requested = {host: part for part in parts for host in part.hosts}
        self._await(requested)
        drain = _Drain(parts, done)
        self._open[drain] = None
        self._drains.run(drain)
        self._set_drained(_applied(requested, known))

    def _await(self, requested: Mapping[str, _Part]) -> None:
        """The next states may lack these drains."""
        for host, part in requested.items():
            if part.replaces or host not in self._unseen:
                self._unseen[host] = part

    def undrain(self, hosts: Iterable[str]) -> None:
        """Undrain nodes."""
        names = set(hosts)
        self._flux.undrain(hostlist.encode(sorted(names, key=hostlist.natural_key)))
        for host in names:
            self._unseen.pop(host, None)
        if self.states is not None:
            items = self.states.drained.items()
            self._set_drained({host: why for host, why in items if host not in names})

    def _set_drained(self, drained: Mapping[str, str]) -> None:
        """Note a change that was just requested of Flux. The next answer confirms
        it."""
        if self.states is not None and drained != self.states.drained:
            self.states = replace(self.states, drained=drained)
            self._changed()

    async def _drain_part(self, drain: _Drain) -> Optional[float]:
        """Drain the next part. EINVAL: Flux lacks one of its nodes, and drains none of
        them. The others are drained in halves."""
        part = drain.parts[0]
        hosts, reason, names = part.hosts, part.reason, hostlist.encode(part.hosts)
        try:
            if part.replaces:
                await call(partial(self._flux.drain, overwrite=True), names, reason)
            else:
                await call(self._flux.drain, names, reason)
        except RpcError as error:
            if error.errnum == errno.EINVAL and len(hosts) > 1:
                half = len(hosts) // 2
                halves = (hosts[:half], hosts[half:])
                drain.parts[:1] = [replace(part, hosts=each) for each in halves]
                return 0.0
            text = f"cannot drain {names}: {error}"
            self._flux.log(syslog.LOG_ERR, text, Reason.DRAIN_FAILED)
            if error.errnum != errno.EINVAL:
                raise
            for host in hosts:
                self._unseen.pop(host, None)
        del drain.parts[0]
        if drain.parts:
            return 0.0
        del self._open[drain]
        drain.done(None)
        return None

    async def _read_states(self, key: str) -> None:
        """Ask Flux for the states. It may answer before it carries out a drain that was
        requested meanwhile, or is in parts: such nodes do not serve again."""
        self._unseen = {}
        for drain in self._open:
            for part in drain.parts:
                self._await(dict.fromkeys(part.hosts, part))
        try:
            states = parse(await call(self._flux.rpc, STATUS, {}))
        except (RpcError, BadObject) as error:
            raise TryAgain(error) from error
        states = replace(states, drained=_applied(self._unseen, states.drained))
        if states != self.states:
            self.states = states
            self._changed()

    def _read_failed(self, key: str, error: TryAgain) -> None:
        """Log the first failure. At a shutdown the service outlives Flux's resource
        module for a moment: ENOSYS is no failure."""
        cause = error.__cause__
        if isinstance(cause, RpcError) and cause.errnum == errno.ENOSYS:
            return
        if not self._status.failures(key):
            self._flux.log(syslog.LOG_ERR, f"{STATUS}: {error}", Reason.FLUX_ERROR)


def _applied(
    requested: Mapping[str, _Part], drained: Mapping[str, str]
) -> dict[str, str]:
    """The drained nodes, with their texts, after these drains."""
    found = dict(drained)
    for host, part in requested.items():
        if part.replaces or host not in found:
            found[host] = part.reason
    return found
