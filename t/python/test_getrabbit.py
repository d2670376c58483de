# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which Rabbits belong to which compute nodes and jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.objects import mapping
from flux_k8s.rules import getrabbit
from support.mapping import EXAMPLE
from support.rset import fluxion_r, in_shorthand

HETCHY = mapping.parse(EXAMPLE)
ON_202 = fluxion_r({"hetchy1003": "hetchy202"}, {"hetchy202": [793]})
ON_NONE = fluxion_r({"hetchy1003": "hetchy202"}, {"hetchy202": []})
RABBITS = st.lists(st.sampled_from(HETCHY.rabbits))


@given(RABBITS)
def test_rabbits_are_found_by_their_nodes_each_once(rabbits: list[str]) -> None:
    hosts = getrabbit.computes_of(HETCHY, rabbits)
    assert hosts == tuple(
        host for rabbit in dict.fromkeys(rabbits) for host in HETCHY.hosts_of(rabbit)
    )
    assert getrabbit.rabbits_of(HETCHY, hosts) == tuple(dict.fromkeys(rabbits))


def test_all_names_that_are_not_known_are_named_together() -> None:
    with pytest.raises(getrabbit.NotFound, match=r"^no such Rabbit: r\[1-2\]$"):
        getrabbit.computes_of(HETCHY, ("r1", "hetchy201", "r2", "r1"))
    with pytest.raises(getrabbit.NotFound, match="^not connected to a Rabbit: login1$"):
        getrabbit.rabbits_of(HETCHY, ("login1", "hetchy1001"))


WHOLE_202 = in_shorthand(ON_202, ["/cluster0/chassis0"])


@pytest.mark.parametrize(
    ("record", "R", "rabbits"),
    [
        ("r[2-3]", ON_202, ("r2", "r3")),
        *(("", R, ("hetchy202",)) for R in (ON_202, in_shorthand(ON_202), WHOLE_202)),
        ("", None, "^job f1 has no storage on Rabbits"),
        ("", ON_NONE, "^job f1 has no storage on Rabbits"),
        ("r[1", ON_202, "^job f1: rabbit_hostlist: "),
    ],
)
def test_a_job_has_the_rabbits_of_its_record_or_else_of_its_r(
    record: str, R: Any, rabbits: Any
) -> None:
    if isinstance(rabbits, tuple):
        assert getrabbit.rabbits_of_job("f1", record, R) == rabbits
    else:
        with pytest.raises(getrabbit.NotFound, match=rabbits):
            getrabbit.rabbits_of_job("f1", record, R)
