# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Attributes, storage and Extensions: what a job object says of them, as a jobspec
does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_k8s.ports import Json
from sssjob import read
from sssjob.to_jobspec.attributes import Submitter
from support.jobrecords import spec
from support.submissions import (
    PLAIN,
    extension,
    job,
    left_out,
    refused,
    submitted,
    system,
)

# Attributes


def test_simple_properties_are_attributes() -> None:
    said = """
    <Name>n</Name><Project>p</Project><Account>b</Account>
    <InitialWorkingDirectory>/d</InitialWorkingDirectory>
    <Requested><Queue>q</Queue><Duration op="LE">90</Duration></Requested>"""
    assert system(said) == {
        "duration": 90,
        "cwd": "/d",
        "job": {"name": "n"},
        "project": "p",
        "bank": "b",
        "queue": "q",
    }


@pytest.mark.parametrize(
    "said",
    ["<Duration>0</Duration>", '<Requested><Duration op="LE">0</Duration></Requested>'],
)
def test_a_duration_of_0_is_refused_since_flux_has_no_limit_then(said: str) -> None:
    (problem,) = refused(job(said))
    assert problem.endswith("Duration: is 0 seconds, which to Flux is no limit")


def test_a_hold_gives_the_job_urgency_0() -> None:
    assert not submitted(job("<State>Idle</State>")).held
    assert submitted(job("<State>Hold</State>")).held
    assert submitted(job("<Hold>User</Hold><Hold>System</Hold>")).held


def test_who_submits_must_be_who_is_meant_here() -> None:
    here = Submitter(users=("amy", "1001"), machine="here")
    said = "<User>{}</User><Machine>{}</Machine>"
    assert submitted(job(said.format("amy", "here")), here)
    assert submitted(job(said.format("1001", "here")), here)
    assert refused(job(said.format("scottmo", "Colony")), here) == [
        '/Job/User: is "scottmo", but amy submits the job',
        '/Job/Machine: is "Colony", but this is here',
    ]


def test_the_environment_is_that_of_the_object_and_what_it_exports() -> None:
    me = Submitter(environment={"PATH": "/bin", "HOME": "/h"})
    variables = '<Variable name="PATH">/usr/bin</Variable>'
    assert "environment" not in system("", me)
    assert system("<Environment/>", me)["environment"] == {}
    found = system(f"<Environment>{variables}</Environment>", me)
    assert found["environment"] == {"PATH": "/usr/bin"}
    found = system(f'<Environment export="True">{variables}</Environment>', me)
    assert found["environment"] == {"PATH": "/usr/bin", "HOME": "/h"}


@pytest.mark.parametrize("name", ["", "=", "B=C"])
def test_a_variable_with_a_name_that_none_can_have_is_refused(name: str) -> None:
    good = "<Variable name='A B'>c</Variable>"
    said = f"<Environment>{good}<Variable name='{name}'>d</Variable></Environment>"
    assert refused(job(said)) == [
        f"/Job/Environment/Variable[2]: has name={json.dumps(name)}, expected a name"
        " that is not empty and has no ="
    ]


def test_a_job_runs_where_it_says_or_where_it_is_submitted() -> None:
    me = Submitter(cwd="/here", home="/home/me")
    where = "<InitialWorkingDirectory>{}</InitialWorkingDirectory>"
    assert system("", me)["cwd"] == "/here"
    assert system(where.format("/d"), me)["cwd"] == "/d"
    assert system(where.format("~/d"), me)["cwd"] == "/home/me/d"
    assert system(where.format("~amy"), me)["cwd"] == "~amy"
    assert "cwd" not in system("")


FILE = {"type": "file"}


@pytest.mark.parametrize(
    ("said", "options"),
    [
        (
            "<InputFile>i</InputFile><OutputFile>o</OutputFile><ErrorFile>e</ErrorFile>",
            {
                "input": {"stdin": {**FILE, "path": "i"}},
                "output": {
                    "stdout": {**FILE, "path": "o"},
                    "stderr": {**FILE, "path": "e"},
                },
            },
        ),
        # The examples of section 5.1.
        (
            '<OutputFile redirectList="Append">~/myjob.out</OutputFile>'
            '<ErrorFile redirectList="Merge"></ErrorFile>'
            '<InputFile redirectList="Close"></InputFile>',
            {
                "input": {"stdin": {**FILE, "path": "/dev/null"}},
                "output": {
                    "mode": "append",
                    "stdout": {**FILE, "path": "/home/me/myjob.out"},
                },
            },
        ),
        (
            '<OutputFile redirectList="Merge"/><ErrorFile>e</ErrorFile>',
            {
                "output": {
                    "stdout": {**FILE, "path": "e"},
                    "stderr": {**FILE, "path": "e"},
                }
            },
        ),
        (
            '<OutputFile redirectList="Append">o</OutputFile>'
            '<ErrorFile redirectList="Close"/>',
            {
                "output": {
                    "mode": "append",
                    "stdout": {**FILE, "path": "o"},
                    "stderr": {**FILE, "path": "/dev/null"},
                }
            },
        ),
        (
            '<OutputFile redirectList="Flush,Append"/>'
            '<ErrorFile redirectList="Close"/>',
            {
                "output": {
                    "stdout": {"buffer": {"type": "none"}},
                    "stderr": {**FILE, "path": "/dev/null"},
                }
            },
        ),
    ],
)
def test_files_are_options_of_the_job_shell(said: str, options: Json) -> None:
    found = system(said, Submitter(home="/home/me"))
    assert found["shell"]["options"] == options


def test_files_that_flux_cannot_express_go_by_the_policy() -> None:
    found, warnings = left_out(
        '<OutputFile redirectList="Append">o</OutputFile><ErrorFile>e</ErrorFile>'
    )
    (warning,) = warnings
    assert warning.endswith("/Job/ErrorFile has no Append; left out")
    output = found["attributes"]["system"]["shell"]["options"]["output"]
    assert output == {"stderr": {**FILE, "path": "e"}}
    found, warnings = left_out('<ErrorFile redirectList="Keep">e</ErrorFile>')
    assert found == PLAIN and len(warnings) == 1
    assert refused(job('<OutputFile redirectList="Close,Merge">o</OutputFile>')) == [
        "/Job/OutputFile: has Close and Merge and the name of a file, expected one of"
        " them"
    ]
    both = '<OutputFile redirectList="Merge"/><ErrorFile redirectList="Merge"/>'
    assert refused(job(both)) == [
        "/Job/ErrorFile: is merged into /Job/OutputFile, which is merged into it"
    ]


def test_limits_are_options_of_the_job_shell() -> None:
    said = """
    <ResourceLimit name="CPUTime">1000000</ResourceLimit>
    <ResourceLimit name="OpenFiles" type="Soft"> 7 </ResourceLimit>
    <ResourceLimit name="StackSize">unlimited</ResourceLimit>"""
    rlimit = system(said)["shell"]["options"]["rlimit"]
    assert rlimit == {"cpu": 1000000, "nofile": 7, "stack": -1}
    _, warnings = left_out(
        '<ResourceLimit name="CPUTime" type="Hard">1</ResourceLimit>'
        '<ResourceLimit name="DiskSpace">1</ResourceLimit>'
    )
    assert "Flux sets soft limits only" in warnings[0]
    assert 'Flux knows no limit name="DiskSpace", but CoreFileSize' in warnings[1]
    assert refused(job('<ResourceLimit name="CPUTime">1 h</ResourceLimit>')) == [
        '/Job/ResourceLimit: is "1 h", expected a number or unlimited'
    ]


def test_a_soft_limit_is_soft_wherever_it_stands_and_as_large_as_flux_has_them() -> (
    None
):
    soft = '<ResourceLimit name="CPUTime" type="Soft">5</ResourceLimit>'
    both = f'<ResourceLimit name="CPUTime">{2**63 - 1}</ResourceLimit>'
    for said, limit in ((soft + both, 5), (both + soft, 5), (both, 2**63 - 1)):
        rlimit = system(said)["shell"]["options"]["rlimit"]
        assert rlimit == {"cpu": limit}


def test_the_most_preferred_element_is_requested_and_no_hint() -> None:
    nodes = (
        '<Requested><Node preference="{}">a</Node><Node preference="{}">b</Node>'
        "</Requested>"
    )
    found, warnings = left_out(nodes.format(1, 2))
    assert found["attributes"]["system"]["constraints"] == {"hostlist": ["b"]}
    assert len(warnings) == 2
    found, warnings = left_out(nodes.format(-1, -2))
    assert found == PLAIN
    assert len(warnings) == 2


def test_storage_that_is_an_alternative_is_not_added() -> None:
    one = '<Resource name="Storage" type="xfs" units="GB" preference="{}">{}</Resource>'
    said = "".join(one.format(*numbers) for numbers in ((2, 10), (1, 5)))
    found, _ = left_out(f"<Requested>{said}</Requested>")
    assert found["attributes"]["system"]["dw"] == [
        "#DW jobdw type=xfs capacity=10GiB name=storage1"
    ]


def test_features_and_nodes_are_constraints() -> None:
    said = """
    <Feature>plain</Feature>
    <Requested>
      <Node aggregation="Range">fr15n[5-23,77]</Node>
      <Node conj="Or" op="NE">fr15n99</Node>
    </Requested>"""
    assert system(said)["constraints"] == {
        "and": [
            {
                "or": [
                    {"hostlist": ["fr15n[5-23,77]"]},
                    {"not": [{"hostlist": ["fr15n99"]}]},
                ]
            },
            {"properties": ["plain"]},
        ]
    }
    same = "<Feature>a</Feature><Requested><Feature>a</Feature></Requested>"
    assert system(same)["constraints"] == {"properties": ["a"]}
    other = "<Feature>a</Feature><Requested><Feature>b</Feature></Requested>"
    assert refused(job(other)) == [
        '/Job/Feature: is "a", but /Job/Requested/Feature says otherwise'
    ]


def test_a_pattern_of_nodes_goes_by_the_policy() -> None:
    said = """
    <Requested><NodeCount>1</NodeCount>
    <Node aggregation="Pattern">fr15.*</Node></Requested>"""
    (line,) = refused(job(said))
    assert line.startswith(
        "/Job/Requested/Node: Flux knows names of nodes and features"
    )
    found, _ = left_out(said)
    assert "constraints" not in found["attributes"]["system"]


# Storage


@pytest.mark.parametrize(
    ("amount", "units", "capacity"),
    [
        ("10", "GB", "10GiB"),
        ("1.5", "TB", "1536GiB"),
        ("0.5", "GB", "512MiB"),
        ("1", "KB", "1KiB"),
        ("1", "B", "1KiB"),
        ("10.1", "MB", "10343KiB"),
    ],
)
def test_storage_becomes_a_directive_for_at_least_as_much(
    amount: str, units: str, capacity: str
) -> None:
    said = f'<Resource name="Storage" type="xfs" units="{units}">{amount}</Resource>'
    directive = f"#DW jobdw type=xfs capacity={capacity} name=storage1"
    assert system(said)["dw"] == [directive]


def test_each_resource_is_storage_of_its_own() -> None:
    said = """
    <Resource name="Storage" type="xfs" units="GB">1</Resource>
    <Resource name="GPU">1</Resource>
    <Resource name="Storage" type="lustre" units="TB">2</Resource>"""
    assert system(said)["dw"] == [
        "#DW jobdw type=xfs capacity=1GiB name=storage1",
        "#DW jobdw type=lustre capacity=2048GiB name=storage2",
    ]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            '<Resource name="Storage" type="zfs" units="GB">1</Resource>',
            'has type="zfs", expected one of xfs, gfs2, raw, lustre',
        ),
        (
            '<Resource name="Storage" units="GB">1</Resource>',
            "has no type, expected one of xfs, gfs2, raw, lustre",
        ),
        (
            '<Resource name="Storage" type="xfs">1</Resource>',
            "has units '', expected one of B, KB, MB",
        ),
        (
            '<Resource name="License" type="MATLAB">1</Resource>',
            'Flux knows no resource name="License"',
        ),
    ],
)
def test_storage_that_is_not_known_goes_by_the_policy(said: str, problem: str) -> None:
    (line,) = refused(job(said))
    assert line.startswith(f"/Job/Resource: {problem}")
    found, _ = left_out(said)
    assert found == PLAIN


def test_an_op_that_flux_cannot_express_gets_one_warning() -> None:
    said = '<Requested><Queue op="NE">q</Queue></Requested>'
    problem = '/Job/Requested/Queue: Flux cannot be told op="NE"'
    assert refused(job(said)) == [problem]
    assert left_out(said) == (PLAIN, [f"{problem}; left out"])


def test_storage_of_0_bytes_is_no_directive() -> None:
    said = '<Resource name="Storage" type="xfs" units="GB">0</Resource>'
    assert refused(job(said)) == ["/Job/Resource: is 0.0, expected more than 0"]


# Extensions


def test_an_extension_for_much_leaves_room_for_the_rest() -> None:
    said = extension("attributes.system", {"x": {"y": 1}})
    said += extension("attributes.system.x.z", 2) + extension("attributes.user", None)
    assert submitted(job(said)).jobspec["attributes"] == {
        "system": {"duration": 0, "x": {"y": 1, "z": 2}},
        "user": None,
    }


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
GB10 = '<Resource name="Storage" type="xfs" units="GB">10</Resource>'
WHOLE = spec("-N2", "-n4", "-c3", "-x")


@pytest.mark.parametrize(
    "said",
    [
        GB10 + extension("attributes.system.dw", XFS),
        extension("attributes.system.dw", [XFS, "#DW persistentdw name=old"]),
        "<NodeCount>2</NodeCount><Processors>12</Processors><TaskGroup>"
        "<TaskCount>4</TaskCount></TaskGroup>"
        + extension("resources", WHOLE["resources"])
        + extension("tasks", WHOLE["tasks"])
        + "<Executable>app</Executable><Arguments>-x 'a b'</Arguments>",
        extension("resources", WHOLE["resources"]),
        '<Requested><Processors op="GE">4</Processors></Requested>'
        + extension(
            "resources",
            [
                {
                    "type": "slot",
                    "count": 2,
                    "label": "task",
                    "with": [{"type": "core", "count": {"min": 2}}],
                }
            ],
        ),
        "<Feature>a</Feature>"
        + extension("attributes.system.constraints", {"and": [{"properties": ["a"]}]}),
        '<TaskDistribution type="TasksPerNode">1</TaskDistribution>'
        + extension("attributes.system.shell.options.per-resource", {"type": "node"}),
    ],
)
def test_elements_and_an_extension_may_say_the_same(said: str) -> None:
    names = [e.attribute("name") for e in read(job(said)).all("Extension")]
    jobspec = submitted(job(said)).jobspec
    for inner in read(job(said)).all("Extension"):
        place: Any = jobspec
        for key in str(inner.attribute("name")).split("."):
            place = place[key]
        assert place == json.loads(str(inner.value)), names


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "<Queue>a</Queue>" + extension("attributes.system.queue", "b"),
            '/Job/Extension: has "b" for attributes.system.queue, but /Job/Queue says'
            ' "a"',
        ),
        (
            "<Duration>3</Duration>" + extension("attributes.system.duration", 1.5),
            "/Job/Extension: has 1.5 for attributes.system.duration, but /Job/Duration"
            " says 3",
        ),
        (
            "<Processors>13</Processors>" + extension("resources", WHOLE["resources"]),
            "/Job/Processors: Processors is 13, but /Job/Extension has 12",
        ),
        (
            "<NodeCount>2</NodeCount>" + extension("resources", spec()["resources"]),
            "/Job/NodeCount: NodeCount is 2, but /Job/Extension has 0",
        ),
        (
            "<Arguments>-y</Arguments>" + extension("tasks", spec()["tasks"]),
            '/Job/Arguments: is ["-y"], but /Job/Extension has ["-x", "a b"]',
        ),
        (
            GB10 + extension("attributes.system.dw", XFS.replace("10GiB", "11GiB")),
            "/Job/Resource: 10737418240 bytes of xfs, but /Job/Extension asks for"
            " 11811160064 bytes of xfs: "
            '["#DW jobdw type=xfs capacity=11GiB name=p1"]',
        ),
        (
            "<Feature>a</Feature>"
            + extension("attributes.system.constraints", {"properties": ["b"]}),
            '/Job/Extension: has {"properties": ["b"]} for'
            " attributes.system.constraints,"
            ' but /Job/Feature says {"properties": ["a"]}',
        ),
        (
            "<Queue>a</Queue>" + extension("attributes.system", {"duration": 0}),
            "/Job/Extension: has missing for attributes.system.queue, but /Job/Queue"
            ' says "a"',
        ),
        (
            extension("attributes.system", {"x": 1})
            + extension("attributes.system.x", 2),
            "/Job/Extension[1]: has 1 for attributes.system.x, but /Job/Extension[2]"
            " says 2",
        ),
        (
            extension("attributes.system.x", 1) + extension("attributes.system.x.y", 2),
            "/Job/Extension[2]: attributes.system.x.y leads through what is no object",
        ),
        (
            extension("resources", 5),
            "/Job/Extension: jobspec: resources is 5, expected an array",
        ),
        (
            "<Extension type='Flux' name='attributes.user'>{</Extension>",
            '/Job/Extension: is "{", expected JSON',
        ),
        (
            extension("attributes.user", nested(101)),
            "/Job/Extension: has more than 100 levels, expected less",
        ),
        (
            "<Extension type='Flux' name='attributes.user'>1e999</Extension>",
            '/Job/Extension: is "1e999", expected JSON',
        ),
    ],
)
def test_elements_and_an_extension_that_disagree_are_both_named(
    said: str, problem: str
) -> None:
    assert refused(job(said)) == [problem]
    assert refused(job(said, awarenessPolicy="Ignore")) == [problem]


@pytest.mark.parametrize(
    "said",
    [
        '<Extension type="Scheduler" name="Restartable">true</Extension>',
        '<Extension name="attributes.user">1</Extension>',
        '<Extension type="Flux" name="system.queue">"q"</Extension>',
        '<Extension type="Flux" name="tasks.0">"q"</Extension>',
        '<Extension type="Flux" name="attributes..x">1</Extension>',
    ],
)
def test_an_extension_that_is_not_known_goes_by_the_policy(said: str) -> None:
    (line,) = refused(job(said))
    assert line.startswith("/Job/Extension: ")
    assert left_out(said)[0] == PLAIN
