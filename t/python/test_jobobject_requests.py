# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job object asks for, as ``flux submit`` does."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from flux_k8s.ports import Json
from sssjob import read
from sssjob.to_jobspec.attributes import Submitter
from support.jobrecords import spec
from support.submissions import (
    extension,
    job,
    submit,
    submitted,
    system,
)
from support.tables import rows

# What is asked for, and the options of flux submit that ask for it.

SIZES = r"""
<Processors>6</Processors> -> -n6
<Processors metric='Total' dynamic='false'>6</Processors> -> -n6
<NodeCount>3</NodeCount> -> -N3
# Section 3 has this example: two tasks on one node, one on each of two.
<NodeCount>3</NodeCount><Processors>4</Processors> -> -N3 -n4
<NodeCount>2</NodeCount><Processors>8</Processors> -> -N2 -n8
<TaskGroup><TaskCount>5</TaskCount></TaskGroup> -> -n5
<Processors>10</Processors><TaskGroup><TaskCount>5</TaskCount></TaskGroup> -> -n5 -c2
<NodeCount>2</NodeCount><Processors>12</Processors>
  <TaskGroup><TaskCount>5</TaskCount></TaskGroup> -> -N2 -n5 -c2
<NodeCount>2</NodeCount><Processors>15</Processors>
  <TaskGroup><TaskCount>5</TaskCount></TaskGroup> -> -N2 -n5 -c3
<Processors>4</Processors><Resource name="GPU">8</Resource> -> -n4 -g2
<Resource name="GPU">0</Resource> ->
<Processors>6</Processors>
  <TaskDistribution type="ProcessorsPerTask">3</TaskDistribution> -> -n2 -c3
<NodeCount>2</NodeCount>
  <TaskDistribution type="ProcessorsPerTask">3</TaskDistribution> -> -N2 -n2 -c3
<TaskGroup><Task><Node>a</Node></Task><Task><Node>b</Node></Task></TaskGroup> -> -n2
# A task group may say what its job does, and the rest.
<Processors>4</Processors>
  <TaskGroup><Processors>4</Processors><NodeCount>2</NodeCount></TaskGroup> -> -N2 -n4
<TaskGroupDefaults><Processors>2</Processors></TaskGroupDefaults> -> -n2
<Requested><Processors op="GE">4</Processors>
  <Processors op="LT">5</Processors></Requested> -> -n4
<NodeCount>2</NodeCount><Requested><NodeCount>2</NodeCount></Requested> -> -N2
<Requested><Processors performanceFactor="0.5" awarenessPolicy="Ignore">8</Processors>
  </Requested> -> -n8
<Processors context="Used" metric="Max">9</Processors> ->
<NodeCount>2</NodeCount><TaskDistribution type="TasksPerNode">4</TaskDistribution>
  -> -N2 -o per-resource='{"type": "node", "count": 4}'
<NodeCount>2</NodeCount><Processors>8</Processors><TaskDistribution type="TasksPerNode">
  4</TaskDistribution> -> -N2 -n2 -c4 -o per-resource='{"type": "node", "count": 4}'
# Without a number of nodes, so many tasks run on each that the job gets.
<Processors>8</Processors><TaskDistribution type="TasksPerNode">4</TaskDistribution>
  -> -n8 -o per-resource='{"type": "node", "count": 4}'
"""
COMMANDS = r"""
<Arguments/> -> -- app
<Arguments>-x 'a b' "" c\ d</Arguments> -> -- app -x 'a b' '' 'c d'
<Shell>/bin/bash</Shell><Executable>job.sh</Executable><Arguments>1</Arguments>
  -> -- /bin/bash job.sh 1
<TaskGroup><Executable>own</Executable></TaskGroup> -> -- own
"""
ATTRIBUTES = r"""
<Name>n</Name><Project>p</Project><Account>b</Account>
  <InitialWorkingDirectory>/d</InitialWorkingDirectory>
  <Requested><Queue>q</Queue><Duration op="LE">90</Duration></Requested>
  -> --job-name=n -S project=p -B b --cwd=/d -q q -t 90s
<OutputFile>o</OutputFile><ErrorFile>e</ErrorFile><InputFile>i</InputFile>
  -> --output=o --error=e -o input.stdin='{"type": "file", "path": "i"}'
# The examples of section 5.1.
<OutputFile redirectList="Append">~/myjob.out</OutputFile>
  <ErrorFile redirectList="Merge"></ErrorFile>
  <InputFile redirectList="Close"></InputFile>
  -> --output=/home/me/myjob.out -o output.mode=append
     -o input.stdin='{"type": "file", "path": "/dev/null"}'
<OutputFile redirectList="Merge"/><ErrorFile>e</ErrorFile> -> --output=e --error=e
<OutputFile redirectList="Append">o</OutputFile><ErrorFile redirectList="Close"/>
  -> --output=o --error=/dev/null -o output.mode=append
<OutputFile redirectList="Flush,Append"/><ErrorFile redirectList="Close"/>
  -> -o output.stdout.buffer.type=none --error=/dev/null
<ResourceLimit name="CPUTime">1000000</ResourceLimit>
  <ResourceLimit name="OpenFiles" type="Soft"> 7 </ResourceLimit>
  <ResourceLimit name="StackSize">unlimited</ResourceLimit>
  -> -o rlimit='{"cpu": 1000000, "nofile": 7, "stack": -1}'
# A soft limit is soft wherever it stands, and as large as Flux has them.
<ResourceLimit name="CPUTime" type="Soft">5</ResourceLimit>
  <ResourceLimit name="CPUTime">9223372036854775807</ResourceLimit> -> -o rlimit.cpu=5
<ResourceLimit name="CPUTime">9223372036854775807</ResourceLimit>
  <ResourceLimit name="CPUTime" type="Soft">5</ResourceLimit> -> -o rlimit.cpu=5
<ResourceLimit name="CPUTime">9223372036854775807</ResourceLimit>
  -> -o rlimit.cpu=9223372036854775807
<Feature>plain</Feature><Requested><Node aggregation="Range">fr15n[5-23,77]</Node>
  <Node conj="Or" op="NE">fr15n99</Node></Requested>
  -> -S constraints='{"and": [{"or": [{"hostlist": ["fr15n[5-23,77]"]},
     {"not": [{"hostlist": ["fr15n99"]}]}]}, {"properties": ["plain"]}]}'
<Feature>a</Feature><Requested><Feature>a</Feature></Requested> -> --requires=a
# Elements that are joined by And are taken one by one.
<Requested><Queue group='1'>q</Queue><NodeCount>2</NodeCount>
  <Feature group='-1'>f</Feature><Duration>60</Duration>
  <Feature group='1'>g</Feature><Node conj='Or' group='-1'>n</Node></Requested>
  -> -N2 -q q -t 1 -S constraints='{"and": [{"or": [{"properties": ["g"]},
     {"hostlist": ["n"]}]}, {"properties": ["f"]}]}'
# Nodes side by side are all meant; those of a task group are some of its job's.
<Requested><Node>n1</Node><Node>n2</Node></Requested>
  -> -S constraints.hostlist='["n[1-2]"]'
<Requested><Node>n1</Node><Queue>q</Queue><Node>n2</Node></Requested>
  -> -q q -S constraints.hostlist='["n[1-2]"]'
<Requested><Node aggregation='Range'>n[1-3]</Node>
  <Node aggregation='List'>n7,n9</Node></Requested>
  -> -S constraints.hostlist='["n[1-3,7,9]"]'
<Node aggregation='List'>n1,n2</Node><TaskGroup><Node>n2</Node></TaskGroup>
  -> -S constraints='{"and": [{"hostlist": ["n[1-2]"]}, {"hostlist": ["n2"]}]}'
<Dependency condition="OnExit">fuZZybuNNy</Dependency>
  <Dependency>ƒuZZybuNNz</Dependency><EligibleTime>1893528568</EligibleTime>
  -> --dependency=afterany:fuZZybuNNy --dependency=afterok:ƒuZZybuNNz
     --dependency=begin-time:1893528568.0
# A task group adds to its job, and overrides the defaults of its level only.
<Feature>a</Feature><Dependency>fuZZybuNNy</Dependency>
  <Environment><Variable name='A'>1</Variable></Environment>
  <TaskGroup><Feature>b</Feature>
  <Dependency condition='OnExit'>fuZZybuNNz</Dependency>
  <Environment><Variable name='B'>2</Variable></Environment></TaskGroup>
  -> -S constraints.properties='["a", "b"]' -S environment='{"A": "1", "B": "2"}'
     --dependency=afterok:fuZZybuNNy --dependency=afterany:fuZZybuNNz
<TaskGroupDefaults><Queue>a</Queue>
  <InitialWorkingDirectory>/a</InitialWorkingDirectory></TaskGroupDefaults>
  <TaskGroup><Queue>b</Queue></TaskGroup> -> -q b --cwd=/a
"""
STORAGE = r"""
<Resource name="Storage" type="xfs" units="GB">10</Resource> -> xfs 10GiB
<Resource name="Storage" type="xfs" units="TB">1.5</Resource> -> xfs 1536GiB
<Resource name="Storage" type="xfs" units="GB">0.5</Resource> -> xfs 512MiB
<Resource name="Storage" type="xfs" units="KB">1</Resource> -> xfs 1KiB
<Resource name="Storage" type="xfs" units="B">1</Resource> -> xfs 1KiB
<Resource name="Storage" type="xfs" units="MB">10.1</Resource> -> xfs 10343KiB
<Resource name="Storage" type="xfs" units="GB">1</Resource>
  <Resource name="Storage" type="lustre" units="TB">2</Resource>
  -> xfs 1GiB, lustre 2048GiB
<Resource name="Storage" type="xfs" units="GB">1</Resource><TaskGroup>
  <Resource name="Storage" type="xfs" units="GB">2</Resource></TaskGroup>
  -> xfs 1GiB, xfs 2GiB
"""


@pytest.mark.parametrize(("said", "options"), rows(SIZES + COMMANDS + ATTRIBUTES))
def test_an_object_is_submitted_as_flux_submit_would(said: str, options: str) -> None:
    found = submitted(job(said), Submitter(home="/home/me"))
    assert (found.jobspec, found.held) == (submit(options), False)


@pytest.mark.parametrize(("said", "storage"), rows(STORAGE))
def test_each_storage_resource_is_a_directive_for_at_least_as_much(
    said: str, storage: str
) -> None:
    assert system(said)["dw"] == [
        "#DW jobdw type={} capacity={} name=storage{}".format(*each.split(), number)
        for number, each in enumerate(storage.split(", "), 1)
    ]


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ("<State>Idle</State>", False),
        ("<State>Hold</State>", True),
        ("<Hold>User</Hold><Hold>System</Hold>", True),
        # Whatever its task group says.
        ("<State>Hold</State><TaskGroup><State>Idle</State></TaskGroup>", True),
        ("<Hold>User</Hold><TaskGroup><Shell>/bin/sh</Shell></TaskGroup>", True),
    ],
)
def test_a_hold_gives_the_job_urgency_0(said: str, held: bool) -> None:
    assert submitted(job(said)).held == held


@pytest.mark.parametrize(
    ("said", "environment"),
    [
        ("", None),
        ("<Environment/>", {}),
        ("<Environment>{}</Environment>", {"PATH": "/usr/bin"}),
        (
            '<Environment export="True">{}</Environment>',
            {"PATH": "/usr/bin", "HOME": "/h"},
        ),
    ],
)
def test_the_environment_is_that_of_the_object_and_what_it_exports(
    said: str, environment: Optional[Json]
) -> None:
    me = Submitter(environment={"PATH": "/bin", "HOME": "/h"})
    said = said.format('<Variable name="PATH">/usr/bin</Variable>')
    assert system(said, me).get("environment") == environment


# Extensions

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
GB10 = '<Resource name="Storage" type="xfs" units="GB">10</Resource>'
WHOLE = spec("-N2", "-n4", "-c3", "-x")
TWO_OR_MORE = {"type": "core", "count": {"min": 2}}
SLOT = {"type": "slot", "count": 2, "label": "task", "with": [TWO_OR_MORE]}
A = {"properties": ["a"]}


def test_an_extension_for_much_leaves_room_for_the_rest() -> None:
    said = extension("attributes.system", {"x": {"y": 1}})
    said += extension("attributes.system.x.z", 2) + extension("attributes.user", None)
    assert submitted(job(said)).jobspec["attributes"] == {
        "system": {"duration": 0, "x": {"y": 1, "z": 2}},
        "user": None,
    }


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
        + extension("resources", [SLOT]),
        "<Feature>a</Feature>"
        + extension("attributes.system.constraints", {"and": [A]}),
        '<TaskDistribution type="TasksPerNode">1</TaskDistribution>'
        + extension("attributes.system.shell.options.per-resource", {"type": "node"}),
    ],
)
def test_elements_and_an_extension_may_say_the_same(said: str) -> None:
    jobspec = submitted(job(said)).jobspec
    for inner in read(job(said)).all("Extension"):
        place: Any = jobspec
        for key in str(inner.attribute("name")).split("."):
            place = place[key]
        assert place == json.loads(str(inner.value))
