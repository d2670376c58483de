# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes of the Flux instance: which are there, online and drained, and until when
they have jobs."""

from __future__ import annotations

import errno
import math
import syslog
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import Answer, Call, call, settle
from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist, idset
from flux_k8s.formats.resourcestatus import NodeStates, parse
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Flux, Json, RpcError, Watch
from flux_k8s.reasons import Reason
from flux_k8s.rules.drainreason import LOST_CONNECTION, replacement

DEBOUNCE = 0.1
"""Seconds from a first change until Flux is asked for the states: brokers come, and
are drained, many at once."""

RETRY = 5.0
"""Seconds until a request that failed is sent again."""

STATUS = "resource.status"

INTERVAL = 2.0
"""Seconds between two requests, at least."""

PATIENCE = 1.0
"""Seconds for which an answer is waited for. One that comes later is noted as well."""

SOON = 10.0
"""Seconds for which a node is not free, at least, whose job has reached its time limit:
what follows the tasks is not limited."""

MOST_JOBS = 4096
MOST_TEXT = 2**15
MOST_RANKS = 2**16
"""The jobs in an answer, and the characters and the ranks in the lists of their nodes.
Nothing is read of more: users can make it, where jobs share nodes."""

LIST = "job-list.list"
HAVE_NODES = 16 | 32
"""The states of jobs that have nodes: RUN, CLEANUP (RFC 21)."""


@dataclass(eq=False)
class _Request:
    """A request to drain nodes.

    Attributes:
        hosts: those that the states may lack that were read last.
        left: those of them that Flux has not drained yet.
        reason: for which they are drained.
        done: is called with None when Flux has drained all.
    """

    hosts: tuple[str, ...]
    left: frozenset[str]
    reason: str
    done: Optional[Callable[[None], None]]


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
                expected=(RpcError, BadObject),
            ),
        )
        self._drains = Controller[_Request](
            flux,
            self._carry_out,
            options=Options(
                backoff=lambda drain: Backoff(RETRY, RETRY),
                expected=(RpcError, BadObject),
            ),
        )
        self._read: Optional[NodeStates] = None
        self._requests: dict[_Request, None] = {}

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
        (:func:`~flux_k8s.rules.drainreason.replacement`). The request is sent
        before this returns, and again until Flux carries it out. When ``done`` is
        called, no job is given these nodes any more."""
        names = tuple(hosts)
        drain = _Request(names, frozenset(names), reason, done)
        self._requests[drain] = None
        self._drains.run(drain)
        self._update()

    def want(self, drains: Mapping[str, str]) -> None:
        """Have the nodes drained that cannot reach their Rabbit, each for its reason,
        and no others for such a reason. Drains with other reasons are left alone."""
        if self.states is None:
            return
        by_reason: dict[str, list[str]] = {}
        for host in self.states.hosts:
            if host in drains and host not in self.states.drained:
                by_reason.setdefault(drains[host], []).append(host)
        for reason, hosts in by_reason.items():
            self.drain(hosts, reason)
        back = [
            host
            for host, reason in self.states.drained.items()
            if reason.startswith(LOST_CONNECTION) and host not in drains
        ]
        if back:
            names = hostlist.encode(sorted(back, key=hostlist.natural_key))
            text = f"undraining {names}: the PCIe connection is no reason any more"
            self._flux.log(syslog.LOG_NOTICE, text, Reason.NODE_BACK)
            self.undrain(back)

    def undrain(self, hosts: Iterable[str]) -> None:
        """Undrain nodes."""
        names = frozenset(hosts)
        self._flux.undrain(hostlist.encode(sorted(names, key=hostlist.natural_key)))
        for drain in self._requests:
            drain.hosts = tuple(host for host in drain.hosts if host not in names)
        if self._read is not None:
            items = self._read.drained.items()
            drained = {host: text for host, text in items if host not in names}
            self._read = replace(self._read, drained=drained)
        self._update()

    def _update(self) -> None:
        """The states are those that were read, with the drains that were requested."""
        if self._read is None:
            return
        states = replace(self._read, drained=self._drained_before(None))
        if states != self.states:
            self.states = states
            self._changed()

    def _drained_before(self, request: Optional[_Request]) -> dict[str, str]:
        """The nodes that are drained, as it was read, and by the requests that were
        made before one, or (None) all, and may not show yet."""
        drained = {} if self._read is None else dict(self._read.drained)
        for drain in self._requests:
            if drain is request:
                break
            for host in drain.hosts:
                known = drained.get(host, "")
                text = replacement(known, drain.reason)
                drained[host] = text or known or drain.reason
        return drained

    async def _carry_out(self, drain: _Request) -> Optional[float]:
        """Drain the nodes: one request for each text, of which one may take the place
        of another. All are sent at once: who drains nodes may go on to tell that they
        are drained. EINVAL: Flux lacks one of the nodes, and drains none of them."""
        known = self._drained_before(drain)
        texts: dict[Optional[str], list[str]] = {}
        for host in filter(drain.left.__contains__, drain.hosts):
            text = replacement(known.get(host, ""), drain.reason)
            texts.setdefault(text, []).append(host)
        answers = await settle(
            call(
                partial(self._flux.drain, overwrite=text is not None),
                hostlist.encode(hosts),
                text or drain.reason,
            )
            for text, hosts in texts.items()
        )
        refused = []
        for hosts, error in zip(texts.values(), answers):
            if isinstance(error, RpcError):
                refused.append((hosts, error))
            else:
                drain.left -= {*hosts}
        for hosts, error in refused:
            lacking = hosts
            if error.errnum == errno.EINVAL and len(hosts) > 1:
                there = frozenset(parse(await call(self._flux.rpc, STATUS, {})).hosts)
                lacking = [h for h in hosts if h not in there] or hosts
            final = error.errnum == errno.EINVAL
            if final or not self._drains.failures(drain):
                says = f"cannot drain {hostlist.encode(lacking)}: {error}"
                self._flux.log(syslog.LOG_ERR, says, Reason.DRAIN_FAILED)
            if not final:
                raise error
            drain.hosts = tuple(host for host in drain.hosts if host not in lacking)
        if refused:
            return 0.0  # the rest of them
        if drain.done is not None:
            drain.done(None)
            drain.done = None
        self._status.add(STATUS)  # Flux tells of no change if they were drained before
        return None

    async def _read_states(self, key: str) -> None:
        """Ask Flux for the states. It may answer before it carries out a drain that was
        requested meanwhile."""
        left = {drain: drain.left for drain in self._requests}
        self._read = parse(await call(self._flux.rpc, STATUS, {}))
        for drain, names in left.items():
            drain.hosts = tuple(filter(names.__contains__, drain.hosts))
            if not drain.hosts:
                del self._requests[drain]
        self._update()

    def _read_failed(self, key: str, error: Union[RpcError, BadObject]) -> None:
        """Log the first failure. At a shutdown the service outlives Flux's resource
        module for a moment: ENOSYS is no failure."""
        if isinstance(error, RpcError) and error.errnum == errno.ENOSYS:
            return
        if not self._status.failures(key):
            self._flux.log(syslog.LOG_ERR, f"{STATUS}: {error}", Reason.FLUX_ERROR)


class NodeUse:
    """Knows until when the nodes have jobs, by ``job-list``.

    ``resource.sched-status`` says which nodes are allocated, but not for how long, and
    holds up the resource module for a quarter of a second on 11,136 nodes. ``job-list``
    has the nodes and the time limits of jobs, needs no other module for its answer, and
    answers whatever the scheduler is.

    This is good for a preference only: the answer may be old, jobs end before their
    limits, and others get nodes meanwhile. So Flux is asked when somebody wants to
    know, never more often than each :data:`INTERVAL`, and not again after a failure.

    Attributes:
        until: the UNIX time at which the last of a node's jobs reaches its time limit,
            or soon if it has; infinite without one. A node without jobs is missing; so
            are all nodes as long as nothing is known.
    """

    def __init__(self, flux: Flux, nodes: Nodes) -> None:
        self._flux = flux
        self._nodes = nodes
        self._asked = -math.inf
        self.until: Mapping[str, float] = {}

    async def update(self) -> None:
        """Ask Flux, unless it was asked a moment ago. Return when it has answered, or
        has not for a while."""
        now = self._flux.now()
        if now - self._asked >= INTERVAL:
            self._asked = now
            await Call(self._ask)

    def _ask(self, answer: Answer) -> None:
        timer = self._flux.call_later(PATIENCE, partial(answer, None))

        def answered(result: Union[Json, RpcError]) -> None:
            timer.cancel()
            self.until = self._read(result)
            answer(None)

        request = {
            "max_entries": MOST_JOBS + 1,
            "attrs": ["ranks", "expiration"],
            "constraint": {"states": [HAVE_NODES]},
        }
        self._flux.rpc(LIST, request, answered)

    def _read(self, result: Union[Json, RpcError]) -> Mapping[str, float]:
        states = self._nodes.states
        if states is None or isinstance(result, RpcError):
            return {}
        try:
            ends = parse_use(result, max(states.host_of, default=-1))
        except BadObject:  # which is as good as no answer
            return {}
        host_of, soon = states.host_of, self._flux.now() + SOON
        return {
            host_of[rank]: max(end, soon)
            for rank, end in ends.items()
            if rank in host_of
        }


def parse_use(answer: Any, last: int) -> Mapping[int, float]:
    """Read an answer of ``job-list.list``: as :attr:`NodeUse.until`, of the ranks up to
    ``last``, but with the time limits as they are. Nothing is read of an answer that
    would take long.

    Raises:
        BadObject: the answer has another form.
    """
    jobs = Reader(LIST, answer).list("jobs")
    if len(jobs) > MOST_JOBS:
        return {}
    ends = sorted(map(_end, jobs), key=itemgetter(0))
    if sum(len(ranks) for _, ranks in ends) > MOST_TEXT:
        return {}
    parts = [
        (end, range(first, min(final, last) + 1))
        for end, ranks in ends
        for first, final in _spans(ranks)
    ]
    if sum(len(ranks) for _, ranks in parts) > MOST_RANKS:
        return {}
    until: dict[int, float] = {}
    for end, ranks in parts:
        until.update(dict.fromkeys(ranks, end))
    return until


def _end(job: Any) -> tuple[float, str]:
    """The time limit of a job, and the ranks of its nodes."""
    reader = Reader(LIST, job, "jobs")
    # Flux has 0 for a job without a limit.
    end = reader.optional_number("expiration") or math.inf
    return end, reader.optional_text("ranks") or ""


def _spans(ranks: str) -> Sequence[tuple[int, int]]:
    try:
        return idset.spans(ranks)
    except ValueError:
        raise BadObject(LIST, "jobs.ranks", ranks, "an idset") from None
