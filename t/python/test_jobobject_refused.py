# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What of a job object is refused at submission, and what is left out by the policy of
the specification, section 9.
"""

from __future__ import annotations

import pytest

from support.submissions import (
    job,
    left_out,
    refused,
    submit,
)
from support.tables import rows

# What contradicts itself is refused under every policy.

REFUSED = r"""
<Processors>5</Processors><TaskGroup><TaskCount>2</TaskCount></TaskGroup>
  -> /Job: Processors 5, TaskCount 2: Processors 5 cannot be shared evenly by 2
<NodeCount>4</NodeCount><TaskGroup><TaskCount>2</TaskCount></TaskGroup>
  -> /Job: NodeCount 4, TaskCount 2: Flux runs at least one task on each node
<NodeCount>2</NodeCount><TaskGroup><TaskCount>9</TaskCount>
  <TaskDistribution type="TasksPerNode">4</TaskDistribution></TaskGroup>
  -> /Job: NodeCount 2, TaskCount 9, TasksPerNode 4: these cannot all be true
<Processors>7</Processors>
  <TaskDistribution type="ProcessorsPerTask">2</TaskDistribution>
  -> /Job: Processors 7, ProcessorsPerTask 2: these cannot all be true
<Processors>4</Processors><Resource name="GPU">6</Resource>
  -> /Job: Processors 4, GPU 6: GPU 6 cannot be shared evenly by 4
<Processors>0</Processors> -> /Job/Processors: is 0, expected 1 or more
<Requested><NodeCount op="LT">1</NodeCount></Requested>
  -> /Job/Requested/NodeCount: is 0, expected 1 or more
<Requested><Resource name="GPU" op="LT">0</Resource></Requested>
  -> /Job/Requested/Resource: is -1 or less, expected 0 or more
<Resource name="GPU">1.5</Resource> -> /Job/Resource: is 1.5, expected a whole number
<Resource name="GPU">1e308</Resource>
  -> /Job/Resource: is 1e+308, expected a whole number
<Resource name="Storage" type="xfs" units="DB">1e308</Resource>
  -> /Job/Resource: is 1e+308, expected less than 2^63 bytes
<Resource name="Storage" type="xfs" units="GB">0</Resource>
  -> /Job/Resource: is 0.0, expected more than 0
<TaskDistribution type="TasksPerNode">two</TaskDistribution>
  -> /Job/TaskDistribution: is "two", expected a whole number
<NodeCount>2</NodeCount><Requested><NodeCount>3</NodeCount></Requested>
  -> /Job/Requested/NodeCount: is 3, but /Job/NodeCount is 2
<Requested><Processors op="GE">4</Processors>
  <Processors op="LE">3</Processors></Requested>
  -> /Job/Requested/Processors[2]: is 3 or less, but /Job/Requested/Processors[1] is
  4 or more
<Queue>a</Queue><Requested><Queue>b</Queue></Requested>
  -> /Job/Requested/Queue: is "b", but /Job/Queue is "a"
<Feature>a</Feature><Requested><Feature>b</Feature></Requested>
  -> /Job/Feature: is "a", but /Job/Requested/Feature says otherwise
<ResourceLimit name="CPUTime">1 h</ResourceLimit>
  -> /Job/ResourceLimit: is "1 h", expected a number or unlimited
<OutputFile redirectList="Close,Merge">o</OutputFile>
  -> /Job/OutputFile: has Close and Merge and the name of a file, expected one of them
<OutputFile redirectList="Merge"/><ErrorFile redirectList="Merge"/>
  -> /Job/ErrorFile: is merged into /Job/OutputFile, which is merged into it
<Environment><Variable name='A B'>c</Variable><Variable name=''>d</Variable>
  </Environment> -> /Job/Environment/Variable[2]: has name="", expected a name that is
  not empty and has no =
<Environment><Variable name='B=C'>d</Variable></Environment>
  -> /Job/Environment/Variable: has name="B=C", expected a name that is not empty and
  has no =
<Executable/> -> /Job/Executable: has no Executable: Flux needs a command to run
<Executable>#Script</Executable>
  -> /Job/Executable: "#Script" has to be fetched, expected a path
<Executable>https://example.org/a.out</Executable>
  -> /Job/Executable: "https://example.org/a.out" has to be fetched, expected a path
<Arguments>it's</Arguments>
  -> /Job/Arguments: is "it's": no closing quotation, expected words as in sh
# A task group that contradicts its job.
<Queue>a</Queue><TaskGroup><Queue>b</Queue></TaskGroup>
  -> /Job/TaskGroup/Queue: is "b", but /Job/Queue is "a"
<Executable>a</Executable><TaskGroup><Executable>b</Executable></TaskGroup>
  -> /Job/TaskGroup/Executable: is "b", but /Job/Executable is "a"
<Processors>2</Processors><TaskGroup><Processors>4</Processors></TaskGroup>
  -> /Job/TaskGroup/Processors: is 4, but /Job/Processors is 2
<OutputFile redirectList="Append">o</OutputFile>
  <TaskGroup><OutputFile>o</OutputFile></TaskGroup>
  -> /Job/TaskGroup/OutputFile: is "o" in another way than /Job/OutputFile: "o"
<Environment><Variable name='A'>1</Variable></Environment><TaskGroup>
  <Environment><Variable name='A'>2</Variable></Environment></TaskGroup>
  -> /Job/TaskGroup/Environment/Variable: is "2", but /Job/Environment/Variable is "1"
# Elements and an Extension that disagree.
<Queue>a</Queue><Extension type='Flux' name='attributes.system.queue'>"b"</Extension>
  -> /Job/Extension: has "b" for attributes.system.queue, but /Job/Queue says "a"
<Duration>3</Duration>
  <Extension type='Flux' name='attributes.system.duration'>1.5</Extension>
  -> /Job/Extension: has 1.5 for attributes.system.duration, but /Job/Duration says 3
<Processors>13</Processors><Extension type='Flux' name='resources'>[{"type": "slot",
  "count": 6, "with": [{"type": "core", "count": 2}], "label": "task"}]</Extension>
  -> /Job/Processors: Processors is 13, but /Job/Extension has 12
<NodeCount>2</NodeCount><Extension type='Flux' name='resources'>[{"type": "slot",
  "count": 6, "with": [{"type": "core", "count": 2}], "label": "task"}]</Extension>
  -> /Job/NodeCount: NodeCount is 2, but /Job/Extension has 0
<Arguments>-y</Arguments><Extension type='Flux' name='tasks'>[{"command": ["app", "-x",
  "a b"], "slot": "task", "count": {"per_slot": 1}}]</Extension>
  -> /Job/Arguments: is ["-y"], but /Job/Extension has ["-x", "a b"]
<Resource name="Storage" type="xfs" units="GB">10</Resource>
  <Extension type='Flux' name='attributes.system.dw'>
  "#DW jobdw type=xfs capacity=11GiB name=p1"</Extension>
  -> /Job/Resource: 10737418240 bytes of xfs, but /Job/Extension asks for 11811160064
  bytes of xfs: ["#DW jobdw type=xfs capacity=11GiB name=p1"]
<Feature>a</Feature><Extension type='Flux' name='attributes.system.constraints'>
  {"properties": ["b"]}</Extension>
  -> /Job/Extension: has {"properties": ["b"]} for attributes.system.constraints, but
  /Job/Feature says {"properties": ["a"]}
<Queue>a</Queue>
  <Extension type='Flux' name='attributes.system'>{"duration": 0}</Extension>
  -> /Job/Extension: has missing for attributes.system.queue, but /Job/Queue says "a"
<Extension type='Flux' name='attributes.system'>{"x": 1}</Extension>
  <Extension type='Flux' name='attributes.system.x'>2</Extension>
  -> /Job/Extension[1]: has 1 for attributes.system.x, but /Job/Extension[2] says 2
<Extension type='Flux' name='attributes.system.x'>1</Extension>
  <Extension type='Flux' name='attributes.system.x.y'>2</Extension>
  -> /Job/Extension[2]: attributes.system.x.y leads through what is no object
<Extension type='Flux' name='resources'>5</Extension>
  -> /Job/Extension: jobspec: resources is 5, expected an array
<Extension type='Flux' name='attributes.user'>{</Extension>
  -> /Job/Extension: is "{", expected JSON
<Extension type='Flux' name='attributes.user'>1e999</Extension>
  -> /Job/Extension: is "1e999", expected JSON
"""


@pytest.mark.parametrize(("said", "problem"), rows(REFUSED))
def test_an_object_that_contradicts_itself_is_one_clear_error(
    said: str, problem: str
) -> None:
    assert refused(job(said)) == [problem]
    assert refused(job(said, awarenessPolicy="Ignore")) == [problem]


@pytest.mark.parametrize("place", ["attributes.user", "attributes" + ".a" * 5000])
def test_an_extension_may_not_be_too_deep(place: str) -> None:
    deep = "[" * 101 + "1" + "]" * 101 if place == "attributes.user" else "1"
    said = f"<Extension type='Flux' name='{place}'>{deep}</Extension>"
    assert refused(job(said)) == [
        "/Job/Extension: has more than 100 levels, expected less"
    ]


@pytest.mark.parametrize(
    "said",
    [
        "<Node>n1</Node><TaskGroup><Node>n2</Node></TaskGroup>",
        "<Requested><Node group='1'>n1</Node><Feature group='-1'>f</Feature>"
        "<Node group='1'>n2</Node><Feature group='-1'>g</Feature></Requested>",
    ],
)
def test_nodes_that_none_can_be_are_an_error(said: str) -> None:
    (line,) = refused(job(said, awarenessPolicy="Ignore"))
    assert line.endswith(", which no node can be")


# What Flux cannot be told is refused, or left out: what is left is in the last column.

CANNOT = r"""
<Requested><Processors op="GE">8</Processors>
  <Processors op="LE">16</Processors></Requested>
  -> /Job/Requested/Processors[1]: 8 to 16 is a range, which jobspec version 1 has none
  of -> -n8
<Requested><NodeCount op="LT">4</NodeCount></Requested>
  -> /Job/Requested/NodeCount: 3 or less is a range, which jobspec version 1 has none of
  -> -N3
<Requested><Processors op="NE">8</Processors></Requested>
  -> /Job/Requested/Processors: Flux knows no amounts with op="NE"
<Requested><Processors preference="2">8</Processors>
  <Processors preference="1">4</Processors></Requested>
  -> /Job/Requested/Processors[1]: Flux cannot be told preference="2" -> -n8
<Requested><Node preference="1">a</Node><Node preference="2">b</Node></Requested>
  -> /Job/Requested/Node[1]: -> -S constraints.hostlist='["b"]'
<Requested><Node preference="-1">a</Node><Node preference="-2">b</Node></Requested>
  -> /Job/Requested/Node[1]:
<Requested><Resource name="Storage" type="xfs" units="GB" preference="2">10</Resource>
  <Resource name="Storage" type="xfs" units="GB" preference="1">5</Resource></Requested>
  -> /Job/Requested/Resource[1]: ->
  -S dw='["#DW jobdw type=xfs capacity=10GiB name=storage1"]'
<Requested><Processors group="1">12</Processors>
  <Processors conj="Or" group="-1">16</Processors></Requested>
  -> /Job/Requested/Processors[1]: conj and group: alternatives and exceptions are for
  Feature and Node only in Flux
<Resource name="GPU" type="V100">2</Resource><Processors>2</Processors>
  -> /Job/Resource: jobspec version 1 has no GPUs of type="V100" -> -n2
<TaskDistribution type="Geometry">{1,4}{2}{3,5}</TaskDistribution>
  -> /Job/TaskDistribution: Flux knows the rules Block or RoundRobin
<Processors metric="Average">8</Processors> -> /Job/Processors:
<Processors duration="7">8</Processors> -> /Job/Processors:
<Processors context="Configured">8</Processors> -> /Job/Processors:
<Processors dynamic="true">8</Processors> -> /Job/Processors:
<Requested><Processors performanceFactor="0.5">8</Processors></Requested>
  -> /Job/Requested/Processors: -> -n8
<OutputFile redirectList="Append">o</OutputFile><ErrorFile>e</ErrorFile>
  -> /Job/OutputFile: -> --error=e
<ErrorFile redirectList="Keep">e</ErrorFile> -> /Job/ErrorFile:
<ResourceLimit name="CPUTime" type="Hard">1</ResourceLimit>
  -> /Job/ResourceLimit: Flux sets soft limits only
<ResourceLimit name="DiskSpace">1</ResourceLimit>
  -> /Job/ResourceLimit: Flux knows no limit name="DiskSpace", but CoreFileSize
<Requested><NodeCount>1</NodeCount><Node aggregation="Pattern">fr15.*</Node></Requested>
  -> /Job/Requested/Node: Flux knows names of nodes and features -> -N1
<Requested><Queue op="NE">q</Queue></Requested>
  -> /Job/Requested/Queue: Flux cannot be told op="NE"
<Resource name="Storage" type="zfs" units="GB">1</Resource>
  -> /Job/Resource: has type="zfs", expected one of xfs, gfs2, raw, lustre
<Resource name="Storage" units="GB">1</Resource>
  -> /Job/Resource: has no type, expected one of xfs, gfs2, raw, lustre
<Resource name="Storage" type="xfs">1</Resource>
  -> /Job/Resource: has units '', expected one of B, KB, MB
<Resource name="License" type="MATLAB">1</Resource>
  -> /Job/Resource: Flux knows no resource name="License"
<Extension type="Scheduler" name="Restartable">true</Extension> -> /Job/Extension:
<Extension name="attributes.user">1</Extension> -> /Job/Extension:
<Extension type="Flux" name="system.queue">"q"</Extension> -> /Job/Extension:
<Extension type="Flux" name="tasks.0">"q"</Extension> -> /Job/Extension:
<Extension type="Flux" name="attributes..x">1</Extension> -> /Job/Extension:
<Dependency>PBS.1234.0</Dependency> -> /Job/Dependency: "PBS.1234.0" is neither
<Dependency designator="JobName">nobody</Dependency>
  -> /Job/Dependency: no job of the group has the Name "nobody"
<Dependency condition="OnExit" code="3">fuZZybuNNy</Dependency>
  -> /Job/Dependency: Flux can wait for success, failure
<TaskGroup><Task><Id>1</Id><Node>n1</Node><Session>7</Session><Requested><Processors>2
  </Processors></Requested></Task></TaskGroup>
  -> /Job/TaskGroup/Task/Requested/Processors: cannot be told to Flux: jobspec version 1
  says nothing of single tasks
<Duration>0</Duration> -> /Job/Duration: is 0 seconds, which to Flux is no limit
<Requested><Duration op="LE">0</Duration></Requested>
  -> /Job/Requested/Duration: is 0 seconds, which to Flux is no limit
# Alternatives that Flux does not know go as a whole.
<Requested><Queue>q</Queue><Feature conj='Or'>f</Feature></Requested>
  -> /Job/Requested/Queue: conj and group: alternatives
<Requested><Queue>q</Queue><NodeCount conj='Nor'>2</NodeCount></Requested>
  -> /Job/Requested/Queue: conj and group: alternatives
<Requested><Feature>f</Feature><Queue conj='Nand'>q</Queue></Requested>
  -> /Job/Requested/Queue: conj and group: alternatives -> --requires=f
<Requested><Queue group='1'>q</Queue><Feature group='-1'>f</Feature>
  <Queue conj='Or' group='1'>r</Queue><NodeCount group='-1'>2</NodeCount></Requested>
  -> /Job/Requested/Queue[1]: conj and group: alternatives
<Requested><Processors>8</Processors><Processors conj='Or'>16</Processors></Requested>
  -> /Job/Requested/Processors[1]: conj and group: alternatives
# An expression without a meaning: the specification gives none of them precedence.
<Requested><Feature>a</Feature><Queue>q</Queue><Feature conj='Or'>b</Feature>
  </Requested> -> /Job/Requested/Feature[2]: conj has And and Or side by side: group has
  to tell which goes first
<Requested><Feature>a</Feature><Feature conj='Or'>b</Feature><Queue>q</Queue>
  </Requested> -> /Job/Requested/Queue: conj has And and Or side by side: group has to
  tell which goes first
<Requested><Feature conj='Or'>a</Feature><NodeCount>2</NodeCount></Requested>
  -> /Job/Requested/Feature: conj="Or" relates it to an element before it
# As in the elaborate example.
<Requested><Processors group='-1'>12</Processors>
  <Processors conj='Or' group='1'>16</Processors></Requested>
  -> /Job/Requested/Processors[1]: group closes more brackets than are open
"""


@pytest.mark.parametrize(("said", "problem", "left"), rows(CANNOT, 3))
def test_what_flux_cannot_be_told_goes_by_the_policy(
    said: str, problem: str, left: str
) -> None:
    found, warnings = left_out(said)
    assert found == submit(left)
    lines = refused(job(said))
    assert lines[0].startswith(problem) and 1 <= len(lines) <= len(warnings)
    assert any(line.startswith(problem) for line in warnings)
    assert all("; left out" in line or "; taken for" in line for line in warnings)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (
            '<Requested><Queue>q</Queue><Feature conj="Or" awarenessPolicy="Reject">f'
            "</Feature></Requested>",
            "/Job/Requested/Queue: conj and group",
        ),
        (
            "<TaskGroup><TaskCount>1</TaskCount></TaskGroup><TaskGroup><Requested>"
            '<Processors awarenessPolicy="Reject">2</Processors></Requested>'
            "</TaskGroup>",
            "/Job/TaskGroup[2]/Requested/Processors: may not be left out with"
            " /Job/TaskGroup[2]: a job has one",
        ),
    ],
)
def test_an_element_that_may_not_be_left_out_counts_for_the_whole(
    said: str, path: str
) -> None:
    (line,) = refused(job(said, awarenessPolicy="Ignore"))
    assert line.startswith(path)
