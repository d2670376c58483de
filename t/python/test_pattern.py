# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The regular expressions of DWS' rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flux_k8s.dws.pattern import Pattern, Unsupported

ATOMS = st.sampled_from(
    [
        *("a", "b", "-", r"\d", r"\w", r"\s", r"\D", r"\.", r"\-", ".", "[a-c]"),
        *("[^a-c]", "[]a]", "[a-]", r"[\d_]", "^", "$", "", "é", r"\t", "{", "}"),
    ]
)
REPEATS = st.sampled_from(
    ["", "", "*", "+", "?", "*?", "{2}", "{1,}", "{0,2}", "{3,4}"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4).map("".join),
        st.lists(parts, min_size=1, max_size=3).map(lambda p: f"({'|'.join(p)})"),
        parts.map(lambda part: f"(?:{part})"),
        st.tuples(parts.map(lambda part: f"(?P<n>{part})"), REPEATS).map("".join),
        st.tuples(ATOMS, REPEATS).map("".join),
    ),
    max_leaves=8,
)


def in_python(text: str) -> re.Pattern[str]:
    """The same expression for Python, which has another ``$`` and other blanks."""
    text = text.replace("?P<n>", "?:").replace("$", r"\Z")
    return re.compile(text.replace(r"\s", r"[\t\n\f\r ]"), re.ASCII)


@given(PATTERNS, st.text("ab-c1_. \té\n]{}", max_size=8))
def test_a_text_matches_as_it_does_in_python(expression: str, text: str) -> None:
    # Python takes "{,2}" for a repetition, and warns of "[[".
    assume("{," not in expression)
    try:
        pattern = Pattern(expression)
        expected = in_python(expression)
    except (Unsupported, re.error):
        return
    assert pattern.search(text) == (expected.search(text) is not None)


@given(st.text("ab|()[]{}^$*+?\\d-,1:P<n>.", max_size=30), st.text("ab1", max_size=5))
def test_any_expression_is_read_or_unsupported(expression: str, text: str) -> None:
    try:
        Pattern(expression).search(text)
    except Unsupported as error:
        assert str(error)


@pytest.mark.parametrize(
    ("expression", "choices"),
    [
        ("^(raw|xfs|gfs2|lustre)$", ("raw", "xfs", "gfs2", "lustre")),
        ("^type$", ("type",)),
        ("^ab?$", ("a", "ab")),
        (r"\Aa|b\z", ()),
        (r"^a$|^b\z", ("a", "b")),
        ("type", ()),
        ("^a+$", ()),
        ("^[ab]$", ()),
        ("^a^b$", ()),
        ("^(a|b|c|d)(a|b|c|d)(a|b|c|d)(a|b|c|d)$", ()),
    ],
)
def test_the_choices_of_an_expression_are_known_if_they_are_few(
    expression: str, choices: tuple[str, ...]
) -> None:
    pattern = Pattern(expression)
    assert pattern.choices == choices
    assert all(pattern.search(choice) for choice in choices)


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "[a", "[b-a]", "*a", "a**", "a{2}{3}", "a{9999}", "(?i)a", r"\b"),
        *(r"\pL", r"\x41", r"\1", "[[:alpha:]]", "(?=a)", "a{3,2}", "\\", "a" * 1001),
        *("(" * 60 + ")" * 60, "((((a{1000}){1000}){1000}){1000})", "(?P<>a)"),
        "(((((){1000}){1000}){1000}){1000})",
    ],
)
def test_patterns_that_go_refuses_or_this_module_does_not_read_are_unsupported(
    expression: str,
) -> None:
    with pytest.raises(Unsupported):
        Pattern(expression)


def test_a_dollar_is_the_end_of_the_text_and_not_of_its_last_line() -> None:
    assert not Pattern("^a$").search("a\n")


def test_a_digit_is_one_of_ascii() -> None:
    assert not Pattern(r"\d").search("٣")


def test_nested_repetitions_take_linear_time() -> None:
    pattern = Pattern("^((a|a)*)*b$")
    assert not pattern.search("a" * 10_000)
