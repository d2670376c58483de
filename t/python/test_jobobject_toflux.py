# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is submitted for job objects: the examples of the specification, what becomes of
each element, and groups.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sssjob import Element, effective, element, read, walk
from sssjob.schema.properties import CONTENTS, JOB, REQUESTED, Rule
from sssjob.schema.values import Datatype
from sssjob.to_jobspec.attributes import Submitter
from sssjob.to_jobspec.convert import to_jobspecs
from sssjob.to_jobspec.handling import HANDLING, Kind
from sssjob.to_jobspec.requests import ObjectErrors
from support.jobobjects import DATA, objects
from support.submissions import APP, job, refused, submit, submitted
from support.tables import rows

# The examples of section 1.3


def example(name: str, policy: str = "") -> str:
    text = (DATA / f"{name}.xml").read_text()
    at = text.index("<Job") + len("<JobGroup" if "<JobGroup" in text else "<Job")
    return f"{text[:at]}{policy and f' awarenessPolicy={policy!r}'}{text[at:]}"


def test_the_very_simple_example_is_a_job() -> None:
    found = submitted(example("very-simple"))
    assert (found.id, found.held) == ("PBS.1234.0", False)
    assert found.jobspec == submit("-n16 -t 1h -- /bin/hostname")


def test_the_moderate_example_is_a_job_where_what_flux_cannot_express_is_left_out() -> (
    None
):
    lines = refused(example("moderate"))
    assert [line.partition(":")[0] for line in lines] == rows(
        """
/Job/Application
/Job/QualityOfService
/Job/Requested/Memory
/Job/Machine
/Job/Requested/Processors
""",
        1,
    )
    warnings: list[str] = []
    (found,) = to_jobspecs(read(example("moderate", "Warn")), warnings.append)
    assert len(warnings) == 5
    assert found.jobspec == submit(
        "-n12 -t 1h --cwd=/home/peterk --job-name='Heavy Water' -S project=nwchemdev"
        """ -q batch_normal -S environment='{"PATH": "/usr/bin:/home/peterk"}'"""
        " -- /usr/local/nwchem/bin/nwchem -input basis.in"
    )


def test_the_elaborate_example_is_two_jobs_with_what_they_have_by_default() -> None:
    lines = refused(example("elaborate"))
    assert len(lines) == 8
    problem = "/JobGroup/Job[2]/TaskGroup[2]: a job has one kind of tasks"
    assert any(line.startswith(problem) for line in lines)
    first, second = to_jobspecs(read(example("elaborate", "Ignore")), pytest.fail)
    assert [first.held, second.held] == [False, True]
    one, other = (each.jobspec["attributes"]["system"] for each in (first, second))
    for system in (one, other):
        assert system["project"] == "GrandChallenge18"
        assert system["environment"]["LD_LIBRARY_PATH"] == "/usr/lib"
    assert first.jobspec["resources"] == submit("-N2 -n2")["resources"]
    assert one["shell"] == {"options": {"per-resource": {"type": "node", "count": 1}}}
    # Of its two task groups, one can be a job. It has a name of its own.
    assert second.jobspec["tasks"][0]["command"] == ["/usr/local/bin/stage-coordinator"]
    assert other["constraints"] == {"properties": ["Jumbo-Frame"]}
    assert other["job"]["name"] == "3-Phase Ascension"


# The handling of each element


def rules_of(kind: Kind, parent: str = JOB) -> list[Rule]:
    rules = CONTENTS[parent].values()
    return [rule for rule in rules if HANDLING[parent][rule.name].kind is kind]


def holder(rule: Rule, parent: str, inner: Element, policy: str) -> Element:
    """A job that asks for one thing more than to run something."""
    outer = inner if parent == JOB else element(parent, None, inner)
    contents = [element("Id", "1"), element("Executable", "app")]
    if outer.name in ("Id", "Executable"):
        contents = [c for c in contents if c.name != outer.name]
    return element("Job", None, *contents, outer, awarenessPolicy=policy)


@given(objects(), st.sampled_from(["Reject", "Warn", "Ignore"]))
def test_any_object_is_submitted_or_refused_with_lines_that_name_elements(
    root: Element, policy: str
) -> None:
    if root.attribute("awarenessPolicy") is None:
        policy_attribute = ("awarenessPolicy", policy)
        root = replace(root, attributes=(*root.attributes, policy_attribute))
    paths = {path for path, _ in walk(effective(root))}
    lines: list[str] = []
    try:
        found = to_jobspecs(root, lines.append)
    except ObjectErrors as caught:
        assert all("\n" not in str(error) for error in caught.errors)
        assert {error.path for error in caught.errors} <= paths
    else:
        assert json.dumps([one.jobspec for one in found], allow_nan=False)
    assert {line.partition(": ")[0] for line in lines} <= paths
    assert all("\n" not in line for line in lines)


# An element of each name that is said to Flux, which says something.
SAYING = {
    inner.name: inner
    for inner in read(
        job(
            """
<State>Hold</State><Name>n</Name><Hold>User</Hold><Project>p</Project>
<Account>a</Account><User>somebody else</User><Executable>other</Executable>
<Arguments>-x</Arguments><InitialWorkingDirectory>/d</InitialWorkingDirectory>
<Shell>/bin/sh</Shell><Interactive>true</Interactive><Machine>elsewhere</Machine>
<Queue>q</Queue><ResourceManagerType>PBS</ResourceManagerType><NodeCount>2</NodeCount>
<Node aggregation="List">h1,h2</Node><Feature aggregation="List">f1,f2</Feature>
<Processors>6</Processors>
<Resource name="Storage" type="xfs" units="GB">6</Resource>
<EligibleTime>5</EligibleTime><Duration>60</Duration><InputFile>i</InputFile>
<OutputFile>o</OutputFile><ErrorFile>e</ErrorFile>
<NotificationList>All</NotificationList><ResourceLimit name="CPUTime">7</ResourceLimit>
<TaskDistribution type="TasksPerNode">2</TaskDistribution>
<Dependency>fuZZybuNNy</Dependency>
<Extension name="attributes.user.x" type="Flux">1</Extension>
<Environment export="false"><Variable name="V">v</Variable></Environment>
<Requested><Duration>60</Duration></Requested>
<TaskGroup><TaskCount>2</TaskCount></TaskGroup>
<TaskGroupDefaults><TaskCount>2</TaskCount></TaskGroupDefaults>
"""
        )
    ).contents
    if inner.name != "Id"
}
ME = Submitter(users=("me",), machine="here", environment={"EXPORTED": "e"})
# What attributes ask for that Flux does anyway.
AS_IS = {
    ("op", "EQ"),
    ("conj", "And"),
    ("context", "Available"),
    ("context", "Dedicated"),
    ("condition", "OnSuccess"),
    ("designator", "JobId"),
}
# A capacity is the least that is made, a time limit the most, and limits are soft.
AS_IT_IS_TAKEN = {
    ("Resource", "op", "GE"),
    ("Duration", "op", "LE"),
    ("ResourceLimit", "type", "Soft"),
}


def outcome(parent: str, inner: Element) -> tuple[Any, ...]:
    """What becomes of a job that asks for this as well."""
    lines: list[str] = []
    root = holder(CONTENTS[parent][inner.name], parent, inner, "Warn")
    try:
        (found,) = to_jobspecs(root, lines.append, ME)
    except ObjectErrors as caught:
        return None, [*lines, str(caught)]
    return (found.jobspec, found.held), lines


@pytest.mark.parametrize("rule", rules_of(Kind.CONVERTED), ids=lambda rule: rule.name)
def test_each_supported_element_changes_the_jobspec(rule: Rule) -> None:
    assert outcome(JOB, SAYING[rule.name]) != outcome(JOB, element("Id", "1"))


def attributed(parent: str) -> list[tuple[str, str, Any]]:
    """All attributes of all elements that are said to Flux, with all values that
    the rules name, or one that they do not."""
    return [
        (rule.name, attribute.name, value)
        for rule in rules_of(Kind.CONVERTED, parent)
        for attribute in rule.attributes
        for value in attribute.choices or [sample(attribute.datatype)]
    ]


def sample(datatype: Datatype) -> Any:
    samples = {
        Datatype.STRING: "x",
        Datatype.INTEGER: 7,
        Datatype.DURATION: 7,
        Datatype.FLOAT: 7.5,
        Datatype.BOOLEAN: True,
    }
    return samples[datatype]


@pytest.mark.parametrize("parent", [JOB, REQUESTED])
def test_each_attribute_changes_the_jobspec_or_gets_a_warning(parent: str) -> None:
    silent = set()
    for name, attribute, value in attributed(parent):
        others = tuple(a for a in SAYING[name].attributes if a[0] != attribute)
        before = replace(SAYING[name], attributes=others)
        after = replace(SAYING[name], attributes=(*others, (attribute, value)))
        told = outcome(parent, after)
        if told == outcome(parent, before) and not told[1]:
            silent.add((name, attribute, value))
    assert {what for what in silent if what[1:] not in AS_IS} <= AS_IT_IS_TAKEN


# Several jobs


def group(*jobs: str) -> str:
    return f"<JobGroup><Id>g</Id>{''.join(jobs)}</JobGroup>"


def named(id: str, contents: str = "", name: str = "") -> str:
    name = f"<Name>{name}</Name>" if name else ""
    return f"<Job><Id>{id}</Id>{name}{APP}{contents}</Job>"


def after(*ids: str) -> str:
    return "".join(f"<Dependency>{id}</Dependency>" for id in ids)


def waits(jobspec: Any) -> list[tuple[str, str]]:
    dependencies = jobspec["attributes"]["system"].get("dependencies", [])
    return [(one["scheme"], one["value"]) for one in dependencies]


def test_jobs_come_after_those_that_they_depend_on() -> None:
    failing = '<Dependency condition="OnFailure">PBS.1</Dependency>'
    jobs = (named("a", failing), named("b", after("a", "c")), named("PBS.1", name="x"))
    found = to_jobspecs(read(group(*jobs, named("c"))), pytest.fail)
    assert [one.id for one in found] == ["PBS.1", "a", "c", "b"]
    assert [one.index for one in found] == [2, 0, 3, 1]
    assert waits(found[3].jobspec) == [("afterok", "a"), ("afterok", "c")]
    assert waits(found[1].resolved({"PBS.1": "f7"})) == [("afternotok", "f7")]
    assert waits(found[1].jobspec) == [("afternotok", "PBS.1")]


@pytest.mark.parametrize(
    "text",
    ["1", "1234", "0x1", "0.0.0.1", "0000.0000.0000.0001", "f12", "first", "f1zzzzz"],
)
def test_the_id_of_a_job_elsewhere_is_not_taken_for_one_of_flux(text: str) -> None:
    assert refused(job(after(text), id="me")) == [
        f'/Job/Dependency: "{text}" is neither the Id of a job of the group nor an ID'
        " of Flux, like \u019226cdPmUM"
    ]


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [
        # 10 is no other way to write it.
        (
            [named("10"), named("last", after("0xa"))],
            'Job[2]/Dependency: "0xa" is neither the Id of a job of the group nor an ID'
            " of Flux, like \u019226cdPmUM",
        ),
        (
            [named("a", '<Dependency designator="JobName">c</Dependency>'), named("c")],
            'Job[1]/Dependency: no job of the group has the Name "c"',
        ),
        (
            [named("a"), named("b"), named("a")],
            'Job[3]: has the Id of /JobGroup/Job[1], "a"',
        ),
        (
            [
                *(named("first"), named("a", after("b"))),
                *(named("b", after("c")), named("c", after("b"))),
            ],
            'Job[3]: waits for itself: "b" for "c" for "b"',
        ),
        ([named("a", after("a"))], 'Job: waits for itself: "a" for "a"'),
        (
            [named("a"), "<Job>elsewhere</Job>"],
            "Job[2]: refers to a job that is not here",
        ),
        (
            [named("a", "<TaskGroup>elsewhere</TaskGroup>")],
            "Job/TaskGroup: refers to a task group that is not here",
        ),
    ],
)
def test_a_group_that_cannot_be_put_in_order_is_refused(
    jobs: list[str], problem: str
) -> None:
    assert refused(group(*jobs)) == [f"/JobGroup/{problem}"]
