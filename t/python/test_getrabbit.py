# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Which Rabbits belong to which compute nodes and jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.dws import getrabbit, mapping
from support.mapping import EXAMPLE
from support.rset import fluxion_r, in_shorthand

HETCHY = mapping.parse(EXAMPLE)
ON_202 = fluxion_r({"hetchy1003": "hetchy202"}, {"hetchy202": [793]})
ON_NONE = fluxion_r({"hetchy1003": "hetchy202"}, {"hetchy202": []})
RABBITS = st.lists(st.sampled_from(HETCHY.rabbits))


def test_the_nodes_of_rabbits_are_in_the_order_of_the_rabbits() -> None:
    found = getrabbit.computes_of(HETCHY, ("hetchy202", "hetchy201"))
    assert found == (*HETCHY.hosts_of("hetchy202"), *HETCHY.hosts_of("hetchy201"))


def test_the_rabbits_of_nodes_are_in_the_order_of_the_nodes() -> None:
    hosts = ("hetchy1018", "hetchy1001", "hetchy1003")
    assert getrabbit.rabbits_of(HETCHY, hosts) == ("hetchy202", "hetchy201")


@given(RABBITS)
def test_rabbits_are_found_by_their_nodes_each_once(rabbits: list[str]) -> None:
    hosts = getrabbit.computes_of(HETCHY, rabbits)
    assert len(hosts) == len(set(hosts))
    assert getrabbit.rabbits_of(HETCHY, hosts) == tuple(dict.fromkeys(rabbits))


def test_all_names_that_are_not_known_are_named_together() -> None:
    with pytest.raises(getrabbit.NotFound, match=r"^no such Rabbit: r\[1-2\]$"):
        getrabbit.computes_of(HETCHY, ("r1", "hetchy201", "r2", "r1"))
    with pytest.raises(getrabbit.NotFound, match="^not connected to a Rabbit: login1$"):
        getrabbit.rabbits_of(HETCHY, ("login1", "hetchy1001"))


def test_the_record_of_a_job_names_its_rabbits() -> None:
    assert getrabbit.rabbits_of_job("f1", "r[2-3]", ON_202) == ("r2", "r3")


WHOLE_202 = in_shorthand(ON_202, ["/cluster0/chassis0"])


@pytest.mark.parametrize("R", [ON_202, in_shorthand(ON_202), WHOLE_202])
def test_a_job_without_a_record_has_the_rabbits_of_its_r(R: Any) -> None:
    assert getrabbit.rabbits_of_job("f1", "", R) == ("hetchy202",)


@pytest.mark.parametrize("R", [None, ON_NONE])
def test_the_rabbits_of_a_job_without_storage_are_an_error(R: Any) -> None:
    with pytest.raises(getrabbit.NotFound, match=r"^job f1 has no storage on Rabbits"):
        getrabbit.rabbits_of_job("f1", "", R)


def test_a_record_that_is_no_hostlist_is_an_error() -> None:
    with pytest.raises(getrabbit.NotFound, match=r"^job f1: rabbit_hostlist: "):
        getrabbit.rabbits_of_job("f1", "r[1", ON_202)
