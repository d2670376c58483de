# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A site's rules for directives: its DWDirectiveRules.

DWS applies them when a Workflow is created (``utils/dwdparse`` of DWS). Here the same
rules refuse a job at its submission, with the word that is wrong and the word that was
meant. Rules that this module does not read are left to DWS: no job is refused here that
DWS would take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Iterable, Optional, Sequence

import msgspec
from msgspec import Struct, field

from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import Directive, closest, mistake
from flux_k8s.text import printable

_ATOM = r"[\w.-]|\\[dw.-]|\[\w(?:-?\w)*-?\]"
_GROUP = r"\([\w-]+(?:\|[\w-]+)*\)"
_READ = re.compile(rf"\^(?:(?:{_ATOM})[+*]?|{_GROUP})*\$", re.ASCII)
"""Patterns that mean the same in Go and in Python."""
_CHOICES = re.compile(r"\^(?:([\w-]+)|\(([\w|-]+)\))\$", re.ASCII)
"""Patterns that stand for a few words."""

_NAME = "^[a-z][a-z0-9-]+$"
_NAME_WORDS = "a name (a lower-case letter, then one or more of a-z, 0-9 and -)"
_SHOWN = 80
"""Characters of a value in a message."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BOOLEANS = ("true", "false")


@dataclass(frozen=True)
class Pattern:
    """A regular expression of the rules, in the syntax of Go (RE2).

    Attributes:
        text: the expression.
        matches: whether a text matches.
        choices: the texts that match, if the expression lists them; else none.
    """

    text: str
    matches: Callable[[str], Any]
    choices: Sequence[str]


@lru_cache(maxsize=1024)
def _pattern(text: str) -> Optional[Pattern]:
    """A pattern; None for one that is not read here.

    Guests write the text that it is compared with. Go's time for that grows linearly
    with the text. Python's does for the patterns that are read: all of the text must
    match, one atom at most is repeated, and one group at most has choices.
    """
    repeats = text.count("+") + text.count("*")
    if not _READ.fullmatch(text) or repeats > 1 or text.count("(") > 1:
        return None
    try:
        matches = re.compile(text, re.ASCII).fullmatch
    except re.error:  # a range such as [z-a]
        return None
    found = _CHOICES.fullmatch(text)
    return Pattern(text, matches, (found[1] or found[2]).split("|") if found else ())


class ArgumentRule(Struct):
    """A rule for the arguments of a command whose keys match.

    Attributes:
        key: the pattern of the keys.
        type: the type of the values.
        minimum, maximum: bounds of an integer; 0 or None for none.
        required: whether a directive has such an argument.
        unique_within: the values are unique among those with this name; empty for all
            values.
    """

    key: str
    type: str
    pattern: Optional[str] = None
    list_patterns: Optional[Sequence[str]] = field(name="patterns", default=None)
    minimum: Optional[int] = field(name="min", default=None)
    maximum: Optional[int] = field(name="max", default=None)
    required: Optional[bool] = field(name="isRequired", default=None)
    unique_within: Optional[str] = field(name="uniqueWithin", default=None)

    @property
    def keys(self) -> Optional[Pattern]:
        """The pattern of the keys; None if it is not read here."""
        return _pattern(self.key)

    @property
    def choices(self) -> Sequence[str]:
        """The keys, where they are few."""
        return self.keys.choices if self.keys is not None else ()

    @property
    def patterns(self) -> Sequence[Pattern]:
        """A value, or each word of a list, matches one of these, if there are any."""
        texts: Sequence[Optional[str]] = (self.pattern,)
        if self.type == "list-of-string":
            texts = self.list_patterns or ()
        found = [_pattern(text) for text in texts if text]
        known = [pattern for pattern in found if pattern is not None]
        return known if len(known) == len(found) else ()


class CommandRule(Struct):
    """A rule for the directives with a command."""

    command: str
    definitions: Optional[Sequence[ArgumentRule]] = field(name="ruleDefs")

    @property
    def closed(self) -> bool:
        """Whether all keys are known here that a directive may have."""
        return all(argument.keys is not None for argument in self.definitions or ())

    @property
    def arguments(self) -> Sequence[ArgumentRule]:
        """The rules for its arguments; none if some are not known here."""
        return self.definitions or () if self.closed else ()


class RuleSet:
    """The rules of a site. As long as there are none they refuse nothing."""

    def __init__(self, rules: Iterable[CommandRule] = ()) -> None:
        self._rules: dict[str, list[CommandRule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.command, []).append(rule)

    def check(self, directives: Sequence[Directive]) -> None:
        """Refuse directives that DWS would refuse.

        Raises:
            DirectiveError: names the first word that is wrong.
        """
        values: set[tuple[str, str]] = set()
        for directive in directives if self._rules else ():
            for rule in self._rules_of(directive):
                _check_directive(directive, rule, values)

    def _rules_of(self, directive: Directive) -> list[CommandRule]:
        rules = self._rules.get(directive.command)
        if rules is None:
            problem = f"unknown command '{_cut(directive.command)}'"
            meant = closest(directive.command, self._rules)
            if meant is None:
                problem += f", expected one of {', '.join(self._rules)}"
            raise directive.wrong_command(problem, meant)
        return rules


def _check_directive(
    directive: Directive, rule: CommandRule, values: set[tuple[str, str]]
) -> None:
    """Check a directive against a rule for its command. ``values`` has those of the
    job that are to be unique, each with its ``unique_within``."""
    met, arguments = set(), rule.arguments
    for key, value in directive.arguments.items():
        matching = (a for a in arguments if a.keys and a.keys.matches(key))
        argument = next(matching, None)
        if argument is None:
            _check_unknown(directive, rule, key)
            continue
        met.add(id(argument))
        _check_value(directive, argument, key, value)
        if argument.unique_within:
            unique = (argument.unique_within, value)
            if unique in values:
                problem = f"{key}={_cut(value)} is used by another directive"
                raise directive.wrong_value(key, problem)
            values.add(unique)
    for argument in arguments:
        if argument.required and argument.choices and id(argument) not in met:
            raise directive.wrong_command(
                "missing argument " + _one_of(f"'{key}='" for key in argument.choices)
            )


def _check_value(
    directive: Directive, rule: ArgumentRule, key: str, value: str
) -> None:
    if rule.type == "integer":
        _check_integer(directive, rule, key, value)
    elif rule.type == "bool" and rule.patterns:
        if value.lower() not in _BOOLEANS:
            problem = f"{key}={_cut(value)} is not one of {', '.join(_BOOLEANS)}"
            raise directive.wrong_value(key, problem)
    elif rule.type == "string":
        _check_word(directive, rule, key, value)
    elif rule.type == "list-of-string":
        words = value.split(",")
        for word in words:
            _check_word(directive, rule, key, word)
        if len(set(words)) < len(words):
            problem = f"{key}={_cut(value)} has a word twice"
            raise directive.wrong_value(key, problem)


def _check_word(directive: Directive, rule: ArgumentRule, key: str, word: str) -> None:
    patterns = rule.patterns
    if not patterns or any(pattern.matches(word) for pattern in patterns):
        return
    common = mistake(directive, key) if rule.type == "string" else None
    if common is not None:
        raise common
    choices = [choice for pattern in patterns for choice in pattern.choices]
    problem = f"{key}={_cut(word)} is not "
    meant = None
    if choices:
        meant = closest(word, choices)
        problem += f"one of {', '.join(choices)}"
    elif patterns[0].text == _NAME:
        problem += _NAME_WORDS
        meant = _meant_name(patterns[0], word)
    else:
        problem += f"as the rules of DWS say: {_one_of(p.text for p in patterns)}"
        meant = _meant_name(patterns[0], word)
    raise _wrong_word(directive, key, word, problem, meant)


def _meant_name(pattern: Pattern, word: str) -> Optional[str]:
    meant = word.lower().replace("_", "-").replace(".", "-")
    return meant if len(word) <= _SHOWN and pattern.matches(meant) else None


def _wrong_word(
    directive: Directive, key: str, word: str, problem: str, meant: Optional[str]
) -> DirectiveError:
    """The error that a word of a value is wrong."""
    start, end = directive.value_span(key)
    words = directive.arguments[key].split(",")
    if word in words:
        start += sum(len(other) + 1 for other in words[: words.index(word)])
        end = start + len(word)
    return DirectiveError(directive.line, start, end, problem, meant)


def _check_unknown(directive: Directive, rule: CommandRule, key: str) -> None:
    if not rule.closed:
        return
    if directive.is_bare(key):
        problem = f"argument '{_cut(key)}' is not of the form key=value"
        raise directive.wrong_key(key, problem)
    problem = f"unknown argument '{_cut(key)}='"
    known = [key for argument in rule.arguments for key in argument.choices]
    meant = closest(key, set(known) - set(directive.arguments))
    if meant is not None:
        raise directive.wrong_key(key, problem, f"{meant}=")
    if known:
        problem += ", expected " + _one_of(f"{each}=" for each in known)
    raise directive.wrong_key(key, problem)


def _check_integer(
    directive: Directive, rule: ArgumentRule, key: str, value: str
) -> None:
    problem = f"{key}={_cut(value)} is not an integer"
    if not _INTEGER.fullmatch(value):
        raise directive.wrong_value(key, problem)
    if rule.minimum and int(value) < rule.minimum:
        raise directive.wrong_value(key, f"{problem} of at least {rule.minimum}")
    if rule.maximum and int(value) > rule.maximum:
        raise directive.wrong_value(key, f"{problem} of at most {rule.maximum}")


def _cut(value: str) -> str:
    return printable(value, _SHOWN)


def _one_of(words: Iterable[str]) -> str:
    words = list(words)
    return words[0] if len(words) == 1 else "one of " + ", ".join(words)


NO_RULES = RuleSet()
"""As long as the rules of the site are not known."""


def read_rules(specs: Any) -> RuleSet:
    """The rules in the ``spec`` of the live DWDirectiveRules, as ``dws.rules`` answers;
    none for None, and for rules that are malformed."""
    try:
        return RuleSet(msgspec.convert(specs or [], list[CommandRule]))
    except msgspec.ValidationError:
        return NO_RULES
