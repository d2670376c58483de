# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``t/mutants.py`` tells whether torture finds what a patch takes out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import mutants
from support.rules import rules_of_torture


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
    assert rules == rules_of_torture()


TORTURE = "src/pymod/rabbitsim/__main__.py"
CODE = """\
import sys

first, seeds = (int(word.partition("=")[2]) for word in sys.argv[-3:-1])
for seed in range(first, first + seeds):
    if seed in BROKEN:
        sys.exit(f"breach at step 7 of seed {seed}: {BROKEN[seed]}: a job is lost")
"""
"""Breaks the rule that BROKEN has for a seed."""


@pytest.mark.parametrize(
    ("intact", "changed", "said", "status"),
    [
        ("{}", "{5: 'lost'}", "lost 5", 0),
        ("{}", "{6: 'lost'}", "lost - NOT FOUND", 1),
        ("{}", "{2: 'twice'}", "lost - NOT FOUND (but twice)", 1),
        ("{2: 'twice'}", "{2: 'twice', 5: 'lost'}", "lost 5", 0),
        ("{3: 'twice'}", "{3: 'lost'}", "(but the tree as it is with seed 3)", 1),
        ("{3: 'twice'}", "{3: 'lost', 4: 'lost'}", "lost 4", 0),
        ("{}", "1 / 0", "ZeroDivisionError: division by zero", 1),
    ],
)
def test_a_mutant_is_found_by_a_breach_of_its_rule_that_the_tree_does_not_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    intact: str,
    changed: str,
    said: str,
    status: int,
) -> None:
    """A tree whose torture takes no time, and a mutant of the rule "lost"."""
    monkeypatch.setattr(mutants, "TOP", tmp_path)
    monkeypatch.setattr(mutants, "EXTENSIONS", ())
    torture = tmp_path / TORTURE
    torture.parent.mkdir(parents=True)
    torture.with_name("__init__.py").touch()
    torture.write_text(f"BROKEN = {intact}\n{CODE}")
    mutant = tmp_path / "07-no-reason.patch"
    mutant.write_text(
        "Item: 07\nFinds: lost\nTorture: --jobs 1\n"
        f"diff --git a/{TORTURE} b/{TORTURE}\n--- a/{TORTURE}\n+++ b/{TORTURE}\n"
        f"@@ -1,2 +1,2 @@\n-BROKEN = {intact}\n+BROKEN = {changed}\n import sys\n"
    )
    assert mutants.main(["--seeds=5", str(mutant)]) == status
    printed = " ".join("".join(capsys.readouterr()).split())
    without_seconds = re.sub(r"(lost \S+) \d+", r"\1", printed)
    assert without_seconds.endswith(said)
