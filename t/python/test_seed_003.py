# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Seed 003, the SSS job object 3.1.0, section by section. Section 5.1 has a file
of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

import pytest
from lxml import etree

from sssjob import ObjectError, check, effective, read, walk, write
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
from support.seed_003 import INLINE, job, refused, row_of, rows

Shape = tuple[object, ...]


def shape(found: etree._Element) -> Shape:
    """What a document says, however its elements and attributes are ordered."""
    inner = [shape(child) for child in found if isinstance(child.tag, str)]
    text = "".join(found.itertext()).strip() if not inner else ""
    return found.tag, text, sorted(found.items()), sorted(inner, key=repr)


# 1.3 Examples


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_can_be_read_and_lose_nothing(path: Path) -> None:
    text = path.read_bytes()
    canonical = write(read(text))
    assert write(read(canonical)) == canonical
    written, seed = etree.fromstring(canonical.encode()), etree.fromstring(text)
    assert shape(written) == shape(seed)


@pytest.mark.parametrize("text", INLINE.values(), ids=INLINE)
def test_the_examples_in_the_text_can_be_read_and_lose_nothing(text: str) -> None:
    canonical = write(read(job(text)))
    assert write(read(canonical)) == canonical
    written = etree.fromstring(canonical.encode())
    assert shape(written) == shape(etree.fromstring(job(text)))


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


# 3.0 The Job Model


def test_a_job_without_task_group_has_an_implicit_one() -> None:
    found = effective(
        read(
            job(
                "<TaskGroupDefaults><TaskCount>4</TaskCount><TaskDefaults>"
                "<Executable>a</Executable></TaskDefaults></TaskGroupDefaults>"
            )
        )
    )
    assert [path for path, _ in walk(found)] == [
        "/Job",
        "/Job/Id",
        "/Job/TaskGroup",
        "/Job/TaskGroup/TaskCount",
        "/Job/TaskGroup/Task",
        "/Job/TaskGroup/Task/Executable",
    ]


# 4.0 JobGroup Element


def test_a_job_group_has_properties_jobs_and_defaults_once_at_most() -> None:
    group = "<JobGroup><Id>g</Id>{}</JobGroup>"
    defaults = "<JobDefaults><User>u</User></JobDefaults>"
    check(read(group.format(job())))
    check(read(group.format(job() + defaults + job())))
    with pytest.raises(ObjectError, match="/JobGroup: has no Job, which it must have"):
        read(group.format(""))
    with pytest.raises(ObjectError, match="/JobGroup: has no Id"):
        read(f"<JobGroup>{job()}</JobGroup>")
    with pytest.raises(ObjectError, match="has 2 JobDefaults, expected one at most"):
        read(group.format(job() + defaults + defaults))


def test_a_job_group_has_the_properties_of_table_1() -> None:
    assert sorted(map(row_of, GROUP_PROPERTIES)) == rows(
        """
        CreationTime DateTime MAY
        Description  String   MAY
        Id           String   MUST
        Name         String   MAY
        State        String   MAY
        """
    )
    assert not any(rule.many for rule in GROUP_PROPERTIES)


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


# 5.0 Job and JobDefaults Element


def test_a_job_may_stand_alone_and_job_defaults_only_in_a_job_group() -> None:
    check(read(job()))
    with pytest.raises(ObjectError, match="expected Job or JobGroup here"):
        read("<JobDefaults><User>u</User></JobDefaults>")
    refused("<JobDefaults><User>u</User></JobDefaults>", "/Job/JobDefaults: is not")


def test_a_job_has_many_task_groups_and_their_defaults_once_at_most() -> None:
    group, defaults = "<TaskGroup>g</TaskGroup>", "<TaskGroupDefaults>{}"
    defaults = defaults.format("<Name>n</Name></TaskGroupDefaults>")
    check(read(job(group + defaults + group)))
    refused(defaults * 2, "has 2 TaskGroupDefaults, expected one at most")


def test_job_properties_override_those_of_the_job_defaults() -> None:
    group = read(
        "<JobGroup><Id>g</Id><JobDefaults><User>a</User><Queue>q</Queue></JobDefaults>"
        "<Job><Id>1</Id><User>b</User></Job></JobGroup>"
    )
    (found,) = effective(group).all("Job")
    assert (found.text("User"), found.text("Queue")) == ("b", "q")


# 6.0 TaskGroup and TaskGroupDefaults Element, 7.0 Task and TaskDefaults Element


def test_a_task_group_has_the_properties_of_table_6() -> None:
    assert sorted(map(row_of, TASK_GROUP_PROPERTIES)) == sorted(
        rows("TaskCount Integer MAY\nId String MAY\nName String MAY")
    )


def test_a_task_has_the_properties_of_table_7() -> None:
    # And the process id of which section 7 and the elaborate example tell.
    assert sorted(map(row_of, TASK_PROPERTIES)) == sorted(
        rows("Node String MAY\nSession Integer MAY\nId String MAY\nProcess Integer MAY")
    )


@pytest.mark.parametrize(
    "name", ["TaskGroup", "TaskGroupDefaults", "Task", "TaskDefaults", "JobDefaults"]
)
def test_task_groups_tasks_and_defaults_have_all_properties_of_jobs(name: str) -> None:
    rules = CONTENTS[name]
    for rule in JOB_PROPERTIES:
        assert rule.name in rules and not rules[rule.name].required
    assert REQUESTED in rules and DELIVERED in rules


def test_a_task_group_has_tasks_and_their_defaults_once_at_most() -> None:
    text = "<TaskGroup><Task>1</Task><TaskDefaults>{}<Node>n</Node></TaskDefaults>{}"
    check(read(job(text.format("", "<Task>2</Task></TaskGroup>"))))
    defaults = "<TaskDefaults><Node>n</Node></TaskDefaults>"
    refused(
        f"<TaskGroup>{defaults}{defaults}</TaskGroup>",
        "/Job/TaskGroup: has 2 TaskDefaults, expected one at most",
    )
    refused("<TaskGroup/>", "/Job/TaskGroup: is empty")


def test_properties_of_tasks_override_their_defaults_at_each_level() -> None:
    found = effective(
        read(
            job(
                "<TaskGroupDefaults><Name>group</Name><TaskDefaults><Node>a</Node>"
                "<Session>1</Session></TaskDefaults></TaskGroupDefaults>"
                "<TaskGroup><TaskCount>2</TaskCount><TaskDefaults><Session>2</Session>"
                "</TaskDefaults><Task><Process>7</Process></Task></TaskGroup>"
            )
        )
    )
    assert found == read(
        job(
            "<TaskGroup><Name>group</Name><TaskCount>2</TaskCount>"
            "<Task><Node>a</Node><Session>2</Session><Process>7</Process></Task>"
            "</TaskGroup>"
        )
    )


# 8.0 Property Categories


def enveloped(category: str) -> Iterator[Rule]:
    return (rule for rule in CONTENTS[category].values())


def test_requested_properties_have_five_more_attributes() -> None:
    attributes = 'op="GE" conj="Nor" group="-2" preference="-1" performanceFactor="0.5"'
    for rule in enveloped(REQUESTED):
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
    for rule in enveloped(DELIVERED):
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


# 9.0 AwarenessPolicy Attribute


def test_elements_that_are_not_understood_are_rejected_by_default() -> None:
    refused("<Colour>red</Colour>", "line 1: /Job/Colour: is not understood")
    refused('<State colour="red">Idle</State>', "no attribute colour")
    refused('<Memory context="Spare">1</Memory>', 'context is "Spare", which is not')


def test_each_element_may_have_a_policy() -> None:
    warnings: list[str] = []
    text = (
        '<Job awarenessPolicy="Ignore"><Id>1</Id><Colour/>'
        '<Requested awarenessPolicy="Warn"><Colour/><Memory>1</Memory></Requested>'
        '<Shade awarenessPolicy="{}"/></Job>'
    )
    found = read(text.format("Ignore"), warnings.append)
    assert [inner.name for inner in found.contents] == ["Id", "Requested"]
    assert len(warnings) == 1 and "/Job/Requested/Colour" in warnings[0]
    with pytest.raises(ObjectError, match="/Job/Shade: is not understood"):
        read(text.format("Reject"), warnings.append)


# Appendix A


def test_units_of_measure_are_those_of_the_seed() -> None:
    initials = ["B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB", "NB", "DB"]
    assert UNITS == {unit: 2 ** (10 * n) for n, unit in enumerate(initials)}
    assert in_bytes(1.5, "KB") == 1536
    with pytest.raises(ValueError, match="expected one of B, KB"):
        in_bytes(1, "KiB")
