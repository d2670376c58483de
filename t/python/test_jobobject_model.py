# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects as values, and what makes them valid."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sssjob import Element, ObjectError, check, element, read, walk, write
from sssjob.schema.model import rule_of
from sssjob.schema.properties import CONTENTS, FILES, IN_ORDER
from sssjob.schema.values import Datatype, to_text, unwritable
from support.jobobjects import VALUES, complete, objects, strings

ID = element("Id", "1")


def job(*contents: Optional[Element], **attributes: Any) -> Element:
    return element("Job", None, ID, *contents, **attributes)


def refused(root: Element, message: str) -> None:
    with pytest.raises(ObjectError) as caught:
        check(root)
    assert str(caught.value) == message
    with pytest.raises(ObjectError):
        write(root)


@pytest.mark.parametrize("name", ["Job", "JobGroup"])
def test_an_object_with_all_there_may_be_is_valid(name: str) -> None:
    root = complete(name)
    check(root)
    found = {
        (outer.name, inner.name) for _, outer in walk(root) for inner in outer.contents
    }
    for parent in {outer for outer, _ in found}:
        names = {inner for outer, inner in found if outer == parent}
        assert names == set(CONTENTS[parent])


PRINTED = "expected text that XML can hold, which has no control characters"


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (element("Requested"), "/Requested: expected Job or JobGroup here"),
        (element(""), "/: expected Job or JobGroup here"),
        (job(element("Memory", 1)), "/Job/Memory: is 1, expected a number"),
        (
            job(element("Memory", 1.0), element("Memory", float("inf"))),
            "/Job/Memory[2]: is Infinity, expected a number",
        ),
        (
            job(element("NodeCount", True)),
            "/Job/NodeCount: is true, expected an integer of 64 bits",
        ),
        (job(element("Name", "\x07")), f'/Job/Name: is "\\u0007", {PRINTED}'),
        (job(element("Charge", 1.0, units=2)), f"/Job/Charge: units is 2, {PRINTED}"),
        (job(element("Colour", "red")), "/Job/Colour: may not stand in Job"),
        (job(element("Name", "n", ID)), "/Job/Name/Id: may not stand in Name"),
        (
            job(element("Name", "n", colour="red")),
            "/Job/Name: may not have an attribute colour",
        ),
        (
            job(element("Name", "n", awarenessPolicy="Panic")),
            '/Job/Name: awarenessPolicy is "Panic", expected one of Reject, Warn, '
            "Ignore",
        ),
        (
            job(element("NotificationList", "JobEnd,Soon")),
            '/Job/NotificationList: is "JobEnd,Soon", expected one of JobStart, '
            "JobEnd, All, None",
        ),
        (
            job(Element("Memory", 1.0, (("units", "GB"), ("units", "MB")))),
            "/Job/Memory: has 2 attributes units, expected one",
        ),
    ],
)
def test_an_invalid_element_is_named_with_its_path(root: Element, message: str) -> None:
    refused(root, message)


@pytest.mark.parametrize("text", ["", " ", " tg1", "tg1\n"])
def test_a_reference_has_no_white_space_that_reading_would_take_away(text: str) -> None:
    message = f"/Job/TaskGroup: refers to {text!r}, expected an id".replace("'", '"')
    refused(job(element("TaskGroup", text)), message)


@given(objects(), st.data())
def test_an_object_that_lost_what_it_must_have_is_not_valid(
    root: Element, data: st.DataObject
) -> None:
    def without(inner: Element, parent: Optional[str]) -> Element:
        contents = tuple(without(each, inner.name) for each in inner.contents)
        if inner is broken:
            contents = tuple(
                each for each in contents if each.name not in ("Id", "Job")
            )
        return replace(inner, contents=contents)

    groups = [e for _, e in walk(root) if e.name in ("Job", "JobGroup") and e.contents]
    if not groups:
        return
    broken = data.draw(st.sampled_from(groups))
    with pytest.raises(ObjectError, match="has no Id|has no Job"):
        check(without(root, None))


@given(objects(), st.randoms(use_true_random=False))
def test_objects_that_say_the_same_are_equal_and_are_written_alike(
    root: Element, order: random.Random
) -> None:
    def shuffled(inner: Element) -> Element:
        contents = [shuffled(each) for each in inner.contents]
        if inner.name not in IN_ORDER:
            # What there may be more than one of keeps its order, files as well.
            def kind(each: Element) -> str:
                return "files" if each.name in FILES else each.name

            kinds = sorted({kind(each) for each in contents})
            order.shuffle(kinds)
            contents.sort(key=lambda each: kinds.index(kind(each)))
        attributes = list(inner.attributes)
        order.shuffle(attributes)
        return Element(inner.name, inner.value, tuple(attributes), tuple(contents))

    other = shuffled(root)
    assert other == root and hash(other) == hash(root)
    assert write(other) == write(root)


@given(objects())
def test_paths_lead_to_their_elements(root: Element) -> None:
    found = dict(walk(root))
    assert len(found) == sum(1 for _ in walk(root))
    for path, inner in found.items():
        at = root
        for step in path.split("/")[2:]:
            name, _, number = step.rstrip("]").partition("[")
            at = list(at.all(name))[int(number or 1) - 1]
        assert at is inner


def test_the_canonical_order_is_that_of_the_rules() -> None:
    for root in (complete("Job"), complete("JobGroup")):
        for _, inner in walk(root):
            if inner.contents and inner.name not in IN_ORDER:
                names = [each.name for each in inner.contents]
                assert names == sorted(names, key=list(CONTENTS[inner.name]).index)


def test_an_element_gives_its_parts_by_name() -> None:
    memory = element("Memory", 2.0, units="GB", metric=None)
    found = job(memory, None, element("Hold", "a"), element("Hold", "b"))
    assert memory.attributes == (("units", "GB"),)
    assert memory.attribute("units") == "GB" and memory.attribute("metric") is None
    assert found.find("Memory") == memory and found.find("Disk") is None
    assert [hold.value for hold in found.all("Hold")] == ["a", "b"]
    assert (found.text("Memory"), found.text("Disk")) == ("2", None)


def test_rules_have_the_path_of_their_element() -> None:
    assert rule_of("Requested", "Memory") != rule_of("Job", "Memory")
    assert rule_of("Job", "Task") is None and rule_of("Id", "Id") is None


@pytest.mark.parametrize("datatype", Datatype, ids=lambda datatype: datatype.value)
def test_values_are_written_so_that_they_can_be_read(datatype: Datatype) -> None:
    @given(VALUES[datatype])
    def same(value: Any) -> None:
        assert datatype.holds(value)
        found = datatype.parse(to_text(value))
        assert found == value and type(found) is type(value)
        assert not unwritable(to_text(value))

    same()


@given(strings, strings)
def test_any_text_can_be_written_and_read(text: str, name: str) -> None:
    root = job(
        element("Name", text), element("Extension", text, name=name, type=text + name)
    )
    assert read(write(root)) == root


def test_a_document_has_nothing_that_turns_the_order_of_letters() -> None:
    marks = "\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\x9b"
    root = job(element("Name", marks))
    text = write(root)
    assert text.replace("\n", "").isprintable() and read(text) == root
