# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""doc/scale.md is what the numbers beside it give (make day)."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rabbitsim.day import page
from rabbitsim.day.page import MADE, NUMBERS, Numbers
from rabbitsim.day.plots import PLOTS, plot
from rabbitsim.day.site import Site
from support.tree import TOP

DOC = TOP / "doc"
SCRIPT = runpy.run_path(str(DOC / "scale.py"))
PAGE = (DOC / "scale.md").read_text("utf-8")


def fill(text: str, folder: Path = DOC) -> str:
    return page.fill(text, SCRIPT["TABLES"], Numbers.read(folder))


def scale(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script beside a copy of the page."""
    folder.mkdir(exist_ok=True)
    for name in ("scale.py", "scale.md"):
        shutil.copy(DOC / name, folder)
    return subprocess.run(
        [sys.executable, str(folder / "scale.py"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_tables_of_the_page_are_what_its_numbers_give() -> None:
    """If a table has changed: python doc/scale.py; if the simulation has: make day."""
    assert fill(PAGE) == PAGE


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_of_the_page_is_what_its_numbers_give(name: str) -> None:
    series = Numbers.read(DOC).day["series"]
    assert (DOC / name).read_text("utf-8") == plot(name, series)


@pytest.mark.parametrize("name", PLOTS)
def test_each_plot_is_on_the_page_and_small(name: str) -> None:
    assert f"]({name})" in PAGE
    assert (DOC / name).stat().st_size < 60_000


def test_each_table_is_on_the_page_and_a_digit_that_is_edited_there_is_found() -> None:
    made = list(MADE.finditer(PAGE))
    assert {match[2] for match in made} == SCRIPT["TABLES"].keys()
    for match in made:
        edited = re.sub(r"\d", lambda digit: str(9 - int(digit[0])), match[0])
        assert edited != match[0]
        assert fill(PAGE.replace(match[0], edited)) == PAGE


@pytest.mark.parametrize("name", NUMBERS)
def test_an_edit_of_the_numbers_beside_the_page_is_found(
    name: str, tmp_path: Path
) -> None:
    for each in NUMBERS:
        shutil.copy(DOC / each, tmp_path)
    text = (tmp_path / name).read_text("utf-8")
    (tmp_path / name).write_text(text.replace('"seed": 0', '"seed":  0'), "utf-8")
    assert fill(PAGE, tmp_path) != PAGE


def test_the_text_around_the_tables_has_no_number_that_could_be_wrong() -> None:
    text = MADE.sub("", PAGE)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|^\d+\. ", "", text, flags=re.M | re.S)
    assert re.findall(r"\d+", text) == []


def test_the_page_is_of_a_machine_as_it_is_assumed_and_of_one_ten_times_as_large() -> (
    None
):
    found = Numbers.read(DOC)
    usual = Site().to_json()
    assert found.day["site"] == usual
    assert found.factor == 10.0
    sizes = ("nodes", "rabbits", "jobs", "hours")
    assert found.ten["site"] == {**usual, **{n: found.ten["site"][n] for n in sizes}}
    assert found.ten["site"]["rabbits"] == 10 * usual["rabbits"]
    assert found.day["stuck"] == found.ten["stuck"] == []


def test_the_script_makes_the_page_and_its_plots_of_two_simulations(
    tmp_path: Path,
) -> None:
    for name in NUMBERS:
        (tmp_path / f"of {name}").mkdir()
        shutil.copy(DOC / name, tmp_path / f"of {name}" / "day.json")
    out = tmp_path / "doc"
    done = scale(out, *(str(tmp_path / f"of {name}") for name in NUMBERS))
    assert (done.returncode, done.stdout) == (0, "")
    for name in ("scale.md", *NUMBERS, *PLOTS):
        assert (out / name).read_bytes() == (DOC / name).read_bytes()


def test_the_script_refuses_a_day_without_the_other_simulation(tmp_path: Path) -> None:
    done = scale(tmp_path / "doc", str(tmp_path))
    assert done.returncode == 2
    assert "expected DAY and TEN, or neither" in done.stdout
