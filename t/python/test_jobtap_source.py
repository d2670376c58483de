# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the headers of the plugin promise holds in its source.

The files are layers: build_jobtap.py lists them, the lowest first, and none knows of a
later one.

A post may end a job, and so free its struct. Only action.c posts, its functions take
the address of the pointer to the job, and nothing that was given the pointer itself
does so: then there is no second pointer that could be left behind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

import pytest

JOBTAP = Path(__file__).parents[2] / "src" / "jobtap"
BUILD = (JOBTAP / "build_jobtap.py").read_text()
SOURCES = [JOBTAP / name for name in re.findall(r'"src/jobtap/(.+\.c)"', BUILD)]
POSTS = re.compile(
    r"flux_jobtap_(dependency_(add|remove)|(prolog|epilog)_(start|finish)"
    r"|raise_exception|event_post_pack|jobspec_update\w*|job_set_flag"
    r"|reprioritize\w*|call)\b"
)
FUNCTION = re.compile(
    r"^(?:static )?\w[^;{}=]*?\n?(\w+) \(([^;{}]*?)\)\n{\n(.*?)^}", re.M | re.S
)


def code(path: Path) -> str:
    """The source without comments and texts."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def functions(path: Path) -> Iterator[tuple[str, str, str]]:
    """Names, parameters and bodies."""
    for match in FUNCTION.finditer(code(path)):
        yield match[1], match[2], match[3]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_file_calls_no_file_above_it(path: Path) -> None:
    above = SOURCES[SOURCES.index(path) + 1 :]
    names = {name for file in above for name, _, _ in functions(file)}
    shared = {name for name in names if name.startswith("dws_")}
    assert shared.intersection(re.findall(r"\w+", code(path))) == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_only_action_c_posts_events(path: Path) -> None:
    assert (POSTS.search(code(path)) is not None) == (path.name == "action.c")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_function_that_is_given_a_pointer_to_a_job_does_not_post(path: Path) -> None:
    found = [
        name
        for name, parameters, body in functions(path)
        if re.search(r"struct dws_job \*job\b", parameters)
        if re.search(r"&job\b(?!->)", body) or POSTS.search(body)
    ]
    assert found == []
