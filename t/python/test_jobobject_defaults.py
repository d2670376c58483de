# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""JobDefaults, TaskGroupDefaults and TaskDefaults, written out (sections 5 to 7)."""

from __future__ import annotations

from collections import Counter
from typing import Iterator

import pytest
from hypothesis import given

from sssjob import Element, check, effective, element, read, walk
from sssjob.schema.defaults import walk_with_policy
from sssjob.schema.properties import JOB_DEFAULTS, JOB_PROPERTIES, Rule
from support.jobobjects import complete, objects
from support.submissions import requested
from support.tables import rows

DEFAULTS = ("JobDefaults", "TaskGroupDefaults", "TaskDefaults")


def merged(own: str, defaults: str, group: str = "", job: str = "") -> Element:
    """A job, with the defaults of its group written out.

    Args:
        group: attributes of the JobDefaults.
        job: attributes of the Job.
    """
    text = (
        f"<JobGroup><Id>g</Id><JobDefaults{group}>{defaults}</JobDefaults>"
        f"<Job{job}><Id>1</Id>{own}</Job></JobGroup>"
    )
    (found,) = effective(read(text)).all("Job")
    return found


def job(contents: str, attributes: str = "") -> Element:
    return read(f"<Job{attributes}><Id>1</Id>{contents}</Job>")


# By name


def one_of_each() -> Iterator[tuple[Rule, Element]]:
    """The properties, each with an element that a JobDefaults may have."""
    (defaults,) = complete("JobGroup").all(JOB_DEFAULTS)
    for rule in JOB_PROPERTIES:
        found = defaults.find(rule.name)
        assert found is not None
        yield rule, found


@pytest.mark.parametrize(
    ("rule", "inner"), list(one_of_each()), ids=lambda each: each.name
)
def test_each_property_is_taken_from_the_defaults_unless_the_job_has_it(
    rule: Rule, inner: Element
) -> None:
    times = 2 if rule.many else 1
    defaults = element("JobDefaults", None, *[inner] * times)
    own = element("Job", None, element("Id", "1"))
    group = element("JobGroup", None, element("Id", "g"), defaults, own)
    (found,) = effective(group).all("Job")
    if rule.name in ("Id", "GlobalId"):
        assert found == own
        return
    assert list(found.all(rule.name)) == [inner] * times
    names = tuple(each for each in inner.attributes if each[0] in ("name", "type"))
    mine = Element(rule.name, inner.value, names)
    own = element("Job", None, element("Id", "1"), mine)
    group = element("JobGroup", None, element("Id", "g"), defaults, own)
    (found,) = effective(group).all("Job")
    assert found == own


# Own, defaults, and what the job has with them.

MERGED = r"""
<Hold>a</Hold> -> <Hold>b</Hold><Hold>c</Hold><Name>n</Name>
  -> <Hold>a</Hold><Name>n</Name>
# Resources, limits and Extensions go by their names and types.
<Resource name='GPU'>1</Resource><Resource name='Storage' type='xfs'>1</Resource>
  -> <Resource name='GPU' type='fast'>2</Resource><Resource name='GPU'>2</Resource>
  <Resource name='Storage' type='xfs'>2</Resource>
  <Resource name='Storage' type='lustre'>2</Resource>
  -> <Resource name='GPU'>1</Resource><Resource name='Storage' type='xfs'>1</Resource>
  <Resource name='GPU' type='fast'>2</Resource>
  <Resource name='Storage' type='lustre'>2</Resource>
<ResourceLimit name='CPUTime' type='Soft'>1</ResourceLimit>
  <Extension name='A' type='Flux'>1</Extension>
  -> <ResourceLimit name='CPUTime'>2</ResourceLimit>
  <ResourceLimit name='CPUTime' type='Soft'>2</ResourceLimit>
  <ResourceLimit name='OpenFiles'>2</ResourceLimit>
  <Extension name='A' type='Flux'>2</Extension>
  <Extension name='A' type='Other'>2</Extension>
  <Extension name='B' type='Flux'>2</Extension>
  -> <ResourceLimit name='CPUTime' type='Soft'>1</ResourceLimit>
  <ResourceLimit name='CPUTime'>2</ResourceLimit>
  <ResourceLimit name='OpenFiles'>2</ResourceLimit>
  <Extension name='A' type='Flux'>1</Extension>
  <Extension name='A' type='Other'>2</Extension>
  <Extension name='B' type='Flux'>2</Extension>
# An Environment is one property.
<Environment><Variable name='A'>1</Variable></Environment>
  -> <Environment><Variable name='B'>2</Variable></Environment>
  -> <Environment><Variable name='A'>1</Variable></Environment>
# An id is not taken from the defaults.
<TaskGroup><Name>n</Name></TaskGroup>
  -> <Id>0</Id><GlobalId>0</GlobalId><Name>n</Name>
  <TaskGroupDefaults><Id>0</Id></TaskGroupDefaults>
  -> <Name>n</Name><TaskGroup><Name>n</Name></TaskGroup>
# References stay unchanged.
<TaskGroup>t</TaskGroup> -> <TaskGroupDefaults><User>u</User></TaskGroupDefaults>
  -> <TaskGroup>t</TaskGroup>
# Plain and requested properties override each other, in an envelope by name, but
# delivered ones only each other.
<Memory>1</Memory> -> <Memory>2</Memory> -> <Memory>1</Memory>
<Memory>1</Memory> -> <Requested><Memory>2</Memory></Requested> -> <Memory>1</Memory>
<Requested><Memory>1</Memory></Requested> -> <Memory>2</Memory>
  -> <Requested><Memory>1</Memory></Requested>
<Requested><Memory>1</Memory></Requested> -> <Requested><Memory>2</Memory></Requested>
  -> <Requested><Memory>1</Memory></Requested>
<Requested><Memory>1</Memory></Requested><Delivered><Memory>1</Memory></Delivered>
  -> <Requested><Memory>2</Memory><User>u</User><Memory>3</Memory></Requested>
  <Delivered><Memory>2</Memory><Node>n</Node></Delivered>
  -> <Requested><Memory>1</Memory><User>u</User></Requested>
  <Delivered><Memory>1</Memory><Node>n</Node></Delivered>
<Memory>1</Memory> -> <Delivered><Memory>2</Memory></Delivered>
  -> <Memory>1</Memory><Delivered><Memory>2</Memory></Delivered>
<Delivered><Memory>2</Memory></Delivered> -> <Memory>1</Memory>
  -> <Memory>1</Memory><Delivered><Memory>2</Memory></Delivered>
# An expression that is not touched stays what it is.
<Queue>q</Queue> -> <Requested><Queue>r</Queue><User group='1'>u</User>
  <Account group='-1'>a</Account><User conj='Or'>v</User></Requested>
  -> <Queue>q</Queue><Requested><User group='1'>u</User>
  <Account group='-1'>a</Account><User conj='Or'>v</User></Requested>
# Expressions that are put together get brackets, where they have none and need some.
<Requested><Feature>a</Feature><Feature conj='Or'>b</Feature></Requested>
  -> <Requested><Node>n</Node><Node conj='Nor'>m</Node></Requested>
  -> <Requested>
  <Feature group='1'>a</Feature><Feature conj='Or' group='-1'>b</Feature>
  <Node group='1'>n</Node><Node conj='Nor' group='-1'>m</Node></Requested>
<Requested><Feature group='1'>a</Feature>
  <Feature conj='Or' group='-1'>b</Feature></Requested>
  -> <Requested><Memory>1</Memory></Requested>
  -> <Requested><Feature group='1'>a</Feature>
  <Feature conj='Or' group='-1'>b</Feature><Memory>1</Memory></Requested>
<Requested><User>u</User><User conj='Or' group='1'>v</User>
  <Queue group='-1'>q</Queue></Requested>
  -> <Requested><Memory>1</Memory></Requested>
  -> <Requested><User group='1'>u</User><User conj='Or' group='1'>v</User>
  <Queue group='-2'>q</Queue><Memory>1</Memory></Requested>
# An alternative to nothing does not become one to something.
<Requested><User>u</User></Requested>
  -> <Requested><Memory conj='Or'>1</Memory></Requested>
  -> <Requested><Memory conj='Or'>1</Memory><User>u</User></Requested>
<Requested><Memory conj='Nor'>1</Memory></Requested>
  -> <Requested><User>u</User></Requested>
  -> <Requested><Memory conj='Nor'>1</Memory><User>u</User></Requested>
-> <Requested><Memory conj='Or'>1</Memory></Requested>
  -> <Requested><Memory conj='Or'>1</Memory></Requested>
# Defaults have defaults.
<TaskGroupDefaults><Name>b</Name></TaskGroupDefaults>
  <TaskGroup><TaskCount>1</TaskCount></TaskGroup>
  <TaskGroup><TaskCount>2</TaskCount><Shell>c</Shell></TaskGroup>
  -> <TaskGroupDefaults><Name>a</Name><Shell>a</Shell></TaskGroupDefaults>
  -> <TaskGroup><Name>b</Name><TaskCount>1</TaskCount><Shell>a</Shell></TaskGroup>
  <TaskGroup><Name>b</Name><TaskCount>2</TaskCount><Shell>c</Shell></TaskGroup>
# Task groups are taken together, and get the defaults of the job.
<TaskGroupDefaults><Shell>s</Shell></TaskGroupDefaults>
  -> <TaskGroup><Name>a</Name></TaskGroup><TaskGroup><Name>b</Name></TaskGroup>
  -> <TaskGroup><Name>a</Name><Shell>s</Shell></TaskGroup>
  <TaskGroup><Name>b</Name><Shell>s</Shell></TaskGroup>
<TaskGroup><Name>c</Name></TaskGroup>
  -> <TaskGroup><Name>a</Name></TaskGroup><TaskGroup><Name>b</Name></TaskGroup>
  -> <TaskGroup><Name>c</Name></TaskGroup>
# An implicit task group exists when it has defaults, but for an id.
-> <TaskGroupDefaults><TaskDefaults><Shell>s</Shell></TaskDefaults></TaskGroupDefaults>
  -> <TaskGroup><Task><Shell>s</Shell></Task></TaskGroup>
<TaskGroupDefaults><Id>0</Id></TaskGroupDefaults> -> <Name>n</Name> -> <Name>n</Name>
<TaskGroupDefaults><TaskDefaults><Id>0</Id></TaskDefaults></TaskGroupDefaults>
  -> <Name>n</Name> -> <Name>n</Name>
<TaskGroup><TaskDefaults><Id>0</Id></TaskDefaults></TaskGroup>
  -> <Name>n</Name> -> <Name>n</Name>
"""


@pytest.mark.parametrize(("own", "defaults", "expected"), rows(MERGED, 3))
def test_a_job_has_what_its_defaults_have_and_it_has_not(
    own: str, defaults: str, expected: str
) -> None:
    assert merged(own, defaults) == job(expected)


# Own, the expression of the defaults, and what is left of it. What is overridden takes
# with it what is in the same brackets, also where these are the wrong way round, as in
# the elaborate example; what is related with Or and Nor goes as well, but not with And
# and Nand. What is of one name is one expression.

EXPRESSIONS = r"""
<Account>x</Account> -> <User group='1'>u</User><Account group='-1'>a</Account>
  <User conj='Or' group='1'>v</User><Account group='-1'>b</Account><Memory>1</Memory>
  -> <Memory>1</Memory>
<User>x</User> -> <Memory>1</Memory><User group='1'>u</User>
  <Account group='-1'>a</Account><User conj='Or' group='1'>v</User>
  <Account group='-1'>b</Account> -> <Memory>1</Memory>
<Queue>q</Queue> -> <User group='2'>u</User><Queue group='-1'>r</Queue>
  <Machine group='-1'>m</Machine><Memory>1</Memory> -> <Memory>1</Memory>
<Queue>q</Queue> -> <User group='-1'>u</User><Queue group='1'>r</Queue>
  <Memory>1</Memory> -> <Memory>1</Memory>
<Queue>q</Queue> -> <Memory>1</Memory><Queue conj='Or'>r</Queue><User>u</User>
  -> <User>u</User>
<Queue>q</Queue> -> <Queue>r</Queue><Memory conj='Nor'>1</Memory><User>u</User>
  -> <User>u</User>
<Queue>q</Queue> -> <Queue>r</Queue><Memory conj='Nand'>1</Memory>
  <User conj='And'>u</User> -> <Memory conj='Nand'>1</Memory><User conj='And'>u</User>
<Queue>q</Queue> -> <Memory>1</Memory><User>u</User><Queue>r</Queue>
  <Memory conj='Or'>2</Memory> -> <User>u</User>
"""


@pytest.mark.parametrize(("own", "defaults", "left"), rows(EXPRESSIONS, 3))
def test_expressions_are_overridden_as_a_whole(
    own: str, defaults: str, left: str
) -> None:
    assert merged(own, requested(defaults)) == job(own + requested(left))
    assert merged(requested(own), requested(defaults)) == job(requested(own + left))


# Policies


def facts(root: Element) -> Counter[tuple[object, ...]]:
    """Everything that is no container, with its policy."""
    return Counter(
        (inner.name, inner.value, policy)
        for _, inner, policy in walk_with_policy(root)
        if inner.value is not None
    )


# Whatever the object


@given(objects())
def test_the_result_is_valid_and_has_no_defaults(root: Element) -> None:
    found = effective(root)
    check(found)
    assert not any(inner.name in DEFAULTS for _, inner in walk(found))
    assert effective(found) == found
    # Nothing is made up, and no policy changes.
    assert set(facts(found)) <= set(facts(root))
    if not any(inner.name in DEFAULTS for _, inner in walk(root)):
        assert found == root
