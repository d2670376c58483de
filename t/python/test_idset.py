# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 22 idsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import idset
from support.fluxpython import needs_flux, of_flux

VECTORS = {
    "": (),
    "[]": (),
    "0": (0,),
    "1,2,3,5,6,42": (1, 2, 3, 5, 6, 42),
    "1-3,5-6,42": (1, 2, 3, 5, 6, 42),
    "[1-3,5-6,42]": (1, 2, 3, 5, 6, 42),
}

WRONG = [
    " ",
    "01",
    "1-",
    "-1",
    "1-1",
    "3-1",
    "2,1",
    "1,1",
    "1-3,2",
    "[1",
    "1]",
    "[1],[2]",
    "+1",
    "0x1",
    " 1",
    "1 ",
    "1,,2",
    "a",
    "\u0661",
    "4294967294",
    "0-1048576",
    "0-4294967293",
]


@pytest.mark.parametrize("text", VECTORS)
def test_an_idset_decodes_to_its_ids(text: str) -> None:
    assert idset.decode(text) == VECTORS[text]


@pytest.mark.parametrize("text", WRONG)
def test_a_malformed_idset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="idset"):
        idset.decode(text)


@given(st.sets(st.integers(0, 200) | st.integers(0, idset.MAX_ID)))
def test_decoding_gives_back_the_ids_that_were_encoded(ids: set[int]) -> None:
    assert idset.decode(idset.encode(ids)) == tuple(sorted(ids))


@pytest.mark.parametrize("id", [-1, idset.MAX_ID + 1])
def test_an_id_out_of_range_is_not_encoded(id: int) -> None:
    with pytest.raises(ValueError, match="not between"):
        idset.encode([id])


@needs_flux
def test_flux_decodes_and_encodes_idsets_in_the_same_way() -> None:
    theirs = of_flux(
        "from flux.idset import decode",
        "[[list(s), s.encode()] for s in map(decode, given)]",
        list(VECTORS),
    )
    assert theirs == [[list(ids), idset.encode(ids)] for ids in VECTORS.values()]
