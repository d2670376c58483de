# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Run the commands of a transcript again, and write what they show now.

usage: transcript.py FILE USER NAME=JOBID...

A transcript has commands, each behind "$ ", and what each has shown. In it jobs have
names, and what is different each time, such as durations, is a word in capital letters.
So the same transcript is shown by a real Flux and by the stand-in.
"""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Callable, Mapping

from flux_k8s.formats.jobid import f58

PROMPT = "$ "

RATE = re.compile(r"[0-9.]+ ?[A-Za-z]+/s")

Runner = Callable[[list[str]], tuple[int, str]]
"""Runs ``flux dws WORDS``; the exit status, and what it has written."""

MASKS = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", "TIME"),
    (r"\b[A-Z][a-z]{2}\d\d \d\d:\d\d\b", "TIME"),
    (r"\b\d+(\.\d+)?[smhd]\b", "DURATION"),
    (r"\b\d{1,2}%", "PERCENT"),
    (r"\b\d+(\.\d+)?(B|KiB|MiB)\b(/s)?", "AMOUNT"),
    (r"\b\d+\.\d+\b", "NUMBER"),
    (r"\b\d+ secs\b", "NUMBER secs"),
    (r"\(NUMBER \w+/s\)", "(RATE)"),
    (r"│[^│]*│", "GAUGE"),
    (r"[▏▎▍▌▋▊▉█]+", "BAR"),
    (r"(?m)^(> |  )(\w+) +DURATION BAR$", r"\1\2 DURATION"),
    (r"(?<=\S) +", " "),
    (r"(?m)(?<=AMOUNT AMOUNT )\d+(?= \w+$|$)", "PERCENT"),
    (r"(?m) NUMBER secs left \.\.\.$", ""),
    (r"(?m)[ \t]+$", ""),
    (r"(?m)^TIME \w+ complete\b.*\n", ""),
    # How long the states have lasted, and since when a Rabbit is back, depends on the
    # speed of the machine.
    (r"; waits for: DWS in \w+: DW\s+Directive \d: (waiting|data movement.*)", ""),
    (r"(?m)^DWS in PreRun: DW Directive 0: waiting$", "mounts"),
    (r"(?m)^DWS in (Proposal|DataIn): DW Directive \d: .*\n", ""),
    (r" back only just now$", ""),
    (r"<(\w*(Time|Duration))>\d+<", r"<\1>TIME<"),
    (r"( units=.s.)>[0-9.]+<", r"\1>NUMBER<"),
]
"""Regular expressions for what is different each time, and what is shown instead."""


def masked(text: str, user: str, jobs: Mapping[str, int]) -> str:
    """A text without what is different each time.

    Args:
        user: whose jobs these are.
        jobs: the name and the ID of each job.
    """
    if text.startswith("<svg"):
        return _titles(masked("\n" + text, user, jobs))
    if text.startswith("<!DOCTYPE html>"):
        return masked(_words(text), user, jobs)
    if text.startswith("# HELP"):
        return _samples(text)
    for name, id in jobs.items():
        text = re.sub(rf"(?m)(^ +)?\b([ƒf]{f58(id)[1:]}|{id})\b", name, text)
    text = re.sub(rf"\b{user}\b", "USER", text)
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return text


def _titles(svg: str) -> str:
    """What a reader of a picture sees who points at its bars."""
    found = re.findall(r"<title>(.*?)</title>", svg)
    return "".join(f"{title}\n" for title in found if title != "AMOUNT")


def _words(page: str) -> str:
    """What a reader of a web page sees, without the axes of its pictures."""
    hidden = r"<style>.*?</style>|<figure class=.narrow.*?</figure>|<text.*?</text>"
    found = re.split(r"<[^>]*>", re.sub(f"(?s){hidden}", "", page))
    words = (html.unescape(word.strip()) for word in found)
    return "".join(f"{word}\n" for word in words if word and not RATE.fullmatch(word))


def _samples(metrics: str) -> str:
    """Metrics with the values of those that are the same each time. Requests,
    durations and versions are different."""
    metrics = re.sub(r'\b(version|plugin)="[^"]*"', r'\1="VERSION"', metrics)
    differs = r"(?m)^(\w+_(seconds|total|seconds_\w+))(\{.*\})? .*\n(\1.*\n)*"
    return re.sub(differs, r"\1 NUMBER\n", metrics)


def run_again(transcript: str, user: str, jobs: Mapping[str, int], run: Runner) -> str:
    """The transcript of the same commands, run now."""
    lines = []
    for line in transcript.split("\n"):
        if not line.startswith(PROMPT):
            continue
        _, _, *words = shlex.split(line[len(PROMPT) :])
        status, text = run([str(jobs.get(word, word)) for word in words])
        lines.append(line)
        lines += [masked(text, user, jobs).rstrip("\n")] if text else []
        lines += [f"exit status {status}"] if status else []
        lines.append("")
    return "\n".join(lines)


def real(words: list[str]) -> tuple[int, str]:
    """Run ``flux dws WORDS`` in the instance that this program is in, as t/*.t do."""
    flux = Path(__file__).with_name("flux.sh")
    done = subprocess.run(
        ["sh", "-c", f'. {flux} && flux dws "$@"', "sh", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    return done.returncode, done.stderr + done.stdout


def main() -> None:
    path, user, *pairs = sys.argv[1:]
    jobs = {name: int(id) for name, _, id in (pair.partition("=") for pair in pairs)}
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    text = Path(path).read_text(encoding="utf-8")
    sys.stdout.write(run_again(text, user, jobs, real))


if __name__ == "__main__":
    main()
