# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux_k8s.rabbits.nodes: draining of nodes."""

from __future__ import annotations

import errno
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.ports import RpcError
from flux_k8s.rabbits.nodes import Nodes
from flux_k8s.rfc import hostlist
from rabbitsim.loop import VirtualLoop


class Resource:
    """The part of Flux that drains: all nodes of a list, or none."""

    def __init__(self, nodes: set[str]) -> None:
        self.loop = VirtualLoop()
        self.call_later = self.loop.call_later
        self.nodes = nodes
        self.drained: set[str] = set()

    def drain(self, hosts: str, reason: str, done: Any) -> None:
        names = set(hostlist.decode(hosts))
        error = None
        if names <= self.nodes:
            self.drained |= names
        else:
            error = RpcError(errno.EINVAL, "unknown host")
        self.loop.call_soon(lambda: done(error))

    def log(self, level: int, message: str) -> None: ...


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), unique_by=lambda x: x[0]))
def test_a_node_that_flux_lacks_spares_no_other(asked: list[tuple[int, bool]]) -> None:
    flux: Any = Resource({f"n{number}" for number, there in asked if there})
    done: list[None] = []
    hosts = [f"n{number}" for number, _ in asked]
    Nodes(flux, lambda: None).drain(hosts, "broken", done.append)
    flux.loop.run()
    assert flux.drained == flux.nodes
    assert done == [None]
