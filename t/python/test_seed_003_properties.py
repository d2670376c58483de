# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Seed 003, section 5.1: each property of jobs, in the order of the seed."""

from __future__ import annotations

from collections import Counter

import pytest

from sssjob import ObjectError, check, element, read, write
from sssjob.schema.properties import DELIVERED, JOB_PROPERTIES, REQUESTED
from sssjob.schema.values import Datatype
from support.seed_003 import Row, job, refused, row_of, rows

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


def test_tables_2_to_4_and_the_structured_properties_are_all_that_a_job_has() -> None:
    expected = rows(TABLE_2 + TABLE_3 + TABLE_4 + STRUCTURED + BEFORE)
    found = [row_of(rule) for rule in JOB_PROPERTIES if rule.name != "Environment"]
    assert Counter(found) == Counter(expected)
    assert {rule.name for rule in JOB_PROPERTIES if rule.many} == MANY


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


def test_feature_is_as_its_section_says() -> None:
    found = read(job('<Feature aggregation="List" delimiter=";">a;b</Feature>'))
    assert found.find("Feature") is not None
    check(read(job('<Feature aggregation="Pattern">a|b</Feature>')))
    refused(
        '<Feature aggregation="Range">a[1-2]</Feature>', "expected one of List, Pat"
    )
    refused('<Feature delimiter=";">a</Feature>', "delimiter is for aggregation List")


@pytest.mark.parametrize("name", ["OutputFile", "ErrorFile"])
def test_output_and_error_files_have_a_list_of_redirections(name: str) -> None:
    text = f'<{name} redirectList="Append, Close,Flush,Keep,Merge">f</{name}>'
    found = read(job(text)).find(name)
    assert found is not None
    assert found.attribute("redirectList") == "Append, Close,Flush,Keep,Merge"
    refused(f'<{name} redirectList="Append,Rename"/>', 'redirectList is "Rename", ')


def test_an_input_file_can_only_be_closed() -> None:
    check(read(job('<InputFile redirectList="Close"/>')))
    refused('<InputFile redirectList="Append"/>', "expected one of Close")


def test_the_order_of_files_is_kept_as_their_effect_may_depend_on_it() -> None:
    output, error = "<OutputFile>o</OutputFile>", '<ErrorFile redirectList="Merge"/>'
    one, other = read(job(output + error)), read(job(error + output))
    assert one != other
    assert read(write(one)) == one and read(write(other)) == other


def test_notification_list_is_as_its_section_says() -> None:
    check(read(job("<NotificationList>JobStart, JobEnd,All,None</NotificationList>")))
    refused("<NotificationList>JobStart,JobPause</NotificationList>", 'is "JobPause", ')


def test_resource_limit_is_as_its_section_says() -> None:
    for of_type in ("", ' type="Hard"', ' type="Soft"'):
        check(read(job(f'<ResourceLimit name="CPUTime"{of_type}>1</ResourceLimit>')))
    refused("<ResourceLimit>1</ResourceLimit>", "has no attribute name")
    refused('<ResourceLimit name="x" type="Firm">1</ResourceLimit>', 'type is "Firm"')


def test_environment_is_as_its_section_says() -> None:
    text = '<Environment export="True"><Variable name="A">a</Variable></Environment>'
    found = read(job(text)).find("Environment")
    assert found == element(
        "Environment", None, element("Variable", "a", name="A"), export=True
    )
    check(read(job("<Environment/>")))
    refused("<Environment/><Environment/>", "has 2 Environment, expected one at most")
    refused("<Environment><Variable>a</Variable></Environment>", "no attribute name")


def test_node_is_as_its_section_says() -> None:
    check(read(job('<Node aggregation="Range" count="3">n[5-23,77]</Node>')))
    check(read(job('<Node aggregation="List" delimiter=" ">a b</Node>')))
    refused('<Node count="few">a</Node>', 'count is "few", expected an integer')


def test_task_distribution_is_as_its_section_says() -> None:
    check(read(job('<TaskDistribution type="ProcessorsPerTask">2</TaskDistribution>')))
    check(read(job("<TaskDistribution>2</TaskDistribution>")))
    refused('<TaskDistribution type="Luck">2</TaskDistribution>', 'type is "Luck"')


def test_dependency_is_as_its_section_says() -> None:
    for condition in ("OnSuccess", "OnFailure", "OnExit"):
        check(read(job(f'<Dependency condition="{condition}">j</Dependency>')))
    check(read(job('<Dependency condition="OnExit" code="3">j</Dependency>')))
    check(read(job('<Dependency designator="JobName">j</Dependency>')))
    refused('<Dependency code="3">j</Dependency>', "code is for condition OnExit only")


def test_consumable_resources_have_six_attributes() -> None:
    attributes = (
        'context="Dedicated" units="GB" metric="Average" duration="10" '
        'consumptionRate="0.5" dynamic="true"'
    )
    for name, *_ in [*rows(TABLE_4), ("Resource",)]:
        named = ' name="n"' if name == "Resource" else ""
        found = read(job(f"<{name}{named} {attributes}>1</{name}>")).find(name)
        assert found is not None
        assert found.attribute("duration") == 10
        assert found.attribute("consumptionRate") == 0.5
        assert found.attribute("dynamic") is True
    refused('<Memory context="Spare">1</Memory>', "expected one of Configured, Avail")
    refused('<Disk dynamic="maybe">1</Disk>', "expected true or false")


def test_resource_must_have_a_name() -> None:
    refused("<Resource>1</Resource>", "has no attribute name")


def test_extension_must_have_a_name() -> None:
    refused("<Extension>1</Extension>", "has no attribute name")
    check(read(job('<Extension name="n">anything &lt;at all&gt;</Extension>')))
