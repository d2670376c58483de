# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How large a job is, and what it runs, as a job object says it."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.errors import BadObject
from flux_k8s.ports import Json
from sssjob.shape import totals_of
from support.jobrecords import spec
from support.submissions import job, left_out, refused, submitted

# The size of a job


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("", []),
        ("<Processors>6</Processors>", ["-n6"]),
        ("<Processors metric='Total' dynamic='false'>6</Processors>", ["-n6"]),
        ("<NodeCount>3</NodeCount>", ["-N3"]),
        # Section 3 has this example: two tasks on one node, one on each of two.
        ("<NodeCount>3</NodeCount><Processors>4</Processors>", ["-N3", "-n4"]),
        ("<NodeCount>2</NodeCount><Processors>8</Processors>", ["-N2", "-n8"]),
        ("<TaskGroup><TaskCount>5</TaskCount></TaskGroup>", ["-n5"]),
        (
            "<Processors>10</Processors><TaskGroup><TaskCount>5</TaskCount></TaskGroup>",
            ["-n5", "-c2"],
        ),
        (
            "<NodeCount>2</NodeCount><Processors>12</Processors>"
            "<TaskGroup><TaskCount>5</TaskCount></TaskGroup>",
            ["-N2", "-n5", "-c2"],
        ),
        (
            "<NodeCount>2</NodeCount><Processors>15</Processors>"
            "<TaskGroup><TaskCount>5</TaskCount></TaskGroup>",
            ["-N2", "-n5", "-c3"],
        ),
        (
            '<Processors>4</Processors><Resource name="GPU">8</Resource>',
            ["-n4", "-g2"],
        ),
        ('<Resource name="GPU">0</Resource>', []),
        (
            '<Processors>6</Processors><TaskDistribution type="ProcessorsPerTask">3'
            "</TaskDistribution>",
            ["-n2", "-c3"],
        ),
        (
            '<NodeCount>2</NodeCount><TaskDistribution type="ProcessorsPerTask">3'
            "</TaskDistribution>",
            ["-N2", "-n2", "-c3"],
        ),
        (
            "<TaskGroup><Task><Node>a</Node></Task><Task><Node>b</Node></Task>"
            "</TaskGroup>",
            ["-n2"],
        ),
        # A task group may say what its job does, and the rest.
        (
            "<Processors>4</Processors>"
            "<TaskGroup><Processors>4</Processors><NodeCount>2</NodeCount></TaskGroup>",
            ["-N2", "-n4"],
        ),
        (
            "<TaskGroupDefaults><Processors>2</Processors></TaskGroupDefaults>",
            ["-n2"],
        ),
        (
            '<Requested><Processors op="GE">4</Processors>'
            '<Processors op="LT">5</Processors></Requested>',
            ["-n4"],
        ),
        (
            "<NodeCount>2</NodeCount><Requested><NodeCount>2</NodeCount></Requested>",
            ["-N2"],
        ),
    ],
)
def test_the_size_of_an_object_is_that_of_flux_submit(
    said: str, options: list[str]
) -> None:
    found, expected = submitted(job(said)).jobspec, spec(*options)
    assert found["resources"] == expected["resources"]
    assert found["tasks"][0]["count"] == expected["tasks"][0]["count"]


def test_tasks_per_node_are_an_option_of_the_job_shell() -> None:
    distribution = '<TaskDistribution type="TasksPerNode">4</TaskDistribution>'
    found = submitted(job(f"<NodeCount>2</NodeCount>{distribution}")).jobspec
    assert found["resources"] == spec("-N2")["resources"]
    options = found["attributes"]["system"]["shell"]["options"]
    assert options == {"per-resource": {"type": "node", "count": 4}}
    processors = f"<Processors>8</Processors>{distribution}"
    found = submitted(job(f"<NodeCount>2</NodeCount>{processors}")).jobspec
    assert found["resources"] == spec("-N2", "-n2", "-c4")["resources"]
    # Without a number of nodes, so many tasks run on each that the job gets.
    assert submitted(job(processors)).jobspec["resources"] == spec("-n8")["resources"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "<Processors>5</Processors><TaskGroup><TaskCount>2</TaskCount></TaskGroup>",
            "/Job: Processors 5, TaskCount 2: Processors 5 cannot be shared evenly by"
            " 2",
        ),
        (
            "<NodeCount>4</NodeCount><TaskGroup><TaskCount>2</TaskCount></TaskGroup>",
            "/Job: NodeCount 4, TaskCount 2: Flux runs at least one task on each node",
        ),
        (
            "<NodeCount>2</NodeCount><TaskGroup><TaskCount>9</TaskCount>"
            '<TaskDistribution type="TasksPerNode">4</TaskDistribution></TaskGroup>',
            "/Job: NodeCount 2, TaskCount 9, TasksPerNode 4: these cannot all be true",
        ),
        (
            '<Processors>7</Processors><TaskDistribution type="ProcessorsPerTask">2'
            "</TaskDistribution>",
            "/Job: Processors 7, ProcessorsPerTask 2: these cannot all be true",
        ),
        (
            '<Processors>4</Processors><Resource name="GPU">6</Resource>',
            "/Job: Processors 4, GPU 6: GPU 6 cannot be shared evenly by 4",
        ),
        ("<Processors>0</Processors>", "/Job/Processors: is 0, expected 1 or more"),
        (
            '<Requested><NodeCount op="LT">1</NodeCount></Requested>',
            "/Job/Requested/NodeCount: is 0, expected 1 or more",
        ),
        (
            '<Requested><Resource name="GPU" op="LT">0</Resource></Requested>',
            "/Job/Requested/Resource: is -1 or less, expected 0 or more",
        ),
        (
            '<Resource name="GPU">1.5</Resource>',
            "/Job/Resource: is 1.5, expected a whole number",
        ),
        (
            '<TaskDistribution type="TasksPerNode">two</TaskDistribution>',
            '/Job/TaskDistribution: is "two", expected a whole number',
        ),
        (
            "<NodeCount>2</NodeCount><Requested><NodeCount>3</NodeCount></Requested>",
            "/Job/Requested/NodeCount: is 3, but /Job/NodeCount is 2",
        ),
        (
            '<Requested><Processors op="GE">4</Processors>'
            '<Processors op="LE">3</Processors></Requested>',
            "/Job/Requested/Processors[2]: is 3 or less, but"
            " /Job/Requested/Processors[1] is 4 or more",
        ),
        (
            "<Queue>a</Queue><Requested><Queue>b</Queue></Requested>",
            '/Job/Requested/Queue: is "b", but /Job/Queue is "a"',
        ),
    ],
)
def test_a_size_that_contradicts_itself_is_one_clear_error(
    said: str, problem: str
) -> None:
    assert refused(job(said)) == [problem]
    # Errors under every policy.
    assert refused(job(said, awarenessPolicy="Ignore")) == [problem]


@pytest.mark.parametrize(
    ("said", "options", "warning"),
    [
        (
            '<Requested><Processors op="GE">8</Processors>'
            '<Processors op="LE">16</Processors></Requested>',
            ["-n8"],
            "Processors[1]: 8 to 16 is a range, which jobspec version 1 has none of;"
            " taken for 8",
        ),
        (
            '<Requested><NodeCount op="LT">4</NodeCount></Requested>',
            ["-N3"],
            "NodeCount: 3 or less is a range, which jobspec version 1 has none of;"
            " taken for 3",
        ),
        (
            '<Requested><Processors op="NE">8</Processors></Requested>',
            [],
            'Processors: Flux knows no amounts with op="NE"; left out',
        ),
        (
            '<Requested><Processors preference="2">8</Processors>'
            '<Processors preference="1">4</Processors></Requested>',
            ["-n8"],
            'Processors[1]: Flux cannot be told preference="2"; left out',
        ),
        (
            '<Requested><Processors group="1">12</Processors>'
            '<Processors conj="Or" group="-1">16</Processors></Requested>',
            [],
            "Processors[1]: conj and group: alternatives and exceptions are for Feature"
            " and Node only in Flux; left out",
        ),
        (
            '<Resource name="GPU" type="V100">2</Resource><Processors>2</Processors>',
            ["-n2"],
            'jobspec version 1 has no GPUs of type="V100"; left out',
        ),
        (
            '<TaskDistribution type="Geometry">{1,4}{2}{3,5}</TaskDistribution>',
            [],
            "TaskDistribution: Flux knows the rules Block or RoundRobin",
        ),
    ],
)
def test_a_size_that_jobspec_version_1_cannot_say_goes_by_the_policy(
    said: str, options: list[str], warning: str
) -> None:
    found, warnings = left_out(said)
    assert found["resources"] == spec(*options)["resources"]
    assert warning in warnings[0]
    assert 1 <= len(refused(job(said))) <= len(warnings)


def test_resources_within_each_other_without_end_are_refused() -> None:
    vertex: Json = {"type": "core", "count": 1}
    for _ in range(200):
        vertex = {"type": "node", "count": 1, "with": [vertex]}
    with pytest.raises(BadObject, match="at most 64 levels of resources"):
        totals_of([vertex], {"slot": "task", "count": {"per_slot": 1}})


@pytest.mark.parametrize(
    ("count", "amount"),
    [
        (2, (2, 2)),
        ("2", (2, 2)),
        ("2-8", (2, 8)),
        ("[2-8:2:*]", (2, 8)),
        ("2+", (2, None)),
        ("2+:3", (2, None)),
        ("2,4-5,9", (2, 9)),
        ({"min": 2}, (2, None)),
        ({"min": 2, "max": 8, "operator": "^", "operand": 2}, (2, 8)),
    ],
)
def test_all_counts_of_rfc_14_are_amounts(
    count: Any, amount: tuple[int, Optional[int]]
) -> None:
    slot = {
        "type": "slot",
        "count": count,
        "label": "task",
        "with": [{"type": "core", "count": 1}],
    }
    totals = totals_of([slot], {"slot": "task", "count": {"per_slot": 1}})
    assert (totals.processors.low, totals.processors.high) == amount
    assert totals.tasks == totals.processors


# The command


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("<Arguments/>", ["app"]),
        ("<Arguments>-x 'a b' \"\" c\\ d</Arguments>", ["app", "-x", "a b", "", "c d"]),
        (
            "<Shell>/bin/bash</Shell><Executable>job.sh</Executable>"
            "<Arguments>1</Arguments>",
            ["/bin/bash", "job.sh", "1"],
        ),
        ("<TaskGroup><Executable>own</Executable></TaskGroup>", ["own"]),
    ],
)
def test_the_command_is_made_as_a_shell_would(said: str, command: list[str]) -> None:
    assert submitted(job(said)).jobspec["tasks"][0]["command"] == command


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "<Job><Id>1</Id><Name>n</Name></Job>",
            "/Job: has no Executable: Flux needs a command to run",
        ),
        (
            "<Job><Id>1</Id><Executable/></Job>",
            "/Job/Executable: has no Executable: Flux needs a command to run",
        ),
        (
            job("<Executable>#Script</Executable>"),
            '/Job/Executable: "#Script" has to be fetched, expected a path',
        ),
        (
            job("<Executable>https://example.org/a.out</Executable>"),
            '/Job/Executable: "https://example.org/a.out" has to be fetched, expected'
            " a path",
        ),
        (
            job("<Arguments>it's</Arguments>"),
            '/Job/Arguments: is "it\'s": no closing quotation, expected words as in sh',
        ),
    ],
)
def test_without_a_command_there_is_nothing_to_submit(said: str, problem: str) -> None:
    assert refused(said) == [problem]


def test_all_problems_of_an_object_are_reported_at_once() -> None:
    lines = refused("<Job><Id>1</Id><Memory>1</Memory><Processors>0</Processors></Job>")
    assert len(lines) == 3
