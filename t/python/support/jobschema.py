# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The examples and the tables of seed 003."""

from __future__ import annotations

import pytest

from sssjob import ObjectError, read
from sssjob.schema.properties import Rule

Row = tuple[str, str, str, str]

# The examples that stand between the text, under the headings that they have
# there, with straight quotation marks.
INLINE = {
    "4.2 JobGroup Reference": "<JobGroup> workflow1</JobGroup>",
    "5.1 Simple Job Properties": "<Executable>#Script</Executable>",
    "5.1 Feature Element": '<Feature aggregation="List">feature1,feature2</Feature>',
    "5.1 OutputFile Element": (
        '<OutputFile redirectList="Append">~/myjob.out</OutputFile>'
    ),
    "5.1 ErrorFile Element": '<ErrorFile redirectList="Merge"></ErrorFile>',
    "5.1 InputFile Element": '<InputFile redirectList="Close"></InputFile>',
    # Whose address it was, the seed lost.
    "5.1 NotificationList Element": (
        '<NotificationList uri="[email protected]">JobStart,JobEnd</NotificationList>'
    ),
    "5.1 ResourceLimit Element": (
        '<ResourceLimit name="CPUTime">1000000</ResourceLimit>'
    ),
    "5.1 Variable Element": (
        "<Environment>"
        '<Variable name="PATH">/usr/bin:/home/sssdemo</Variable>'
        "</Environment>"
    ),
    "5.1 Node Element": '<Node aggregation="Pattern">node[1-5]</Node>',
    "5.1 TaskDistribution Element 1": (
        '<TaskDistribution type="TasksPerNode">2</TaskDistribution>'
    ),
    "5.1 TaskDistribution Element 2": (
        '<TaskDistribution type="Rule">RoundRobin</TaskDistribution>'
    ),
    "5.1 TaskDistribution Element 3": (
        '<TaskDistribution type="Geometry">{1,4}{2}{3,5}</TaskDistribution>'
    ),
    "5.1 Dependency Element": (
        '<Dependency condition="OnSuccess" designator="JobId">PBS.1234.0</Dependency>'
    ),
    "5.1 Consumable Resources 1": '<Memory metric="Max" units="GB">483</Memory>',
    "5.1 Consumable Resources 2": (
        '<Processors duration="1234" consumptionRate="0.63">4</Processors>'
    ),
    "5.1 Resource Element 1": '<Resource name="License" type="MATLAB">1</Resource>',
    "5.1 Resource Element 2": (
        '<Resource name="Telescope" type="Zoom2000" duration="750" metric="KX">10'
        "</Resource>"
    ),
    "5.1 Extension Element": (
        '<Extension type="Scheduler" name="Restartable">true</Extension>'
    ),
    "6.2 TaskGroup Reference": "<TaskGroup> tg1</TaskGroup>",
    "7.2 Task Reference": "<TaskGroup><Name>x</Name><Task>1</Task></TaskGroup>",
    "8.1 Requested Element 1": """
<Requested>
  <Processors op="GE">8</Processors>
  <Processors op="LE">16</Processors>
  <Duration>3600</Duration>
</Requested>""",
    # In the seed, the last tag is not a closing one.
    "8.1 Requested Element 2": """
<Requested>
  <NodeCount>1</NodeCount>
  <Node aggregation="Pattern">fr15.*</Node>
</Requested>""",
    "8.1 Requested Element 3": """
<Requested>
  <User group="1">scottmo</User>
  <Account group="-1">mscfops</Account>
  <User conj="Or" group="1">amy</User>
  <Account group="-1">chemistry</Account>
</Requested>""",
    "8.1 Requested Element 4": """
<Requested>
  <Memory preference="2">1024</Memory>
  <Memory preference="1">512</Memory>
</Requested>""",
    "8.2 Delivered Element 1": """
<Delivered>
  <Processors>12</Processors>
  <Duration>1234</Duration>
</Delivered>""",
    "8.2 Delivered Element 2": "<Delivered>\n  <Node>fr15n03</Node>\n</Delivered>",
    "8.2 Delivered Element 3": """
<Delivered>
  <User>scottmo</User>
  <Account>mscfops</Account>
</Delivered>""",
    "8.2 Delivered Element 4": "<Delivered>\n  <Memory>1024</Memory>\n</Delivered>",
}


def job(contents: str = "") -> str:
    return f"<Job><Id>1</Id>{contents}</Job>"


def rows(table: str) -> list[Row]:
    """Name, type, appearance and categories of the rows of a table."""
    lines = (line.split() for line in table.splitlines() if line.strip())
    return [(line[0], line[1], line[2], "".join(line[3:])) for line in lines]


def row_of(rule: Rule) -> Row:
    assert rule.datatype is not None
    categories = "R" * rule.requested + "D" * rule.delivered
    appearance = "MUST" if rule.required else "MAY"
    return rule.name, rule.datatype.value, appearance, categories


def refused(contents: str, message: str) -> None:
    with pytest.raises(ObjectError, match=message):
        read(job(contents))
