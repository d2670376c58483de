# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a guest asks rank 0 to read is bounded, and the refusal says the bound."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Optional

import pytest

from flux_k8s import limits
from flux_k8s.config.submission import Site, check_submission
from flux_k8s.config.table import Config
from flux_k8s.errors import BadObject, DirectiveError
from flux_k8s.formats.directives import is_empty, parse_attribute
from flux_k8s.jobs.plugin import read_create
from flux_k8s.ports import Json
from support.jobtap import JobManager

HEADER = Path(__file__).parents[2] / "src/jobtap/job.h"
NAMELESS = "#DW copy_in source=/a destination=/b"
XFS = "#DW jobdw type=xfs capacity=10GiB name="


def padded(size: int) -> str:
    """A directive of so many bytes."""
    start = "#DW copy_in destination=/b source="
    return start + "x" * (size - len(start))


def problem(dw: Any, **presets: tuple[str, ...]) -> str:
    with pytest.raises(DirectiveError) as caught:
        parse_attribute(dw, presets)
    return caught.value.problem


def test_the_plugin_has_the_same_bounds() -> None:
    text = HEADER.read_text()
    for name in ("DIRECTIVES_BYTES", "DIRECTIVES"):
        (value,) = re.findall(rf"^#define DWS_{name} (\d+)$", text, re.MULTILINE)
        assert int(value) == getattr(limits, name)


def configure(manager: JobManager, **rabbit: Any) -> None:
    """``flux config load``, as the plugin sees it."""
    assert manager.plugin is not None
    rc, _ = manager.plugin.call("conf.update", {"conf": {"rabbit": rabbit}})
    assert rc > 0


def test_the_plugin_has_the_same_limit_for_submissions_by_default() -> None:
    text = HEADER.read_text()
    (value,) = re.findall(r"^#define DWS_DIRECTIVES_LIMIT (\d+)$", text, re.MULTILINE)
    assert int(value) == Config().directives_limit


@pytest.mark.parametrize("limit", [None, 300, 65536])
def test_plugin_and_validator_refuse_more_bytes_than_the_site_has_for_submissions(
    manager: JobManager, limit: Optional[int]
) -> None:
    table: Json = {} if limit is None else {"directives_limit": limit}
    configure(manager, **table)
    most = limit or 8192
    right = [XFS + "aa", padded(most - len(XFS) - 2)]
    check_submission({"dw": right}, [], Site(table))
    assert manager.submit(1, {"dw": padded(most)}) is None
    key = " (rabbit.directives_limit)" if most < limits.DIRECTIVES_BYTES else ""
    expected = f"has {most + 1} bytes, at most {most} are accepted{key}"
    with pytest.raises(DirectiveError) as caught:
        check_submission({"dw": padded(most + 1)}, [], Site(table))
    assert caught.value.problem == expected
    reason = manager.submit(2, {"dw": padded(most + 1)})
    assert reason == f"attributes.system.dw {expected}"


@pytest.mark.parametrize("wrong", [0, -1, 65537, "1000", True, None, 1e3])
def test_a_limit_that_the_module_refuses_is_none_for_the_plugin(
    manager: JobManager, wrong: Any
) -> None:
    configure(manager, directives_limit=300)
    configure(manager, directives_limit=wrong)
    assert manager.submit(1, {"dw": padded(8192)}) is None
    assert manager.submit(2, {"dw": padded(8193)}) is not None


def test_directives_of_a_job_that_was_submitted_before_are_within_any_limit(
    manager: JobManager,
) -> None:
    configure(manager, directives_limit=limits.DIRECTIVES_BYTES)
    large = padded(limits.DIRECTIVES_BYTES)
    assert manager.submit(1, {"dw": large}) is None
    manager.unload()
    manager.load()
    assert manager.submit(2, {"dw": large}) is not None
    assert "exception" not in [event["name"] for event in manager.jobs[1].eventlog]
    payload = {**request([]), "dw_directives": [large]}
    _, found, _ = read_create(payload, Config(directives_limit=10))
    assert [len(directive.text) for directive in found.directives] == [len(large)]


@pytest.mark.parametrize("parts", [1, 3])
def test_plugin_and_module_take_directives_of_the_most_bytes(
    manager: JobManager, parts: int
) -> None:
    configure(manager, directives_limit=limits.DIRECTIVES_BYTES)
    size, rest = divmod(limits.DIRECTIVES_BYTES, parts)
    dw = [padded(size)] * (parts - 1) + [padded(size + rest)]
    assert len(parse_attribute(dw)) == parts
    assert manager.submit(1, {"dw": dw}) is None


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600"])
def test_plugin_and_module_refuse_a_byte_more(
    manager: JobManager, character: str
) -> None:
    over = limits.DIRECTIVES_BYTES + 1 - len(character.encode())
    dw = ["#DW", padded(over - 3) + character]
    expected = f"has {limits.DIRECTIVES_BYTES + 1} bytes, at most 65536 are accepted"
    assert problem(dw) == expected
    reason = manager.submit(1, {"dw": dw})
    assert reason == f"attributes.system.dw {expected}"


@pytest.mark.parametrize("separator", [" ", "\n", None])
def test_plugin_and_module_count_directives_alike(
    manager: JobManager, separator: Any
) -> None:
    many = [NAMELESS] * limits.DIRECTIVES
    for dw in (many, [*many, NAMELESS]):
        value = dw if separator is None else separator.join(dw)
        reason = manager.submit(len(dw), {"dw": value})
        if dw is many:
            assert reason is None and len(parse_attribute(value)) == limits.DIRECTIVES
        else:
            assert problem(value) == "has more than 64 directives for one job"
            assert reason is not None and reason.endswith(problem(value))


@pytest.mark.parametrize("more", [False, True])
def test_the_plugin_bounds_what_it_sends_again_and_again(
    manager: JobManager, more: bool
) -> None:
    names = ["x" * (65536 - len('{"hostlist":[""]}') + more)]
    reason = manager.submit(1, {"dw": NAMELESS, "constraints": {"hostlist": names}})
    text = "attributes.system.constraints of a job with #DW directives has more than"
    assert reason == (f"{text} 65536 bytes" if more else None)
    assert manager.submit(2, {"constraints": {"hostlist": names}}) is None


def test_directives_of_presets_count_as_well() -> None:
    assert "more than 64 directives" in problem(["two"] * 33, two=(NAMELESS,) * 2)


@pytest.mark.parametrize("separator", [" ", "\n", "\u00a0", "\x1c"])
def test_words_have_a_bound(separator: str) -> None:
    args = [f"k{n}=v" for n in range(limits.WORDS - 5)]
    dw = separator.join([XFS + "p1", *args])
    if separator == " ":
        assert len(parse_attribute(dw)[0].arguments) == limits.WORDS - 2
    assert problem([dw, "x"]) == "has more than 1024 words"


def test_blank_lines_are_no_words() -> None:
    assert len(parse_attribute(XFS + "p1" + "\n" * 60_000)) == 1


def test_a_number_has_a_bound_and_zeros_before_it_do_not_matter() -> None:
    digits = "10".zfill(limits.DIGITS)
    (directive,) = parse_attribute(XFS.replace("10", digits) + "p1")
    assert directive.capacity == 10 * 2**30
    found = problem(XFS.replace("10", "0" + digits) + "p1")
    assert found == f"capacity= has more than {limits.DIGITS} digits"
    assert "more than" in problem(XFS.replace("10", "9" * 5000) + "p1")


def test_a_name_has_the_bound_of_names_in_kubernetes() -> None:
    assert parse_attribute(XFS + "n" * limits.NAME_LENGTH)
    assert (
        problem(XFS + "n" * (limits.NAME_LENGTH + 1))
        == "name= has more than 253 characters"
    )


def submit(resources: list[Any]) -> None:
    check_submission({"dw": XFS + "p1"}, resources, Site({}))


def request(resources: list[Any]) -> Json:
    """The payload of ``dws.create``."""
    return {
        "jobid": 1,
        "userid": 1,
        "dw_directives": [NAMELESS],
        "resources": resources,
        "failure_tolerance": 0,
    }


def create(resources: list[Any]) -> Any:
    return read_create(request(resources), Config())


@pytest.mark.parametrize("key", ["jobid", "userid", "failure_tolerance"])
def test_a_request_of_another_plugin_has_no_number_below_0(key: str) -> None:
    with pytest.raises(BadObject, match=f"dws.create: {key} is -1, expected .* 0"):
        read_create({**request([]), key: -1}, Config())


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_resources_have_a_bound_of_levels() -> None:
    create(nested(limits.LEVELS))
    for levels in (limits.LEVELS + 1, 100_000):
        for read in (create, submit):
            with pytest.raises(BadObject, match="at most 128 levels"):
                read(nested(levels))


def test_resources_have_a_bound_of_values() -> None:
    core = {"type": "core", "count": 1}
    most = limits.VALUES // 3
    create([core] * most)
    for read in (create, submit):
        with pytest.raises(BadObject, match="at most 4096 values"):
            read([core] * (most + 1))


def test_a_job_cannot_ask_for_more_nodes_than_there_can_be() -> None:
    resources: list[Any] = [{"type": "node", "count": 2**62}]
    for _ in range(20):
        resources = [{"type": "rack", "count": 2**62, "with": resources}]
    table = {"policy": {"maximums": {"lustre": 1}}}
    dw = "#DW jobdw type=lustre capacity=10GiB name=p1"
    with pytest.raises(BadObject, match=r"at most 2147483647 nodes"):
        check_submission({"dw": dw}, resources, Site(table))


@pytest.mark.parametrize("dw", ["", "  \n\t", []])
def test_an_empty_attribute_is_no_directive_at_submission(dw: Any) -> None:
    assert is_empty(dw)
    check_submission({"dw": dw}, [], Site({}))


@pytest.mark.parametrize("dw", [None, 0, False, {}, [""], ["", ""], "#DW"])
def test_other_attributes_are_not_empty_at_submission(dw: Any) -> None:
    assert not is_empty(dw)
