# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Values in the ``[rabbit]`` table: each function reads one, or raises a ConfigError
that names its key and what it may be."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Iterable, Mapping, NoReturn, Optional

from flux_k8s.errors import ConfigError, DirectiveError, show
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.json_reader import is_integer, is_number
from flux_k8s.limits import DIRECTIVES_BYTES

FILE_SYSTEMS = ("xfs", "gfs2", "raw", "lustre")

_LONGEST = 1e10
"""Seconds that a time limit has at most, some 300 years: the year of a time stamp has
four digits."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

_VERSION = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")

_UNIT = re.compile(
    r"[A-Za-z0-9:_\\@-][A-Za-z0-9:_.\\@-]*"
    r"\.(service|socket|target|mount|automount|path|timer|slice|swap)"
)

_FSD = re.compile(
    r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(ms|s|m|h|d)?"
)
_FSD_SECONDS = MappingProxyType(
    {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
)


@dataclass(frozen=True)
class Daemon:
    """A daemon that a job enables with the argument ``requires=``.

    Attributes:
        environment: variables for the job's tasks.
        unit: a systemd unit that the prolog script starts on the job's nodes.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    unit: Optional[str] = None


def parse_fsd(key: str, value: Any) -> float:
    """Seconds from a Flux Standard Duration (RFC 23), or from a number."""
    if isinstance(value, str):
        match = _FSD.fullmatch(value)
        if match is None:
            problem = f'{show(value)} is not a duration, expected one like "30m"'
            raise ConfigError(key, problem)
        value = float(match.group(1)) * _FSD_SECONDS[match.group(2)]
    expected = 'a duration like "30m", or a number of seconds, 0 or more'
    seconds = _number(key, value, expected)
    if seconds > _LONGEST:
        raise ConfigError(key, f"is {seconds:g} s, expected at most {_LONGEST:g} s")
    return seconds


def limit(key: str, value: Any) -> Optional[float]:
    """A time limit as a duration; 0 is off, and so is infinity."""
    return None if _is_infinite(value) else parse_fsd(key, value) or None


def tolerated(key: str, value: Any) -> float:
    """For how long something is tolerated, as a duration; 0 is not at all."""
    return _LONGEST if _is_infinite(value) else parse_fsd(key, value)


def kept(key: str, value: Any) -> Optional[float]:
    """How long something is kept, as a duration; 0 is off."""
    return tolerated(key, value) or None


def _is_infinite(value: Any) -> bool:
    """Whether a value is the duration that has no end (RFC 23)."""
    return isinstance(value, str) and value.lower() in ("infinity", "inf")


def refuse_unknown(where: str, table: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a table with a key that is not known."""
    names = sorted(known)
    for key in table:
        if key not in names:
            guess = get_close_matches(key, names, n=1)
            known_keys = "known: " + ", ".join(names)
            hint = f"did you mean '{guess[0]}'?" if guess else known_keys
            raise ConfigError(f"{where}.{key}", f"unknown key, {hint}")


def table(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(key, value, "a table")
    return value


def string(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        _refuse(key, value, "a string, not an empty one")
    return value


def label(key: str, value: Any) -> str:
    """A value of a label in Kubernetes."""
    expected = "a name of up to 63 letters, digits, '-', '_' and '.', with a letter or"
    return _matching(key, value, _LABEL, f"{expected} digit at both ends")


def version(key: str, value: Any) -> str:
    """The version of an API group in Kubernetes."""
    return _matching(key, value, _VERSION, "a version like v1alpha7")


def _unit(key: str, value: Any) -> str:
    """The whole name of a systemd unit, without blanks and slashes: the prolog script
    ends a name at a blank, and has a folder with the name of each unit."""
    expected = "the name of one systemd unit, like daemon.service"
    return _matching(key, value, _UNIT, expected)


def _matching(key: str, value: Any, pattern: re.Pattern[str], expected: str) -> str:
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        _refuse(key, value, expected)
    return value


def program(key: str, value: Any) -> tuple[str, ...]:
    """A program and its arguments; empty for none."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        expected = 'a list of strings, like ["/usr/sbin/program", "argument"]'
        _refuse(key, value, expected)
    if value and not value[0].startswith("/"):
        _refuse(f"{key}[0]", value[0], "a path from /")
    if any("\0" in each for each in value):
        _refuse(key, value, "no NUL characters")
    return tuple(value)


def choice(key: str, value: Any, choices: Iterable[str]) -> str:
    if value not in choices:
        _refuse(key, value, " or ".join(f'"{name}"' for name in choices))
    return str(value)


def boolean(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(key, value, "true or false")
    return value


def _number(key: str, value: Any, expected: str) -> float:
    if not is_number(value) or value < 0:
        _refuse(key, value, expected)
    return float(value)


def per_cent(key: str, value: Any) -> float:
    expected = "a number from 0 to 100"
    number = _number(key, value, expected)
    if number > 100:
        _refuse(key, value, expected)
    return number


def count(key: str, value: Any) -> int:
    if not is_integer(value) or value < 0:
        _refuse(key, value, "an integer, 0 or more")
    return int(value)


def directives_limit(key: str, value: Any) -> int:
    if not is_integer(value) or not 1 <= value <= DIRECTIVES_BYTES:
        _refuse(key, value, f"an integer from 1 to {DIRECTIVES_BYTES}, in bytes")
    return int(value)


def maximums(key: str, value: Any) -> Mapping[str, float]:
    """The limits in the table ``policy``."""
    policy = table(key, value)
    refuse_unknown(key, policy, ["maximums"])
    where = f"{key}.maximums"
    limits = table(where, policy.get("maximums", {}))
    refuse_unknown(where, limits, FILE_SYSTEMS)
    expected = "GiB per node, 0 or more"
    return MappingProxyType(
        {name: _number(f"{where}.{name}", limits[name], expected) for name in limits}
    )


def presets(key: str, value: Any) -> Mapping[str, tuple[str, ...]]:
    presets: dict[str, tuple[str, ...]] = {}
    for name, preset in table(key, value).items():
        try:
            directives = parse_attribute(preset, called="")
        except DirectiveError as error:
            raise ConfigError(f"{key}.{name}", str(error)) from None
        presets[name] = tuple(directive.text for directive in directives)
    return MappingProxyType(presets)


def daemons(key: str, value: Any) -> Mapping[str, Daemon]:
    found = table(key, value)
    return MappingProxyType(
        {name: _daemon(f"{key}.{name}", found[name]) for name in found}
    )


def _daemon(where: str, value: Any) -> Daemon:
    found = table(where, value)
    refuse_unknown(where, found, ["environment", "unit"])
    environment = _environment(f"{where}.environment", found.get("environment", {}))
    unit = _unit(f"{where}.unit", found["unit"]) if "unit" in found else None
    return Daemon(environment, unit)


def _environment(where: str, value: Any) -> Mapping[str, str]:
    environment: dict[str, str] = {}
    for name, text in table(where, value).items():
        if name.split() != [name] or set(name) & set("=\0"):
            raise ConfigError(where, f"has {show(name)}, expected names of variables")
        environment[name] = string(f"{where}.{name}", text)
        if "\0" in text:
            _refuse(f"{where}.{name}", text, "no NUL characters")
    return MappingProxyType(environment)


def _refuse(key: str, value: Any, expected: str) -> NoReturn:
    raise ConfigError(key, f"is {show(value)}, expected {expected}")
