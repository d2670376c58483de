# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes of the Flux instance: which are there, online and drained."""

from __future__ import annotations

import errno
import syslog
from dataclasses import replace
from functools import partial
from typing import Callable, Iterable, Mapping, Optional, Union

from flux_k8s.errors import BadObject
from flux_k8s.ports import Flux, Json, RpcError, Timer, Watch
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.resourcestatus import NodeStates, parse

SETTLE = 0.1
"""Seconds from a first change until the nodes are looked at: brokers come, and
are drained, many at once."""

RETRY = 5.0
"""Seconds until Flux is asked again after an error."""


class Nodes:
    """Follows the nodes, and drains them.

    Events only say that something may have changed; what is true is asked for.

    Args:
        changed: is called when the states are known, and have changed.

    Attributes:
        states: what is known; None until something is.
    """

    def __init__(self, flux: Flux, changed: Callable[[], None]) -> None:
        self._flux = flux
        self._changed = changed
        self._watch: Optional[Watch] = None
        self._timer: Optional[Timer] = None
        self._asked = False
        self._stale = False
        self._failed = False
        self._stopped = False
        self.states: Optional[NodeStates] = None

    def start(self) -> None:
        self._watch = self._flux.watch_nodes(self._look)
        self._ask()

    def stop(self) -> None:
        self._stopped = True
        if self._watch is not None:
            self._watch.stop()
        if self._timer is not None:
            self._timer.cancel()

    def drain(
        self,
        hosts: Iterable[str],
        reason: str,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Drain nodes that are not drained yet. When ``done`` is called, no job is
        given these nodes any more."""
        names = tuple(hosts)
        self._send_drain(names, reason, done)
        if self.states is not None:
            self._see({**dict.fromkeys(names, reason), **self.states.drained})

    def _send_drain(
        self, hosts: tuple[str, ...], reason: str, done: Callable[[], None]
    ) -> None:
        """Send the request until Flux carries it out, or says that it never will.
        EINVAL: Flux lacks one of the nodes, and drains none of them. The others are
        drained in halves."""
        if self._stopped:
            return
        names = hostlist.encode(hosts)

        def answered(error: Optional[RpcError]) -> None:
            if self._stopped:
                return
            if error is not None and error.errnum == errno.EINVAL and len(hosts) > 1:
                half = len(hosts) // 2
                rest = partial(self._send_drain, hosts[half:], reason, done)
                self._send_drain(hosts[:half], reason, rest)
                return
            if error is not None:
                text = f"cannot drain {names}: {error}"
                self._flux.log(syslog.LOG_ERR, text)
            if error is None or error.errnum == errno.EINVAL:
                done()
            else:
                again = partial(self._send_drain, hosts, reason, done)
                self._flux.call_later(RETRY, again)

        self._flux.drain(names, reason, answered)

    def undrain(self, hosts: Iterable[str]) -> None:
        """Undrain nodes."""
        names = set(hosts)
        self._flux.undrain(hostlist.encode(sorted(names, key=hostlist.natural_key)))
        if self.states is not None:
            items = self.states.drained.items()
            self._see({host: reason for host, reason in items if host not in names})

    def _see(self, drained: Mapping[str, str]) -> None:
        """What was just done, which the next look would only confirm."""
        if self.states is not None and drained != self.states.drained:
            self.states = replace(self.states, drained=drained)
            self._changed()

    def _look(self) -> None:
        """Ask a moment later; once more if the answer may be older than this."""
        if self._asked:
            self._stale = True
        elif self._timer is None:
            self._again(SETTLE)

    def _again(self, delay: float) -> None:
        if not self._stopped:
            self._timer = self._flux.call_later(delay, self._ask)

    def _ask(self) -> None:
        self._timer = None
        self._asked = True
        self._flux.rpc("resource.status", {}, self._answered)

    def _answered(self, result: Union[Json, RpcError]) -> None:
        self._asked = False
        if self._stopped:
            return
        try:
            if isinstance(result, RpcError):
                raise result
            states = parse(result)
        except (RpcError, BadObject) as error:
            if not self._failed:
                self._flux.log(syslog.LOG_ERR, f"resource.status: {error}")
            self._failed = True
            self._again(RETRY)
            return
        self._failed = False
        if self._stale:
            self._stale = False
            self._again(SETTLE)
        if states != self.states:
            self.states = states
            self._changed()
