# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The regular expressions of a DWDirectiveRule, as DWS reads them.

They are in the syntax of Go (RE2), which differs from Python's: ``\\d`` is an ASCII
digit and ``$`` the end of the text. A site writes a pattern and a guest the text. So
the time of a match grows linearly with the text, whatever the pattern is, as in Go;
Python's :mod:`re` needs exponential time for some. The match is a simulation of a
nondeterministic automaton (Thompson 1968; R. Cox, "Regular Expression Matching: the
Virtual Machine Approach").

Flags, word boundaries, Unicode classes and escapes by number are not supported. DWS
itself checks the values of such a pattern.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Iterator, Optional, Union

_LENGTH = 1000
"""Characters of a pattern."""
_SIZE = 2000
"""Instructions of a program."""
_LEVELS = 50
"""Groups inside each other."""
_REPEAT = 1000
"""Go accepts no larger number of repetitions."""
_CHOICES = 64
"""Texts that a pattern may stand for to be known one by one."""

_DIGITS = (("0", "9"),)
_LETTERS = (("a", "z"), ("A", "Z"))
_CLASSES = {
    "d": _DIGITS,
    "w": (*_DIGITS, *_LETTERS, ("_", "_")),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class Unsupported(Exception):
    """A pattern that this module does not read."""


@dataclass(frozen=True)
class CharacterSet:
    """A character in one of the ranges, or in none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def matches(self, character: str) -> bool:
        found = any(low <= character <= high for low, high in self.ranges)
        return found != self.negated


@dataclass(frozen=True)
class Edge:
    """The start or the end of the text."""

    at_end: bool


@dataclass(frozen=True)
class Concatenation:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    part: Node
    minimum: int
    maximum: Optional[int]


Node = Union[CharacterSet, Edge, Concatenation, Choice, Repeat]


@dataclass
class Jump:
    """Go on at each of these instructions."""

    targets: list[int]


Instruction = Union[CharacterSet, Edge, Jump]


class Pattern:
    """A regular expression.

    Attributes:
        text: the expression.
        choices: the texts that match, if all of the text must match and there are few;
            else none.
        size: the most steps that a match takes for each character of a text.
    """

    def __init__(self, text: str) -> None:
        """Raises Unsupported."""
        self.text = text
        node = _Parser(text).parse()
        self._program: list[Instruction] = []
        _compile(node, self._program)
        self.choices = _choices(node)
        self.size = len(self._program) + 1

    def search(self, text: str) -> bool:
        """Whether a part of the text matches."""
        entered = [0]
        for position in range(len(text) + 1):
            at_end = position == len(text)
            active = self._follow(entered, position == 0, at_end)
            if len(self._program) in active:
                return True
            if at_end:
                break
            entered = [0]
            for index in active:
                instruction = self._program[index]
                if isinstance(instruction, CharacterSet):
                    if instruction.matches(text[position]):
                        entered.append(index + 1)
        return False

    def _follow(self, entered: list[int], at_start: bool, at_end: bool) -> set[int]:
        """All instructions that are reached without a character."""
        found: set[int] = set()
        waiting = list(entered)
        while waiting:
            index = waiting.pop()
            if index in found:
                continue
            found.add(index)
            if index == len(self._program):
                continue
            instruction = self._program[index]
            if isinstance(instruction, Jump):
                waiting += instruction.targets
            elif isinstance(instruction, Edge):
                if at_end if instruction.at_end else at_start:
                    waiting.append(index + 1)
        return found


def _compile(node: Node, program: list[Instruction]) -> None:
    """Append the instructions for a node, one at least."""
    if len(program) > _SIZE:
        raise Unsupported("is too large")
    if isinstance(node, (CharacterSet, Edge)):
        program.append(node)
    elif isinstance(node, Concatenation):
        program.append(Jump([len(program) + 1]))
        for part in node.parts:
            _compile(part, program)
    elif isinstance(node, Choice):
        _compile_choice(node, program)
    else:
        _compile_repeat(node, program)


def _compile_choice(node: Choice, program: list[Instruction]) -> None:
    start = Jump([])
    program.append(start)
    ends = []
    for part in node.parts:
        start.targets.append(len(program))
        _compile(part, program)
        ends.append(Jump([]))
        program.append(ends[-1])
    for end in ends:
        end.targets.append(len(program))


def _compile_repeat(node: Repeat, program: list[Instruction]) -> None:
    for _ in range(node.minimum):
        _compile(node.part, program)
    if node.maximum is None:
        start = len(program)
        loop = Jump([start + 1])
        program.append(loop)
        _compile(node.part, program)
        program.append(Jump([start]))
        loop.targets.append(len(program))
        return
    ends = []
    for _ in range(node.maximum - node.minimum):
        ends.append(Jump([len(program) + 1]))
        program.append(ends[-1])
        _compile(node.part, program)
    for end in ends:
        end.targets.append(len(program))


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        if len(text) > _LENGTH:
            raise Unsupported("is too long")
        self._text = text
        self._at = 0
        self._level = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise Unsupported("has a ) too many")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise Unsupported("ends too early")
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return Concatenation(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return node
        self._take("?")
        if self._counts() is not None:
            raise Unsupported("repeats a repetition")
        return Repeat(node, *counts)

    def _counts(self) -> Optional[tuple[int, Optional[int]]]:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        inside, end, _ = self._text[self._at + 1 :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [number for number in (least, most) if number]
        # Go takes what is no repetition for characters.
        if not end or not least or not all(map(_is_number, numbers)):
            return None
        if any(len(number) > 4 or int(number) > _REPEAT for number in numbers):
            raise Unsupported("repeats too often")
        self._at += len(inside) + 2
        maximum = (int(most) if most else None) if comma else int(least)
        if maximum is not None and maximum < int(least):
            raise Unsupported("has a wrong repetition")
        return int(least), maximum

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == "^":
            return Edge(at_end=False)
        if character == "$":
            return Edge(at_end=True)
        if character == ".":
            return CharacterSet((("\n", "\n"),), negated=True)
        if character in "*+?":
            raise Unsupported("repeats nothing")
        if character != "\\":
            return CharacterSet(((character, character),))
        if self._take("A"):
            return Edge(at_end=False)
        if self._take("z"):
            return Edge(at_end=True)
        return self._escape()

    def _group(self) -> Node:
        self._level += 1
        if self._level > _LEVELS:
            raise Unsupported("has too many levels")
        if self._take("?P<") or self._take("?<"):
            name, _, _ = self._text[self._at :].partition(">")
            if not name.isidentifier():
                raise Unsupported("has a group with a wrong name")
            self._at += len(name) + 1
        elif not self._take("?:") and self._peek() == "?":
            raise Unsupported("has flags")
        node = self._choice()
        if not self._take(")"):
            raise Unsupported("lacks a )")
        self._level -= 1
        return node

    def _escape(self) -> CharacterSet:
        character = self._next()
        if character.lower() in _CLASSES:
            return CharacterSet(_CLASSES[character.lower()], character.isupper())
        character = _CONTROLS.get(character, character)
        if character.isalnum() or not character.isascii():
            raise Unsupported(f"has \\{character}")
        return CharacterSet(((character, character),))

    def _class(self) -> CharacterSet:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        while not ranges or not self._take("]"):
            low = self._member()
            is_range = self._peek() == "-" and self._text[self._at + 1 :][:1] != "]"
            if not is_range:
                ranges += low.ranges
                continue
            self._next()
            ranges.append((_only(low), _only(self._member())))
        if any(low > high for low, high in ranges):
            raise Unsupported("has a wrong range")
        return CharacterSet(tuple(ranges), negated)

    def _member(self) -> CharacterSet:
        if self._text.startswith("[:", self._at):
            raise Unsupported("has a class with a name")
        character = self._next()
        if character != "\\":
            return CharacterSet(((character, character),))
        member = self._escape()
        if member.negated:
            raise Unsupported("has a negated class in a class")
        return member


def _is_number(text: str) -> bool:
    return all(character in string.digits for character in text)


def _only(characters: CharacterSet) -> str:
    """The one character of a set."""
    low, high = characters.ranges[0]
    if len(characters.ranges) > 1 or low != high:
        raise Unsupported("has a range of classes")
    return low


_START, _END = "\udfff\ud800", "\udfff\ud801"
"""Edges among texts: no text of JSON that is valid has these."""


def _choices(node: Node) -> tuple[str, ...]:
    found = []
    for text in _texts(node) or ():
        if not text.startswith(_START) or not text.endswith(_END):
            return ()
        inner = text[len(_START) : -len(_END)]
        if _START in inner or _END in inner:
            return ()
        found.append(inner)
    return tuple(dict.fromkeys(found))


def _texts(node: Node) -> Optional[list[str]]:
    """The texts that a node stands for; None if they are many."""
    if isinstance(node, Edge):
        return [_END if node.at_end else _START]
    if isinstance(node, CharacterSet):
        ((low, high), *others) = node.ranges
        return None if node.negated or others or low != high else [low]
    if isinstance(node, Repeat):
        if node.maximum is None or node.maximum > 1:
            return None
        texts = _texts(node.part)
        return texts and [""] * (node.minimum == 0) + texts
    if isinstance(node, Choice):
        return _few(text for part in node.parts for text in _texts(part) or (None,))
    found: Optional[list[str]] = [""]
    for part in node.parts:
        texts = _texts(part)
        if texts is None or found is None:
            return None
        found = _few(start + end for start in found for end in texts)
    return found


def _few(texts: Iterator[Optional[str]]) -> Optional[list[str]]:
    found: list[str] = []
    for text in texts:
        if text is None or len(found) == _CHOICES:
            return None
        found.append(text)
    return found
