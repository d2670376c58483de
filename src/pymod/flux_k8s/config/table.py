# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The ``[rabbit]`` table of Flux's configuration.

:meth:`Config.parse` refuses unknown keys: the administrator hears of a misspelt key
before users notice its effect.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, Optional

from flux_k8s.errors import ConfigError, DirectiveError, show
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.json_reader import is_integer, is_number
from flux_k8s.limits import DIRECTIVES_BYTES
from flux_k8s.objects.storagerequest import PROLOG, RELEASES, STAGES, TEARDOWN

FILE_SYSTEMS = ("xfs", "gfs2", "raw", "lustre")

KEEP = "keep"
UNMOUNT_FAILURES = (TEARDOWN, KEEP)
"""What becomes of storage that a node does not unmount in time: DWS deletes it, or it
is kept until that node cannot write to it any more."""

_LONGEST = 1e10
"""Seconds that a time limit has at most, some 300 years: the year of a time stamp has
four digits."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

_VERSION = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")

_UNIT = re.compile(
    r"[A-Za-z0-9:_\\@-][A-Za-z0-9:_.\\@-]*"
    r"\.(service|socket|target|mount|automount|path|timer|slice|swap)"
)

READ_ONCE = ("mapping", "kubeconfig", "instance", "dws_api_version", "nnf_api_version")
"""Keys that are read when the module is loaded. A reload of the configuration does not
put new values in force."""

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


@dataclass(frozen=True)
class Config:
    """The values of the table. Times are in seconds; None means off."""

    mapping: Optional[str] = None
    kubeconfig: Optional[str] = None
    instance: Optional[str] = None
    """The name of the instance, in a label of its Workflows."""
    tc_timeout: float = 10.0
    setup_timeout: Optional[float] = None
    prerun_timeout: Optional[float] = None
    postrun_timeout: Optional[float] = None
    teardown_after: Optional[float] = None
    stall_timeout: Optional[float] = None
    """The longest time for which no data of a copy_in or copy_out may move."""
    keep_failed: Optional[float] = None
    """How long the storage of a job is kept whose data could not be copied out."""
    keep_failed_limit: float = 10.0
    """Per cent of all Rabbits that the jobs of one user may have kept so."""
    prolog_timeout: Optional[float] = 1800.0
    drain_compute_nodes: bool = True
    soft_drain: bool = True
    save_datamovements: int = 0
    restrict_persistent_creation: bool = True
    release: str = TEARDOWN
    """One of :data:`RELEASES`, for jobs that do not say."""
    unmount_failure: str = TEARDOWN
    """One of :data:`UNMOUNT_FAILURES`."""
    fence_command: tuple[str, ...] = ()
    """A program, and arguments, that says which nodes cannot write any more."""
    stage: str = PROLOG
    """One of :data:`STAGES`, for jobs that do not say."""
    stage_limit: float = 50.0
    """Per cent of all Rabbits that jobs without nodes may have."""
    stage_user_limit: float = 25.0
    """The same for the jobs of one user."""
    stage_timeout: Optional[float] = 86400.0
    """The longest time for which data that was copied in waits for nodes."""
    user_workflows: int = 10
    """The most Workflows of one user that DWS has to plan, or to tear down, without
    storage that was made; 0 for no limit."""
    directives_limit: int = 8192
    """The most bytes of the directives of a job, as it is submitted."""
    user_directives_limit: int = 2**20
    """The most bytes of the directives of all active jobs of one user; 0 for no
    limit."""
    maximums: Mapping[str, float] = field(default_factory=dict)
    """By file system type, the GiB per node that a job may request."""
    presets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dws_api_version: Optional[str] = None
    nnf_api_version: Optional[str] = None
    module_nopanic: Optional[bool] = None
    """Accepted, and without effect."""
    daemons: Mapping[str, Daemon] = field(default_factory=dict)

    @property
    def keeps_mounted(self) -> bool:
        """Whether storage is kept that a node has mounted."""
        return self.unmount_failure == KEEP

    @classmethod
    def parse(cls, table: Any) -> Config:
        """Read and check a ``[rabbit]`` table; None for a configuration without one.

        Raises:
            ConfigError: a key is unknown, or its value is invalid.
        """
        values: dict[str, Any] = {}
        for key, value in _table("rabbit", {} if table is None else table).items():
            if key == "policy":
                values["maximums"] = _policy(value)
                continue
            reader = _READERS.get(key)
            if reader is None:
                raise _unknown("rabbit", key, [*_READERS, "policy"])
            values[key] = reader(f"rabbit.{key}", value)
        return dataclasses.replace(cls(), **values)

    def not_in_force(self, loaded: Config) -> list[str]:
        """The keys whose new values are not in force until the module is loaded again.

        Args:
            loaded: the values with which the module was loaded.
        """
        return [
            f"rabbit.{key}"
            for key in READ_ONCE
            if getattr(self, key) != getattr(loaded, key)
        ]


def misspelt(tables: Iterable[str]) -> str:
    """A hint at the table of Flux's configuration whose name is nearly ``rabbit``;
    empty if there is none."""
    others = [name for name in tables if name != "rabbit"]
    found = get_close_matches("rabbit", others, n=1, cutoff=0.8)
    return f"; there is one named {show(found[0])}: did you mean that?" if found else ""


def parse_fsd(key: str, value: Any) -> float:
    """Seconds from a Flux Standard Duration (RFC 23), or from a number.

    Raises:
        ConfigError: ``value`` is neither, or is infinite. The error names ``key``.
    """
    if isinstance(value, str):
        match = _FSD.fullmatch(value)
        if match is None:
            raise ConfigError(
                key, f'{show(value)} is not a duration, expected one like "30m"'
            )
        value = float(match.group(1)) * _FSD_SECONDS[match.group(2)]
    expected = 'a duration like "30m", or a number of seconds, 0 or more'
    seconds = _number(key, value, expected)
    if seconds > _LONGEST:
        raise ConfigError(key, f"is {seconds:g} s, expected at most {_LONGEST:g} s")
    return seconds


def _unknown(where: str, key: str, known: Iterable[str]) -> ConfigError:
    names = sorted(known)
    guess = get_close_matches(key, names, n=1)
    hint = f"did you mean '{guess[0]}'?" if guess else "known: " + ", ".join(names)
    return ConfigError(f"{where}.{key}", f"unknown key, {hint}")


def _table(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(key, f"is {show(value)}, expected a table")
    return value


def _string(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(key, f"is {show(value)}, expected a string, not an empty one")
    return value


def _program(key: str, value: Any) -> tuple[str, ...]:
    """A program and its arguments; empty for none."""
    expected = 'expected a list of strings, like ["/usr/sbin/program", "argument"]'
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(key, f"is {show(value)}, {expected}")
    if value and not value[0].startswith("/"):
        raise ConfigError(f"{key}[0]", f"is {show(value[0])}, expected a path from /")
    if any("\0" in each for each in value):
        raise ConfigError(key, f"is {show(value)}, expected no NUL characters")
    return tuple(value)


def _label(key: str, value: Any) -> str:
    """A value of a label in Kubernetes."""
    if not (isinstance(value, str) and _LABEL.fullmatch(value)):
        expected = "expected a name of up to 63 letters, digits, '-', '_' and '.'"
        raise ConfigError(
            key, f"is {show(value)}, {expected}, with a letter or digit at both ends"
        )
    return value


def _version(key: str, value: Any) -> str:
    """The version of an API group in Kubernetes."""
    if not _VERSION.fullmatch(_string(key, value)):
        raise ConfigError(key, f"is {show(value)}, expected a version like v1alpha7")
    return str(value)


def _unit(key: str, value: Any) -> str:
    """The whole name of a systemd unit, without blanks and slashes: the prolog script
    ends a name at a blank, and has a folder with the name of each unit."""
    if not _UNIT.fullmatch(_string(key, value)):
        expected = "expected the name of one systemd unit, like daemon.service"
        raise ConfigError(key, f"is {show(value)}, {expected}")
    return str(value)


def _choice(key: str, value: Any, choices: Iterable[str]) -> str:
    if value not in choices:
        expected = " or ".join(f'"{name}"' for name in choices)
        raise ConfigError(key, f"is {show(value)}, expected {expected}")
    return str(value)


def _boolean(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(key, f"is {show(value)}, expected true or false")
    return value


def _number(key: str, value: Any, what: str) -> float:
    if not is_number(value) or value < 0:
        raise ConfigError(key, f"is {show(value)}, expected {what}")
    return float(value)


def _is_infinite(value: Any) -> bool:
    """Whether a value is the duration that has no end (RFC 23)."""
    return isinstance(value, str) and value.lower() in ("infinity", "inf")


def _limit(key: str, value: Any) -> Optional[float]:
    """A time limit as a duration; 0 is off, and so is infinity."""
    return None if _is_infinite(value) else parse_fsd(key, value) or None


def _tolerated(key: str, value: Any) -> float:
    """For how long something is tolerated, as a duration; 0 is not at all."""
    return _LONGEST if _is_infinite(value) else parse_fsd(key, value)


def _kept(key: str, value: Any) -> Optional[float]:
    """How long something is kept, as a duration; 0 is off."""
    return _tolerated(key, value) or None


def _per_cent(key: str, value: Any) -> float:
    number = _number(key, value, "a number from 0 to 100")
    if number > 100:
        raise ConfigError(key, f"is {show(value)}, expected a number from 0 to 100")
    return number


def _count(key: str, value: Any) -> int:
    number = _number(key, value, "an integer, 0 or more")
    if not isinstance(value, int):
        raise ConfigError(key, f"is {show(value)}, expected an integer, 0 or more")
    return int(number)


def _directives_limit(key: str, value: Any) -> int:
    expected = f"expected an integer from 1 to {DIRECTIVES_BYTES}, in bytes"
    if not is_integer(value) or not 1 <= value <= DIRECTIVES_BYTES:
        raise ConfigError(key, f"is {show(value)}, {expected}")
    return int(value)


def _policy(value: Any) -> Mapping[str, float]:
    policy = _table("rabbit.policy", value)
    for key in policy:
        if key != "maximums":
            raise _unknown("rabbit.policy", key, ["maximums"])
    where = "rabbit.policy.maximums"
    maximums: dict[str, float] = {}
    for name, limit in _table(where, policy.get("maximums", {})).items():
        if name not in FILE_SYSTEMS:
            raise _unknown(where, name, FILE_SYSTEMS)
        maximums[name] = _number(f"{where}.{name}", limit, "GiB per node, 0 or more")
    return MappingProxyType(maximums)


def _presets(key: str, value: Any) -> Mapping[str, tuple[str, ...]]:
    presets: dict[str, tuple[str, ...]] = {}
    for name, preset in _table(key, value).items():
        try:
            directives = parse_attribute(preset, called="")
        except DirectiveError as error:
            raise ConfigError(f"{key}.{name}", str(error)) from None
        presets[name] = tuple(directive.text for directive in directives)
    return MappingProxyType(presets)


def _daemons(key: str, value: Any) -> Mapping[str, Daemon]:
    return MappingProxyType(
        {
            name: _daemon(f"{key}.{name}", table)
            for name, table in _table(key, value).items()
        }
    )


def _daemon(where: str, value: Any) -> Daemon:
    table = _table(where, value)
    for key in table:
        if key not in ("environment", "unit"):
            raise _unknown(where, key, ["environment", "unit"])
    environment = _environment(f"{where}.environment", table.get("environment", {}))
    unit = _unit(f"{where}.unit", table["unit"]) if "unit" in table else None
    return Daemon(environment, unit)


def _environment(where: str, value: Any) -> Mapping[str, str]:
    environment: dict[str, str] = {}
    for name, text in _table(where, value).items():
        if not name or set(name) & set("=\0"):
            raise ConfigError(where, f"has {show(name)}, expected names of variables")
        environment[name] = _string(f"{where}.{name}", text)
        if "\0" in text:
            problem = f"is {show(text)}, expected no NUL characters"
            raise ConfigError(f"{where}.{name}", problem)
    return MappingProxyType(environment)


_READERS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "mapping": _string,
        "kubeconfig": _string,
        "instance": _label,
        "tc_timeout": _tolerated,
        "setup_timeout": _limit,
        "prerun_timeout": _limit,
        "postrun_timeout": _limit,
        "teardown_after": _limit,
        "stall_timeout": _limit,
        "keep_failed": _kept,
        "keep_failed_limit": _per_cent,
        "prolog_timeout": _limit,
        "drain_compute_nodes": _boolean,
        "soft_drain": _boolean,
        "save_datamovements": _count,
        "restrict_persistent_creation": _boolean,
        "release": partial(_choice, choices=RELEASES),
        "unmount_failure": partial(_choice, choices=UNMOUNT_FAILURES),
        "fence_command": _program,
        "stage": partial(_choice, choices=STAGES),
        "stage_limit": _per_cent,
        "stage_user_limit": _per_cent,
        "stage_timeout": _limit,
        "user_workflows": _count,
        "directives_limit": _directives_limit,
        "user_directives_limit": _count,
        "presets": _presets,
        "dws_api_version": _version,
        "nnf_api_version": _version,
        "module_nopanic": _boolean,
        "daemons": _daemons,
    }
)
