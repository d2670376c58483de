# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``#DW`` directives: from the job attribute to validated directives.

This module checks the rules that all sites share: the prefix, the command, the
arguments that a command must have, repetitions, and the bounds of
:mod:`flux_k8s.limits`. So a mistake gets a clear answer at once, before anything is
created in Kubernetes. A site's DWDirectiveRule says which values are allowed; DWS
applies it when the Workflow is created. The cost of the checks grows linearly with the
text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Iterable, Iterator, Mapping, Sequence

from flux_k8s.errors import DirectiveError, show
from flux_k8s.limits import DIGITS, DIRECTIVES, DIRECTIVES_BYTES, NAME_LENGTH

PREFIX = "#DW"

REQUIRED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "jobdw": ("type", "capacity", "name"),
        "create_persistent": ("type", "name"),
        "destroy_persistent": ("name",),
        "persistentdw": ("name",),
        "copy_in": ("source", "destination"),
        "copy_out": ("source", "destination"),
        "container": ("name", "profile"),
    }
)
"""The commands of NNF's rule set, and the arguments that each must have."""

BOUNDED = ("name", "profile")
"""Arguments that name objects of Kubernetes."""

NAMING = frozenset(REQUIRED) - {"copy_in", "copy_out"}
"""Commands whose ``name`` must be unique among those of the same command."""

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
_BLANKS = " \t\n\v\f\r"


@dataclass(frozen=True)
class Directive:
    """One directive.

    Attributes:
        text: as the user wrote it, white space folded.
        command: ``jobdw``, ``copy_in``...
        arguments: its ``key=value`` arguments.
    """

    text: str
    command: str
    arguments: Mapping[str, str]

    @property
    def capacity(self) -> int:
        """The capacity that was asked for, in bytes; 0 where none was."""
        text = self.arguments.get("capacity")
        return 0 if text is None else parse_capacity(self.text, text)


def parse_capacity(directive: str, text: str) -> int:
    """Bytes from a size such as ``10GiB``, with the suffixes of NNF's rules.

    Raises:
        DirectiveError: ``text`` is no size, or too large. The error names
            ``directive``.
    """
    match = _CAPACITY.fullmatch(text)
    if match is None:
        raise DirectiveError(
            directive,
            f"capacity={text} is not a size: expected an integer and one of "
            + ", ".join(UNITS),
        )
    if len(match.group(1)) > DIGITS:
        raise DirectiveError(directive, f"capacity= has more than {DIGITS} digits")
    size = int(match.group(1)) * UNITS[match.group(2)]
    if size >= 2**63:
        raise DirectiveError(directive, f"capacity={text} is over 2^63 bytes")
    return size


def parse(text: str) -> Directive:
    """Parse and check one directive.

    Raises:
        DirectiveError: no ``#DW`` prefix, an unknown command, an argument that
            is malformed, repeated or missing.
    """
    words = text.split()
    text = " ".join(words)
    if not words or words[0] != PREFIX:
        raise DirectiveError(text, f"missing '{PREFIX}' prefix")
    if len(words) == 1:
        raise DirectiveError(text, "missing command, expected one of " + _commands())
    command = words[1]
    if command not in REQUIRED:
        guess = get_close_matches(command, REQUIRED, n=1)
        hint = f" (did you mean '{guess[0]}'?)" if guess else ""
        raise DirectiveError(
            text, f"unknown command '{command}'{hint}, expected one of {_commands()}"
        )
    arguments = _parse_arguments(text, words[2:])
    for key in REQUIRED[command]:
        if key not in arguments:
            raise DirectiveError(text, f"missing argument '{key}='")
    for key in BOUNDED:
        if len(arguments.get(key, "")) > NAME_LENGTH:
            raise DirectiveError(text, f"{key}= has more than {NAME_LENGTH} characters")
    directive = Directive(text, command, MappingProxyType(arguments))
    directive.capacity  # noqa: B018 (raises when it is no size)
    return directive


def _commands() -> str:
    return ", ".join(REQUIRED)


def _parse_arguments(text: str, words: Iterable[str]) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if not key or not value:
            raise DirectiveError(
                text, f"argument '{word}' is not of the form key=value"
            )
        if key in arguments:
            raise DirectiveError(text, f"argument '{key}=' is repeated")
        arguments[key] = value
    return arguments


def is_empty(value: Any) -> bool:
    """Whether ``attributes.system.dw`` asks for nothing: a job with an empty string,
    or an empty list, is a job without directives."""
    return value == [] or (isinstance(value, str) and not value.strip(_BLANKS))


def parse_attribute(
    value: Any,
    presets: Mapping[str, Sequence[str]] = MappingProxyType({}),
    called: str = "dw=",
) -> tuple[Directive, ...]:
    """All directives of ``attributes.system.dw``.

    Args:
        value: a string or a list of strings. Each has one or more directives,
            on lines of their own or one behind the other, or is the name of a
            preset.
        presets: the ``rabbit.presets`` of the configuration, each a sequence of
            strings like those of ``value``.
        called: the words with which an error about all of ``value`` begins.

    Raises:
        DirectiveError: as :func:`parse`; ``value`` is of another type or has no
            directive; it is larger than :mod:`flux_k8s.limits` allows; a preset is
            not known; a name is used twice.
    """
    whole = called + show(value)
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
        raise DirectiveError(whole, "expected a string or a list of strings")
    _check_size(strings, whole)
    directives: list[Directive] = []
    for string in strings:
        for text in _split(string, presets):
            if len(directives) == DIRECTIVES:
                raise _too_many(whole)
            directives.append(parse(text))
    if not directives:
        raise DirectiveError(whole, "has no #DW directive")
    _check_names(directives)
    return tuple(directives)


def _check_size(strings: Sequence[str], whole: str) -> None:
    """Refuse an attribute that is too large, before its directives are parsed."""
    if len(strings) > DIRECTIVES:
        raise _too_many(whole)
    size = sum(len(string.encode("utf-8", "surrogatepass")) for string in strings)
    if size > DIRECTIVES_BYTES:
        raise DirectiveError(
            whole, f"has {size} bytes, at most {DIRECTIVES_BYTES} are accepted"
        )


def _too_many(whole: str) -> DirectiveError:
    return DirectiveError(whole, f"has more than {DIRECTIVES} directives for one job")


def _split(string: str, presets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The texts of the directives in a string, or of the preset that it names."""
    word = string.strip()
    if word in presets:
        for preset in presets[word]:
            yield from _split_directives(preset)
        return
    if not word.startswith("#") and len(word.split(None, 1)) == 1:
        known = ", ".join(sorted(presets)) or "none here"
        raise DirectiveError(
            word,
            f"unknown preset and no '{PREFIX}' directive, known presets: {known}",
        )
    yield from _split_directives(string)


def _split_directives(string: str) -> Iterator[str]:
    """The texts of the directives in a string. A directive begins at each line, and
    at each word that is the prefix."""
    for line in string.splitlines():
        directive: list[str] = []
        for word in line.split():
            if directive and word == PREFIX:
                yield " ".join(directive)
                directive = []
            directive.append(word)
        if directive:
            yield " ".join(directive)


def _check_names(directives: Iterable[Directive]) -> None:
    """Refuse a name that two directives with the same command have."""
    seen: set[tuple[str, str]] = set()
    for directive in directives:
        if directive.command not in NAMING:
            continue
        key = (directive.command, directive.arguments["name"])
        if key in seen:
            raise DirectiveError(
                directive.text,
                f"name={key[1]} is used by another {key[0]} of this job",
            )
        seen.add(key)
