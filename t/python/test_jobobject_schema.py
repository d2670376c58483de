# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The schema of job objects is that of seed 003: its examples, its tables, and what its
sections allow."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from lxml import etree

from sssjob import ObjectError, check, effective, element, read, walk, write
from sssjob.schema.properties import (
    CONTENTS,
    DELIVERED,
    GROUP_PROPERTIES,
    JOB_PROPERTIES,
    REQUESTED,
    TASK_GROUP_PROPERTIES,
    TASK_PROPERTIES,
    Rule,
)
from sssjob.schema.values import UNITS, Datatype, in_bytes
from support.jobobjects import DATA, EXAMPLES
from support.jobschema import INLINE, Row, job, refused, row_of, rows

Shape = tuple[object, ...]


def shape(found: etree._Element) -> Shape:
    """What a document says, however its elements and attributes are ordered."""
    inner = [shape(child) for child in found if isinstance(child.tag, str)]
    text = "".join(found.itertext()).strip() if not inner else ""
    return found.tag, text, sorted(found.items()), sorted(inner, key=repr)


# 1.3 Examples, and those in the text


@pytest.mark.parametrize(
    "text",
    [path.read_text() for path in EXAMPLES] + list(map(job, INLINE.values())),
    ids=[path.stem for path in EXAMPLES] + list(INLINE),
)
def test_an_example_can_be_read_and_loses_nothing(text: str) -> None:
    canonical = write(read(text.encode()))
    assert write(read(canonical)) == canonical
    written, seed = (etree.fromstring(each.encode()) for each in (canonical, text))
    assert shape(written) == shape(seed)


def test_the_elaborate_example_is_read_as_the_seed_explains_it() -> None:
    group = read((DATA / "elaborate.xml").read_bytes())
    assert group.name == "JobGroup" and group.text("Id") == "workflow1"
    first, second = group.all("Job")
    assert [task.text("Node") for _, task in walk(first) if task.name == "Task"] == [
        "node1",
        "node12",
    ]
    assert [g.text("Name") for g in second.all("TaskGroup")] == ["Master", "Slave"]
    for member in effective(group).all("Job"):
        assert member.text("Project") == "GrandChallenge18"


def test_rules_from_the_examples_are_in_an_example_and_others_are_not() -> None:
    texts = [path.read_text() for path in EXAMPLES] + list(INLINE.values())
    found = set(re.findall(r"<(\w+)", "".join(texts)))
    for rules in CONTENTS.values():
        for rule in rules.values():
            if rule.source == "example":
                assert rule.name in found
            elif rule.source != "text" and rule.name != "Id":
                assert rule.name not in found


# 2.2 Table Column Interpretations


@pytest.mark.parametrize(
    ("datatype", "right", "wrong"),
    [
        ("String", ["", " printable characters ", "\u00e4\U0001f600"], ["\x07"]),
        ("Integer", ["0", "-12", " +7\n"], ["", "1.5", "0x10", "1_0", "\u0663"]),
        (
            "Float",
            ["1.89", "-2", ".5", "2.", "1e3"],
            ["", "INF", "NaN", "1,5", "1e999"],
        ),
        ("Boolean", ["true", "false", "True", "1"], ["", "yes", "2"]),
        (
            "DateTime",
            ["0", "1051557713", "4294967295"],
            ["-1", "4294967296", "now"],
        ),
        ("Duration", ["0", "3600", "4294967295"], ["-1", "4294967296", "1h"]),
    ],
)
def test_the_data_types_are_those_of_the_seed(
    datatype: str, right: list[str], wrong: list[str]
) -> None:
    for text in right:
        assert Datatype(datatype).holds(Datatype(datatype).parse(text))
    for text in wrong:
        with pytest.raises(ValueError):
            Datatype(datatype).parse(text)


# Tables 1 to 7

TABLE_1 = """
    CreationTime DateTime MAY
    Description  String   MAY
    Id           String   MUST
    Name         String   MAY
    State        String   MAY
"""
TABLE_2 = """
    Application             String   MAY
    Architecture            String   MAY  RD
    Arguments               String   MAY
    Charge                  Float    MAY
    Checkpointable          Boolean  MAY
    CpuDuration             Duration MAY
    DeadlineTime            DateTime MAY
    EligibleTime            DateTime MAY
    EndTime                 DateTime MAY
    Executable              String   MAY
    ExitCode                Integer  MAY
    GlobalId                String   MAY
    Hold                    String   MAY
    InitialWorkingDirectory String   MAY
    Interactive             Boolean  MAY
    Id                      String   MUST
    Name                    String   MAY
    State                   String   MAY
    Type                    String   MAY
    Machine                 String   MAY  RD
    NetworkType             String   MAY  RD
    NodeCount               Integer  MAY  RD
    OperatingSystem         String   MAY  RD
    Partition               String   MAY  RD
    Priority                Integer  MAY
    QualityOfService        String   MAY  RD
    Queue                   String   MAY  RD
    Quote                   String   MAY
    Reservation             String   MAY  RD
    ReservationTime         DateTime MAY
    ResourceManagerType     String   MAY  RD
    Restartable             Boolean  MAY
    Shell                   String   MAY
    StagedTime              DateTime MAY
    StartCount              Integer  MAY
    StartTime               DateTime MAY
    StatusMessage           String   MAY
    SubmitTime              DateTime MAY
    SubmitHost              String   MAY
    Suspendable             Boolean  MAY
    SuspendDuration         Integer  MAY
    TimeCategory            String   MAY
    Duration                Duration MAY  RD
"""
TABLE_3 = """
    Project    String MAY RD
    GlobalUser String MAY RD
    Group      String MAY RD
    User       String MAY RD
"""
TABLE_4 = """
    Disk       Float   MAY RD
    Memory     Float   MAY RD
    Network    Float   MAY RD
    Processors Integer MAY RD
    Swap       Float   MAY RD
"""
STRUCTURED = """
    Feature          String MAY RD
    OutputFile       String MAY
    ErrorFile        String MAY
    InputFile        String MAY
    NotificationList String MAY
    ResourceLimit    String MAY
    Node             String MAY RD
    TaskDistribution String MAY
    Dependency       String MAY
    Resource         Float  MAY RD
    Extension        String MAY
"""
# What version 3.0 called Project; an example of section 8.1 still has it.
BEFORE = "Account String MAY RD"
MANY = {
    "Hold",
    "NotificationList",
    "ResourceLimit",
    "Dependency",
    "Extension",
    *("Disk", "Memory", "Network", "Processors", "Swap", "Resource"),
}


TABLE_6 = "TaskCount Integer MAY\nId String MAY\nName String MAY"
# And the process id of which section 7 and the elaborate example tell.
TABLE_7 = "Node String MAY\nSession Integer MAY\nId String MAY\nProcess Integer MAY"


@pytest.mark.parametrize(
    ("rules", "table"),
    [
        (GROUP_PROPERTIES, TABLE_1),
        (JOB_PROPERTIES, TABLE_2 + TABLE_3 + TABLE_4 + STRUCTURED + BEFORE),
        (TASK_GROUP_PROPERTIES, TABLE_6),
        (TASK_PROPERTIES, TABLE_7),
    ],
    ids=["JobGroup", "Job", "TaskGroup", "Task"],
)
def test_an_element_has_the_properties_of_its_tables_and_no_others(
    rules: tuple[Rule, ...], table: str
) -> None:
    found = [row_of(rule) for rule in rules if rule.name != "Environment"]
    assert Counter(found) == Counter(rows(table))
    several = {rule.name for rule in rules if rule.many}
    assert several == (MANY if rules is JOB_PROPERTIES else set())


@pytest.mark.parametrize(
    "row", rows(TABLE_2 + TABLE_3 + TABLE_4 + STRUCTURED), ids=lambda row: row[0]
)
def test_a_property_has_its_type_multiplicity_and_categories(
    row: Row,
) -> None:
    name, datatype, appearance, categories = row
    named = ' name="n"' if name in ("Resource", "ResourceLimit", "Extension") else ""
    value = "All" if name == "NotificationList" else "1"
    one = f"<{name}{named}>{value}</{name}>"
    others = "" if name == "Id" else "<Id>1</Id>"
    with_one = f"<Job>{others}{one}</Job>"
    found = read(with_one).find(name)
    assert found is not None and Datatype(datatype).holds(found.value)
    if datatype != "String":
        refused(f"<{name}{named}>one</{name}>", 'is "one", expected')
    if name in MANY:
        assert len(list(read(job(one + one)).all(name))) == 2
    else:
        with pytest.raises(ObjectError, match=f"/Job: has 2 {name}, expected one"):
            read(f"<Job>{others}{one}{one}</Job>")
    for category in (REQUESTED, DELIVERED):
        text = f"<{category}>{one}{one}</{category}>"
        if category[0] in categories:
            envelope = read(job(text)).find(category)
            assert envelope is not None and len(envelope.contents) == 2
        else:
            refused(text, f"{category} may not have it")
    if appearance == "MUST":
        with pytest.raises(ObjectError, match=f"has no {name}"):
            read("<Job><User>u</User></Job>")


@pytest.mark.parametrize(
    "name", ["TaskGroup", "TaskGroupDefaults", "Task", "TaskDefaults", "JobDefaults"]
)
def test_task_groups_tasks_and_defaults_have_all_properties_of_jobs(name: str) -> None:
    rules = CONTENTS[name]
    for rule in JOB_PROPERTIES:
        assert rule.name in rules and not rules[rule.name].required
    assert REQUESTED in rules and DELIVERED in rules


# What sections allow beside a value

SIX = (
    'context="Dedicated" units="GB" metric="Average" duration="10" '
    'consumptionRate="0.5" dynamic="true"'
)
DEFAULTS = "<{0}><Name>n</Name></{0}>"
JOB_DEFAULTS = DEFAULTS.format("JobDefaults")
GROUP_DEFAULTS = DEFAULTS.format("TaskGroupDefaults")
TASK_DEFAULTS = DEFAULTS.format("TaskDefaults")
SECTIONS: dict[str, tuple[list[str], list[tuple[str, str]]]] = {
    "Feature": (
        [
            '<Feature aggregation="List" delimiter=";">a;b</Feature>',
            '<Feature aggregation="Pattern">a|b</Feature>',
        ],
        [
            ('<Feature aggregation="Range">a[1-2]</Feature>', "one of List, Pat"),
            ('<Feature delimiter=";">a</Feature>', "is for aggregation List"),
        ],
    ),
    "OutputFile and ErrorFile": (
        [
            f'<{name} redirectList="Append, Close,Flush,Keep,Merge">f</{name}>'
            for name in ("OutputFile", "ErrorFile")
        ],
        [
            (f'<{name} redirectList="Append,Rename"/>', 'redirectList is "Rename", ')
            for name in ("OutputFile", "ErrorFile")
        ],
    ),
    "InputFile": (
        ['<InputFile redirectList="Close"/>'],
        [('<InputFile redirectList="Append"/>', "expected one of Close")],
    ),
    "NotificationList": (
        ["<NotificationList>JobStart, JobEnd,All,None</NotificationList>"],
        [("<NotificationList>JobStart,JobPause</NotificationList>", '"JobPause", ')],
    ),
    "ResourceLimit": (
        [
            f'<ResourceLimit name="CPUTime"{of_type}>1</ResourceLimit>'
            for of_type in ("", ' type="Hard"', ' type="Soft"')
        ],
        [
            ("<ResourceLimit>1</ResourceLimit>", "has no attribute name"),
            ('<ResourceLimit name="x" type="Firm">1</ResourceLimit>', 'is "Firm"'),
        ],
    ),
    "Environment": (
        ["<Environment/>"],
        [
            ("<Environment/><Environment/>", "has 2 Environment, expected one"),
            ("<Environment><Variable>a</Variable></Environment>", "no attribute name"),
        ],
    ),
    "Node": (
        [
            '<Node aggregation="Range" count="3">n[5-23,77]</Node>',
            '<Node aggregation="List" delimiter=" ">a b</Node>',
        ],
        [('<Node count="few">a</Node>', 'count is "few", expected an integer')],
    ),
    "TaskDistribution": (
        [
            '<TaskDistribution type="ProcessorsPerTask">2</TaskDistribution>',
            "<TaskDistribution>2</TaskDistribution>",
        ],
        [('<TaskDistribution type="Luck">2</TaskDistribution>', 'type is "Luck"')],
    ),
    "Dependency": (
        [
            *(
                f'<Dependency condition="{condition}">j</Dependency>'
                for condition in ("OnSuccess", "OnFailure", "OnExit")
            ),
            '<Dependency condition="OnExit" code="3">j</Dependency>',
            '<Dependency designator="JobName">j</Dependency>',
        ],
        [('<Dependency code="3">j</Dependency>', "is for condition OnExit only")],
    ),
    "consumable resources": (
        [
            f"<{name} {SIX}>1</{name}>"
            for name in ("Disk", "Memory", "Network", "Processors", "Swap")
        ]
        + [f'<Resource name="n" {SIX}>1</Resource>'],
        [
            ('<Memory context="Spare">1</Memory>', "one of Configured, Avail"),
            ('<Disk dynamic="maybe">1</Disk>', "expected true or false"),
            ("<Resource>1</Resource>", "has no attribute name"),
        ],
    ),
    "Extension": (
        ['<Extension name="n">anything &lt;at all&gt;</Extension>'],
        [("<Extension>1</Extension>", "has no attribute name")],
    ),
    "TaskGroup": (
        [
            f"<TaskGroup>g</TaskGroup>{GROUP_DEFAULTS}<TaskGroup>g</TaskGroup>",
            f"<TaskGroup><Task>1</Task>{TASK_DEFAULTS}<Task>2</Task></TaskGroup>",
        ],
        [
            (GROUP_DEFAULTS * 2, "has 2 TaskGroupDefaults, expected one at most"),
            (
                f"<TaskGroup>{TASK_DEFAULTS * 2}</TaskGroup>",
                "/Job/TaskGroup: has 2 TaskDefaults, expected one at most",
            ),
            ("<TaskGroup/>", "/Job/TaskGroup: is empty"),
            (JOB_DEFAULTS, "/Job/JobDefaults: is not"),
        ],
    ),
}


@pytest.mark.parametrize(("allowed", "others"), SECTIONS.values(), ids=SECTIONS)
def test_an_element_is_as_its_section_says(
    allowed: list[str], others: list[tuple[str, str]]
) -> None:
    for text in allowed:
        check(read(job(text)))
    for text, message in others:
        refused(text, message)


def test_attributes_have_the_values_of_their_types() -> None:
    found = read(job(f"<Memory {SIX}>1</Memory>")).find("Memory")
    assert found is not None
    assert (found.attribute("duration"), found.attribute("dynamic")) == (10, True)
    assert found.attribute("consumptionRate") == 0.5
    text = '<Environment export="True"><Variable name="A">a</Variable></Environment>'
    variable = element("Variable", "a", name="A")
    environment = element("Environment", None, variable, export=True)
    assert read(job(text)).find("Environment") == environment


def test_the_order_of_files_is_kept_as_their_effect_may_depend_on_it() -> None:
    output, error = "<OutputFile>o</OutputFile>", '<ErrorFile redirectList="Merge"/>'
    one, other = read(job(output + error)), read(job(error + output))
    assert one != other
    assert read(write(one)) == one and read(write(other)) == other


# 4.0 JobGroup Element


def test_a_job_group_has_properties_jobs_and_defaults_once_at_most() -> None:
    group = "<JobGroup><Id>g</Id>{}</JobGroup>"
    check(read(group.format(job())))
    check(read(group.format(job() + JOB_DEFAULTS + job())))
    for text, message in (
        (group.format(""), "/JobGroup: has no Job, which it must have"),
        (f"<JobGroup>{job()}</JobGroup>", "/JobGroup: has no Id"),
        (group.format(job() + JOB_DEFAULTS * 2), "has 2 JobDefaults, expected one at"),
        (JOB_DEFAULTS, "expected Job or JobGroup here"),
    ):
        with pytest.raises(ObjectError, match=message):
            read(text)


# 4.2, 5.2, 6.2 and 7.2: references


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (job("<JobGroup> workflow1</JobGroup>"), ["JobGroup"]),
        ("<JobGroup><Id>g</Id><Job> job123</Job></JobGroup>", ["Job"]),
        (job("<TaskGroup> tg1</TaskGroup>"), ["TaskGroup"]),
        (job("<TaskGroup><Task>1</Task></TaskGroup>"), ["TaskGroup", "Task"]),
    ],
)
def test_an_element_with_an_id_as_its_text_is_a_reference(
    text: str, path: list[str]
) -> None:
    found = read(text)
    for name in path:
        inner = found.find(name)
        assert inner is not None
        found = inner
    assert found.is_reference
    assert found.value in ("workflow1", "job123", "tg1", "1")


# 8.0 Property Categories


def test_requested_properties_have_five_more_attributes() -> None:
    attributes = 'op="GE" conj="Nor" group="-2" preference="-1" performanceFactor="0.5"'
    for rule in CONTENTS[REQUESTED].values():
        named = ' name="n"' if rule.name == "Resource" else ""
        text = f"<{rule.name}{named} {attributes}>1</{rule.name}>"
        check(read(job(f"<Requested>{text}</Requested>")))
        refused(f"<Delivered>{text}</Delivered>", "may have no attribute op")
        refused(text, "may have no attribute op")


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("op", ["EQ", "NE", "LT", "GT", "LE", "GE", "Match"]),
        ("conj", ["And", "Or", "Nand", "Nor"]),
    ],
)
def test_operations_and_conjunctions_are_those_of_section_8_1(
    name: str, choices: list[str]
) -> None:
    text = "<Requested><Memory {}='{}'>1</Memory></Requested>"
    for choice in choices:
        check(read(job(text.format(name, choice))))
    refused(text.format(name, "Xor"), f"expected one of {', '.join(choices)}")


def test_delivered_properties_have_a_group() -> None:
    for rule in CONTENTS[DELIVERED].values():
        named = ' name="n"' if rule.name == "Resource" else ""
        text = f'<{rule.name}{named} group="1">1</{rule.name}>'
        check(read(job(f"<Delivered>{text}</Delivered>")))
        refused(text, "may have no attribute group")


@pytest.mark.parametrize("category", [REQUESTED, DELIVERED])
def test_the_order_within_a_category_is_kept(category: str) -> None:
    text = "<{0}><Memory>1</Memory><User>u</User><Memory>2</Memory></{0}>"
    found = read(write(read(job(text.format(category))))).find(category)
    assert found is not None
    assert [inner.name for inner in found.contents] == ["Memory", "User", "Memory"]
    refused(f"<{category}/>", "is empty, expected at least one")


# Appendix A


def test_units_of_measure_are_those_of_the_seed() -> None:
    initials = ["B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB", "NB", "DB"]
    assert UNITS == {unit: 2 ** (10 * n) for n, unit in enumerate(initials)}
    assert in_bytes(1.5, "KB") == 1536
    with pytest.raises(ValueError, match="expected one of B, KB"):
        in_bytes(1, "KiB")
