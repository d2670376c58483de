# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Mutants that are known from another tree: by the text of their lines, for the
numbers of these change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Optional

from making import Mutant


def carried(mutant: Mutant, before: bytes, after: bytes) -> Optional[Mutant]:
    """The same mutant in a file as it is now; None if its lines are others."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    first, last = (before.count(b"\n", 0, at) for at in (mutant.start, mutant.end - 1))
    for a, b, size in SequenceMatcher(None, old, new, False).get_matching_blocks():
        if a <= first and last < a + size:
            moved = len(b"".join(new[:b])) - len(b"".join(old[:a]))
            start, end = mutant.start + moved, mutant.end + moved
            return replace(mutant, start=start, end=end, line=mutant.line + b - a)
    return None


@dataclass(frozen=True)
class Equivalent:
    """A mutant that nothing can tell from the source: a paragraph of equivalents.txt.

    Attributes:
        path: the file.
        old: lines of it, without what indents them.
        new: what the mutant makes of them.
        why: what makes them equivalent.
    """

    path: str
    old: str
    new: str
    why: str

    @classmethod
    def read(cls, paragraph: str) -> Equivalent:
        path, *lines = paragraph.splitlines()
        hunk = [line for line in lines if line[0] in " -+"]
        old, new = (
            "".join(line[1:].strip() + "\n" for line in hunk if line[0] in signs)
            for signs in (" -", " +")
        )
        return cls(path, old, new, " ".join(lines[len(hunk) :]))

    def is_(self, mutant: Mutant, source: bytes) -> bool:
        """Whether it is this mutant of a file as it is now."""
        if mutant.path != self.path:
            return False
        begin, found, end = _flat(source).partition(self.old)
        return bool(found) and _flat(mutant.applied(source)) == begin + self.new + end


def read(text: str) -> list[Equivalent]:
    """The equivalent mutants of a file that begins with a paragraph about them."""
    return [Equivalent.read(part) for part in text.strip().split("\n\n")[1:]]


def _flat(source: bytes) -> str:
    """The lines, without what indents them."""
    return "".join(line.strip() + "\n" for line in source.decode().split("\n"))
