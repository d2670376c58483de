# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is refused at submission, and how the refusal shows the word that is wrong."""

from __future__ import annotations

from typing import Any, Optional

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config import submission
from flux_k8s.config.submission import Site, check_submission
from flux_k8s.dws.directiverules import RuleSet, read_rules
from flux_k8s.dws.directives import parse_attribute
from flux_k8s.dws.mapping import RabbitMapping, assemble
from flux_k8s.dws.underline import message, underline
from flux_k8s.errors import DirectiveError
from rabbitsim.dws.directive import InvalidDirective, Rules
from support.tree import TOP

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
RULES = yaml.safe_load(
    (TOP / "src/pymod/rabbitsim/dws/ruleset.yaml").read_text(encoding="utf-8")
)["spec"]
DATA = XFS.replace("p1", "data")
OWNER, GUEST = 500, 4711
MUST: dict[str, tuple[str, ...]] = {
    "jobdw": ("type", "capacity", "name"),
    "create_persistent": ("type", "name"),
    "destroy_persistent": ("name",),
    "persistentdw": ("name",),
    "copy_in": ("source", "destination"),
    "copy_out": ("source", "destination"),
    "container": ("name", "profile"),
}
"""The commands of NNF, and arguments that each has."""
TEXT = st.text(st.characters(), max_size=200)
"""With surrogates, which JSON may have."""


def nodes(count: int) -> list[dict[str, Any]]:
    return [{"type": "node", "count": count, "with": []}]


def check(
    dw: Any,
    table: Any = None,
    *,
    rules: Any = None,
    mapping: Optional[RabbitMapping] = None,
    userid: Optional[int] = None,
    **system: Any,
) -> None:
    site = Site({} if table is None else table, read_rules(rules), mapping, OWNER)
    check_submission({"dw": dw, **system}, nodes(4), site, userid)


def refusal(dw: Any, table: Any = None, **given: Any) -> DirectiveError:
    with pytest.raises(DirectiveError) as caught:
        check(dw, table, **given)
    return caught.value


def word(error: DirectiveError) -> str:
    return error.line[error.start : error.end]


@pytest.mark.parametrize(
    ("dw", "wrong", "meant"),
    [
        (XFS.replace("10GiB", "10Gib"), "10Gib", "10GiB"),
        (XFS.replace("10GiB", "10gi"), "10gi", "10GiB"),
        (XFS.replace("10GiB", "10G"), "10G", "10GiB"),
        (XFS.replace("10GiB", "10tb"), "10tb", "10TB"),
        (XFS.replace("10GiB", "10 GiB"), "10 GiB", "10GiB"),
        (XFS.replace("10GiB", "lots"), "lots", None),
        (XFS.replace("type", "typ"), "typ", "type="),
        (XFS.replace("xfs", "zfs"), "zfs", "xfs"),
        (XFS.replace("xfs", "XFS"), "XFS", "xfs"),
        (XFS.replace("xfs", "ext4"), "ext4", None),
        (XFS.replace("p1", "p_1"), "p_1", "p-1"),
        (XFS.replace("p1", "P1"), "P1", "p1"),
        (XFS.replace("p1", "1"), "1", None),
        (XFS.replace("jobdw", "jobwd"), "jobwd", "jobdw"),
        (XFS.replace("#DW", "#dw"), "#dw", "#DW"),
        (XFS.replace("#DW ", "#DW"), "#DWjobdw", "#DW jobdw"),
        (XFS.replace("#DW ", ""), "jobdw", "#DW jobdw"),
        (XFS + " profile=No_Such", "No_Such", "no-such"),
        ("#DW jobdw type=xfs name=p1", "jobdw", None),
        (XFS + " name=p2", "name=p2", None),
        (XFS + " fast", "fast", None),
        ("smal", "smal", "small"),
        (
            XFS + "\n  #DW  copy_in\tsource=/a  destinaton=/b",
            "destinaton",
            "destination=",
        ),
    ],
)
def test_the_word_that_is_wrong_is_found_with_the_one_that_was_meant(
    dw: str, wrong: str, meant: Optional[str]
) -> None:
    error = refusal(dw, {"presets": {"small": XFS}}, rules=RULES)
    assert word(error) == wrong
    assert error.meant == meant


def test_the_line_is_as_the_user_wrote_it() -> None:
    error = refusal(f"{XFS}\n\t#DW   copy_in \t source=/a destination=$DW_JOB_p2")
    assert underline(error) == [
        "#DW   copy_in   source=/a destination=$DW_JOB_p2",
        "                                      ^~~~~~~~~~",
        "$DW_JOB_p2: no jobdw of this job has the name p2: did you mean $DW_JOB_p1?",
    ]


def test_right_directives_are_accepted() -> None:
    for rules in (None, RULES):
        check(XFS, rules=rules)
        check([XFS, "#DW persistentdw name=p2"], rules=rules)
        check("mine", {"presets": {"mine": XFS}}, rules=rules)
        check([XFS, "#DW copy_out source=$DW_JOB_p1/x destination=/a"], rules=rules)


# The rules of DWS


def rule(**fields: Any) -> Any:
    """Rules with one more argument of jobdw."""
    (jobdw, *others) = RULES
    return [{**jobdw, "ruleDefs": [*jobdw["ruleDefs"], fields]}, *others]


def test_an_argument_that_no_rule_of_the_site_has_is_refused() -> None:
    check(XFS + " turbo=yes")
    error = refusal(XFS + " turbo=yes", rules=RULES)
    assert word(error) == "turbo" and "unknown argument 'turbo='" in error.problem
    check(XFS + " turbo=yes", rules=rule(key="^turbo$", type="string"))


def test_an_optional_argument_that_is_misspelt_is_known_by_the_rules() -> None:
    assert refusal(XFS + " profle=a", rules=RULES).meant == "profile="


def test_a_site_may_have_other_types_than_nnf() -> None:
    text = yaml.safe_dump(RULES).replace("raw|xfs", "raw|zfs|xfs")
    check(XFS.replace("xfs", "zfs"), rules=yaml.safe_load(text))
    assert refusal(XFS.replace("xfs", "zgs"), rules=yaml.safe_load(text)).meant == "zfs"


def test_a_command_that_the_site_has_no_rule_for_is_refused() -> None:
    error = refusal(XFS, rules=RULES[1:])
    assert (
        word(error) == "jobdw"
        and "unknown command 'jobdw', expected one of" in error.problem
    )
    error = refusal("#DW jobwd type=xfs", rules=RULES)
    assert (word(error), error.meant) == ("jobwd", "jobdw")


def test_what_the_rules_of_a_site_allow_is_accepted() -> None:
    (jobdw, *others) = RULES
    definitions = [
        {**rule, "isRequired": False} if rule["key"] == "^capacity$" else rule
        for rule in jobdw["ruleDefs"]
    ]
    definitions.append({"key": "^fast$", "type": "bool", "pattern": "^.*$"})
    burst = {**jobdw, "command": "burst", "ruleDefs": definitions}
    rules = [{**jobdw, "ruleDefs": definitions}, burst, *others]
    for dw in ("#DW jobdw type=xfs name=p1", "#DW burst type=xfs name=p2 fast"):
        check(dw, rules=rules)
        assert refusal(dw, rules=RULES)
    check(
        ["#DW burst type=xfs name=p2", "#DW copy_in source=/a destination=$DW_JOB_p2"]
    )
    assert word(refusal(XFS + " slow", rules=rules)) == "slow"
    assert "not of the form key=value" in refusal(XFS + " slow", rules=rules).problem


def test_as_long_as_the_rules_are_not_known_only_the_form_is_checked() -> None:
    for dw in ("#DW jobdw", "#DW burst", XFS.replace("xfs", "zfs"), [XFS, XFS]):
        check(dw)
    assert word(refusal(XFS.replace("GiB", "Gib"))) == "10Gib"
    assert word(refusal(XFS + " =")) == "="


def test_a_list_has_each_of_its_words_once_and_no_other() -> None:
    dw = XFS + " requires="
    check(dw + "copy-offload,user-container-auth", rules=RULES)
    error = refusal(dw + "copy-offload,copy-ofload", rules=RULES)
    assert (word(error), error.meant) == ("copy-ofload", "copy-offload")
    error = refusal(dw + "copy-offload,copy-offload", rules=RULES)
    assert "has a word twice" in error.problem


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("3", None), ("+7", None), ("2", " of at least 3"), ("8", " of at most 7")),
        *(("x", ""), ("3.0", ""), ("٣", "")),
    ],
)
def test_an_integer_is_within_its_bounds(value: str, expected: Optional[str]) -> None:
    rules = rule(key="^stripes$", type="integer", min=3, max=7)
    if expected is None:
        check(f"{XFS} stripes={value}", rules=rules)
    else:
        error = refusal(f"{XFS} stripes={value}", rules=rules)
        assert word(error) == value
        assert error.problem == f"stripes={value} is not an integer{expected}"


def test_a_boolean_is_true_or_false() -> None:
    rules = rule(key="^fast$", type="bool", pattern="^(true|false)$")
    check(XFS + " fast=True", rules=rules)
    assert word(refusal(XFS + " fast=yes", rules=rules)) == "yes"


def test_a_required_argument_of_the_site_is_missed() -> None:
    rules = rule(key="^bank$", type="string", isRequired=True)
    assert refusal(XFS, rules=rules).problem == "missing argument 'bank='"


def test_a_value_is_unique_where_the_rules_say_so() -> None:
    rules = rule(key="^slot$", type="string", uniqueWithin="slots")
    second = XFS.replace("p1", "p2")
    check([XFS + " slot=a", second + " slot=b"], rules=rules)
    assert word(refusal([XFS + " slot=a", second + " slot=a"], rules=rules)) == "a"


@pytest.mark.parametrize("rules", [7, [], {}, [{"command": "jobdw"}], [{}], "x"])
def test_rules_that_are_malformed_refuse_no_job(rules: Any) -> None:
    check(XFS, rules=rules)
    check(XFS.replace("xfs", "zfs"), rules=rules)


@pytest.mark.parametrize("key", ["(?i)^x$", r"\bx", "[", "a**", "(" * 99])
def test_a_pattern_that_is_not_read_leaves_the_directive_to_dws(key: str) -> None:
    check(XFS + " turbo=yes", rules=rule(key=key, type="string"))
    check(XFS + " x=yes", rules=rule(key="^x$", type="string", pattern=key))


def test_a_pattern_that_is_slow_in_python_is_linear_here() -> None:
    rules = rule(key="^x$", type="string", pattern="^(a|a)*(a+)+$")
    assert word(refusal(f"{XFS} x={'a' * 60}b", rules=rules)) == "a" * 60 + "b"
    rules = rule(key="^x$", type="string", pattern="^((a{0,30}){0,30}b)+$")
    table = {"directives_limit": 65536}
    check(f"{XFS} x={'a' * 60_000}", table, rules=rules)


# The whole job


@pytest.mark.parametrize(
    ("dw", "wrong", "meant"),
    [
        ("copy_in source=/a destination=$DW_JOB_dta/x", "$DW_JOB_dta", "$DW_JOB_data"),
        ("copy_out source=$DW_JOB_dta destination=/a", "$DW_JOB_dta", "$DW_JOB_data"),
        (
            "copy_in source=/a destination=$DW_PERSISTENT_data/",
            "$DW_PERSISTENT_data",
            "$DW_JOB_data",
        ),
        ("copy_in source=/a destination=$DW_JOB_other", "$DW_JOB_other", None),
        ("container name=cc profile=pp DW_JOB_foo=dta", "dta", "data"),
    ],
)
def test_a_name_of_storage_that_no_directive_makes_is_refused(
    dw: str, wrong: str, meant: Optional[str]
) -> None:
    error = refusal([DATA, "#DW persistentdw name=keep", f"#DW {dw}"])
    assert (word(error), error.meant) == (wrong, meant)


def test_a_variable_has_an_underscore_for_each_dash_of_the_name() -> None:
    check([XFS.replace("p1", "a-b"), "#DW copy_in source=/a destination=$DW_JOB_a_b/"])


def test_a_copy_of_a_job_without_storage_is_refused() -> None:
    error = refusal("#DW copy_in source=/a destination=/b")
    assert word(error) == "copy_in" and "without storage" in error.problem


def test_directives_beyond_the_limits_of_the_site_are_refused_at_submission() -> None:
    limits = {"policy": {"maximums": {"xfs": 9}}}
    error = refusal(XFS, limits)
    assert word(error) == "10GiB" and "the limit is 9 GiB per node" in error.problem


@pytest.mark.parametrize(
    ("dw", "asks"),
    [
        (XFS.replace("10GiB", "26GiB"), "104 GiB on 4 nodes"),
        (XFS.replace("xfs", "lustre").replace("10GiB", "101GiB"), "101 GiB"),
        (
            [XFS, "#DW create_persistent type=lustre capacity=61GiB name=p2"],
            "61 GiB, 101 GiB with those before it",
        ),
    ],
)
def test_more_than_all_rabbits_have_is_refused(dw: Any, asks: str) -> None:
    hosts = {"r1": ["h1", "h2"], "r2": ["h3", "h4"]}
    half = 50 * 2**30
    error = refusal(dw, mapping=assemble(hosts, {"r1": half, "r2": half}))
    expected = f"asks for {asks}; all Rabbits together have 100 GiB"
    assert error.problem == expected
    check(dw, mapping=assemble(hosts, {"r1": half, "r2": 0}))
    check(dw, mapping=assemble(hosts, dict.fromkeys(hosts, half + 2**33)))


@pytest.mark.parametrize(
    ("dw", "needs"),
    [
        (XFS.replace("10GiB", "61GiB"), 61),
        ([XFS, "#DW jobdw type=gfs2 capacity=50001MiB name=p2"], 59),
        (XFS.replace("jobdw", "create_persistent").replace("10GiB", "61GiB"), 61),
    ],
)
def test_more_on_a_node_than_the_largest_rabbit_has_is_refused(
    dw: Any, needs: int
) -> None:
    hosts = {name: [f"{name}-1"] for name in ("r1", "r2", "r3", "r4", "r5")}
    sizes = dict.fromkeys(hosts, 50 * 2**30)
    error = refusal(dw, mapping=assemble(hosts, {**sizes, "r1": 58 * 2**30}))
    assert error.problem == (
        f"each node needs {needs} GiB on its Rabbit, but the largest Rabbit has 58 GiB"
        " for jobs"
    )
    check(dw, mapping=assemble(hosts, dict.fromkeys(hosts, 61 * 2**30)))
    check(dw, mapping=assemble(hosts, {**sizes, "r1": 0}))
    shared = XFS.replace("xfs", "lustre").replace("10GiB", "61GiB")
    check(shared, mapping=assemble(hosts, sizes))


def test_more_nodes_than_have_room_on_their_rabbits_are_refused() -> None:
    uneven = assemble(HOSTS, {"r0": 770 * 2**30, "r1": 275 * 2**30})
    error = refusal(XFS.replace("10GiB", "260GiB"), mapping=uneven)
    assert word(error) == "260GiB" and error.problem == (
        "the job asks for 4 nodes with 260 GiB each, and the Rabbits have room for 3"
    )
    check(XFS.replace("10GiB", "256GiB"), mapping=uneven)
    check(XFS.replace("xfs", "lustre").replace("10GiB", "750GiB"), mapping=uneven)


def test_more_nodes_than_are_below_rabbits_are_refused() -> None:
    few = assemble({"r0": ["n0"], "r1": ["n1"]}, {"r0": 2**40, "r1": 2**40})
    error = refusal(XFS, mapping=few)
    assert error.problem == "the job asks for 4 nodes, and 2 are below Rabbits"
    check(XFS.replace("xfs", "lustre"), mapping=few)  # others may use the network


def test_persistent_storage_is_not_for_guests_where_the_site_says_so() -> None:
    dw = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    error = refusal(dw, userid=GUEST)
    assert word(error) == "create_persistent"
    assert "only the instance owner" in error.problem
    check(dw, userid=OWNER)
    check(dw)
    check(dw, {"restrict_persistent_creation": False}, userid=GUEST)


@pytest.mark.parametrize("blank", ["", " \n"])
def test_an_empty_string_beside_directives_is_refused(blank: str) -> None:
    error = refusal([XFS, blank])
    assert error.problem == "has an empty string, expected a #DW directive in quotes"
    assert word(error) == error.line


@pytest.mark.parametrize("value", [-1, 4, 10**20, 1.5, "1", True, None, [1]])
def test_a_failure_tolerance_is_a_number_of_nodes_less_than_all(value: Any) -> None:
    error = refusal(XFS, dw_failure_tolerance=value)
    assert "expected an integer from 0 to 3" in error.problem
    assert error.line.startswith("dw_failure_tolerance=")
    check(XFS, dw_failure_tolerance=3)


def test_a_wrong_configuration_is_not_held_against_users() -> None:
    check("mine", {"presset": {}})


# Any text


WORDS = st.sampled_from(
    [
        *("#DW", "jobdw", "copy_in", "container", "type=xfs", "type=", "=", "==", "x"),
        *("capacity=1GiB", "capacity=1", "GiB", "capacity=1 gib", "name=p1", "name=é"),
        *("source=$DW_JOB_p1", "destination=$DW_PERSISTENT_", "DW_JOB_a=p1", "typ=a"),
        *("\t", "  ", "\n", "\x1b[2J", "\u202e", "漢字", "e\u0301", "\ud800", "y" * 90),
        *("name=p_1", "requires=a,a,b", "profile=x_y", "source=/a", "destination=/b"),
    ]
)
LINES = st.one_of(TEXT, st.lists(WORDS | TEXT, max_size=12).map(" ".join))


@given(LINES, st.sampled_from([None, RULES]))
def test_a_refusal_of_any_text_is_about_a_part_of_it_and_printable(
    text: str, rules: Any
) -> None:
    try:
        check(text, rules=rules)
    except DirectiveError as error:
        assert 0 <= error.start <= error.end <= len(error.line)
        assert str(error).isprintable()
        assert all(line.isprintable() for line in message(error).split("\n"))


VALUES = {
    "type": ("xfs", "raw", "zfs", "xfs2"),
    "capacity": ("1GiB",),
    "name": ("p1", "data", "data", "p_1", "D", "a"),
    "profile": ("fast", "Fast"),
    "source": ("/a",),
    "destination": ("/b",),
    "requires": ("copy-offload", "copy-offload,copy-offload", "x", "a,a"),
    "turbo": ("yes",),
    "xtype": ("xfs",),
    "DW_JOB_foo": ("data",),
    "DW_JOB_F": ("data",),
}


@st.composite
def written(draw: st.DrawFn) -> str:
    """A directive with the arguments that it must have, and some others."""
    command = draw(st.sampled_from(sorted(MUST)))
    others = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=2))
    keys = list(dict.fromkeys([*MUST[command], *sorted(others)]))
    arguments = [f"{key}={draw(st.sampled_from(VALUES[key]))}" for key in keys]
    return " ".join(["#DW", command, *draw(st.permutations(arguments))])


@given(st.lists(written(), min_size=1, max_size=3))
def test_the_rules_refuse_what_dws_refuses_and_nothing_else(texts: list[str]) -> None:
    try:
        directives = parse_attribute(texts)
    except DirectiveError:
        return
    try:
        RuleSet.parse(RULES).check(directives)
    except DirectiveError:
        with pytest.raises(InvalidDirective):
            Rules.default().validate(texts)
    else:
        Rules.default().validate(texts)


def test_the_stand_in_reads_the_rules_of_nnf() -> None:
    assert {spec["command"] for spec in RULES} == set(MUST)


COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"
HOSTS = {"r0": ["n0", "n1", "n2", "n3"], "r1": ["n4", "n5", "n6", "n7"]}
HALF = {"stage_limit": 50, "stage_user_limit": 50}
MACHINE = assemble(HOSTS, {"r0": 2**40, "r1": 2**40})


def ahead(text: str, table: Any = HALF, **given: Any) -> DirectiveError:
    dw = f"{text}\n{COPY_IN}"
    return refusal(dw, table, mapping=MACHINE, dw_stage="ahead", **given)


def test_a_job_that_can_be_staged_ahead_is_accepted() -> None:
    dw = f"{XFS}\n{COPY_IN}"
    check(dw, HALF, mapping=MACHINE, dw_stage="ahead")
    check(dw, HALF, mapping=MACHINE)
    check(XFS, {"stage": "ahead", "stage_limit": 0}, mapping=MACHINE)


@pytest.mark.parametrize(
    "dw, reason",
    [
        (XFS, "there is no copy_in, so the job gains nothing from it"),
        ("#DW persistentdw name=p1", "is not for storage that is made before"),
        (f"{XFS}\n{COPY_IN}\n#DW persistentdw name=p2", "is not for storage that is"),
        (f"{XFS} requires=x\n{COPY_IN}", "needs nodes when its storage is made"),
    ],
)
def test_directives_that_cannot_be_staged_ahead_are_refused(
    dw: str, reason: str
) -> None:
    assert reason in str(refusal(dw, dw_stage="ahead"))


def test_more_than_jobs_without_nodes_may_have_is_refused() -> None:
    error = ahead(XFS.replace("10GiB", "300GiB"))
    assert "it needs 1204 GiB; jobs without nodes may have 1024 GiB" in str(error)
    assert "(rabbit.stage_limit)" in str(error) and word(error) == "dw_stage=ahead"
    error = ahead(XFS.replace("10GiB", "200GiB"), {})
    assert "may have 512 GiB (rabbit.stage_user_limit)" in str(error)
    error = ahead(XFS.replace("xfs capacity=10GiB", "lustre capacity=1200GiB"))
    assert "it needs 1204 GiB" in str(error)


def test_what_the_storage_profile_adds_counts_for_storage_without_nodes() -> None:
    """As it does when the storage is made: four allocations of 10 GiB are 44 GiB."""
    limits = {"stage_limit": 2, "stage_user_limit": 100}  # 40.96 GiB
    error = ahead(XFS, limits)
    assert "it needs 44 GiB; jobs without nodes may have 40 GiB" in str(error)
    dw = f"{XFS.replace('10GiB', '9GiB')}\n{COPY_IN}"
    check(dw, limits, mapping=MACHINE, dw_stage="ahead")


def test_a_shape_that_no_rabbits_fit_is_refused() -> None:
    all_of_it = {"stage_limit": 100, "stage_user_limit": 100}
    uneven = assemble(HOSTS, {"r0": 2**40, "r1": 2**38})
    dw = [XFS.replace("xfs capacity=10GiB", "lustre capacity=1200GiB"), COPY_IN]
    error = refusal(dw, all_of_it, mapping=uneven, dw_stage="ahead")
    assert "no Rabbits have room for 4 nodes of 301 GiB each" in str(error)


def test_a_wrong_stage_is_refused() -> None:
    error = refusal(XFS, dw_stage="soon")
    assert word(error) == '"soon"' and 'expected "prolog" or "ahead"' in str(error)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("dws", "dw"),
        ("dw-stage", "dw_stage"),
        ("dw_realease", "dw_release"),
        ("dw_failure_tolerence", "dw_failure_tolerance"),
    ],
)
def test_an_attribute_that_is_misspelt_is_refused(name: str, meant: str) -> None:
    for dw in (XFS, None):
        error = refusal(dw, **{name: "x"})
        assert (word(error), error.meant) == (name, meant)


def test_a_guest_with_many_attributes_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def compare(word: str, *_: object) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr(submission, "get_close_matches", compare)
    check(XFS, **{f"dw_{'x' * 10**6}": 1}, **{f"dw_x{n}": 1 for n in range(10_000)})
    assert compared == [f"dw_x{n}" for n in range(64)]


def test_other_attributes_are_those_of_a_site() -> None:
    check(XFS, dwarf=1, dw_account="x", stage="ahead")
