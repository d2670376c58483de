# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux getrabbit, with a mapping that is named. t/t2002-getrabbit.t has what needs
an instance: its mapping, and its jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import refused, run


@pytest.fixture
def mapping(mapping: Path) -> str:
    return f"--mapping={mapping}"


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ((), "hetchy[201-202]"),
        (("hetchy202",), "hetchy[1003-1018]"),
        (("hetchy201,hetchy201", "hetchy201"), "hetchy[1001-1002]"),
        (("--computes", "hetchy1018", "hetchy1001"), "hetchy[202,201]"),
        (("-c", "hetchy1018", "--computes=hetchy1001"), "hetchy[202,201]"),
    ],
)
def test_the_answer_is_a_hostlist_in_the_order_of_the_arguments(
    args: tuple[str, ...], answer: str, mapping: str
) -> None:
    done = run("getrabbit", mapping, *args)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{answer}\n"


@pytest.mark.parametrize("args", [("-c", ""), ("",), ("empty",)])
def test_no_hosts_are_no_output_and_no_error_as_with_flux_hostlist(
    args: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "mapping.json"
    rabbits = {"empty": {"capacity": 1, "hostlist": ""}}
    path.write_text(json.dumps({"computes": {}, "rabbits": rabbits}))
    done = run("getrabbit", "--mapping", path, *args)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hetchy[202-204]",), "no such Rabbit: hetchy[203-204]"),
        (("hetchy[",), "hostlist 'hetchy[': misplaced bracket in 'hetchy['"),
    ],
)
def test_a_name_that_is_not_known_is_an_error_that_names_it(
    args: tuple[str, ...], words: str, mapping: str
) -> None:
    (line,) = refused(run("getrabbit", mapping, *args))
    assert line == f"flux-getrabbit: ERROR: {words}"


def test_rabbits_and_computes_cannot_be_asked_for_at_once(mapping: str) -> None:
    done = run("getrabbit", mapping, "-c", "hetchy1001", "--", "hetchy201")
    assert done.returncode == 2
    assert "not allowed with argument" in done.stderr


def test_a_mapping_that_is_not_there_is_named() -> None:
    (line,) = refused(run("getrabbit", "--mapping=/none.json"))
    assert line == "flux-getrabbit: ERROR: /none.json: No such file or directory"
