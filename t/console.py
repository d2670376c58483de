# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Run the console examples of documents, and compare what they print.

usage: console.py FILE...

An example is a block ``console`` of Markdown or reStructuredText: lines that begin
with ``$`` are commands, those below a command are what it prints, on standard output
and standard error. A command goes on in the next line after a ``\\``, and in the lines
that begin with ``>``.

What differs from run to run need not be the same: job IDs (each stands for the same
job everywhere in a document, also in commands), times, dates, bars and the width of
columns. ``...`` stands for any text in a line; alone in a line, for any lines.

Comments in a document, ``<!-- run: COMMAND -->`` in Markdown and ``.. run: COMMAND``
in reStructuredText, are commands that readers do not see. A command after ``until:`` is
run again until it succeeds. All commands of a document run in the same folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

PATIENCE = 60.0
"""Seconds for a command, and for one after ``until:``."""

JOBID = re.compile(r"ƒ[1-9A-HJ-NP-Za-km-z]+")
EXAMPLE = "example"

_BLOCK = re.compile(
    r"^```console\n(?P<markdown>(?:.*\n)*?)```$"
    r"|^\.\. code-block:: console\n\n(?P<rst>(?:(?:   .*)?\n)+)"
    r"|^<!-- (?P<hidden>run|until): (?P<command>.*) -->$"
    r"|^\.\. (?P<hidden_rst>run|until): (?P<command_rst>.*)$",
    re.M,
)

_NOISE = re.compile(r".*flux-shell\[\d+\]: +(?:ERROR|WARN): cpu-affinity: ")
"""The nodes of a test have cores that the machine does not have."""

_MASKS = (
    (r"\.\.\.", r".*"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)?", r"\d{4}-\d\d-\d\dT\S+"),
    (r"\d+(?:\.\d+)?(?:ms|s|m|h|d)(?!\w)", r"\d+(?:\.\d+)?(?:ms|s|m|h|d)"),
    (r"[█-▏]+", r"[█-▏]*"),
)
"""What differs from run to run, and what stands for it."""


@dataclass(frozen=True)
class Command:
    """A command of a document.

    Attributes:
        kind: EXAMPLE, ``run`` or ``until``.
        line: where it is in the document.
        text: the command.
        output: the lines that it prints; only those of an EXAMPLE count.
    """

    kind: str
    line: int
    text: str
    output: tuple[str, ...] = ()


def commands(text: str) -> Iterator[Command]:
    """The commands of a document, in their order."""
    for block in _BLOCK.finditer(text):
        hidden = block["hidden"] or block["hidden_rst"]
        line = text.count("\n", 0, block.start()) + 1
        if hidden:
            yield Command(hidden, line, block["command"] or block["command_rst"])
        elif block["markdown"] is not None:
            yield from _examples(block["markdown"].splitlines(), line + 1)
        else:
            lines = [row[3:] for row in block["rst"].rstrip().splitlines()]
            yield from _examples(lines, line + 2)


def _examples(lines: list[str], first: int) -> Iterator[Command]:
    command: Optional[Command] = None
    goes_on = False
    for number, row in enumerate(lines, first):
        if goes_on and command is not None:
            command = Command(EXAMPLE, command.line, f"{command.text}\n{row}")
        elif row.startswith("$ "):
            if command is not None:
                yield command
            command = Command(EXAMPLE, number, row[2:])
        elif command is None:
            raise ValueError(f"line {number}: expected a command, '$ ...': {row}")
        elif row.startswith("> ") and not command.output:
            command = Command(EXAMPLE, command.line, f"{command.text}\n{row[2:]}")
        else:
            output = (*command.output, row)
            command = Command(EXAMPLE, command.line, command.text, output)
        goes_on = row.endswith("\\") and not (command and command.output)
    if command is not None:
        yield command


class Jobs:
    """The jobs that the job IDs of a document stand for."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, text: str) -> str:
        """A command, with the IDs of the jobs that there are."""
        return JOBID.sub(lambda match: self._real.get(match[0], match[0]), text)

    def learn(self, shown: str, real: str) -> None:
        """An ID of the document stands for a job from now on."""
        self._real[shown] = real

    def pattern(self, row: str) -> tuple[re.Pattern[str], list[str]]:
        """What a line of the document matches, and its IDs that are new: each is a
        group of the pattern."""
        new: list[str] = []
        parts = []
        for word in re.split(r"(\s+)", row.strip()):
            parts.append(r"\s+" if word.isspace() else self._word(word, new))
        return re.compile("".join(parts)), new

    def _word(self, word: str, new: list[str]) -> str:
        found, rest = "", word
        while rest:
            match = JOBID.search(rest)
            if match is None:
                return found + _masked(rest)
            found += _masked(rest[: match.start()])
            known = self._real.get(match[0])
            if known is None:
                new.append(match[0])
            found += rf"({JOBID.pattern})" if known is None else re.escape(known)
            rest = rest[match.end() :]
        return found


def _masked(text: str) -> str:
    for shown, pattern in _MASKS:
        match = re.search(shown, text)
        if match is not None:
            before, after = text[: match.start()], text[match.end() :]
            return _masked(before) + pattern + _masked(after)
    return re.escape(text)


def matches(jobs: Jobs, expected: tuple[str, ...], printed: list[str]) -> bool:
    """Whether a command printed what the document says."""
    if not expected:
        return not printed
    if expected[0].strip() == "...":
        rest = expected[1:]
        return any(matches(jobs, rest, printed[i:]) for i in range(len(printed) + 1))
    if not printed:
        return False
    pattern, new = jobs.pattern(expected[0])
    match = pattern.fullmatch(printed[0].strip())
    if match is None:
        return False
    for shown, real in zip(new, match.groups()):
        jobs.learn(shown, real)
    return matches(jobs, expected[1:], printed[1:])


def execute(command: str) -> tuple[int, list[str]]:
    """The exit status of a command, and the lines that it prints."""
    done = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        text=True,
    )
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if not _NOISE.match(line)]


def problem(command: Command, jobs: Jobs) -> str:
    """Run a command; what is wrong with it, or an empty text."""
    text = jobs.real(command.text)
    end = time.monotonic() + PATIENCE
    status, printed = execute(text)
    while command.kind == "until" and status and time.monotonic() < end:
        time.sleep(0.2)
        status, printed = execute(text)
    if command.kind != EXAMPLE:
        wrong = status != 0
    else:
        wrong = not matches(jobs, command.output, printed)
    if not wrong:
        return ""
    expected = "\n".join(command.output) if command.kind == EXAMPLE else "(success)"
    shown = "\n".join(printed)
    return f"$ {text}\n-- expected:\n{expected}\n-- printed (status {status}):\n{shown}"


def run(text: str, name: str) -> int:
    """Run the examples of a document. The number of those that are wrong."""
    jobs, count = Jobs(), 0
    for command in commands(text):
        found = problem(command, jobs)
        if found:
            print(f"{name}:{command.line}: {found}\n", flush=True)
            count += 1
    return count


def main() -> int:
    """Run the examples of each document."""
    wrong = [run(Path(path).read_text(), path) for path in sys.argv[1:]]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
