# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The formats of ``flux dws list -o``: those of Flux, for any text and any width."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwscli import units
from dwscli.formats import Field, Format
from dwscli.jobfields import BUILTIN as JOB_FORMATS
from dwscli.jobfields import FIELDS as JOB_FIELDS
from dwscli.rabbits import BUILTIN as RABBIT_FORMATS
from dwscli.rabbits import FIELDS as RABBIT_FIELDS
from dwscli.width import cut, padded
from flux_k8s.text import columns, printable
from support.dwscli import FRESH, FixedInstance, dws, row

NAMES = ("name", "count", "time", "share", "none")
FIELDS: dict[str, Field[dict[str, Any]]] = {
    name: Field(name.upper(), lambda item, name=name: item[name]) for name in NAMES
}
ITEMS = [
    {"name": "alice", "count": 3, "time": 1764000000.5, "share": 0.123, "none": ""},
    {"name": "bob-with-a-name", "count": 0, "time": 0.0, "share": 0.0, "none": ""},
    {"name": "", "count": 12345, "time": 61.0, "share": 1.0, "none": ""},
]
FORMATS = [
    "{name}",
    "{name:>12} {count:<5}|",
    "{name:<5.5} {count:>3}",
    "{name:<5.5+} {count:>8d}",
    "{name:>10h} {none:>4h}",
    "?:{none:<8} {name}",
    "{count} ?:{none:<8} +:{name:<3} {share}",
    "{count} ?+:{name:<3.3}x",
    "?+:{none:>5}{count:05}",
    "{time!F:>12h} {share!P:>8}",
    "{time!H:>20}",
    "{time!D:<22}|",
    "{time!d:%Y-%m-%d %H:%M::>20}|",
    "{share:.2f} {share:>8.1%}",
    "{count:,} {count:+d} {count:x}",
    "{name!r:>20}",
    "sort:-count {name} {count}",
    "sort:none,name {name}",
]

SECONDS = [0, 1e-4, 0.5, 9.9996, 10, 59.99, 60, 3599, 3600, 86399, 86400, 1e7, 1e9]
OURS_AND_FLUX = """
import json, sys
from types import SimpleNamespace
from flux.util import OutputFormat, fsd
items, formats, headings, seconds = json.load(sys.stdin)
print([fsd(each) for each in seconds])
for text in formats:
    rows = [SimpleNamespace(**item) for item in items]
    OutputFormat(text, headings=headings).print_items(rows)
    print("--")
"""


def table(text: str, items: list[dict[str, Any]], **options: Any) -> list[str]:
    return [line for line, _ in Format(text, FIELDS).lines(items, **options)]


@pytest.mark.skipif(shutil.which("flux") is None, reason="no flux on PATH")
def test_formats_and_durations_are_written_as_flux_does() -> None:
    headings = {name: field.heading for name, field in FIELDS.items()}
    flux = subprocess.run(
        ["flux", "python", "-c", OURS_AND_FLUX],
        input=json.dumps([ITEMS, FORMATS, headings, SECONDS]),
        capture_output=True,
        text=True,
        check=True,
    )
    durations, _, tables = flux.stdout.partition("\n")
    assert str([units.duration(one) for one in SECONDS]) == durations
    theirs = [part.strip("\n") for part in tables.split("--\n")[:-1]]
    assert len(theirs) == len(FORMATS)
    for text, expected in zip(FORMATS, theirs):
        lines = [line.rstrip(" ") for line in expected.split("\n")]
        assert table(text, ITEMS) == lines, text


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, "0B"),
        (1, "1B"),
        (999, "999B"),
        (1000, "0.977KiB"),
        (1023 * 2**20, "0.999GiB"),
        (10 * 2**30, "10GiB"),
        (1.5 * 2**40, "1.5TiB"),
        (2**63, "8EiB"),
        (999.7 * 2**20, "1000MiB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(amount: float, expected: str) -> None:
    assert units.size(amount) == expected


def test_built_in_formats_name_fields_that_exist() -> None:
    for formats, fields in ((JOB_FORMATS, JOB_FIELDS), (RABBIT_FORMATS, RABBIT_FIELDS)):
        for _, text in formats.values():
            assert Format(text, fields).names <= set(fields)


def test_wide_characters_take_two_columns() -> None:
    items = [{"name": "名前"}, {"name": "plain"}, {"name": "e\u0301te\u0301"}]
    padded = ["名前  |", "plain |", "e\u0301te\u0301   |"]
    assert table("{name:<6}|", items, header=False) == padded
    short = ["名+|", "pl+|", "e\u0301te\u0301|"]
    assert table("{name:<3.3+}|", items, header=False) == short
    assert table("+:{name:<1}|", items, header=False)[0] == "名前 |"


@given(st.text(), st.integers(1, 50), st.sampled_from("<>^"))
def test_a_text_is_cut_and_padded_to_its_columns(
    text: str, width: int, align: str
) -> None:
    text = printable(text)
    short = cut(text, width)
    assert columns(short) <= width
    assert columns(padded(short, width, align)) == width
    if columns(text) <= width:
        assert short == text


values = st.one_of(
    st.none(), st.text(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False)
)


@pytest.mark.parametrize(
    ("format", "problem"),
    [
        ("{", "Single '{' encountered in format string"),
        ("{stat}", "Unknown format field: stat (did you mean state?)"),
        ("{state!x}", "Unknown conversion specifier 'x', expected one of s, r, a, d"),
        ("{state:9>x9}", "Invalid format specifier: '9>x9'"),
        ("{nnodes:d}{state!F}", "'PreRun' is neither a time nor a number"),
        ("{0.state}", "Unknown format field: 0.state"),
        ("{\x1b2J}", r"Unknown format field: \x1b2J"),
    ],
)
def test_a_wrong_format_is_refused(format: str, problem: str) -> None:
    answer = {**FRESH, "jobs": [row()], "next": None}
    done = dws(FixedInstance({"dws.job-list": answer}), "list", "-o", format)
    assert (done.status, done.out) == (1, "")
    assert f"flux-dws: ERROR: Error in user format: {problem}" in done.err
    assert len(done.err.splitlines()) == 1


# Named formats


@pytest.fixture
def instance() -> FixedInstance:
    answer = {**FRESH, "jobs": [row()], "next": None}
    return FixedInstance({"dws.job-list": answer, "dws.rabbit-list": {"rabbits": []}})


def configure(folder: Path, name: str, text: str) -> Path:
    path = folder / "flux" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


TOML = '[list.formats.mine]\ndescription = "my jobs"\nformat = "{state}"\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flux-dws.toml", TOML),
        ("flux-dws.json", '{"list": {"formats": {"mine": {"format": "{state}"}}}}'),
        ("flux-dws.yaml", "list: {formats: {mine: {format: '{state}'}}}"),
    ],
)
def test_a_file_of_the_user_or_else_of_the_site_names_formats(
    instance: FixedInstance, tmp_path: Path, name: str, text: str
) -> None:
    configure(tmp_path / "site", name, text)
    site, own = f"/nowhere:{tmp_path / 'site'}", str(tmp_path / "own")
    words = ("list", "-n", "-o", "mine")
    assert dws(instance, *words, XDG_CONFIG_HOME=site[9:]).out == "PreRun\n"
    both = {"XDG_CONFIG_DIRS": site, "XDG_CONFIG_HOME": own}
    assert dws(instance, *words, **both) == (0, "PreRun\n", "")
    configure(tmp_path / "own", "flux-dws.toml", TOML.replace("state", "status"))
    assert dws(instance, *words, **both).out == "DriverWait\n"


def test_a_format_of_the_environment_is_the_default(instance: FixedInstance) -> None:
    done = dws(instance, "list", "-n", FLUX_DWS_LIST_FORMAT_DEFAULT="{state}")
    assert done.out == "PreRun\n"
    done = dws(instance, "list", FLUX_DWS_LIST_FORMAT_DEFAULT="long")
    assert "STATUS" in done.out


def test_formats_are_listed_and_written_as_configuration(
    instance: FixedInstance, tmp_path: Path
) -> None:
    configure(tmp_path, "flux-dws.toml", TOML)
    done = dws(instance, "list", "-o", "help", XDG_CONFIG_HOME=str(tmp_path))
    assert "Configured flux dws list output formats" in done.out
    assert "  mine         my jobs\n" in done.out and "  default " in done.out
    done = dws(instance, "list", "-o", "get-config=mine", XDG_CONFIG_HOME=str(tmp_path))
    assert done.out == TOML
    assert instance.requests == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("list = 1", "list must be a mapping, and is 1"),
        ("[list]\nhidden = 1", "invalid key list.hidden"),
        ("[jobs.formats]", "invalid key jobs"),
        ("[list.formats.mine]", "list.formats.mine: required key 'format' missing"),
        ("[list.formats]\nmine = 1", "list.formats.mine must be a mapping, and is 1"),
        (
            TOML.replace("mine", "long"),
            "override of builtin format 'long' not permitted",
        ),
        ("[list", "Expected ']' at the end of a table declaration"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(
    instance: FixedInstance, tmp_path: Path, text: str, problem: str
) -> None:
    path = configure(tmp_path, "flux-dws.toml", text)
    done = dws(instance, "list", "-o", "mine", XDG_CONFIG_HOME=str(tmp_path))
    assert done.status == 1
    assert done.err.startswith(f"flux-dws: ERROR: {path}: ")
    assert problem in done.err and len(done.err.splitlines()) == 1


def test_a_format_that_is_not_there_is_refused_with_those_that_are(
    instance: FixedInstance,
) -> None:
    done = dws(instance, "rabbits", "-o", "lang")
    assert done == (
        1,
        "",
        "flux-dws: ERROR: --format: No such format lang, expected one of default, long,"
        " or fields in braces as in '{id.f58} {state}'\n",
    )
