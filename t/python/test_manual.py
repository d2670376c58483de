# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The manual: it can be built, and what its pages list is what there is."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Iterator, Mapping

import pytest

from dwscli import jobfields, rabbits, usage
from dwscli.formats import Field
from flux_k8s.config.arguments import Arguments
from flux_k8s.config.table import Config
from support.effort import night
from support.tree import TOP

DOC = TOP / "doc"
PAGES = runpy.run_path(str(DOC / "manpages.py"))["MAN_PAGES"]
SUBCOMMANDS = runpy.run_path(str(TOP / "src/cmd/flux-dws.py"))["SUBCOMMANDS"]
COMMANDS = ("dws2jgf", "getrabbit", "rabbitmapping")


def read(path: Path) -> str:
    """A page, with what it includes."""
    return re.sub(
        r"^\.\. include:: (.*)$",
        lambda match: read(path.parent / match[1]),
        path.read_text(),
        flags=re.M,
    )


DWS = read(DOC / "man1/flux-dws.rst")
CONFIG = read(DOC / "man5/flux-config-rabbit.rst")


@pytest.fixture(scope="module")
def doctrees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Sphinx has read of the sources: each builder that comes later reads it."""
    return tmp_path_factory.mktemp("doctrees")


def build(builder: str, folder: Path, doctrees: Path) -> None:
    pytest.importorskip(
        "sphinx", reason="Sphinx is not installed (pip: flux-dws[docs])"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    done = subprocess.run(
        [*command, "-d", str(doctrees), "-b", builder]
        + [str(DOC), str(folder / builder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_manual_has_the_documents_of_the_top_folder() -> None:
    pages = "".join(path.read_text() for path in DOC.glob("*.md"))
    included = set(re.findall(r"^```{include} \.\./(\S+)$", pages, re.M))
    assert {path.name for path in TOP.glob("*.md")} - included == {"README.md"}


@night
def test_the_html_pages_are_built_without_a_warning(
    tmp_path: Path, doctrees: Path
) -> None:
    build("html", tmp_path, doctrees)
    assert (tmp_path / "html/man1/flux-dws.html").exists()


@night
def test_the_man_pages_in_the_repository_are_what_is_built(
    tmp_path: Path, doctrees: Path
) -> None:
    """Otherwise, `make docs`."""
    build("man", tmp_path, doctrees)
    built = {path.name: path.read_text() for path in tmp_path.glob("man/man?/*")}
    assert built == {path.name: path.read_text() for path in DOC.glob("man/man?/*")}


def test_each_page_has_its_source_its_man_page_and_its_heading() -> None:
    names = {f"man{section}/{name}" for name, section, _ in PAGES}
    assert names == {
        str(path.relative_to(DOC).with_suffix("")) for path in DOC.glob("man?/flux-*")
    }
    for name, section, purpose in PAGES:
        source = (DOC / f"man{section}/{name}.rst").read_text()
        assert source.splitlines()[1] == f"{name}({section})"
        page = (DOC / f"man/man{section}/{name}.{section}").read_text()
        assert f"\n{name} - {purpose}\n" in page.replace(r"\-", "-")


def test_flux_help_lists_each_command_with_the_purpose_of_its_page() -> None:
    (group,) = json.loads((DOC / "help.d/dws.json").read_text())
    listed = {f"flux-{c['name']}": c["description"] for c in group["commands"]}
    commands = {path.stem for path in (TOP / "src/cmd").glob("flux-*.py")}
    assert listed == {name: why for name, _, why in PAGES if name in commands}
    assert set(listed) == commands


# Options


def documented(text: str) -> set[str]:
    """The options that a part of a page describes."""
    return {
        re.split(r"[=\[]", word)[0]
        for line in re.findall(r"^\.\. option:: (.*)$", text, re.M)
        for word in re.split(r", (?=-)", line)
    }


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings}


def section(text: str, program: str) -> str:
    """What a page says after ``.. program::``, up to the next one."""
    return text.split(f".. program:: {program}\n")[1].split(".. program::")[0]


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_subcommand_of_flux_dws_has_the_options_that_its_page_lists(
    name: str,
) -> None:
    parser = argparse.ArgumentParser(prog=f"flux dws {name}")
    import_module(f"dwscli.{SUBCOMMANDS[name][0]}").add_arguments(parser)
    found = options(parser) - {"-h", "--help"}
    assert documented(section(DWS, f"flux dws {name}")) == found


def test_the_page_of_flux_dws_has_each_subcommand() -> None:
    assert set(re.findall(r"^\.\. program:: flux dws (\S+)$", DWS, re.M)) == set(
        SUBCOMMANDS
    )
    synopsis = DWS.split("SYNOPSIS")[1].split("DESCRIPTION")[0]
    words = set(re.findall(r"\*\*dws\*\* \*\*(\w\S*)\*\*", synopsis))
    assert words == set(SUBCOMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_options_that_its_page_lists(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Parsed(Exception):
        pass

    def parse_args(parser: argparse.ArgumentParser, *_: Any) -> None:
        raise Parsed(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    command = runpy.run_path(str(TOP / f"src/cmd/flux-{name}.py"))
    with pytest.raises(Parsed) as parsed:
        command["arguments"]()
    page = read(DOC / f"man1/flux-{name}.rst")
    assert documented(page) == options(parsed.value.args[0])


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("list", jobfields.FIELDS),
        ("rabbits", rabbits.FIELDS),
        ("usage", usage.FIELDS),
    ],
)
def test_a_table_has_the_fields_that_the_page_lists(
    name: str, fields: Mapping[str, Field[Any]]
) -> None:
    text = DWS.split(f"Fields of **{name}**:\n")[1]
    text = re.split(r"\nFields of|\n\n\n", text)[0]
    lines = re.findall(r"^\*\*.*$", text, re.M)
    listed = [word for line in lines for word in re.findall(r"\*\*(\S+)\*\*", line)]
    assert len(set(listed)) == len(listed)
    assert set(listed) == set(fields)


# The [rabbit] table

KEY = re.compile(r"^([a-z_]+)\n   \((\w+), ([^)]*)\)", re.M)
TYPES = {
    "bool": "boolean",
    "float": "number",
    "int": "integer",
    "str": "string",
    "tuple[str, ...]": "array",
}


DURATIONS = {
    "tc_timeout": "10s",
    "setup_timeout": None,
    "prerun_timeout": None,
    "postrun_timeout": None,
    "teardown_after": None,
    "stall_timeout": None,
    "keep_failed": None,
    "prolog_timeout": "30m",
    "stage_timeout": "24h",
}
"""The default of each key that is a time."""


def keys() -> dict[str, tuple[str, str]]:
    """The type of each key of the page, and its default."""
    text = CONFIG.split("\nKEYS\n")[1].split("\nMODULE ARGUMENTS\n")[0]
    return {name: (type, default) for name, type, default in KEY.findall(text)}


def fields() -> Iterator[tuple[str, str, Any]]:
    """The name, the type and the default of each key that is read."""
    for field in dataclasses.fields(Config):
        if field.name == "maximums":
            yield "policy", "table", None
        elif field.name in DURATIONS:
            yield field.name, "duration", DURATIONS[field.name]
        else:
            annotation = str(field.type)
            word = (
                "table"
                if "Mapping" in annotation
                else TYPES[re.sub(r"Optional\[(\w+)\]", r"\1", annotation)]
            )
            yield field.name, word, getattr(Config(), field.name) or None


def test_the_page_of_the_configuration_has_each_key_with_its_type() -> None:
    assert {name: type for name, (type, _) in keys().items()} == {
        name: type for name, type, _ in fields()
    }


def test_the_page_of_the_configuration_has_the_defaults() -> None:
    found = keys()
    for name, _, default in fields():
        shown = found[name][1]
        if name == "mapping":
            assert shown == "required"
        elif default is None:
            assert shown in (
                "default: 0",
                "default: an identity that Flux's KVS keeps",
                "default: discovered",
                "default: none",
                "default: off",
                "default: that of the Kubernetes client",
            )
        else:
            text = f"{default:g}" if isinstance(default, float) else str(default)
            assert shown == f"default: {text.lower()}"


def test_each_key_has_an_example_that_is_right() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 or newer reads TOML")
    examples = re.findall(r"Example:\s+``(.*)``", CONFIG)
    tables = [tomllib.loads(example) for example in examples]
    assert [next(iter(table)) for table in tables] == list(keys())
    for table in tables:
        Config.parse(table)


def test_the_arguments_of_the_module_are_on_the_page() -> None:
    text = CONFIG.split("\nMODULE ARGUMENTS\n")[1].split("\nSCHED-RABBIT\n")[0]
    words = re.findall(r"^(\w+)=(\S*)$", text, re.M)
    assert {name for name, _ in words} == {
        field.name for field in dataclasses.fields(Arguments)
    }
    Arguments.parse(["scheduler=none", "queues=a,b", "watchdog=5"])


def test_the_guide_has_each_key_that_is_kept_of_a_job() -> None:
    text = (DOC / "durable.md").read_text()
    durable = text.split("## Keys in the KVS directory of a job")[1].split("\n## ")[0]
    described = re.findall(r"^\| `(rabbit_[\w<>]+)`", durable, re.M)
    assert len(described) == 12
    section = (DOC / "user.md").read_text().split("## What is kept of a job")[1]
    table = section.split("\n| event |")[0]
    listed = set(re.findall(r"^\| `(rabbit_\w+)`", table, re.M))
    assert listed == {key.replace("<state>", "proposal") for key in described}
