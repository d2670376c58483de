# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The completion of flux dws in a real bash; on a real Flux, t/t1033-dws-queries.t."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from support.dwscli import COMMAND
from support.tree import TOP

COMPLETION = TOP / "etc/completions/flux-dws"
SUBCOMMANDS: dict[str, tuple[str, str]] = COMMAND["SUBCOMMANDS"]
BASH = shutil.which("bash") or ""

pytestmark = pytest.mark.skipif(not BASH, reason="bash is not on PATH")

FLUX = """#!/bin/sh
case "$*" in
"dws list -n -o {id} "*) echo f8Ab; echo f9Cd ;;
"dws list -n -o {id.f58plain}"*) echo f8Ab; echo f9Cd ;;
"dws list -n -o {id.dec}"*) echo 812; echo 934 ;;
"dws list -o help") printf 'Configured: x\\ndefault  One\\nlong  Two\\n' ;;
"dws rabbits -n -o {name}") echo tuo201; echo tuo202; echo '$(touch ran)'; echo el1 ;;
"config get --default={} rabbit.presets") echo '{"fast": "#DW x", "scratch": []}' ;;
"python -c "*) shift; exec PYTHON "$@" ;;
*) exit 1 ;;
esac
"""

SCRIPT = """
. "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_flux_with_dws flux "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a flux on PATH, which knows two jobs and some Rabbits."""
    flux = tmp_path / "bin/flux"
    flux.parent.mkdir()
    flux.write_text(FLUX.replace("PYTHON", sys.executable))
    flux.chmod(0o755)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", "TERM": "dumb", "PS1": "$ "}


def complete(folder: Path, line: str) -> list[str]:
    """What a line may go on with, split into words as readline splits it."""
    words = re.findall(r"=|[^\s=]+", line)
    words += [""] if line.endswith(" ") else []
    done = subprocess.run(
        [BASH, "--norc", "-c", SCRIPT, "bash", str(COMPLETION), *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def options_of(subcommand: str) -> set[str]:
    """The options that the completion has: of those with a long name this one, with =
    where a value is required."""
    module, _ = SUBCOMMANDS[subcommand]
    parser = argparse.ArgumentParser(prog=f"flux dws {subcommand}")
    import_module(f"dwscli.{module}").add_arguments(parser)
    found = set()
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        takes_value = action.nargs is None or action.nargs == "+"
        for name in names or action.option_strings[:1]:
            found.add(name + ("=" if takes_value else ""))
    return found


def test_all_subcommands_are_completed(folder: Path) -> None:
    assert set(complete(folder, "flux dws ")) == {*SUBCOMMANDS, "--help"}
    assert complete(folder, "flux dws sh") == ["show"]
    assert complete(folder, "flux -v dws job") == ["job-object"]


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_a_subcommand_has_the_options_that_it_takes(
    folder: Path, subcommand: str
) -> None:
    found = complete(folder, f"flux dws {subcommand} -")
    assert len(set(found)) == len(found)
    assert set(found) == options_of(subcommand)


@pytest.mark.parametrize(
    "line, words",
    [
        ("show ", ["f8Ab", "f9Cd"]),
        ("wait f9", ["f9Cd"]),
        ("show --follow 8", ["812"]),
        ("free f", ["f8Ab", "f9Cd"]),
        ("disable tuo", ["tuo201", "tuo202"]),
        ("list --rabbit=e", ["el1"]),
        ("list --rabbit e", ["el1"]),
        ("list --filter=Data", ["DataIn", "DataOut"]),
        ("list -f P", ["Proposal", "PreRun", "PostRun"]),
        ("list -o ", ["default", "long"]),
        ("list --format=l", ["long"]),
        ("list --color=a", ["always", "auto"]),
        ("usage --by=", ["bank", "project", "rabbit", "user"]),
        ("list --user=roo", ["root"]),
        ("check --preset=", ["fast", "scratch"]),
        ("check --preset s", ["scratch"]),
        ("list --since=", []),
        ("disable --reason ", []),
        ("list --sort=", []),
        ("nothing ", []),
    ],
)
def test_values_are_completed(folder: Path, line: str, words: list[str]) -> None:
    assert complete(folder, f"flux dws {line}") == words


def test_nothing_in_a_name_is_carried_out(folder: Path) -> None:
    assert complete(folder, "flux dws rabbits $") == ["$(touch ran)"]
    assert not (folder / "ran").exists()


def test_flux_without_its_own_completion_completes_dws(folder: Path) -> None:
    assert complete(folder, "flux d") == ["dws"]
    assert complete(folder, "flux jobs -") == []


@pytest.mark.parametrize("prefix", ["", "opt"])
def test_all_else_is_for_the_completion_of_flux(folder: Path, prefix: str) -> None:
    """Which is beside the flux that a link on PATH leads to."""
    own = folder / prefix / "share/bash-completion/completions/flux"
    own.parent.mkdir(parents=True)
    own.write_text(
        '_flux_core () { COMPREPLY=(own "${COMP_WORDS[1]}"); }\n'
        "complete -F _flux_core flux\n"
    )
    if prefix:
        (folder / "opt/bin").mkdir()
        flux = (folder / "bin/flux").rename(folder / "opt/bin/flux")
        (folder / "bin/flux").symlink_to(flux)
    assert complete(folder, "flux jobs --") == ["own", "jobs"]
    assert complete(folder, "flux d") == ["own", "d"]
    assert complete(folder, "flux dws sh") == ["show"]


def test_the_tab_key_completes_in_an_interactive_bash(folder: Path) -> None:
    """In an interactive bash on a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        words = [BASH, "--norc", "--noprofile", "-i"]
        os.execve(BASH, words, environment(folder))
    try:
        os.write(terminal, f". {COMPLETION}\n".encode())
        read_until(terminal, "$ ")
        os.write(terminal, b"flux dws sho\tf9\t")
        read_until(terminal, "flux dws show f9Cd ")
        os.write(terminal, b"\x15flux dws list --form\tl\t")
        read_until(terminal, "flux dws list --format=long ")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, text: str) -> None:
    """Read from a terminal until it has shown a text."""
    shown = ""
    end = time.monotonic() + 30
    while text not in shown.replace("\x07", ""):
        ready, _, _ = select.select([terminal], [], [], end - time.monotonic())
        assert ready, shown
        shown += os.read(terminal, 4096).decode(errors="replace")
