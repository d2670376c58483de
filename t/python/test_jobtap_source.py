# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What dws.h says of posts holds in the source of the plugin.

A post may end a job, and so free its struct. Only action.c posts, its functions take
the address of the pointer to the job, and nothing that was given the pointer itself
does so: then there is no second pointer that could be left behind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "src" / "jobtap").glob("*.c"))
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


def test_the_functions_of_the_plugin_are_found() -> None:
    found = {name for path in SOURCES for name, _, _ in functions(path)}
    assert {"dws_job_raise", "cleanup_cb", "job_admit", "dws_job_resume"} <= found
