# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The schema of job objects is that of the specification: its examples, its tables, and
what its sections allow. ``doc/jobobject.xsd`` says the same in XML Schema, which
another implementation of XML applies.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from lxml import etree

from sssjob import Element, check, effective, element, read, walk, write
from sssjob.schema.model import ObjectError
from sssjob.schema.properties import (
    CONTENTS,
    GROUP_PROPERTIES,
    JOB_PROPERTIES,
    TASK_GROUP_PROPERTIES,
    TASK_PROPERTIES,
    Rule,
)
from sssjob.schema.values import Datatype
from support.jobobjects import EXAMPLES, complete, objects
from support.tables import rows
from support.tree import TOP

SCHEMA = etree.XMLSchema(etree.parse(str(TOP / "doc" / "jobobject.xsd")))

# The examples that stand between the text, in the order that they have there, with
# straight quotation marks. Some addresses and slashes were lost in the seed.
INLINE = r"""
<JobGroup> workflow1</JobGroup>
<Executable>#Script</Executable>
<Feature aggregation="List">feature1,feature2</Feature>
<OutputFile redirectList="Append">~/myjob.out</OutputFile>
<ErrorFile redirectList="Merge"></ErrorFile>
<InputFile redirectList="Close"></InputFile>
<NotificationList uri="[email protected]">JobStart,JobEnd</NotificationList>
<ResourceLimit name="CPUTime">1000000</ResourceLimit>
<Environment><Variable name="PATH">/usr/bin:/home/sssdemo</Variable></Environment>
<Node aggregation="Pattern">node[1-5]</Node>
<TaskDistribution type="TasksPerNode">2</TaskDistribution>
<TaskDistribution type="Rule">RoundRobin</TaskDistribution>
<TaskDistribution type="Geometry">{1,4}{2}{3,5}</TaskDistribution>
<Dependency condition="OnSuccess" designator="JobId">PBS.1234.0</Dependency>
<Memory metric="Max" units="GB">483</Memory>
<Processors duration="1234" consumptionRate="0.63">4</Processors>
<Resource name="License" type="MATLAB">1</Resource>
<Resource name="Telescope" type="Zoom2000" duration="750" metric="KX">10</Resource>
<Extension type="Scheduler" name="Restartable">true</Extension>
<TaskGroup> tg1</TaskGroup>
<TaskGroup><Name>x</Name><Task>1</Task></TaskGroup>
<Requested><Processors op="GE">8</Processors><Processors op="LE">16</Processors>
  <Duration>3600</Duration></Requested>
<Requested><NodeCount>1</NodeCount>
  <Node aggregation="Pattern">fr15.*</Node></Requested>
<Requested><User group="1">scottmo</User><Account group="-1">mscfops</Account>
  <User conj="Or" group="1">amy</User>
  <Account group="-1">chemistry</Account></Requested>
<Requested><Memory preference="2">1024</Memory>
  <Memory preference="1">512</Memory></Requested>
<Delivered><Processors>12</Processors><Duration>1234</Duration></Delivered>
<Delivered><Node>fr15n03</Node></Delivered>
<Delivered><User>scottmo</User><Account>mscfops</Account></Delivered>
<Delivered><Memory>1024</Memory></Delivered>
"""


def job(contents: str = "", attributes: str = "") -> str:
    return f"<Job{attributes}><Id>1</Id>{contents}</Job>"


def errors(document: str) -> str:
    """What the XML Schema has against a document."""
    SCHEMA.validate(etree.fromstring(document.encode()))
    return "\n".join(error.message for error in SCHEMA.error_log)


# 1.3 Examples, and those in the text

TEXTS = [path.read_text() for path in EXAMPLES] + list(map(job, rows(INLINE, 1)))


def shape(found: etree._Element) -> tuple[object, ...]:
    """What a document says, however its elements and attributes are ordered."""
    inner = [shape(child) for child in found if isinstance(child.tag, str)]
    text = "".join(found.itertext()).strip() if not inner else ""
    return found.tag, text, sorted(found.items()), sorted(inner, key=repr)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_an_example_can_be_read_and_loses_nothing(text: str) -> None:
    canonical = write(read(text.encode()))
    assert write(read(canonical)) == canonical
    assert errors(canonical) == ""
    written, seed = (etree.fromstring(each.encode()) for each in (canonical, text))
    assert shape(written) == shape(seed)


# 2.2 Table Column Interpretations


@pytest.mark.parametrize(
    ("datatype", "right", "wrong"),
    [
        ("String", ["", " printable characters ", "\u00e4\U0001f600"], ["\x07"]),
        ("Integer", ["0", "-12", " +7\n"], ["", "1.5", "0x10", "1_0", "\u0663"]),
        ("Float", ["1.8", "-2", ".5", "2.", "1e3"], ["", "INF", "NaN", "1,5", "1e999"]),
        ("Boolean", ["true", "false", "True", "1"], ["", "yes", "2"]),
        ("DateTime", ["0", "1051557713", "4294967295"], ["-1", "4294967296", "now"]),
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


# Tables 1 to 7. What may be Requested and Delivered has RD, what may be there several
# times an asterisk. Account is what version 3.0 called Project; an example of section
# 8.1 still has it. Process is told of by section 7 and by the elaborate example.

TABLES = [
    (GROUP_PROPERTIES, "DateTime -> CreationTime\nString -> Description Id Name State"),
    (TASK_GROUP_PROPERTIES, "Integer -> TaskCount\nString -> Id Name"),
    (TASK_PROPERTIES, "Integer -> Session Process\nString -> Id Node"),
    (
        JOB_PROPERTIES,
        """
Boolean -> Checkpointable Interactive Restartable Suspendable
DateTime -> DeadlineTime EligibleTime EndTime ReservationTime StagedTime StartTime
  SubmitTime
Duration -> CpuDuration
Duration RD -> Duration
Float -> Charge
Float RD -> Disk* Memory* Network* Swap* Resource*
Integer -> ExitCode Priority StartCount SuspendDuration
Integer RD -> NodeCount Processors*
String -> Application Arguments Executable GlobalId Hold* InitialWorkingDirectory Id
  Name State Type Quote Shell StatusMessage SubmitHost TimeCategory
  OutputFile ErrorFile InputFile NotificationList* ResourceLimit* TaskDistribution
  Dependency* Extension*
String RD -> Architecture Machine NetworkType OperatingSystem Partition
  QualityOfService Queue Reservation ResourceManagerType Project GlobalUser Group User
  Feature Node Account
""",
    ),
]


@pytest.mark.parametrize(("rules", "table"), TABLES)
def test_an_element_has_the_properties_of_its_tables_and_no_others(
    rules: tuple[Rule, ...], table: str
) -> None:
    found: Counter[tuple[str, str]] = Counter()
    required = {rule.name for rule in rules if rule.required}
    assert required == (
        {"Id"} if rules in (GROUP_PROPERTIES, JOB_PROPERTIES) else set()
    )
    for rule in rules:
        assert rule.requested == rule.delivered
        if rule.datatype is not None:
            kind = rule.datatype.value + " RD" * rule.requested
            found[kind, rule.name + "*" * rule.many] += 1
    assert found == Counter(
        (kind, name) for kind, names in rows(table) for name in names.split()
    )


# What the sections allow

VALID = r"""
<Feature aggregation="List" delimiter=";">a;b</Feature>
<Feature aggregation="Pattern">a|b</Feature>
<OutputFile redirectList="Append, Close,Flush,Keep,Merge">f</OutputFile>
<ErrorFile redirectList="Append, Close,Flush,Keep,Merge">f</ErrorFile>
<InputFile redirectList="Close"/><ErrorFile/><OutputFile/>
<NotificationList>JobStart, JobEnd,All,None</NotificationList>
<ResourceLimit name="CPUTime">1</ResourceLimit>
<ResourceLimit name="CPUTime" type="Hard">1</ResourceLimit>
<ResourceLimit name="CPUTime" type="Soft">1</ResourceLimit>
<Environment/>
<Node aggregation="Range" count="3">n[5-23,77]</Node>
<Node aggregation="List" delimiter=" ">a b</Node>
<TaskDistribution type="ProcessorsPerTask">2</TaskDistribution>
<TaskDistribution>2</TaskDistribution>
<Dependency condition="OnFailure">j</Dependency><Dependency>k</Dependency>
<Dependency condition="OnExit" code="3">j</Dependency>
<Dependency designator="JobName">j</Dependency>
<Disk context="Dedicated" units="GB" metric="Average" duration="10">1</Disk>
<Processors consumptionRate="0.5" dynamic="true">1</Processors>
<Resource name="n" type="t" context="Used">1</Resource>
<Extension name="n">anything &lt;at all&gt;</Extension>
<TaskGroup>g</TaskGroup><TaskGroupDefaults><Name>n</Name></TaskGroupDefaults>
  <TaskGroup><Name>n</Name></TaskGroup>
<TaskGroup><Task>1</Task><TaskDefaults><Name>n</Name></TaskDefaults><Task>2</Task>
  </TaskGroup>
<JobGroup>g</JobGroup>
"""


@pytest.mark.parametrize("contents", rows(VALID, 1))
def test_an_element_is_as_its_section_says(contents: str) -> None:
    root = read(job(contents))
    check(root)
    assert read(write(root)) == root and errors(write(root)) == ""


# After the second arrow: XML Schema 1.0 cannot say it.

INVALID = r"""
<Id>2</Id> -> : has 2 Id, expected one at most
<Name>n</Name><Name>n</Name> -> : has 2 Name, expected one at most
<NodeCount>9223372036854775808</NodeCount> -> /NodeCount: is "9223372036854775808", exp
<StartTime>-1</StartTime> -> /StartTime: is "-1", expected
<Interactive>yes</Interactive> -> /Interactive: is "yes", expected true or false
<Memory>much</Memory> -> /Memory: is "much", expected a number
<Memory>NaN</Memory> -> /Memory: is "NaN", expected a number
<Disk dynamic="maybe">1</Disk> -> /Disk: dynamic is "maybe", expected true or false
<Node count='few'>n</Node> -> /Node: count is "few", expected an integer
<Resource>1</Resource> -> /Resource: has no attribute name
<ResourceLimit>1</ResourceLimit> -> /ResourceLimit: has no attribute name
<Extension>1</Extension> -> /Extension: has no attribute name
<Environment><Variable>a</Variable></Environment>
  -> /Environment/Variable: has no attribute name
<Environment/><Environment/> -> : has 2 Environment, expected one at most
<TaskGroupDefaults><Name>n</Name></TaskGroupDefaults><TaskGroupDefaults><Name>n</Name>
  </TaskGroupDefaults> -> : has 2 TaskGroupDefaults, expected one at most
<TaskGroup><TaskDefaults><Name>n</Name></TaskDefaults><TaskDefaults><Name>n</Name>
  </TaskDefaults></TaskGroup> -> /TaskGroup: has 2 TaskDefaults, expected one at most
<Requested/> -> /Requested: is empty, expected at least one element in it
<Delivered/> -> /Delivered: is empty, expected at least one element in it
<Requested>x<User>u</User></Requested> -> /Requested: may have no text, only elements
<JobGroup><Id>g</Id><Job>1</Job></JobGroup>
  -> /JobGroup: within a job, expected only a job group's id
<TaskGroup/> -> /TaskGroup: is empty -> ~
<TaskGroup>x<Name>n</Name></TaskGroup> -> /TaskGroup: has an id as its text -> ~
<Feature delimiter=';'>a</Feature> -> /Feature: delimiter is for aggregation List -> ~
<Node aggregation='List' delimiter=''>a</Node> -> /Node: delimiter is empty -> ~
<Dependency condition='OnSuccess' code='1'>a</Dependency>
  -> /Dependency: code is for condition OnExit only -> ~
<Dependency code="3">j</Dependency> -> /Dependency: code is for condition OnExit -> ~
<Name awarenessPolicy='No'>n</Name> -> /Name: awarenessPolicy is "No", expected one of
# What is not understood goes by the policy.
<JobDefaults><User>u</User></JobDefaults> -> /JobDefaults: is not understood
<Memory op='GE'>1</Memory> -> /Memory: may have no attribute op, which is not
<Memory context='Spare'>1</Memory> -> /Memory: context is "Spare", which is not
  understood, expected one of Configured, Available, Used, Dedicated;
<TaskDistribution type="Luck">2</TaskDistribution> -> /TaskDistribution: type is "Luck"
<ResourceLimit name="x" type="Firm">1</ResourceLimit> -> /ResourceLimit: type is "Firm"
<InputFile redirectList='Append'/> -> /InputFile: redirectList is "Append", which is not
  understood, expected one of Close;
<Requested><Name>n</Name></Requested> -> /Requested/Name: is not understood
<Requested><User op='No'>u</User></Requested> -> /Requested/User: op is "No", which is
  not understood, expected one of EQ, NE, LT, GT, LE, GE, Match;
<Requested><User conj='Xor'>u</User></Requested> -> /Requested/User: conj is "Xor",
  which is not understood, expected one of And, Or, Nand, Nor;
<Delivered><User op='EQ'>u</User></Delivered> -> /Delivered/User: may have no attribute
<Delivered><StartTime>1</StartTime></Delivered> -> /Delivered/StartTime: is not
<TaskGroup><Task><Task>1</Task></Task></TaskGroup> -> /TaskGroup/Task/Task: is not
<Environment><User>u</User></Environment> -> /Environment/User: is not understood
"""


@pytest.mark.parametrize(("contents", "problem", "unsaid"), rows(INVALID, 3))
def test_an_element_that_is_not_so_is_refused(
    contents: str, problem: str, unsaid: str
) -> None:
    with pytest.raises(ObjectError) as caught:
        read(job(contents))
    assert str(caught.value).startswith(f"line 1: /Job{problem}")
    assert bool(errors(job(contents))) == (not unsaid)
    # What is understood and wrong is refused under each policy.
    if "awarenessPolicy is Reject here" in str(caught.value):
        read(job(contents, " awarenessPolicy='Ignore'"))
    else:
        for policy in ("Warn", "Ignore"):
            with pytest.raises(ObjectError):
                read(job(contents, f" awarenessPolicy='{policy}'"))


GROUPS = r"""
<Task>1</Task> -> /Task: expected Job or JobGroup here
<JobDefaults><Name>n</Name></JobDefaults> -> /JobDefaults: expected Job or JobGroup here
<Job><Name>n</Name></Job> -> /Job: has no Id, which it must have
<JobGroup><Id>g</Id></JobGroup> -> /JobGroup: has no Job, which it must have
<JobGroup><Job>1</Job></JobGroup> -> /JobGroup: has no Id, which it must have
<JobGroup><Id>g</Id><Job>1</Job><JobDefaults><Name>n</Name></JobDefaults>
  <JobDefaults><Name>n</Name></JobDefaults></JobGroup> -> /JobGroup: has 2 JobDefaults,
"""


@pytest.mark.parametrize(("document", "problem"), rows(GROUPS))
def test_a_document_without_what_it_must_have_is_refused(
    document: str, problem: str
) -> None:
    with pytest.raises(ObjectError) as caught:
        read(document)
    assert str(caught.value).startswith(f"line 1: {problem}")
    assert errors(document)


# The XML Schema


@given(objects())
def test_written_objects_are_valid_against_the_schema(root: Element) -> None:
    assert errors(write(root)) == ""
    assert errors(write(effective(root))) == ""


# Objects that are made by programs


@pytest.mark.parametrize("name", ["Job", "JobGroup"])
def test_an_object_with_all_there_may_be_is_valid(name: str) -> None:
    root = complete(name)
    check(root)
    assert errors(write(root)) == ""
    for parent in {outer.name for _, outer in walk(root) if outer.contents}:
        outers = [outer for _, outer in walk(root) if outer.name == parent]
        names = {inner.name for outer in outers for inner in outer.contents}
        assert names == set(CONTENTS[parent])


PRINTED = "expected text that XML can hold, which has no control characters"


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([element("Memory", 1)], "/Memory: is 1, expected a number"),
        (
            [element("Memory", 1.0), element("Memory", float("inf"))],
            "/Memory[2]: is Infinity, expected a number",
        ),
        (
            [element("NodeCount", True)],
            "/NodeCount: is true, expected an integer of 64 bits",
        ),
        ([element("Name", "\x07")], f'/Name: is "\\u0007", {PRINTED}'),
        ([element("Charge", 1.0, units=2)], f"/Charge: units is 2, {PRINTED}"),
        ([element("Colour", "red")], "/Colour: may not stand in Job"),
        (
            [element("Name", "n", colour="red")],
            "/Name: may not have an attribute colour",
        ),
        (
            [element("Name", "n", awarenessPolicy="Panic")],
            '/Name: awarenessPolicy is "Panic", expected one of Reject, Warn, Ignore',
        ),
        (
            [Element("Memory", 1.0, (("units", "GB"), ("units", "MB")))],
            "/Memory: has 2 attributes units, expected one",
        ),
        (
            [element("TaskGroup", " tg1")],
            '/TaskGroup: refers to " tg1", expected an id',
        ),
    ],
)
def test_an_element_that_no_document_could_have_is_refused(
    contents: list[Element], message: str
) -> None:
    root = element("Job", None, element("Id", "1"), *contents)
    for use in (check, write):
        with pytest.raises(ObjectError) as caught:
            use(root)
        assert str(caught.value) == f"/Job{message}"


@pytest.mark.parametrize("name", ["Requested", ""])
def test_nothing_but_a_job_or_a_group_is_checked(name: str) -> None:
    with pytest.raises(ObjectError) as caught:
        check(element(name))
    assert str(caught.value) == f"/{name}: expected Job or JobGroup here"


def test_a_document_has_nothing_that_turns_the_order_of_letters() -> None:
    marks = "\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\x9b"
    root = element("Job", None, element("Id", "1"), element("Name", marks))
    text = write(root)
    assert text.replace("\n", "").isprintable() and read(text) == root
