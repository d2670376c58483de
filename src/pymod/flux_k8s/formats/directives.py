# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``#DW`` directives: from the job attribute to validated directives.

This module checks the syntax that DWS has at all sites, that a capacity is above 0, and
the bounds of :mod:`flux_k8s.limits`. Which commands, arguments and values there are, a
site's DWDirectiveRule says (:mod:`flux_k8s.rules.directiverules`); DWS applies it when
the Workflow is created. The cost of the checks grows linearly with the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from flux_k8s.errors import DirectiveError, show
from flux_k8s.limits import DIGITS, DIRECTIVES, DIRECTIVES_BYTES, NAME_LENGTH, WORDS

PREFIX = "#DW"

COMMANDS = (
    "jobdw",
    "create_persistent",
    "destroy_persistent",
    "persistentdw",
    "copy_in",
    "copy_out",
    "container",
)
"""Commands of NNF, of one of which a user may have forgotten the prefix. A site may
have others."""

BOUNDED = ("name", "profile")
"""Arguments that name objects of Kubernetes."""

_COMMA = re.compile(r",(?=\Z|[A-Za-z_]+=)")
"""A comma that stands where a blank is meant."""

GIB = 2**30
"""Bytes of a GiB."""

UNITS: Mapping[str, int] = MappingProxyType(
    {
        "KiB": 2**10,
        "KB": 10**3,
        "MiB": 2**20,
        "MB": 10**6,
        "GiB": GIB,
        "GB": 10**9,
        "TiB": 2**40,
        "TB": 10**12,
    }
)

_CAPACITY = re.compile(r"([0-9]+)(" + "|".join(UNITS) + r")")
_ALMOST_CAPACITY = re.compile(r"([0-9]{1,32})\s*([A-Za-z]{1,3})")
_SPACED_CAPACITY = re.compile(r"[0-9]{1,32}\s+[A-Za-z]{1,3}(?!\S)")
_BLANKS = " \t\n\v\f\r"

_WORD = re.compile(r"(\S+)\s*")
"""A word, and the white space after it: a guest may write 64 KiB of blanks, and to look
for a word at each of them takes four times as long as to match them."""
_PREFIX_WORD = re.compile(rf"{PREFIX}(?!\S)(?<!\S{PREFIX})")
"""The prefix as a word. ``re`` is fast where a pattern begins with known letters."""
Span = tuple[int, int]
"""The start and the end of a part of a text."""

_COMPARED = 64
"""Characters of a word that is compared: comparing takes the square of them."""


def closest(word: str, known: Iterable[str]) -> Optional[str]:
    """The known word that is most like ``word``, or differs from it in the case of
    letters only; None if none is like it."""
    if len(word) > _COMPARED:
        return None
    by_folded = {name.casefold(): name for name in known if len(name) <= _COMPARED}
    for folded in get_close_matches(word.casefold(), by_folded, n=1):
        return by_folded[folded]
    return None


@dataclass(frozen=True)
class Directive:
    """One directive.

    Attributes:
        text: as the user wrote it, white space folded.
        command: ``jobdw``, ``copy_in``...
        arguments: its ``key=value`` arguments.
        line: as the user wrote it.
        words: the places in ``line`` of the arguments, by their keys, and of the
            command, by an empty string.
    """

    text: str
    command: str
    arguments: Mapping[str, str]
    line: str = field(compare=False, repr=False)
    words: Mapping[str, Span] = field(compare=False, repr=False)

    @property
    def capacity(self) -> int:
        """The capacity that was asked for, in bytes; 0 where none was, or it is no size
        that is known here."""
        text = self.arguments.get("capacity", "")
        return self.read_capacity() if _CAPACITY.fullmatch(text) else 0

    def read_capacity(self) -> int:
        """The capacity, if one was asked for.

        Raises:
            DirectiveError: it is no size, is zero, or too large.
        """
        text = self.arguments.get("capacity")
        return 0 if text is None else parse_capacity(self.line, text, self.value_span())

    def value_span(self, key: str = "capacity") -> Span:
        """The place of an argument's value."""
        start, end = self.words[key]
        return min(start + len(key) + 1, end), end

    def is_bare(self, key: str) -> bool:
        """Whether an argument is its key alone, which DWS takes for ``key=true``."""
        start, end = self.words[key]
        return end - start == len(key)

    def wrong_command(
        self, problem: str, meant: Optional[str] = None
    ) -> DirectiveError:
        """The error that the command is wrong, or what follows it is."""
        return DirectiveError(self.line, *self.words[""], problem, meant)

    def wrong_key(
        self, key: str, problem: str, meant: Optional[str] = None
    ) -> DirectiveError:
        """The error that an argument has the wrong key."""
        start, _ = self.words[key]
        return DirectiveError(self.line, start, start + len(key), problem, meant)

    def wrong_value(
        self, key: str, problem: str, meant: Optional[str] = None
    ) -> DirectiveError:
        """The error that an argument has the wrong value."""
        return DirectiveError(self.line, *self.value_span(key), problem, meant)


def parse_capacity(line: str, text: str, span: Optional[Span] = None) -> int:
    """Bytes from a size such as ``10GiB``, with the suffixes of NNF's rules.

    Args:
        line: the directive.
        text: the size.
        span: the place of ``text`` in ``line``.

    Raises:
        DirectiveError: ``text`` is no size, is zero, or too large.
    """
    start, end = (0, len(line)) if span is None else span
    match = _CAPACITY.fullmatch(text)
    if match is None:
        problem = f"capacity={text} is not a size"
        meant = _meant_capacity(text)
        if meant is None:
            problem += ": expected an integer and one of " + ", ".join(UNITS)
        raise DirectiveError(line, start, end, problem, meant)
    if len(match.group(1)) > DIGITS:
        problem = f"capacity= has more than {DIGITS} digits"
        raise DirectiveError(line, start, end, problem)
    size = int(match.group(1)) * UNITS[match.group(2)]
    if size == 0:
        problem = f"capacity={text} is no storage: expected a size above 0"
        raise DirectiveError(line, start, end, problem)
    if size >= 2**63:
        problem = f"capacity={text} is over 2^63 bytes"
        raise DirectiveError(line, start, end, problem)
    return size


def _meant_capacity(text: str) -> Optional[str]:
    """The size for which a text with a wrong unit stands: ``10GiB`` for ``10gib``,
    ``10G`` and ``10 GiB``."""
    match = _ALMOST_CAPACITY.fullmatch(text)
    if match is None:
        return None
    number, unit = match.groups()
    for known in UNITS:
        if unit.lower() in (known.lower(), known[0].lower(), known[:2].lower()):
            return number + known
    return None


def parse(line: str) -> Directive:
    """Parse and check one directive.

    Raises:
        DirectiveError: no ``#DW`` prefix, no command, an argument that is malformed,
            repeated or too long.
    """
    line = line.strip()
    words = list(_WORD.finditer(line))
    if not words or words[0][1] != PREFIX:
        raise _missing_prefix(line, words[0][1] if words else "")
    if len(words) == 1:
        problem = f"missing command, such as {COMMANDS[0]}, in quotes with {PREFIX}"
        raise DirectiveError(line, *words[0].span(1), problem)
    arguments, places = _parse_arguments(line, words[2:])
    directive = Directive(
        " ".join(word[1] for word in words),
        words[1][1],
        MappingProxyType(arguments),
        line,
        MappingProxyType({"": words[1].span(1), **places}),
    )
    _check_arguments(directive)
    return directive


def _missing_prefix(line: str, word: str) -> DirectiveError:
    meant = closest(word, [PREFIX])
    command = word[len(PREFIX) :] if word.startswith(PREFIX) else word
    if command in COMMANDS:
        meant = f"{PREFIX} {command}"
    return DirectiveError(line, 0, len(word), f"missing '{PREFIX}' prefix", meant)


def _parse_arguments(
    line: str, words: Sequence[re.Match[str]]
) -> tuple[dict[str, str], dict[str, Span]]:
    arguments: dict[str, str] = {}
    places: dict[str, Span] = {}
    for index, word in enumerate(words):
        key, equals, value = word[1].partition("=")
        if not key or (equals and not value):
            _check_blank_at_equals(line, words, index)
            problem = f"argument '{word[1]}' is not of the form key=value"
            raise DirectiveError(line, *word.span(1), problem)
        if key in arguments:
            problem = f"argument '{key}=' is repeated"
            raise DirectiveError(line, *word.span(1), problem)
        arguments[key] = value if equals else "true"
        places[key] = word.span(1)
    return arguments, places


def _check_blank_at_equals(
    line: str, words: Sequence[re.Match[str]], index: int
) -> None:
    """Refuse ``capacity = 10GiB`` as one argument, not as several words."""
    first = index - (index > 0 and words[index][1].startswith("="))
    last = index + words[index][1].endswith("=")
    if first == last or last >= len(words):
        return
    meant = "".join(word[1] for word in words[first : last + 1])
    key, _, value = meant.partition("=")
    if key and value and "=" not in value:
        problem = "a blank beside '='"
        start, end = words[first].start(), words[last].end(1)
        raise DirectiveError(line, start, end, problem, meant)


def _check_arguments(directive: Directive) -> None:
    """Refuse names that are too long, and sizes that no machine can give."""
    for key in BOUNDED:
        if len(directive.arguments.get(key, "")) > NAME_LENGTH:
            problem = f"{key}= has more than {NAME_LENGTH} characters"
            raise directive.wrong_value(key, problem)
    if _CAPACITY.fullmatch(directive.arguments.get("capacity", "")):
        directive.read_capacity()


def mistake(directive: Directive, key: str) -> Optional[DirectiveError]:
    """A common mistake in a value that the rules of the site refuse: a comma or a blank
    too many, or a capacity that is no size. None if it is another one."""
    line, value = directive.line, directive.arguments[key]
    start, end = directive.value_span(key)
    comma = _COMMA.search(value)
    if comma is not None:
        problem = f"a comma after {key}={value[: comma.start()]}: expected a blank"
        start += comma.start()
        return DirectiveError(line, start, start + 1, problem)
    if key != "capacity":
        return None
    spaced = _SPACED_CAPACITY.match(line, start)
    if spaced is not None and _meant_capacity(spaced[0]) is not None:
        value, end = " ".join(spaced[0].split()), spaced.end()
    try:
        parse_capacity(line, value, (start, end))
    except DirectiveError as error:
        return error
    return None


def is_empty(value: Any) -> bool:
    """Whether ``attributes.system.dw`` asks for nothing: a job with an empty string,
    or an empty list, is a job without directives."""
    return value == [] or (isinstance(value, str) and not value.strip(_BLANKS))


def parse_attribute(
    value: Any,
    presets: Mapping[str, Sequence[str]] = MappingProxyType({}),
    called: str = "dw=",
    most: int = DIRECTIVES_BYTES,
) -> tuple[Directive, ...]:
    """All directives of ``attributes.system.dw``.

    Args:
        value: a string or a list of strings. Each has one or more directives,
            on lines of their own or one behind the other, or is the name of a
            preset.
        presets: the ``rabbit.presets`` of the configuration, each a sequence of
            strings like those of ``value``.
        called: the words with which an error about all of ``value`` begins.
        most: the bytes that it may have: ``rabbit.directives_limit``, for a job that is
            submitted.

    Raises:
        DirectiveError: as :func:`parse`; ``value`` is of another type or has no
            directive; it is larger than :mod:`flux_k8s.limits` allows; a preset is
            not known.
    """
    whole = called + show(value)
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
        raise _wrong_whole(whole, "expected a string or a list of strings")
    _check_size(strings, whole, most)
    directives: list[Directive] = []
    for string in strings:
        for line in _split(string, presets):
            if len(directives) == DIRECTIVES:
                raise _too_many(whole)
            directives.append(parse(line))
    if not all(string.strip(_BLANKS) for string in strings):
        raise _wrong_whole(
            whole, "has an empty string, expected a #DW directive in quotes"
        )
    if not directives:
        raise _wrong_whole(whole, "has no #DW directive")
    return tuple(directives)


def _wrong_whole(whole: str, problem: str) -> DirectiveError:
    return DirectiveError(whole, 0, len(whole), problem)


def _check_size(strings: Sequence[str], whole: str, most: int) -> None:
    """Refuse an attribute that is too large, before its directives are parsed."""
    size = sum(len(string.encode("utf-8", "surrogatepass")) for string in strings)
    if size > most:
        key = " (rabbit.directives_limit)" if most < DIRECTIVES_BYTES else ""
        raise _wrong_whole(whole, f"has {size} bytes, at most {most} are accepted{key}")
    if len(strings) > DIRECTIVES:
        raise _too_many(whole)
    if sum(len(string.split()) for string in strings) > WORDS:
        raise _wrong_whole(whole, f"has more than {WORDS} words")


def _too_many(whole: str) -> DirectiveError:
    return _wrong_whole(whole, f"has more than {DIRECTIVES} directives for one job")


def _split(string: str, presets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The texts of the directives in a string, or of the preset that it names."""
    word = string.strip()
    if word in presets:
        for preset in presets[word]:
            yield from _split_directives(preset)
        return
    if not word.startswith("#") and len(word.split(None, 1)) == 1:
        problem = f"unknown preset and no '{PREFIX}' directive"
        meant = closest(word, presets)
        if meant is None:
            problem += ", known presets: " + (", ".join(sorted(presets)) or "none here")
        raise DirectiveError(word, 0, len(word), problem, meant)
    yield from _split_directives(string)


def _split_directives(string: str) -> Iterator[str]:
    """The texts of the directives in a string. A directive begins at each line, and
    at each word that is the prefix."""
    for line in filter(None, map(str.strip, string.splitlines())):
        start = 0
        for word in _PREFIX_WORD.finditer(line, 1):
            yield line[start : word.start()].strip()
            start = word.start()
        yield line[start:]
