# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is refused at submission, and how the refusal shows the word that is wrong."""

from __future__ import annotations

import re
from typing import Any, Optional

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.config import submission
from flux_k8s.config.submission import Site, check_submission
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.objects.mapping import RabbitMapping, assemble
from flux_k8s.rules.directiverules import read_rules
from flux_k8s.rules.underline import marked, message
from rabbitsim.dws.directive import InvalidDirective, Rules
from support.tables import rows
from support.tree import TOP

XFS = "#DW jobdw type=xfs capacity=10GiB name=p1"
RULES = yaml.safe_load(
    (TOP / "src/pymod/rabbitsim/dws/ruleset.yaml").read_text(encoding="utf-8")
)["spec"]
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
    scheduler: bool = False,
    **system: Any,
) -> None:
    table = {} if table is None else table
    site = Site(table, read_rules(rules), mapping, OWNER, scheduler)
    check_submission({"dw": dw, **system}, nodes(4), site, userid)


def refusal(dw: Any, table: Any = None, **given: Any) -> DirectiveError:
    with pytest.raises(DirectiveError) as caught:
        check(dw, table, **given)
    return caught.value


def word(error: DirectiveError) -> str:
    return error.line[error.start : error.end]


# With the rules of NNF and a preset "small": what is wrong, and the word and the one
# that was meant. XFS and COPY are directives that are right; those of a job are parted
# by a bar.

WRONG = r"""
#DW jobdw type=xfs capacity=10Gib name=p1 -> 10Gib -> 10GiB
#DW jobdw type=xfs capacity=10gi name=p1 -> 10gi -> 10GiB
#DW jobdw type=xfs capacity=10G name=p1 -> 10G -> 10GiB
#DW jobdw type=xfs capacity=10tb name=p1 -> 10tb -> 10TB
#DW jobdw type=xfs capacity=10 GiB name=p1 -> 10 GiB -> 10GiB
#DW jobdw type=xfs capacity=lots name=p1 -> lots
#DW jobdw typ=xfs capacity=10GiB name=p1 -> typ -> type=
#DW jobdw type=zfs capacity=10GiB name=p1 -> zfs -> xfs
#DW jobdw type=XFS capacity=10GiB name=p1 -> XFS -> xfs
#DW jobdw type=ext4 capacity=10GiB name=p1 -> ext4
#DW jobdw type=xfs capacity=10GiB name=p_1 -> p_1 -> p-1
#DW jobdw type=xfs capacity=10GiB name=P1 -> P1 -> p1
#DW jobdw type=xfs capacity=10GiB name=1 -> 1
#DW jobwd type=xfs capacity=10GiB name=p1 -> jobwd -> jobdw
#dw jobdw type=xfs capacity=10GiB name=p1 -> #dw -> #DW
#DWjobdw type=xfs capacity=10GiB name=p1 -> #DWjobdw -> #DW jobdw
jobdw type=xfs capacity=10GiB name=p1 -> jobdw -> #DW jobdw
XFS profile=No_Such -> No_Such -> no-such
XFS profle=a -> profle -> profile=
#DW jobdw type=xfs name=p1 -> jobdw
XFS name=p2 -> name=p2
XFS fast -> fast
XFS turbo=yes -> turbo
XFS requires=copy-offload,copy-ofload -> copy-ofload -> copy-offload
XFS requires=copy-offload,copy-offload -> copy-offload,copy-offload
smal -> smal -> small
XFS #DW copy_in source=/a destinaton=/b -> destinaton -> destination=
"""
RIGHT = r"""
XFS
XFS | #DW persistentdw name=p2
small
XFS | #DW copy_out source=$DW_JOB_p1/x destination=/a
# NNF knows what storage there is
XFS | #DW copy_in source=/a destination=$DW_JOB_p2/x
#DW copy_in source=/a destination=/b
XFS requires=copy-offload,user-container-auth
#DW jobdw type=xfs capacity=10GiB name=a-b
  | #DW copy_in source=/a destination=$DW_JOB_a_b/
"""
# As long as the rules are not known, only the form is checked.
FORM = r"""
#DW jobdw
#DW burst
#DW jobdw type=zfs capacity=10GiB name=p1
#DW jobdw type=xfs, capacity=10Gib name=p1
XFS | XFS
XFS turbo=yes
"""
SMALL = {"presets": {"small": XFS}}


def directives(text: str) -> list[str]:
    return [re.sub("^XFS", XFS, each.strip()) for each in text.split("|")]


@pytest.mark.parametrize(("dw", "wrong", "meant"), rows(WRONG, 3))
def test_the_word_that_is_wrong_is_found_with_the_one_that_was_meant(
    dw: str, wrong: str, meant: str
) -> None:
    error = refusal(directives(dw), SMALL, rules=RULES)
    assert (word(error), error.meant or "") == (wrong, meant)


@pytest.mark.parametrize("dw", rows(RIGHT + FORM, 1))
def test_right_directives_are_accepted(dw: str) -> None:
    check(directives(dw), SMALL)
    if dw in rows(RIGHT, 1):
        check(directives(dw), SMALL, rules=RULES)
    else:
        assert refusal(directives(dw), SMALL, rules=RULES)


def test_the_line_is_as_the_user_wrote_it() -> None:
    error = refusal(f"{XFS}\n\t#DW   copy_in \t sorce=/a destination=/b", rules=RULES)
    assert [*marked(error), error.sentence] == [
        "#DW   copy_in   sorce=/a destination=/b",
        "                ^~~~~",
        "unknown argument 'sorce=': did you mean source=?",
    ]
    error = refusal([XFS, " \n"])
    assert error.problem == "has an empty string, expected a #DW directive in quotes"
    assert word(error) == error.line


# The rules of DWS


def rule(**fields: Any) -> Any:
    """Rules with one more argument of jobdw."""
    (jobdw, *others) = RULES
    return [{**jobdw, "ruleDefs": [*jobdw["ruleDefs"], fields]}, *others]


# What a rule of the site adds to an argument of jobdw, and what is said of a directive
# with it.

INTEGER = {"key": "^n$", "type": "integer", "min": 3, "max": 7}
FAST = {"key": "^fast$", "type": "bool", "pattern": "^(true|false)$"}
SLOT = {"key": "^slot$", "type": "string", "uniqueWithin": "slots"}
SECOND = XFS.replace("p1", "p2")


@pytest.mark.parametrize(
    ("fields", "dw", "wrong", "problem"),
    [
        ({"key": "^turbo$", "type": "string"}, XFS + " turbo=yes", "", ""),
        (INTEGER, XFS + " n=3", "", ""),
        (INTEGER, XFS + " n=+7", "", ""),
        (INTEGER, XFS + " n=2", "2", "n=2 is not an integer of at least 3"),
        (INTEGER, XFS + " n=8", "8", "n=8 is not an integer of at most 7"),
        (INTEGER, XFS + " n=x", "x", "n=x is not an integer"),
        (INTEGER, XFS + " n=3.0", "3.0", "n=3.0 is not an integer"),
        (INTEGER, XFS + " n=٣", "٣", "n=٣ is not an integer"),
        (FAST, XFS + " fast=True", "", ""),
        (FAST, XFS + " fast=yes", "yes", ""),
        (
            {"key": "^bank$", "type": "string", "isRequired": True},
            *(XFS, "jobdw", "missing argument 'bank='"),
        ),
        (SLOT, [XFS + " slot=a", SECOND + " slot=b"], "", ""),
        (SLOT, [XFS + " slot=a", SECOND + " slot=a"], "a", ""),
    ],
)
def test_an_argument_is_as_the_rules_of_the_site_have_it(
    fields: Any, dw: Any, wrong: str, problem: str
) -> None:
    if not wrong:
        check(dw, rules=rule(**fields))
        return
    error = refusal(dw, rules=rule(**fields))
    assert word(error) == wrong and problem in ("", error.problem)


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
    assert "not of the form key=value" in refusal(XFS + " slow", rules=rules).problem
    # A type that only they have, and a command that they lack.
    zfs = yaml.safe_load(yaml.safe_dump(RULES).replace("raw|xfs", "raw|zfs|xfs"))
    check(XFS.replace("xfs", "zfs"), rules=zfs)
    error = refusal(XFS, rules=others)
    assert word(error) == "jobdw"
    assert "unknown command 'jobdw', expected one of" in error.problem


COMMAS = """
#DW jobdw type=xfs,capacity=10GiB name=p1 -> type=xfs
#DW jobdw type=xfs capacity=10GiB, name=p1 -> capacity=10GiB
#DW persistentdw name=p1, -> name=p1
"""


@pytest.mark.parametrize(("line", "argument"), rows(COMMAS))
def test_a_comma_where_a_blank_is_meant_is_named(line: str, argument: str) -> None:
    error = refusal(line, rules=RULES)
    assert error.problem == f"a comma after {argument}: expected a blank"
    assert word(error) == ","


def test_a_capacity_is_one_by_the_rules_of_the_site_and_by_its_limits() -> None:
    dw, rules = XFS.replace("GiB", "PiB"), yaml.safe_dump(RULES).replace("|TB", "|PiB")
    check(dw, rules=yaml.safe_load(rules))
    assert word(refusal(dw, rules=RULES)) == "10PiB"
    error = refusal(dw, {"policy": {"maximums": {"xfs": 9}}})
    assert "capacity=10PiB is not a size" in error.problem


@pytest.mark.parametrize("rules", [7, [], {}, [{"command": "jobdw"}], [{}], "x"])
def test_rules_that_are_malformed_refuse_no_job(rules: Any) -> None:
    check(XFS, rules=rules)
    check(XFS.replace("xfs", "zfs"), rules=rules)


def test_a_command_without_arguments_has_no_rules_for_them() -> None:
    """Go writes null for an empty list."""
    rules = [*RULES, {"command": "bare", "ruleDefs": None}]
    check(XFS, rules=rules)
    assert word(refusal("#DW bare name=p1", rules=rules)) == "name"
    assert word(refusal(XFS.replace("xfs", "zfs"), rules=rules)) == "zfs"


# Patterns of a site, and values that match and do not.

PATTERNS = r"""
^[a-z][a-z0-9-]+$ -> ab a-9 -> a aB -a a_b
^\d+(KiB|KB)$ -> 1KiB 007KB -> KiB 1KiBs 1Ki 1 ٣KiB
^(DW_JOB_|DW_GLOBAL_)[a-z][a-z0-9_]+$ -> DW_JOB_a_ -> DW_JOB_a_- DW_JOB_ DW_LOCAL_ab
^(a|ab)$ -> a ab -> b abb
^\w*\.\d$ -> .1 a_.1 -> a,1 a.a a.1.1 é.1
^.*$ -> a é
"""


@pytest.mark.parametrize(("pattern", "right", "wrong"), rows(PATTERNS, 3))
def test_a_pattern_is_matched_as_dws_does(pattern: str, right: str, wrong: str) -> None:
    rules = rule(key="^x$", type="string", pattern=pattern)
    for value in right.split():
        check(f"{XFS} x={value}", rules=rules)
    for value in wrong.split():
        assert word(refusal(f"{XFS} x={value}", rules=rules)) == value


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?i)^x$", r"^\bx$", "[", "^a**$", "(" * 99, "x", "^x$|^y$", "^[z-a]$"),
        *("^(a|a)*(a+)+$", "^a+a+$", "^(a|aa)(a|aa)$", "^((a))$", "^a{2}$", r"^\pL$"),
        *("^[^a]$", "^[[:alpha:]]$", "^[a--b]$", r"^x\z", "^a+?$", "^$^$", "^x\n$"),
    ],
)
def test_a_pattern_that_is_not_read_leaves_the_directive_to_dws(pattern: str) -> None:
    check(XFS + " turbo=yes", rules=rule(key=pattern, type="string"))
    check(XFS + " x=yes", rules=rule(key="^x$", type="string", pattern=pattern))


@pytest.mark.parametrize("pattern", ["^a*(a|b)$", "^(a|b)a*a$", "^.*b$"])
def test_a_pattern_takes_linear_time(pattern: str) -> None:
    rules = rule(key="^x$", type="string", pattern=pattern)
    table = {"directives_limit": 65536}
    assert refusal(f"{XFS} x={'a' * 60_000}c", table, rules=rules)


# The whole job

HOSTS = {"r0": ["n0", "n1", "n2", "n3"], "r1": ["n4", "n5", "n6", "n7"]}


def machine(*gib: float, hosts: Any = None) -> RabbitMapping:
    """A machine of Rabbits with so much storage and eight nodes, or one for each."""
    names = hosts or {f"r{i}": [f"n{i}"] for i in range(len(gib))}
    sizes = {name: int(size * 2**30) for name, size in zip(names, gib)}
    return assemble(names, sizes)


# On four nodes, what the Rabbits lack if the nodes share it all, and how much they
# need. A scheduler takes the share of each node from its own Rabbit.

FIVE = (58, 50, 50, 50, 50)
ROOM = [
    (
        *("101GiB", False, (50, 50), (51, 50)),
        "asks for 101 GiB; all Rabbits together have 100 GiB",
    ),
    (
        *("241GiB", True, FIVE, (61,) * 5),
        "each node needs 61 GiB on its Rabbit, but the largest Rabbit has 58 GiB for"
        " jobs",
    ),
    (
        *("10GiB", True, (1024, 1024), (1024,) * 4),
        "the job asks for 4 nodes, and 2 are below Rabbits",
    ),
    ("241GiB", False, None, FIVE, ""),
    ("10GiB", False, None, (1024, 1024), ""),  # others may use the network
    ("61GiB", True, None, FIVE, ""),
]


@pytest.mark.parametrize("type", ["xfs", "lustre"])
@pytest.mark.parametrize(("size", "scheduler", "lacking", "enough", "problem"), ROOM)
def test_more_than_the_rabbits_have_is_refused(
    type: str, size: str, scheduler: bool, lacking: Any, enough: Any, problem: str
) -> None:
    dw = f"#DW jobdw type={type} capacity={size} name=p1"
    if lacking is not None:
        error = refusal(dw, mapping=machine(*lacking), scheduler=scheduler)
        assert error.problem == problem
    check(dw, mapping=machine(*enough), scheduler=scheduler)


def test_directives_count_together_for_the_room_on_rabbits() -> None:
    lustre = "#DW create_persistent type=lustre capacity=91GiB name=p2"
    error = refusal([XFS, lustre], mapping=machine(50, 50, hosts=HOSTS))
    assert error.problem == (
        "asks for 91 GiB, 101 GiB with those before it; all Rabbits together have 100"
        " GiB"
    )
    check([XFS, lustre], mapping=machine(50, 0, hosts=HOSTS))  # it is not known
    gfs2 = "#DW jobdw type=gfs2 capacity=223GiB name=p2"
    error = refusal([XFS, gfs2], mapping=machine(*FIVE), scheduler=True)
    assert "each node needs 59 GiB on its Rabbit" in error.problem
    uneven = machine(770, 275, hosts=HOSTS)
    large = XFS.replace("10GiB", "1040GiB")
    error = refusal(large, mapping=uneven, scheduler=True)
    assert word(error) == "1040GiB" and error.problem == (
        "the job asks for 4 nodes with 260 GiB each, and the Rabbits have room for 3"
    )
    check(large.replace("1040", "1024"), mapping=uneven, scheduler=True)


def test_the_limits_of_the_site_hold_at_submission() -> None:
    error = refusal(XFS, {"policy": {"maximums": {"xfs": 2}}})
    assert word(error) == "10GiB" and "the limit is 2 GiB per node" in error.problem
    dw = "#DW create_persistent type=xfs capacity=1GiB name=keep"
    error = refusal(dw, userid=GUEST)
    assert word(error) == "create_persistent"
    assert "only the instance owner" in error.problem
    check(dw, userid=OWNER)
    check(dw)
    check(dw, {"restrict_persistent_creation": False}, userid=GUEST)
    # A wrong configuration is not held against users.
    check("mine", {"presset": {}})


@pytest.mark.parametrize("value", [-1, 4, 10**20, 1.5, "1", True, None, [1]])
def test_a_failure_tolerance_is_a_number_of_nodes_less_than_all(value: Any) -> None:
    error = refusal(XFS, dw_failure_tolerance=value)
    assert "expected an integer from 0 to 3" in error.problem
    assert error.line.startswith("dw_failure_tolerance=")
    check(XFS, dw_failure_tolerance=3)


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
    "capacity": ("1GiB", "٣GiB"),
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
        read_rules(RULES).check(directives)
    except DirectiveError:
        with pytest.raises(InvalidDirective):
            Rules.default().validate(texts)
    else:
        Rules.default().validate(texts)


# Jobs that are staged ahead. What the storage profile adds counts, as when storage is
# made: four allocations of 10 GiB together are 12 GiB.

COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"
KEPT = "#DW persistentdw name=p2"
STAGED = [
    (XFS, "there is no copy_in, so the job gains nothing from it"),
    (KEPT, "is not for storage that is made before"),
    (f"{XFS}\n{COPY_IN}\n{KEPT}", "is not for storage that is"),
    (f"{XFS} requires=x\n{COPY_IN}", "needs nodes when its storage is made"),
]


@pytest.mark.parametrize(("dw", "reason"), STAGED)
def test_directives_that_cannot_be_staged_ahead_are_refused(
    dw: str, reason: str
) -> None:
    assert reason in str(refusal(dw, dw_stage="ahead"))


@pytest.mark.parametrize(
    ("asked", "limits", "gib", "reason"),
    [
        ("xfs 10GiB", (50, 50), (1024, 1024), ""),
        (
            *("xfs 1200GiB", (50, 50), (1024, 1024)),
            "it needs 1204 GiB; jobs without nodes may have 1024 GiB (rabbit.stage_"
            "limit)",
        ),
        (
            *("xfs 800GiB", (), (1024, 1024)),
            "may have 512 GiB (rabbit.stage_user_limit)",
        ),
        ("lustre 1200GiB", (50, 50), (1024, 1024), "it needs 1204 GiB"),
        ("xfs 36GiB", (2, 100), (1024, 1024), ""),
        (
            "xfs 40GiB",
            (2, 100),
            (1024, 1024),
            "it needs 44 GiB; jobs without nodes may",
        ),
    ],
)
def test_more_than_jobs_without_nodes_may_have_is_refused(
    asked: str, limits: Any, gib: Any, reason: str
) -> None:
    dw = "#DW jobdw type={} capacity={} name=p1\n".format(*asked.split()) + COPY_IN
    table = dict(zip(("stage_limit", "stage_user_limit"), limits))
    given: Any = {"mapping": machine(*gib, hosts=HOSTS), "dw_stage": "ahead"}
    if not reason:
        check(dw, table, **given)
        return
    error = refusal(dw, table, **given)
    assert reason in str(error) and word(error) == "dw_stage=ahead"


def test_a_default_to_stage_ahead_refuses_no_job() -> None:
    mapping = machine(1024, 1024, hosts=HOSTS)
    check(XFS, {"stage": "ahead", "stage_limit": 0}, mapping=mapping)


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
    check(XFS, dwarf=1, dw_account="x", stage="ahead")


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
