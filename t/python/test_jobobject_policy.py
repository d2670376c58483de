# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is not understood: the awarenessPolicy of the specification, section 9."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from sssjob import (
    Element,
    ObjectError,
    ObjectWarning,
    read,
    walk_with_policy,
    write,
)
from sssjob.schema.properties import CONTENTS
from support.jobobjects import objects
from support.tables import rows

POLICIES = ["Reject", "Warn", "Ignore"]
REJECTED = "; awarenessPolicy is Reject here"
LEFT_OUT = "; left out"
WHOLE = "; the element is left out"


def policy(name: Optional[str]) -> str:
    return "" if name is None else f' awarenessPolicy="{name}"'


def outcome(document: str) -> tuple[Optional[Element], list[str]]:
    """The object, if it is accepted, and what was said."""
    lines: list[str] = []
    try:
        return read(document, lines.append), lines
    except ObjectError as error:
        return None, [*lines, str(error)]


def expect(
    document: str, in_effect: str, place: str, rest: str, left_out: str = LEFT_OUT
) -> None:
    """What is not understood meets a policy; ``rest`` is the document without."""
    found, lines = outcome(document)
    if in_effect == "Reject":
        assert (found, lines) == (None, [place + REJECTED])
    else:
        assert found == read(rest)
        assert lines == ([place + left_out] if in_effect == "Warn" else [])


# Each kind of thing under each policy. What is left of it is in the last column; a
# property goes as a whole.

THINGS = r"""
<Colour/> -> /Job/Colour: is not understood, Job may not have it
<Task>1</Task> -> /Job/Task: is not understood, Job may not have it
<TaskGroup>tg<Sub>x</Sub></TaskGroup>
  -> /Job/TaskGroup/Sub: is not understood, TaskGroup may not have it
  -> <TaskGroup>tg</TaskGroup>
<TaskGroup colour='red'>tg</TaskGroup>
  -> /Job/TaskGroup: may have no attribute colour, which is not understood
  -> <TaskGroup>tg</TaskGroup>
<Name>n<Sub>x</Sub></Name> -> /Job/Name: has Sub in it, which is not understood -> ~
<Name colour='red'>n</Name>
  -> /Job/Name: may have no attribute colour, which is not understood -> ~
<OutputFile redirectList='Append, Rename,Keep'>o</OutputFile>
  -> /Job/OutputFile: redirectList is "Rename", which is not understood, expected one of
  Append, Close, Flush, Keep, Merge -> ~
<NotificationList>JobEnd, JobPause</NotificationList>
  -> /Job/NotificationList: is "JobPause", which is not understood, expected one of
  JobStart, JobEnd, All, None -> ~
<Dependency condition='OnDay' code='1'>a</Dependency>
  -> /Job/Dependency: condition is "OnDay", which is not understood, expected one of
  OnSuccess, OnFailure, OnExit -> ~
<Feature aggregation='Set' delimiter=';'>a;b</Feature>
  -> /Job/Feature: aggregation is "Set", which is not understood, expected one of List,
  Pattern -> ~
<Requested mode='any'><User>u</User></Requested>
  -> /Job/Requested: may have no attribute mode, which is not understood -> ~
"""


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(("thing", "problem", "rest"), rows(THINGS, 3))
def test_what_is_not_understood_is_rejected_or_left_out(
    name: str, thing: str, problem: str, rest: str
) -> None:
    job = f"<Job{policy(name)}><Id>1</Id>\n{{}}</Job>"
    left, said = ("", WHOLE) if rest == "~" else (rest, LEFT_OUT)
    expect(job.format(thing), name, f"line 2: {problem}", job.format(left), said)


# Queue stands for what is not understood. The brackets stay around what is left; of two
# alternatives one needs none, and what is first is related to nothing.

EXPRESSIONS = r"""
<Queue group='1'/><Feature conj='Or'>a</Feature>
  <Feature conj='Or' group='-1'>b</Feature>
  <User>u</User>
  -> <Feature group='1'>a</Feature><Feature conj='Or' group='-1'>b</Feature>
  <User>u</User>
<Feature group='1'>a</Feature><Feature conj='Or'>b</Feature>
  <Queue conj='Or' group='-1'/>
  <User>u</User>
  -> <Feature group='1'>a</Feature><Feature conj='Or' group='-1'>b</Feature>
  <User>u</User>
<User>u</User><Feature group='1'>a</Feature><Queue conj='Or' group='-1'/>
  -> <User>u</User><Feature>a</Feature>
<User>u</User><Queue conj='Nand' group='1'/><Feature conj='Nor' group='-1'>a</Feature>
  -> <User>u</User><Feature>a</Feature>
<Queue/><Feature conj='Or'>a</Feature> -> <Feature>a</Feature>
<Queue/><Feature conj='Nor'>a</Feature> -> <Feature conj='Nand'>a</Feature>
<Feature group='1'>a</Feature><Queue conj='Or' group='1'/><Queue group='-1'/>
  <Feature conj='Or' group='-1'>b</Feature>
  -> <Feature group='1'>a</Feature><Feature conj='Or' group='-1'>b</Feature>
"""


@pytest.mark.parametrize(("requested", "left"), rows(EXPRESSIONS))
def test_the_rest_of_an_expression_relates_as_before(requested: str, left: str) -> None:
    job = "<Job><Id>1</Id><Requested>{}</Requested></Job>"
    odd = requested.replace("<Queue", "<Queue awarenessPolicy='Ignore' colour='red'")
    assert outcome(job.format(odd)) == (read(job.format(left)), [])


# Whose policy counts


@pytest.mark.parametrize(
    ("contents", "path"),
    [
        ("<Colour><Shade awarenessPolicy='Reject'/></Colour>", "Colour/Shade"),
        (
            "<Colour><x><Memory awarenessPolicy='Reject'>1</Memory></x></Colour>",
            "Colour/x/Memory",
        ),
        (
            "<Requested mode='any'><User>u</User>"
            "<Queue awarenessPolicy='Reject'>q</Queue></Requested>",
            "Requested/Queue",
        ),
        ("<Name a='1'>n<Sub awarenessPolicy='Reject'/></Name>", "Name/Sub"),
    ],
)
def test_an_explicit_reject_in_what_would_be_left_out_counts(
    contents: str, path: str
) -> None:
    found, lines = outcome(f"<Job{policy('Ignore')}><Id>1</Id>{contents}</Job>")
    assert found is None
    assert lines[0].startswith(f"line 1: /Job/{path}: is ")
    assert REJECTED in lines[0]


@pytest.mark.parametrize("wrong", ["", "reject", "Ignore ", "Ignore,Warn"])
@pytest.mark.parametrize(
    "document",
    [
        "<Job{}><Id>1</Id></Job>",
        "<Job awarenessPolicy='Ignore'><Id{}>1</Id></Job>",
        "<Job awarenessPolicy='Ignore'><Id>1</Id><Colour{}/></Job>",
    ],
)
def test_a_policy_that_is_none_of_the_three_is_refused(
    document: str, wrong: str
) -> None:
    found, lines = outcome(document.format(policy(wrong)))
    assert found is None
    expected = f'awarenessPolicy is "{wrong}", expected one of Reject, Warn, Ignore'
    assert lines[0].endswith(expected)


# Warnings


def test_by_default_no_warning_is_lost() -> None:
    document = "<Job awarenessPolicy='Warn'><Id>1</Id><X/><X/></Job>"
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for _ in range(2):
            read(document)
    assert [warning.category for warning in caught] == [ObjectWarning] * 4
    program = "import sys, sssjob as o\nfor _ in 'ab': o.read(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, document],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("/Job/X[1]: is not understood") == 2


# Random objects with something in them that nobody knows


@given(objects(), st.sampled_from(POLICIES), st.booleans(), st.data())
def test_something_unknown_anywhere_meets_the_policy_in_effect_there(
    root: Element, own: str, has_own: bool, data: st.DataObject
) -> None:
    everything = list(walk_with_policy(root))
    index = data.draw(st.integers(0, len(everything) - 1))
    path, target, name = everything[index]
    # What has a text goes as a whole with what is in it, unless that has a policy.
    has_own = has_own or target.name not in CONTENTS
    in_effect = own if has_own else name
    document = etree.fromstring(write(root).encode())
    colour = etree.Element("Colour", {"awarenessPolicy": own} if has_own else {})
    colour.text = "red"
    list(document.iter())[index].insert(0, colour)
    found, lines = outcome(etree.tostring(document, encoding="unicode"))
    problem = f"{path}/Colour: is not understood, {target.name} may not have it"
    if in_effect == "Reject":
        # What else there is to say of its place may follow.
        assert found is None
        told = [line for text in lines for line in text.split("\n")]
        assert any(line.endswith(problem + REJECTED) for line in told)
    else:
        assert found == root
        assert len(lines) == (1 if in_effect == "Warn" else 0)
        assert all(line.endswith(problem + LEFT_OUT) for line in lines)
