# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``t/mutants.py`` tells whether torture finds what a patch takes out."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import mutants  # noqa: E402

CHANGED = "src/pymod/flux_k8s/jobs/setupreader.py"


def diff() -> str:
    """A patch of a line of the tree as it is."""
    before = (mutants.TOP / CHANGED).read_text().splitlines(keepends=True)
    after = [
        line.replace('"dws.setup", payload', '"dws.setup", None') for line in before
    ]
    lines = difflib.unified_diff(before, after, f"a/{CHANGED}", f"b/{CHANGED}")
    return f"diff --git a/{CHANGED} b/{CHANGED}\n" + "".join(lines)


def patch(folder: Path, text: str) -> str:
    path = folder / "07-no-reason.patch"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "path", sorted(mutants.MUTANTS.glob("*")), ids=lambda p: p.name
)
def test_each_mutant_of_the_tree_has_a_header_and_applies(
    tmp_path: Path, path: Path
) -> None:
    mutant = mutants.Mutant.read(path)
    assert path.name.startswith(f"{int(mutant.item):02}-")
    for name in re.findall(r"^--- a/(\S+)$", mutant.diff, re.M):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(mutants.TOP / name, tmp_path / name)
    mutants.patch(mutant, tmp_path)


def test_the_page_about_torture_names_each_mutant_and_each_rule() -> None:
    page = (mutants.TOP / "doc/torture.md").read_text()
    found = {
        path.stem: mutants.Mutant.read(path).rule
        for path in mutants.MUTANTS.glob("*.patch")
    }
    named = re.findall(r"^\| (\d\d-[\w-]+) \|.*\| `([a-z ]+)` \|$", page, re.M)
    assert dict(named) == found and len(named) == len(found)
    (table,) = re.findall(
        r"^\| rule \| what breaks it \|\n(.+?)\n\n", page, re.M | re.S
    )
    cells = [line.split(" | ")[0] for line in table.splitlines()]
    rules = {rule for cell in cells for rule in re.findall("`(.+?)`", cell)}
    sources = (mutants.TOP / "src/pymod/rabbitsim/torture").glob("*.py")
    checks = " ".join(path.read_text() for path in sources)
    assert rules == set(re.findall(r'fail\(\s*"([a-z ]+)"', checks))
