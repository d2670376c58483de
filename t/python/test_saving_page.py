# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""doc/saving.md is what the numbers beside it give (make day-saving)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rabbitsim.day.page import MADE, fill
from rabbitsim.day.saving import MODES, NUMBERS, PLOTS, TABLES, Saving, plot
from rabbitsim.day.site import Site
from support.tree import TOP

DOC = TOP / "doc"
PAGE = (DOC / "saving.md").read_text("utf-8")


def saving(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script beside a copy of the page."""
    folder.mkdir()
    for name in ("saving.py", "saving.md"):
        shutil.copy(DOC / name, folder)
    return subprocess.run(
        [sys.executable, str(folder / "saving.py"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_tables_of_the_page_are_what_its_numbers_give() -> None:
    """If a table has changed: python doc/saving.py; the simulation: make day-saving."""
    assert fill(PAGE, TABLES, Saving.read(DOC)) == PAGE


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_of_the_page_is_what_its_numbers_give(name: str) -> None:
    assert (DOC / name).read_text("utf-8") == plot(name, Saving.read(DOC))
    ElementTree.parse(DOC / name)
    assert f"]({name})" in PAGE


def test_each_table_is_on_the_page_and_a_digit_that_is_edited_there_is_found() -> None:
    made = list(MADE.finditer(PAGE))
    assert {match[2] for match in made} == TABLES.keys()
    for match in made:
        edited = re.sub(r"\d", lambda digit: str(9 - int(digit[0])), match[0])
        assert edited != match[0]
        text = PAGE.replace(match[0], edited)
        assert fill(text, TABLES, Saving.read(DOC)) == PAGE


def test_the_text_around_the_tables_has_no_number_that_could_be_wrong() -> None:
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", MADE.sub("", PAGE), flags=re.S)
    assert re.findall(r"\b\d+", text) == []


def test_the_days_of_the_page_differ_in_the_modes_only() -> None:
    days = Saving.read(DOC).days
    assert days.keys() == MODES.keys()
    for mode, day in days.items():
        site = day["site"]
        assert mode == f"{site['stage']}-{site['release']}"
        assert day["stuck"] == []
        size = {name: site[name] for name in ("nodes", "rabbits", "jobs")}
        modes = {name: site[name] for name in ("stage", "release")}
        assert site == replace(Site(**size), **modes).to_json()
        assert size["nodes"] / size["rabbits"] == Site().nodes / Site().rabbits
    assert len({day["site"]["jobs"] for day in days.values()}) == 1


def test_the_script_makes_the_page_and_its_plots_of_four_simulations(
    tmp_path: Path,
) -> None:
    for mode, day in Saving.read(DOC).days.items():
        (tmp_path / mode).mkdir()
        (tmp_path / mode / "day.json").write_text(json.dumps(day), "utf-8")
    out = tmp_path / "doc"
    done = saving(out, str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    for name in ("saving.md", NUMBERS, *PLOTS):
        assert (out / name).read_bytes() == (DOC / name).read_bytes()
