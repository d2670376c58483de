# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How many of a resource a jobspec asks for (RFC 14 and 45)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.formats import count, idset
from flux_k8s.formats.count import MAX_LENGTH, Count
from flux_k8s.json_reader import Reader

TOP = 70


def parse(value: Any) -> Count:
    return count.parse(Reader("jobspec", {"count": value}))


def follow(least: int, operator: str, operand: int) -> set[int]:
    """The numbers of a range up to TOP, one after the other."""
    found = set()
    number = least
    while number <= TOP and number not in found:
        found.add(number)
        number = {
            "+": number + operand,
            "*": number * operand,
            "^": number**operand,
        }[operator]
    return found


numbers = st.integers(1, 40)
operators = st.sampled_from("+*^")


@given(numbers, st.integers(0, TOP))
def test_a_number_accepts_itself(number: int, available: int) -> None:
    found = parse(number)
    assert found.is_fixed
    assert found.largest(available) == (number if number <= available else 0)


@given(numbers, numbers, operators, st.integers(2, 5), st.integers(0, TOP))
def test_a_range_accepts_the_numbers_that_follow_from_each_other(
    least: int, more: int, operator: str, operand: int, available: int
) -> None:
    most = least + more
    accepted = [n for n in follow(least, operator, operand) if n <= most]
    fit = [n for n in accepted if n <= available]
    fields = {"min": least, "max": most, "operator": operator, "operand": operand}
    text = f"{least}-{most}:{operand}:{operator}"
    for value in (fields, text, f"[{text}]"):
        assert parse(value).least == least
        assert parse(value).largest(available) == max(fit, default=0)


@given(numbers, st.integers(0, TOP))
def test_a_range_may_have_no_end(least: int, available: int) -> None:
    fit = available if available >= least else 0
    for value in ({"min": least}, f"{least}+"):
        assert parse(value).most is None
        assert parse(value).largest(available) == fit


@example({1, *range(5, 9)}, 5)
@given(st.sets(numbers, min_size=1), st.integers(0, TOP))
def test_an_idset_accepts_its_numbers(accepted: set[int], available: int) -> None:
    fit = [n for n in accepted if n <= available]
    found = parse(idset.encode(accepted))
    assert found.least == min(accepted)
    assert found.largest(available) == max(fit, default=0)


@pytest.mark.parametrize("operand", [2, 2**62])
def test_a_range_of_powers_is_read_in_no_time(operand: int) -> None:
    fields = {"min": 2, "operator": "^", "operand": operand}
    assert parse(fields).largest(2**62) in (2, 2**32)
    assert parse({**fields, "min": 1}).largest(5) == 1


def test_a_count_is_short() -> None:
    ids = ",".join(map(str, range(1000, 1410, 2)))
    assert len(ids) == MAX_LENGTH and parse(ids).least == 1000
    with pytest.raises(BadObject, match=f"at most {MAX_LENGTH} characters"):
        parse(ids + "0")


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, True, 1.5, None, [], "", "0", "0-3", "x", "3-2", "2-4:1:*", "2-8:2:x"),
        *({}, {"min": 0}, {"min": 3, "max": 2}, 2**63),
        *({"min": 3, "operator": o, "operand": 1} for o in "-*"),
    ],
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(BadObject, match="count"):
        parse(value)
