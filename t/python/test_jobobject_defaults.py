# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""JobDefaults, TaskGroupDefaults and TaskDefaults, written out (sections 5 to 7)."""

from __future__ import annotations

from collections import Counter
from typing import Iterator, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sssjob import Element, check, effective, element, read, walk
from sssjob.schema.defaults import walk_with_policy
from sssjob.schema.properties import JOB_DEFAULTS, JOB_PROPERTIES, Rule
from support.jobobjects import complete, objects
from support.submissions import requested

DEFAULTS = ("JobDefaults", "TaskGroupDefaults", "TaskDefaults")
POLICIES = ["Reject", "Warn", "Ignore"]


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


def test_all_elements_of_a_name_go_together() -> None:
    found = merged("<Hold>a</Hold>", "<Hold>b</Hold><Hold>c</Hold><Name>n</Name>")
    assert found == job("<Hold>a</Hold><Name>n</Name>")


def test_resources_limits_and_extensions_go_by_their_names_and_types() -> None:
    found = merged(
        "<Resource name='GPU'>1</Resource>"
        "<Resource name='Storage' type='xfs'>1</Resource>"
        "<ResourceLimit name='CPUTime' type='Soft'>1</ResourceLimit>"
        "<Extension name='A' type='Flux'>1</Extension>",
        "<Resource name='GPU' type='fast'>2</Resource>"
        "<Resource name='GPU'>2</Resource>"
        "<Resource name='Storage' type='xfs'>2</Resource>"
        "<Resource name='Storage' type='lustre'>2</Resource>"
        "<ResourceLimit name='CPUTime'>2</ResourceLimit>"
        "<ResourceLimit name='CPUTime' type='Soft'>2</ResourceLimit>"
        "<ResourceLimit name='OpenFiles'>2</ResourceLimit>"
        "<Extension name='A' type='Flux'>2</Extension>"
        "<Extension name='A' type='Other'>2</Extension>"
        "<Extension name='B' type='Flux'>2</Extension>",
    )
    assert found == job(
        "<Resource name='GPU'>1</Resource>"
        "<Resource name='Storage' type='xfs'>1</Resource>"
        "<Resource name='GPU' type='fast'>2</Resource>"
        "<Resource name='Storage' type='lustre'>2</Resource>"
        "<ResourceLimit name='CPUTime' type='Soft'>1</ResourceLimit>"
        "<ResourceLimit name='CPUTime'>2</ResourceLimit>"
        "<ResourceLimit name='OpenFiles'>2</ResourceLimit>"
        "<Extension name='A' type='Flux'>1</Extension>"
        "<Extension name='A' type='Other'>2</Extension>"
        "<Extension name='B' type='Flux'>2</Extension>"
    )


def test_an_environment_is_one_property() -> None:
    variable = "<Environment><Variable name='{0}'>{0}</Variable></Environment>"
    found = merged(variable.format("A"), variable.format("B"))
    assert found == job(variable.format("A"))


def test_an_id_is_not_taken_from_the_defaults() -> None:
    found = merged(
        "<TaskGroup><Name>n</Name></TaskGroup>",
        "<Id>0</Id><GlobalId>0</GlobalId><Name>n</Name>"
        "<TaskGroupDefaults><Id>0</Id></TaskGroupDefaults>",
    )
    assert found == job("<Name>n</Name><TaskGroup><Name>n</Name></TaskGroup>")


def test_references_stay_unchanged_by_defaults() -> None:
    text = "<JobGroup><Id>g</Id>{}<Job>1</Job></JobGroup>"
    defaults = "<JobDefaults><User>u</User></JobDefaults>"
    assert effective(read(text.format(defaults))) == read(text.format(""))
    found = effective(
        job(
            "<TaskGroupDefaults><User>u</User></TaskGroupDefaults><TaskGroup>t</TaskGroup>"
        )
    )
    assert found == job("<TaskGroup>t</TaskGroup>")


# Requested and Delivered


@pytest.mark.parametrize("own", ["<Memory>1</Memory>", "R"])
@pytest.mark.parametrize("default", ["<Memory>2</Memory>", "R"])
def test_plain_and_requested_properties_override_each_other(
    own: str, default: str
) -> None:
    own = own.replace("R", "<Requested><Memory>1</Memory></Requested>")
    default = default.replace("R", "<Requested><Memory>2</Memory></Requested>")
    assert merged(own, default) == job(own)


def test_elements_in_an_envelope_override_by_name() -> None:
    found = merged(
        "<Requested><Memory>1</Memory></Requested>"
        "<Delivered><Memory>1</Memory></Delivered>",
        "<Requested><Memory>2</Memory><User>u</User><Memory>3</Memory></Requested>"
        "<Delivered><Memory>2</Memory><Node>n</Node></Delivered>",
    )
    assert found == job(
        "<Requested><Memory>1</Memory><User>u</User></Requested>"
        "<Delivered><Memory>1</Memory><Node>n</Node></Delivered>"
    )


def test_delivered_elements_are_overridden_only_by_delivered_ones() -> None:
    delivered = "<Delivered><Memory>2</Memory></Delivered>"
    plain = "<Memory>1</Memory>"
    assert merged(plain, delivered) == job(plain + delivered)
    assert merged(delivered, plain) == job(plain + delivered)


MEMORY = "<Memory>1</Memory>"
TWO_CREDENTIALS = (
    "<User group='1'>scottmo</User><Account group='-1'>mscfops</Account>"
    "<User conj='Or' group='1'>amy</User><Account group='-1'>chemistry</Account>"
)


@pytest.mark.parametrize(
    ("own", "defaults", "left"),
    [
        # What is overridden takes with it what is in the same brackets...
        ("<Account>x</Account>", TWO_CREDENTIALS + MEMORY, MEMORY),
        ("<User>x</User>", MEMORY + TWO_CREDENTIALS, MEMORY),
        (
            "<Queue>q</Queue>",
            "<User group='2'>u</User><Queue group='-1'>r</Queue>"
            f"<Machine group='-1'>m</Machine>{MEMORY}",
            MEMORY,
        ),
        # ... also where they are the wrong way round, as in the elaborate example.
        (
            "<Queue>q</Queue>",
            f"<User group='-1'>u</User><Queue group='1'>r</Queue>{MEMORY}",
            MEMORY,
        ),
        # What is related with Or and Nor goes as well, but not with And and Nand.
        (
            "<Queue>q</Queue>",
            f"{MEMORY}<Queue conj='Or'>r</Queue><User>u</User>",
            "<User>u</User>",
        ),
        (
            "<Queue>q</Queue>",
            "<Queue>r</Queue><Memory conj='Nor'>1</Memory><User>u</User>",
            "<User>u</User>",
        ),
        (
            "<Queue>q</Queue>",
            "<Queue>r</Queue><Memory conj='Nand'>1</Memory><User conj='And'>u</User>",
            "<Memory conj='Nand'>1</Memory><User conj='And'>u</User>",
        ),
        # What is of one name is one expression.
        (
            "<Queue>q</Queue>",
            f"{MEMORY}<User>u</User><Queue>r</Queue><Memory conj='Or'>2</Memory>",
            "<User>u</User>",
        ),
    ],
)
def test_expressions_are_overridden_as_a_whole(
    own: str, defaults: str, left: str
) -> None:
    assert merged(own, requested(defaults)) == job(own + requested(left))
    assert merged(requested(own), requested(defaults)) == job(requested(own + left))


def test_an_expression_that_is_not_touched_stays_what_it_is() -> None:
    defaults = requested(f"<Queue>r</Queue>{TWO_CREDENTIALS}")
    assert merged("<Queue>q</Queue>", defaults) == job(
        "<Queue>q</Queue>" + requested(TWO_CREDENTIALS)
    )


def test_expressions_that_are_put_together_get_brackets() -> None:
    features = "<Feature{}>a</Feature><Feature conj='Or'{}>b</Feature>"
    nodes = "<Node{}>n</Node><Node conj='Nor'{}>m</Node>"
    whole = (" group='1'", " group='-1'")
    found = merged(requested(features.format("", "")), requested(nodes.format("", "")))
    both = features.format(*whole) + nodes.format(*whole)
    assert found == job(requested(both))
    # And no more of them where they have some, or need none.
    again = merged(requested(features.format(*whole)), requested(MEMORY))
    assert again == job(requested(features.format(*whole) + MEMORY))
    inner = "<User{}>u</User><User conj='Or' group='1'>v</User><Queue{}>q</Queue>"
    nested = inner.format(" group='1'", " group='-2'") + MEMORY
    inner = inner.format("", " group='-1'")
    assert merged(requested(inner), requested(MEMORY)) == job(requested(nested))


@pytest.mark.parametrize("conj", ["Or", "Nor"])
def test_an_alternative_to_nothing_does_not_become_one_to_something(conj: str) -> None:
    alternative = requested(f"<Memory conj='{conj}'>1</Memory>")
    user = requested("<User>u</User>")
    first = requested(f"<Memory conj='{conj}'>1</Memory><User>u</User>")
    assert merged(user, alternative) == merged(alternative, user) == job(first)
    assert merged("", alternative) == job(alternative)


# Defaults of defaults, and what is implicit


def test_defaults_have_defaults() -> None:
    found = merged(
        "<TaskGroupDefaults><Name>b</Name></TaskGroupDefaults>"
        "<TaskGroup><TaskCount>1</TaskCount></TaskGroup>"
        "<TaskGroup><TaskCount>2</TaskCount><Shell>c</Shell></TaskGroup>",
        "<TaskGroupDefaults><Name>a</Name><Shell>a</Shell></TaskGroupDefaults>",
    )
    assert found == job(
        "<TaskGroup><Name>b</Name><TaskCount>1</TaskCount><Shell>a</Shell></TaskGroup>"
        "<TaskGroup><Name>b</Name><TaskCount>2</TaskCount><Shell>c</Shell></TaskGroup>"
    )


def test_task_groups_are_taken_together_and_get_the_defaults_of_the_job() -> None:
    groups = "<TaskGroup><Name>{}</Name></TaskGroup>"
    defaults = "<TaskGroupDefaults><Shell>s</Shell></TaskGroupDefaults>"
    found = merged(defaults, groups.format("a") + groups.format("b"))
    assert found == job(
        "<TaskGroup><Name>a</Name><Shell>s</Shell></TaskGroup>"
        "<TaskGroup><Name>b</Name><Shell>s</Shell></TaskGroup>"
    )
    own = groups.format("c")
    assert merged(own, groups.format("a") + groups.format("b")) == job(own)


def test_an_implicit_task_group_exists_when_it_has_defaults() -> None:
    found = merged(
        "",
        "<TaskGroupDefaults><TaskDefaults><Shell>s</Shell></TaskDefaults>"
        "</TaskGroupDefaults>",
    )
    assert found == job("<TaskGroup><Task><Shell>s</Shell></Task></TaskGroup>")


@pytest.mark.parametrize(
    "contents",
    [
        "<TaskGroupDefaults><Id>0</Id></TaskGroupDefaults>",
        "<TaskGroupDefaults><TaskDefaults><Id>0</Id></TaskDefaults></TaskGroupDefaults>",
        "<TaskGroup><TaskDefaults><Id>0</Id></TaskDefaults></TaskGroup>",
    ],
)
def test_defaults_with_only_an_id_are_left_out(contents: str) -> None:
    assert effective(job(contents)) == job("")


# Policies


@pytest.mark.parametrize("defaults", [None, *POLICIES])
@pytest.mark.parametrize("own", [None, *POLICIES])
def test_an_element_that_moves_keeps_its_policy(
    defaults: Optional[str], own: Optional[str]
) -> None:
    found = merged(
        "<Requested><User>u</User></Requested>",
        "<Name>n</Name><Shell awarenessPolicy='Ignore'>s</Shell>"
        "<Requested><Memory>1</Memory></Requested>"
        "<Delivered awarenessPolicy='Warn'><Memory>1</Memory></Delivered>"
        "<TaskGroup><Name>n</Name></TaskGroup>",
        f" awarenessPolicy='{defaults}'" if defaults else "",
        f" awarenessPolicy='{own}'" if own else "",
    )
    policies = {path: policy for path, _, policy in walk_with_policy(found)}
    theirs, ours = defaults or "Reject", own or "Reject"
    assert policies == {
        "/Job": ours,
        "/Job/Id": ours,
        "/Job/Name": theirs,
        "/Job/Shell": "Ignore",
        "/Job/Requested": ours,
        "/Job/Requested/User": ours,
        "/Job/Requested/Memory": theirs,
        "/Job/Delivered": ours,
        "/Job/Delivered/Memory": "Warn",
        "/Job/TaskGroup": theirs,
        "/Job/TaskGroup/Name": theirs,
    }


@pytest.mark.parametrize("defaults", POLICIES)
@pytest.mark.parametrize("own", POLICIES)
def test_an_element_from_defaults_of_defaults_keeps_its_policy(
    defaults: str, own: str
) -> None:
    found = merged(
        f"<TaskGroupDefaults awarenessPolicy='{own}'><Name>n</Name>"
        "</TaskGroupDefaults>",
        f"<TaskGroupDefaults awarenessPolicy='{defaults}'><Shell>s</Shell>"
        "<TaskDefaults><Node>n</Node></TaskDefaults></TaskGroupDefaults>",
    )
    policies = {path: policy for path, _, policy in walk_with_policy(found)}
    assert policies["/Job/TaskGroup"] == "Reject"
    assert policies["/Job/TaskGroup/Name"] == own
    assert policies["/Job/TaskGroup/Shell"] == defaults
    assert policies["/Job/TaskGroup/Task/Node"] == defaults


def test_a_policy_that_would_not_change_is_not_written() -> None:
    warn = " awarenessPolicy='Warn'"
    assert merged("", "<Name>n</Name>", warn, warn) == job("<Name>n</Name>", warn)


def facts(root: Element) -> Counter[tuple[object, ...]]:
    """Everything that is no container, with its policy."""
    return Counter(
        (inner.name, inner.value, policy)
        for _, inner, policy in walk_with_policy(root)
        if inner.value is not None
    )


# Whatever the object


@settings(deadline=None)
@given(objects())
def test_the_result_is_valid_and_has_no_defaults(root: Element) -> None:
    found = effective(root)
    check(found)
    assert not any(inner.name in DEFAULTS for _, inner in walk(found))
    assert effective(found) == found
    if not any(inner.name in DEFAULTS for _, inner in walk(root)):
        assert found == root


@settings(deadline=None)
@given(objects())
def test_nothing_is_made_up_and_no_policy_changes(root: Element) -> None:
    before, after = facts(root), facts(effective(root))
    assert set(after) <= set(before)


@settings(deadline=None)
@given(objects("JobGroup"), st.data())
def test_a_job_keeps_all_its_elements(root: Element, data: st.DataObject) -> None:
    jobs = list(root.all("Job"))
    index = data.draw(st.integers(0, len(jobs) - 1))
    own, found = jobs[index], list(effective(root).all("Job"))[index]
    for inner in own.contents:
        if inner.name in ("Requested", "Delivered"):
            envelope = found.find(inner.name)
            assert envelope is not None
            assert envelope.contents[: len(inner.contents)] == inner.contents
        elif not inner.name.startswith("TaskGroup"):
            assert inner in found.contents


@pytest.mark.parametrize("name", ["Job", "JobGroup"])
def test_an_object_with_all_there_may_be_has_valid_defaults(name: str) -> None:
    check(effective(complete(name)))
