# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The XML Schema in ``doc``, which another implementation of XML applies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from lxml import etree

from sssjob import Element, effective, read, write
from support.jobobjects import EXAMPLES, complete, objects
from support.jobschema import job
from support.xsd import schema

PUBLISHED = Path(__file__).parents[2] / "doc" / "jobobject.xsd"
SCHEMA = etree.XMLSchema(etree.fromstring(schema().encode()))


def errors(document: str) -> str:
    """What the schema has against a document."""
    SCHEMA.validate(etree.fromstring(document.encode()))
    return "\n".join(error.message for error in SCHEMA.error_log)


def test_the_published_schema_is_that_of_the_rules() -> None:
    # support.xsd says how to write it anew.
    assert PUBLISHED.read_text() == schema()


@settings(deadline=None)
@given(objects())
def test_written_objects_are_valid_against_the_schema(root: Element) -> None:
    assert errors(write(root)) == ""
    assert errors(write(effective(root))) == ""


@pytest.mark.parametrize("name", ["Job", "JobGroup"])
def test_an_object_with_all_elements_is_valid_against_the_schema(name: str) -> None:
    assert errors(write(complete(name))) == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_as_they_are_written_are_valid(path: Path) -> None:
    assert errors(write(read(path.read_bytes()))) == ""


FILES = ["<InputFile/>", "<OutputFile/>", "<ErrorFile/>"]


def test_files_are_valid_in_any_order_and_once() -> None:
    for first in FILES:
        for second in {*FILES} - {first}:
            (third,) = {*FILES} - {first, second}
            assert errors(job(first + second + third)) == ""
            assert errors(job(first + second)) == ""
            assert "not expected" in errors(job(first + second + first))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("<Task>1</Task>", "No matching global declaration"),
        ("<Job><Name>n</Name></Job>", "'Name': This element is not expected. Expected"),
        ("<JobGroup><Id>1</Id></JobGroup>", "'JobGroup': Missing child element(s)"),
        (job("<Colour/>"), "'Colour': This element is not expected"),
        (job("<Id>1</Id>"), "'Id': This element is not expected"),
        (job("<User>u</User><Name>n</Name>"), "'Name': This element is not expected"),
        (job("<Name>n</Name><Name>n</Name>"), "'Name': This element is not expected"),
        (job("<Name><Id>1</Id></Name>"), "Element content is not allowed"),
        (job("<NodeCount>1.5</NodeCount>"), "not a valid value of the atomic type"),
        (job(f"<NodeCount>{2**63}</NodeCount>"), "not a valid value"),
        (job("<StartTime>-1</StartTime>"), "not a valid value"),
        (job(f"<Duration>{2**32}</Duration>"), "not a valid value"),
        (job("<Interactive>yes</Interactive>"), "not a valid value"),
        (job("<Memory>INF</Memory>"), "is not accepted by the pattern"),
        (job("<Memory>-INF</Memory>"), "is not accepted by the pattern"),
        (job("<Memory>NaN</Memory>"), "is not accepted by the pattern"),
        (job("<Memory op='GE'>1</Memory>"), "attribute 'op' is not allowed"),
        (job("<Memory colour='red'>1</Memory>"), "attribute 'colour' is not allowed"),
        (job("<Memory context='Spare'>1</Memory>"), "not an element of the set"),
        (job("<Name awarenessPolicy='No'>n</Name>"), "not an element of the set"),
        (job("<Resource>1</Resource>"), "attribute 'name' is required but missing"),
        (job("<OutputFile redirectList='Append,No'/>"), "not accepted by the pattern"),
        (job("<OutputFile redirectList=''/>"), "not accepted by the pattern"),
        (job("<InputFile redirectList='Append'/>"), "not accepted by the pattern"),
        (job("<NotificationList>Soon</NotificationList>"), "accepted by the pattern"),
        (job("<Requested/>"), "Missing child element(s)"),
        (job("<Requested>now<User>u</User></Requested>"), "Character content other"),
        (job("<Requested><Name>n</Name></Requested>"), "'Name': This element is not"),
        (job("<Requested><User op='No'>u</User></Requested>"), "not an element of"),
        (job("<Delivered><User op='EQ'>u</User></Delivered>"), "'op' is not allowed"),
        (job("<Delivered><StartTime>1</StartTime></Delivered>"), "'StartTime': This"),
        (job("<JobGroup><Id>g</Id></JobGroup>"), "Element content is not allowed"),
        (job("<TaskGroup><Task><Task>1</Task></Task></TaskGroup>"), "'Task': This"),
        (job("<JobDefaults><User>u</User></JobDefaults>"), "'JobDefaults': This"),
        (job("<Environment><User>u</User></Environment>"), "'User': This element"),
    ],
)
def test_objects_that_are_not_valid_are_refused_by_the_schema(
    document: str, message: str
) -> None:
    assert message in errors(document)


def test_a_reference_and_what_it_refers_to_are_both_valid() -> None:
    both = (
        "<TaskGroup>tg1</TaskGroup><TaskGroup><Name>n</Name><Task>1</Task></TaskGroup>"
    )
    assert errors(job(f"<JobGroup>g</JobGroup>{both}")) == ""
    assert errors(f"<JobGroup><Id>g</Id><Job>1</Job>{job('')}</JobGroup>") == ""
