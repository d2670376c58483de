# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Constraints that job objects can say."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

HOSTS = ("h1", "h2", "h3", "x")
FEATURES = ("a", "b", "c")
NODES = [
    (host, set(features))
    for host in HOSTS
    for size in range(len(FEATURES) + 1)
    for features in itertools.combinations(FEATURES, size)
]
"""All nodes that constraints on these hosts and features can tell apart."""


def leaves() -> st.SearchStrategy[Any]:
    names = st.sampled_from([*FEATURES, *(f"^{name}" for name in FEATURES)])
    hosts = st.sampled_from([*HOSTS, "h[1-3]", "h[1,3]", "h1,x"])
    return st.one_of(
        st.builds(lambda v: {"properties": v}, st.lists(names, max_size=3)),
        st.builds(lambda v: {"hostlist": v}, st.lists(hosts, max_size=2)),
        st.just({}),
    )


def branches(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(children, max_size=3)
    return st.one_of(
        st.builds(lambda v: {"and": v}, several),
        st.builds(lambda v: {"or": v}, several),
        st.builds(lambda v: {"not": v}, st.lists(children, max_size=1)),
    )


CONSTRAINTS = st.recursive(leaves(), branches, max_leaves=12)
