# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 29 hostlists: the RFC's vectors, strictness, and Flux's own opinion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import hostlist
from support.fluxpython import needs_flux, of_flux

VECTORS = {
    "": [],
    "foox,fooy,fooz": ["foox", "fooy", "fooz"],
    "[1-3,5-6]": ["1", "2", "3", "5", "6"],
    "foo[1-5]": ["foo1", "foo2", "foo3", "foo4", "foo5"],
    "foo[0-4]-eth2": [f"foo{n}-eth2" for n in range(5)],
    "foo1,foo1,foo1": ["foo1", "foo1", "foo1"],
    "[00-02]": ["00", "01", "02"],
    "[00-2]": ["00", "01", "02"],
    "foo[1,1,2,1]": ["foo1", "foo1", "foo2", "foo1"],
    "h[08-11]": ["h08", "h09", "h10", "h11"],
    "h[098-101]": ["h098", "h099", "h100", "h101"],
    "h[005,4]": ["h005", "h4"],
    "a[1-2],b,c[3]": ["a1", "a2", "b", "c3"],
    "a,,b": ["a", "b"],
    "a b\tc": ["a", "b", "c"],
    "compute-[01-03]": ["compute-01", "compute-02", "compute-03"],
}

WRONG = [
    "h[",
    "h]",
    "h[]",
    "h[1,]",
    "h[-1]",
    "h[3-1]",
    "h[1-2-3]",
    "h[a]",
    "h[0x1]",
    "h[1]]",
    "h[[1]]",
    "a[1]b[2]",
    "h[1-1048577]",
    "h[0-999999999]",
    "h[0-1048575],h",
    "h[99999999999999999999]",
    "h\u00e9[1-2]",
    "h\u0000",
    "h[\u0661]",
]

FOLDED = {
    "h[005,4]": "h005 h4",
    "h[005,004,011]": "h005 h004 h011",
    "h[9-11,3]": "h9 h10 h11 h3",
    "h1": "h1",
    "h[09-10,099-100]": "h09 h10 h099 h100",
    "h[1,01]": "h1 h01",
    "h[1,3,2,2]": "h1 h3 h2 h2",
    "": "",
    "a1b[1-2],a2b1": "a1b1 a1b2 a2b1",
    "h,h1,[1-2]": "h h1 1 2",
    "h1,g1,h2": "h1 g1 h2",
}
"""A hostlist, and the hosts that it is made of."""

names = st.builds(
    lambda prefix, digits, suffix: prefix + digits + suffix,
    st.sampled_from(["h", "rabbit-", "", "n1x", "a.b"]),
    st.from_regex(r"0{0,2}[0-9]{1,3}", fullmatch=True),
    st.sampled_from(["", "", "", "-ib"]),
)


@pytest.mark.parametrize("text", VECTORS)
def test_a_hostlist_decodes_to_its_hosts(text: str) -> None:
    assert hostlist.decode(text) == tuple(VECTORS[text])


@pytest.mark.parametrize("text", WRONG)
def test_a_malformed_hostlist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hostlist"):
        hostlist.decode(text)


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b"])
def test_a_name_that_no_hostlist_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        hostlist.encode([name])


@given(st.lists(names, max_size=30))
def test_decoding_gives_back_the_hosts_that_were_encoded(hosts: list[str]) -> None:
    assert hostlist.decode(hostlist.encode(hosts)) == tuple(hosts)


def test_natural_order_puts_h2_before_h10() -> None:
    hosts = ["h10", "h9", "h2-b10", "h2-b9", "a"]
    expected = ["a", "h2-b9", "h2-b10", "h9", "h10"]
    assert sorted(hosts, key=hostlist.natural_key) == expected


@pytest.mark.parametrize("text", FOLDED)
def test_hosts_in_sequence_are_folded_into_ranges(text: str) -> None:
    assert hostlist.encode(FOLDED[text].split()) == text


@needs_flux
def test_flux_decodes_and_encodes_hostlists_in_the_same_way() -> None:
    imports = "from flux.hostlist import Hostlist, decode"
    decoded = of_flux(imports, "[list(decode(text)) for text in given]", list(VECTORS))
    assert decoded == [list(hostlist.decode(text)) for text in VECTORS]
    encoded = of_flux(
        imports,
        "[Hostlist(hosts.split()).encode() for hosts in given]",
        [*FOLDED.values()],
    )
    assert encoded == list(FOLDED)
