# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Until when the nodes of the instance have jobs, by ``job-list``.

``resource.sched-status`` says which nodes are allocated, but not for how long, and
holds up the resource module for a quarter of a second on 11,136 nodes. ``job-list`` has
the nodes and the time limits of jobs, needs no other module for its answer, and answers
whatever the scheduler is.

This is good for a preference only: the answer may be old, jobs end before their limits,
and others get nodes meanwhile. So Flux is asked when somebody wants to know, never more
often than each :data:`INTERVAL`, and not again after a failure.
"""

from __future__ import annotations

import math
from functools import partial
from operator import itemgetter
from typing import Any, Mapping, Sequence, Union

from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.errors import BadObject
from flux_k8s.formats import idset
from flux_k8s.json_reader import Reader
from flux_k8s.machine.nodes import Nodes
from flux_k8s.ports import Flux, Json, RpcError

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


class NodeUse:
    """Knows which nodes jobs have.

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
        if abs(now - self._asked) >= INTERVAL:
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
            ends = parse(result, max(states.host_of, default=-1))
        except BadObject:  # which is as good as no answer
            return {}
        host_of, soon = states.host_of, self._flux.now() + SOON
        return {
            host_of[rank]: max(end, soon)
            for rank, end in ends.items()
            if rank in host_of
        }


def parse(answer: Any, last: int) -> Mapping[int, float]:
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
