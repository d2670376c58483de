# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The word of a directive that is wrong is underlined."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.rules.underline import marked, message

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
TEXT = st.text(st.characters(), max_size=200)
"""With surrogates, which JSON may have."""
WORDS = st.sampled_from(["#DW", "type=xfs", "\t", "\n", "漢字", "e\u0301", "\ud800"])
LINES = st.one_of(TEXT, st.lists(WORDS | TEXT, max_size=12).map(" ".join))


def columns(text: str) -> int:
    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me")
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def wrong(dw: str) -> DirectiveError:
    try:
        parse_attribute(dw)
    except DirectiveError as error:
        return error
    raise AssertionError(f"{dw} is right")


def test_a_message_has_the_sentence_and_below_it_the_marks() -> None:
    assert message(wrong(XFS.replace("#DW", "#dw"))).split("\n") == [
        "missing '#DW' prefix: did you mean #DW?",
        "  #dw jobdw type=xfs capacity=10GiB name=p1",
        "  ^~~",
    ]


def test_the_line_is_as_the_user_wrote_it_and_an_error_is_one_line() -> None:
    error = wrong(f"{XFS}\n\t#DW   copy_in \t source= destination=/b")
    assert marked(error) == [
        "#DW   copy_in   source= destination=/b",
        "                ^~~~~~~",
    ]
    assert str(error) == (
        "#DW copy_in source= destination=/b: argument 'source=' is not of the form"
        " key=value"
    )


def test_a_wide_character_takes_two_columns_and_an_accent_none() -> None:
    line, marks = marked(wrong("#DW 漢 漢e\u0301= x"))
    assert line == "#DW 漢 漢e\u0301= x"
    assert marks == "       ^~~~~~"


def test_a_control_character_is_shown_as_it_is_escaped() -> None:
    assert marked(wrong("#DW x \x1b[2J=")) == ["#DW x \\x1b[2J=", "      ^~~~~~~~"]


@given(st.integers(-1, 10), st.integers(0, 12))
def test_no_terminal_is_too_narrow_for_the_sentence(wide: int, start: int) -> None:
    error = DirectiveError("#DW jobdw x", start, start + 3, "is wrong")
    sentence, line, marks = message(error, wide).split("\n")
    assert sentence == error.sentence
    assert line.strip() and marks.strip().startswith("^")


@given(LINES, st.data(), st.integers(20, 100))
def test_a_long_line_is_cut_around_the_word(
    text: str, data: st.DataObject, width: int
) -> None:
    line = " ".join(text.split()) or "x"
    start = data.draw(st.integers(0, len(line) - 1))
    end = data.draw(st.integers(start + 1, len(line)))
    error = DirectiveError(line, start, end, "is wrong")
    assert all(one.isprintable() for one in marked(error, width))
    shown, marks = marked(error, width)
    assert columns(shown) <= width and marks.strip("^~ ") == ""
    assert marks.index("^") <= columns(shown)
    if line.isprintable() and columns(line) <= width:
        assert shown == line


@pytest.mark.parametrize("start", [4, 50, 98])
def test_as_much_of_a_long_line_is_shown_as_fits(start: int) -> None:
    error = DirectiveError("#DW " + "x" * 100, start, start + 2, "is wrong")
    line, _ = marked(error, 40)
    assert 37 <= columns(line) <= 40  # with "..." at each side
