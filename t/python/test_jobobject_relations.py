# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How properties relate (seed 003, section 8.1), and a job to its task group."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sssjob.schema import relations
from sssjob.schema.relations import Bracket, Leaf, Link, Tree, Unclear
from support.submissions import (
    PLAIN,
    extension,
    job,
    left_out,
    refused,
    requested,
    submitted,
    system,
)

ONLY = (
    "conj and group: alternatives and exceptions are for Feature and Node only in Flux"
)


# Expressions across properties


@pytest.mark.parametrize(
    ("said", "path", "kept"),
    [
        ("<Queue>q</Queue><Feature conj='Or'>f</Feature>", "Queue", ""),
        ("<Queue>q</Queue><NodeCount conj='Nor'>2</NodeCount>", "Queue", ""),
        (
            "<User>u</User><Queue group='1'>q</Queue>"
            "<Feature conj='Or' group='-1'>f</Feature>",
            "Queue",
            "<User>u</User>",
        ),
        (
            "<Feature>f</Feature><Queue conj='Nand'>q</Queue>",
            "Queue",
            "<Feature>f</Feature>",
        ),
        (
            "<Queue group='1'>q</Queue><Feature group='-1'>f</Feature>"
            "<Queue conj='Or' group='1'>r</Queue><NodeCount group='-1'>2</NodeCount>",
            "Queue[1]",
            "",
        ),
        (
            "<Processors>8</Processors><Processors conj='Or'>16</Processors>",
            "Processors[1]",
            "",
        ),
    ],
)
def test_alternatives_that_flux_does_not_know_go_as_a_whole(
    said: str, path: str, kept: str
) -> None:
    assert refused(job(requested(said))) == [f"/Job/Requested/{path}: {ONLY}"]
    found, warnings = left_out(requested(said))
    expected = system(kept)
    assert found["attributes"]["system"] == expected
    assert warnings and all(warning.endswith("; left out") for warning in warnings)


@pytest.mark.parametrize(
    ("said", "path", "problem"),
    [
        # The seed gives none of them precedence.
        (
            "<Feature>a</Feature><Queue>q</Queue><Feature conj='Or'>b</Feature>",
            "Feature[2]",
            "conj has And and Or side by side: group has to tell which goes first",
        ),
        (
            "<Feature>a</Feature><Feature conj='Or'>b</Feature><Queue>q</Queue>",
            "Queue",
            "conj has And and Or side by side: group has to tell which goes first",
        ),
        (
            "<Feature conj='Or'>a</Feature><NodeCount>2</NodeCount>",
            "Feature",
            'conj="Or" relates it to an element before it',
        ),
        # As in the elaborate example.
        (
            "<Processors group='-1'>12</Processors>"
            "<Processors conj='Or' group='1'>16</Processors>",
            "Processors[1]",
            "group closes more brackets than are open",
        ),
    ],
)
def test_an_expression_without_a_meaning_goes_by_the_policy(
    said: str, path: str, problem: str
) -> None:
    assert refused(job(requested(said))) == [f"/Job/Requested/{path}: {problem}"]
    found, warnings = left_out(requested(said))
    assert found == PLAIN
    assert len(warnings) == said.count("</")


def test_an_element_that_may_not_be_left_out_counts_for_the_whole_expression() -> None:
    said = """
    <Queue>q</Queue><Feature conj="Or" awarenessPolicy="Reject">f</Feature>"""
    problem = [f"/Job/Requested/Queue: {ONLY}"]
    assert refused(job(requested(said), awarenessPolicy="Ignore")) == problem


def test_elements_joined_by_and_are_taken_one_by_one() -> None:
    found = system(
        requested(
            "<Queue group='1'>q</Queue><NodeCount>2</NodeCount>"
            "<Feature group='-1'>f</Feature><Duration>60</Duration>"
            "<Feature group='1'>g</Feature><Node conj='Or' group='-1'>n</Node>"
        )
    )
    assert found["queue"] == "q" and found["duration"] == 60
    assert found["constraints"] == {
        "and": [
            {"or": [{"properties": ["g"]}, {"hostlist": ["n"]}]},
            {"properties": ["f"]},
        ]
    }


# Nodes


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        ("<Node>n1</Node><Node>n2</Node>", "n[1-2]"),
        ("<Node>n1</Node><Queue>q</Queue><Node>n2</Node>", "n[1-2]"),
        (
            "<Node aggregation='Range'>n[1-3]</Node>"
            "<Node aggregation='List'>n7,n9</Node>",
            "n[1-3,7,9]",
        ),
    ],
)
def test_nodes_side_by_side_are_all_meant(said: str, hosts: str) -> None:
    assert system(requested(said))["constraints"] == {"hostlist": [hosts]}


@pytest.mark.parametrize(
    "said",
    [
        "<Node>n1</Node><TaskGroup><Node>n2</Node></TaskGroup>",
        requested(
            "<Node group='1'>n1</Node><Feature group='-1'>f</Feature>"
            "<Node group='1'>n2</Node><Feature group='-1'>g</Feature>"
        ),
    ],
)
def test_nodes_that_none_can_be_are_an_error(said: str) -> None:
    (line,) = refused(job(said, awarenessPolicy="Ignore"))
    assert line.endswith(", which no node can be")


def test_nodes_of_a_task_group_are_some_of_those_of_its_job() -> None:
    found = system(
        "<Node aggregation='List'>n1,n2</Node><TaskGroup><Node>n2</Node></TaskGroup>"
    )
    assert found["constraints"] == {
        "and": [{"hostlist": ["n[1-2]"]}, {"hostlist": ["n2"]}]
    }


# A job and its task group

GB = '<Resource name="Storage" type="{}" units="GB">{}</Resource>'


def test_a_task_group_adds_to_its_job() -> None:
    found = system(
        "<Feature>a</Feature><Dependency>fuZZybuNNy</Dependency>"
        + GB.format("xfs", 1)
        + "<Environment><Variable name='A'>1</Variable></Environment>"
        + "<TaskGroup><Feature>b</Feature>"
        "<Dependency condition='OnExit'>fuZZybuNNz</Dependency>"
        + GB.format("xfs", 2)
        + "<Environment><Variable name='B'>2</Variable></Environment>"
        + "</TaskGroup>"
    )
    assert found["constraints"] == {"properties": ["a", "b"]}
    schemes = [one["scheme"] for one in found["dependencies"]]
    assert schemes == ["afterok", "afterany"]
    assert len(found["dw"]) == 2
    assert found["environment"] == {"A": "1", "B": "2"}


def test_a_hold_of_a_job_holds_whatever_its_task_group_says() -> None:
    said = "<State>Hold</State><TaskGroup><State>Idle</State></TaskGroup>"
    assert submitted(job(said)).held
    said = "<Hold>User</Hold><TaskGroup><Shell>/bin/sh</Shell></TaskGroup>"
    assert submitted(job(said)).held


@pytest.mark.parametrize(
    ("of_job", "of_group", "problem"),
    [
        (
            "<Queue>a</Queue>",
            "<Queue>b</Queue>",
            '/Job/TaskGroup/Queue: is "b", but /Job/Queue is "a"',
        ),
        (
            "<Executable>a</Executable>",
            "<Executable>b</Executable>",
            '/Job/TaskGroup/Executable: is "b", but /Job/Executable is "a"',
        ),
        (
            "<Processors>2</Processors>",
            "<Processors>4</Processors>",
            "/Job/TaskGroup/Processors: is 4, but /Job/Processors is 2",
        ),
        (
            '<OutputFile redirectList="Append">o</OutputFile>',
            "<OutputFile>o</OutputFile>",
            '/Job/TaskGroup/OutputFile: is "o" in another way than /Job/OutputFile:'
            ' "o"',
        ),
        (
            "<Environment><Variable name='A'>1</Variable></Environment>",
            "<Environment><Variable name='A'>2</Variable></Environment>",
            '/Job/TaskGroup/Environment/Variable: is "2", but'
            ' /Job/Environment/Variable is "1"',
        ),
    ],
)
def test_a_task_group_that_contradicts_its_job_is_an_error(
    of_job: str, of_group: str, problem: str
) -> None:
    assert refused(job(f"{of_job}<TaskGroup>{of_group}</TaskGroup>")) == [problem]


def test_a_task_group_overrides_the_defaults_of_its_level_only() -> None:
    found = system(
        "<TaskGroupDefaults><Queue>a</Queue>"
        "<InitialWorkingDirectory>/a</InitialWorkingDirectory></TaskGroupDefaults>"
        "<TaskGroup><Queue>b</Queue></TaskGroup>"
    )
    assert (found["queue"], found["cwd"]) == ("b", "/a")


def test_an_explicit_reject_in_a_task_group_that_is_left_out_counts() -> None:
    said = """<TaskGroup><TaskCount>1</TaskCount></TaskGroup><TaskGroup>
    <Requested><Processors awarenessPolicy="Reject">2</Processors></Requested>
    </TaskGroup>"""
    (line,) = refused(job(said, awarenessPolicy="Ignore"))
    path = "/Job/TaskGroup[2]"
    assert line.startswith(
        f"{path}/Requested/Processors: may not be left out with {path}: a job has one"
    )


# Attributes that Flux cannot be told


@pytest.mark.parametrize(
    "attribute",
    ['metric="Average"', 'duration="7"', 'context="Configured"', 'dynamic="true"'],
)
def test_without_what_flux_cannot_be_told_nothing_is_left(attribute: str) -> None:
    found, (warning,) = left_out(f"<Processors {attribute}>8</Processors>")
    assert found == PLAIN
    assert warning.endswith("; left out")


def test_a_hint_is_left_out_without_its_element() -> None:
    said = requested('<Processors performanceFactor="0.5">8</Processors>')
    found, _ = left_out(said)
    assert found["resources"][0]["count"] == 8


def test_an_extension_of_ours_may_be_left_out_by_others() -> None:
    from sssjob.from_flux.remainder import extension as ours

    assert ours("attributes.user", 1).attribute("awarenessPolicy") == "Ignore"
    assert json.loads(json.dumps(system(extension("attributes.user", 1))))


# Whatever the expression


def trees() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.booleans(),
        lambda inner: st.tuples(
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=2, max_size=4),
            st.booleans(),
        ),
        max_leaves=12,
    ).filter(lambda tree: isinstance(tree, tuple))


NAMES = {
    ("and", False): "And",
    ("or", False): "Or",
    ("and", True): "Nand",
    ("or", True): "Nor",
}


def linked(tree: Any, conj: str) -> list[Link]:
    """The links of a random tree: its leaves are booleans, true where negated."""
    if isinstance(tree, bool):
        return [Link(conj, 0)]
    operator, parts, _ = tree
    found: list[Link] = []
    for index, part in enumerate(parts):
        negated = part if isinstance(part, bool) else part[2]
        inner = linked(part, NAMES[operator, negated] if index else "And")
        if not isinstance(part, bool):
            inner[0] = inner[0]._replace(group=inner[0].group + 1)
            inner[-1] = inner[-1]._replace(group=inner[-1].group - 1)
        found += inner
    return [found[0]._replace(conj=conj), *found[1:]]


def pruned(tree: Tree, removed: set[int]) -> Any:
    """What is left of a tree: nested tuples, without brackets around one part."""
    if isinstance(tree, Leaf):
        return None if tree.index in removed else (tree.index, tree.negated)
    parts = [pruned(part, removed) for part in tree.parts]
    parts = [part for part in parts if part is not None]
    if len(parts) < 2:
        return negated(parts[0]) if parts and tree.negated else next(iter(parts), None)
    return (tree.operator, tuple(parts), tree.negated)


def negated(part: Any) -> Any:
    return (*part[:-1], not part[-1])


def renumbered(part: Any, indices: list[int]) -> Any:
    if part is None or len(part) == 2:
        return part and (indices[part[0]], part[1])
    return (part[0], tuple(renumbered(p, indices) for p in part[1]), part[2])


@given(trees(), st.data())
def test_the_rest_of_an_expression_keeps_its_tree(
    tree: Any, data: st.DataObject
) -> None:
    links = linked(tree, "And")
    whole = relations.parse(links)
    removed = data.draw(st.sets(st.integers(0, len(links) - 1)))
    try:
        left = relations.without(links, removed)
    except Unclear:
        return
    kept = [index for index in range(len(links)) if index not in removed]
    assert len(left) == len(kept)
    again = pruned(relations.parse(left), set()) if left else None
    assert renumbered(again, kept) == pruned(whole, removed)


def test_a_whole_is_and_of_its_parts() -> None:
    whole = relations.parse([Link("And", 0), Link("Nand", 0)])
    assert whole == Bracket("and", (Leaf(0), Leaf(1, negated=True)))
