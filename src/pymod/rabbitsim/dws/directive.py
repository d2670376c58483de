# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``#DW`` directives as DWS reads them: parse, and validate against the rules.

This is the stand-in for DWS's own parser, kept apart from
:mod:`flux_k8s.formats.directives` on purpose: the one checks the other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import yaml

STATES = ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")
"""The states of a Workflow, in order."""


@functools.lru_cache(maxsize=None)
def read_data(name: str) -> Any:
    """A YAML file beside this one. Not to be changed: it is read once."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class InvalidDirective(ValueError):
    """A directive that the admission webhook refuses."""


@dataclass(frozen=True)
class Directive:
    """One directive: its text, its command and its arguments."""

    text: str
    command: str
    args: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.args.get("name", "")

    @property
    def variable(self) -> str:
        """The name as it stands in an environment variable."""
        return self.name.replace("-", "_")

    def place(self, argument: str) -> str:
        """The source or destination of a copy, with ``_`` in its variable. NNF also
        finds storage by a variable with the name as it is: ``$DW_JOB_my-data``."""
        first, slash, rest = self.args[argument].partition("/")
        variable = first.replace("-", "_") if first.startswith("$") else first
        return variable + slash + rest

    @property
    def requires(self) -> tuple[str, ...]:
        return tuple(x for x in self.args.get("requires", "").split(",") if x)


def parse(text: str) -> Directive:
    """Split a directive into words. Says nothing yet about their meaning."""
    words = text.split()
    if not words or words[0] != "#DW":
        raise InvalidDirective(f"missing '#DW' prefix in directive '{text}'")
    if len(words) < 2:
        raise InvalidDirective(f"invalid directive '{text}'")
    args: dict[str, str] = {}
    for word in words[2:]:
        key, equals, value = word.partition("=")
        if not key:
            raise InvalidDirective(f"malformed keyword[=value]: '{word}'")
        if key in args:
            raise InvalidDirective(f"repeated argument in directive: '{key}'")
        args[key] = value if equals else "true"
        if equals and not value:
            raise InvalidDirective(f"malformed keyword[=value]: '{word}'")
    return Directive(text, words[1], args)


@dataclass(frozen=True)
class ArgumentRule:
    """The rule of one argument of a command. ``key`` and ``patterns`` are regular
    expressions of Go, in which a digit is one of 0 to 9."""

    key: str
    type: str
    patterns: tuple[str, ...]
    required: bool
    unique_within: str

    def matches(self, key: str) -> bool:
        return re.search(self.key, key, re.ASCII) is not None

    def check(self, key: str, value: str) -> None:
        values = value.split(",") if self.type == "list-of-string" else [value]
        for item in values:
            if self.patterns and not any(
                re.search(p, item, re.ASCII) for p in self.patterns
            ):
                raise InvalidDirective(f"argument '{key}' invalid string '{item}'")
        if len(set(values)) != len(values):
            raise InvalidDirective(f"argument '{key}' repeats an item in '{value}'")


@dataclass(frozen=True)
class CommandRule:
    """A command: the states in which its driver works, and its arguments."""

    command: str
    states: tuple[str, ...]
    arguments: tuple[ArgumentRule, ...]

    def check(self, directive: Directive) -> None:
        for key, value in directive.args.items():
            rule = self._rule(key)
            if rule is None:
                raise InvalidDirective(f"unsupported argument '{key}'")
            rule.check(key, value)
        for rule in self.arguments:
            if rule.required and not any(rule.matches(k) for k in directive.args):
                raise InvalidDirective(f"missing required argument '{rule.key}'")

    def _rule(self, key: str) -> Optional[ArgumentRule]:
        return next((r for r in self.arguments if r.matches(key)), None)


class Rules:
    """A DWDirectiveRule: the rules for directives."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.object = data
        self._commands = {r["command"]: _command_rule(r) for r in data["spec"]}

    @classmethod
    def default(cls) -> Rules:
        """The rules that NNF ships (``ruleset.yaml`` beside this file)."""
        return cls(read_data("ruleset.yaml"))

    def validate(self, texts: Sequence[str]) -> list[Directive]:
        """The directives, parsed; :class:`InvalidDirective` for the first that
        the rules do not allow."""
        taken: set[tuple[str, str]] = set()
        directives = []
        for text in texts:
            directive = parse(text)
            rule = self._commands.get(directive.command)
            if rule is None:
                raise InvalidDirective(f"invalid directive '{text}'")
            rule.check(directive)
            _check_unique(rule, directive, taken)
            directives.append(directive)
        return directives

    def drivers(self, directives: Sequence[Directive]) -> list[dict[str, Any]]:
        """``status.drivers`` of a new Workflow: one entry for each state in
        which a directive gives the driver work."""
        return [
            {
                "completed": False,
                "driverID": "nnf",
                "dwdIndex": index,
                "lastHB": 0,
                "status": "Pending",
                "taskID": "",
                "watchState": state,
            }
            for index, directive in enumerate(directives)
            for state in self._commands[directive.command].states
        ]


def _command_rule(data: Mapping[str, Any]) -> CommandRule:
    return CommandRule(
        command=data["command"],
        states=tuple(s.strip() for s in data["watchStates"].split(",")),
        arguments=tuple(
            ArgumentRule(
                key=d["key"],
                type=d["type"],
                patterns=tuple(d.get("patterns") or filter(None, [d.get("pattern")])),
                required=d.get("isRequired", False),
                unique_within=d.get("uniqueWithin", ""),
            )
            for d in data["ruleDefs"]
        ),
    )


def _check_unique(
    rule: CommandRule, directive: Directive, taken: set[tuple[str, str]]
) -> None:
    for argument in rule.arguments:
        for key, value in directive.args.items():
            if not argument.unique_within or not argument.matches(key):
                continue
            if (argument.unique_within, value) in taken:
                raise InvalidDirective(
                    f"value '{value}' of argument '{key}' must be unique within "
                    f"'{argument.unique_within}'"
                )
            taken.add((argument.unique_within, value))


_UNITS = {
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def capacity(text: str) -> int:
    """Bytes of a size such as ``10GiB``."""
    match = re.fullmatch(r"(\d+)([A-Za-z]+)", text)
    if match is None or match.group(2) not in _UNITS:
        raise InvalidDirective(f"argument 'capacity' invalid string '{text}'")
    return int(match.group(1)) * _UNITS[match.group(2)]
