# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What users may write as ``#DW`` directives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import (
    UNITS,
    parse,
    parse_attribute,
    parse_capacity,
)

JOBDW = "#DW jobdw type=xfs capacity=10GiB name=p1"


def test_a_directive_has_a_command_and_arguments() -> None:
    directive = parse(JOBDW)
    assert directive.command == "jobdw"
    assert directive.arguments == {"type": "xfs", "capacity": "10GiB", "name": "p1"}
    assert directive.capacity == 10 * 2**30


def test_white_space_in_a_directive_is_folded() -> None:
    assert parse("  #DW   jobdw type=xfs\tcapacity=10GiB name=p1 ").text == JOBDW


@pytest.mark.parametrize(
    "value",
    [
        JOBDW + "\n#DW copy_in source=/lus/a destination=$DW_JOB_p1/",
        JOBDW + " #DW copy_in source=/lus/a destination=$DW_JOB_p1/",
        [JOBDW, "#DW copy_in source=/lus/a destination=$DW_JOB_p1/"],
        ["\n  " + JOBDW + "\n\n", "#DW copy_in source=/lus/a destination=$DW_JOB_p1/"],
        ["stage"],
        "stage",
    ],
)
def test_the_dw_attribute_takes_lines_lists_and_presets(value: object) -> None:
    presets = {
        "stage": (JOBDW, "#DW copy_in source=/lus/a destination=$DW_JOB_p1/"),
    }
    directives = parse_attribute(value, presets)
    assert [directive.command for directive in directives] == ["jobdw", "copy_in"]


@pytest.mark.parametrize(
    "value, message",
    [
        (17, "dw=17: expected a string or a list of strings"),
        ([JOBDW, 3], "expected a string or a list of strings"),
        ([], "has no #DW directive"),
        ("  \n", "has an empty string, expected a #DW directive in quotes"),
        ([""], "has an empty string, expected a #DW directive in quotes"),
        ("jobdw type=xfs capacity=10GiB name=p1", "missing '#DW' prefix"),
        ("#DWjobdw type=xfs", "missing '#DW' prefix"),
        ("#DW", "missing command, such as jobdw, in quotes with #DW"),
        (JOBDW + " name=p2", "argument 'name=' is repeated"),
        ("#DW jobdw type= capacity=1GiB name=a", "'type=' is not of the form"),
        ("#DW jobdw =xfs capacity=1GiB name=a", "'=xfs' is not of the form"),
        ("nvme", "unknown preset and no '#DW' directive, known presets: big, small"),
    ],
)
def test_a_mistake_in_a_directive_is_named_with_what_would_be_right(
    value: object, message: str
) -> None:
    presets = {"small": (JOBDW,), "big": (JOBDW,)}
    with pytest.raises(DirectiveError) as caught:
        parse_attribute(value, presets)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("#DW burst name=p1", "#DW jobdw type=xfs name=p1", "#DW copy_in"),
        *(
            f"{JOBDW} x",
            "#DW jobdw type=xfs, capacity=10 GiB",
            "#DW jobdw capacity=1PiB",
        ),
    ],
)
def test_commands_and_what_they_must_have_are_for_the_rules_of_the_site(
    text: str,
) -> None:
    (found,) = parse_attribute(text)
    assert found.text == text and found.command == text.split()[1]


def test_an_argument_without_a_value_is_true_as_it_is_for_dws() -> None:
    found = parse("#DW jobdw turbo name=p1")
    assert found.arguments == {"turbo": "true", "name": "p1"}
    assert found.is_bare("turbo") and not found.is_bare("name")


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_capacity_is_an_integer_and_one_of_eight_suffixes(
    number: int, unit: str
) -> None:
    assert parse_capacity(JOBDW, f"{number}{unit}") == number * UNITS[unit]


NO_SIZE = "is not a size"
SIZES = ["10", "GiB", "10gib", "10 GiB", "1.5TiB", "-1GiB", "10PiB", "٣GiB"]
NO_STORAGE = "is no storage: expected a size above 0"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, NO_SIZE) for text in SIZES),
        (f"{10**8}TiB", "over 2\\^63"),
        *((text, NO_STORAGE) for text in ("0GiB", "0KB", "000TiB")),
    ],
)
def test_a_text_that_is_no_size_is_refused_as_a_capacity(
    text: str, problem: str
) -> None:
    with pytest.raises(DirectiveError, match=problem):
        parse_capacity(JOBDW, text)


@given(st.text())
def test_any_text_gives_directives_or_a_directive_error(text: str) -> None:
    try:
        directives = parse_attribute(text)
    except DirectiveError as error:
        assert str(error)
    else:
        assert all(directive.command for directive in directives)


@pytest.mark.parametrize(
    "line",
    [
        "#DW copy_in source=/lus/a,b destination=$DW_JOB_p1/c,name=d",
        "#DW jobdw type=xfs capacity=1GiB name=p1 requires=copy-offload,user-container",
    ],
)
def test_other_values_may_have_commas(line: str) -> None:
    assert parse(line).text == line


@pytest.mark.parametrize("others", ["", " name=p1"])
@pytest.mark.parametrize("written", ["capacity = 10GiB", "capacity =10GiB"])
def test_a_blank_beside_the_equals_sign_is_named(written: str, others: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        parse(f"#DW jobdw type=xfs {written}{others}")
    error = caught.value
    assert error.problem == "a blank beside '='" and error.meant == "capacity=10GiB"
    assert error.line[error.start : error.end] == written
    with pytest.raises(DirectiveError) as caught:
        parse("#DW jobdw type=xfs capacity= 10GiB")
    assert caught.value.meant == "capacity=10GiB"


@pytest.mark.parametrize("words", ["=", "= x", "type=xfs =", "type= name=p1", "a= ="])
def test_where_no_argument_can_be_meant_none_is_proposed(words: str) -> None:
    with pytest.raises(DirectiveError, match="is not of the form key=value") as caught:
        parse(f"#DW jobdw {words}")
    assert caught.value.meant is None
