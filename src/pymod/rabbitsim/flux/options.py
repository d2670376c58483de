# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The options of ``flux batch`` and ``flux submit`` that we know, to jobspec."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import re
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence

from flux_k8s.config.values import parse_fsd
from flux_k8s.errors import ConfigError
from flux_k8s.ports import Json
from rabbitsim.flux import requires
from rabbitsim.flux.job import set_path
from rabbitsim.flux.script import ScriptError, read_directives

NOT_HERE = (
    "--add-brokers --add-file --begin-time --broker-opts --conf --dump"
    " --env --env-file --env-remove --flags --input --rlimit --signal --taskmap --wrap"
).split()
"""Options of Flux that its stand-in lacks."""

DEFAULT_OUTPUT = "flux-{{id}}.out"


class OptionError(ValueError):
    """An option that is unknown or wrong; the message says which and why."""


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


def option_parser() -> argparse.ArgumentParser:
    """The parser for the options that both commands have."""
    parser = _Parser(add_help=False, allow_abbrev=False, prog="flux batch")
    add = parser.add_argument
    add("-N", "--nodes", type=_positive, metavar="N")
    add("-n", "--nslots", type=_positive, metavar="N")
    add("-c", "--cores-per-slot", type=_positive, default=1, metavar="N")
    add("-g", "--gpus-per-slot", type=_natural, default=0, metavar="N")
    add("-x", "--exclusive", action="store_true")
    add("-t", "--time-limit", metavar="MIN|FSD")
    add("-q", "--queue", metavar="NAME")
    add("-B", "--bank", metavar="BANK")
    add("-S", "--setattr", action="append", default=[], metavar="ATTR=VAL")
    add("-o", "--setopt", action="append", default=[], metavar="OPT=VAL")
    add("--requires", action="append", metavar="CONSTRAINT")
    add("--dependency", action="append", metavar="URI")
    add("--job-name", metavar="NAME")
    add("--output", metavar="FILENAME")
    add("--error", metavar="FILENAME")
    add("--cwd", metavar="DIRECTORY")
    add("--urgency", type=_urgency, default=16, metavar="N")
    add("-l", "--label-io", action="store_true")
    add("-u", "--unbuffered", action="store_true")
    return parser


def parse_options(
    args: Sequence[str], namespace: Optional[argparse.Namespace] = None
) -> argparse.Namespace:
    """Read options, onto those of an earlier call.

    Raises:
        OptionError: one is unknown, or its value is wrong.
    """
    parser = option_parser()
    options, rest = parser.parse_known_args(list(args), namespace)
    if rest:
        raise OptionError(_unknown(rest[0], parser))
    return options


def batch_jobspec(
    script: str,
    name: str,
    *,
    args: Sequence[str] = (),
    nodes: Optional[int] = None,
    cwd: str,
    environment: Mapping[str, str],
) -> tuple[Json, argparse.Namespace]:
    """The jobspec that ``flux batch`` makes of a script, and its options.

    Args:
        script: the script's text; its ``#FLUX:`` lines are read.
        name: its name, for errors and the job.
        args: arguments for the script.
        nodes: the number of nodes, in place of the one in the script.

    Raises:
        ScriptError: one line that names what is wrong, and where.
    """
    options = parse_options([])
    for directive in read_directives(script, name):
        try:
            options = parse_options(directive.args, options)
        except OptionError as error:
            raise ScriptError(f"{name}: line {directive.line}: {error}") from None
    options.nodes = nodes or options.nodes
    try:
        if not script.startswith("#!"):
            raise OptionError("does not start with '#!'")
        jobspec = _batch(options, script, name, args)
        _attributes(jobspec, options, cwd, environment)
    except ValueError as error:
        raise ScriptError(f"{name}: {error}") from None
    return jobspec, options


def submit_jobspec(
    command: Sequence[str],
    args: Sequence[str] = (),
    *,
    cwd: str = "/",
    environment: Optional[Mapping[str, str]] = None,
) -> Json:
    """The jobspec that ``flux submit ARGS COMMAND`` makes.

    Raises:
        OptionError: an option is unknown or wrong.
    """
    options = parse_options(args)
    if options.nslots is None:
        options.nslots = options.nodes or 1
        options.exclusive = options.exclusive or options.nodes is not None
    jobspec = _jobspec(list(command), options)
    _attributes(jobspec, options, cwd, environment)
    return jobspec


def _batch(
    options: argparse.Namespace, script: str, name: str, args: Sequence[str]
) -> Json:
    if options.nslots is None:
        if options.nodes is None:
            raise OptionError(
                "the number of slots is missing: give -n, --nslots or -N, --nodes"
            )
        options.nslots = options.nodes
        options.exclusive = True
    if options.job_name is None:
        options.job_name = name
    if options.output is None:
        options.output = DEFAULT_OUTPUT
    command = ["flux", "broker", "{{tmpdir}}/script", *args]
    jobspec = _jobspec(command, options)
    set_path(
        jobspec,
        "attributes.system",
        {
            "duration": 0,
            "shell": {
                "options": {
                    "per-resource": {"type": "node"},
                    "mpi": "none",
                    "exit-timeout": "none",
                }
            },
            "files": {
                "script": {"mode": 0o100700, "data": script, "encoding": "utf-8"}
            },
        },
    )
    return jobspec


def _jobspec(command: list[str], options: argparse.Namespace) -> Json:
    nodes, nslots = options.nodes, options.nslots
    inner = [{"type": "core", "count": options.cores_per_slot}]
    if options.gpus_per_slot:
        inner.append({"type": "gpu", "count": options.gpus_per_slot})
    slot: Json = {"type": "slot", "count": nslots, "with": inner, "label": "task"}
    count = {"per_slot": 1}
    if nodes is None:
        if options.exclusive:
            raise OptionError("-x, --exclusive needs -N, --nodes")
        resource = slot
    else:
        if nodes > nslots:
            raise OptionError(
                f"-N {nodes} is more than -n {nslots}: each node needs a slot"
            )
        slot["count"] = math.ceil(nslots / nodes)
        if nslots % nodes:
            count = {"total": nslots}
        resource = {"type": "node", "count": nodes, "with": [slot]}
        if options.exclusive:
            resource["exclusive"] = True
    return {
        "resources": [resource],
        "tasks": [{"command": command, "slot": "task", "count": count}],
        "attributes": {"system": {"duration": 0}},
        "version": 1,
    }


def _attributes(
    jobspec: Json,
    options: argparse.Namespace,
    cwd: str,
    environment: Optional[Mapping[str, str]],
) -> None:
    def put(path: str, value: Any) -> None:
        set_path(jobspec, f"attributes.{path}", value)

    if environment is not None:
        put("system.environment", dict(environment))
    put("system.cwd", options.cwd or cwd)
    for path, value in (
        ("system.job.name", options.job_name),
        ("system.queue", options.queue),
        ("system.bank", options.bank),
    ):
        if value is not None:
            put(path, value)
    for stream, path in (("stdout", options.output), ("stderr", options.error)):
        if path is not None:
            put(f"system.shell.options.output.{stream}", {"type": "file", "path": path})
            if options.label_io:
                put(f"system.shell.options.output.{stream}.label", True)
    if options.requires is not None:
        try:
            constraint = requires.parse(" ".join(options.requires))
        except requires.ConstraintError as error:
            raise OptionError(f"--requires: {error}") from None
        put("system.constraints", constraint)
    if options.dependency is not None:
        put("system.dependencies", [_dependency(uri) for uri in options.dependency])
    for setting in options.setopt:
        key, value = _key_value("-o, --setopt", setting)
        put(f"system.shell.options.{key}", value)
    if options.time_limit is not None:
        put("system.duration", _duration(options.time_limit))
    for setting in options.setattr:
        key, value = _key_value("-S, --setattr", setting)
        put(_attribute_path(key), value)


def _dependency(uri: str) -> Json:
    """``scheme:value`` of RFC 26, as it is in a jobspec."""
    scheme, _, value = uri.partition(":")
    if not scheme:
        raise OptionError(f"--dependency: '{uri}' is not SCHEME:VALUE")
    return {"scheme": scheme, "value": value}


def _attribute_path(key: str) -> str:
    """Where below ``attributes`` a ``--setattr`` goes: to ``system``, unless
    the key says otherwise."""
    if key.startswith("."):
        return key[1:]
    if key.startswith("attributes."):
        return key[len("attributes.") :]
    if key.startswith(("user.", "system.")):
        return key
    return f"system.{key}"


def _key_value(option: str, setting: str) -> tuple[str, Any]:
    """``key=value``: JSON where it is JSON, else a string; 1 without value;
    ``^key=file`` reads JSON from a file."""
    key, equals, text = setting.partition("=")
    if not key.lstrip("^."):
        raise OptionError(f"{option}: '{setting}' has no key")
    if key.startswith("^"):
        try:
            with open(text, encoding="utf-8") as stream:
                return key[1:], json.load(stream)
        except (OSError, ValueError) as error:
            raise OptionError(f"{option}: {text}: {error}") from None
    if not equals:
        return key, 1
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def _duration(text: str) -> float:
    """Seconds; a bare number is minutes."""
    try:
        seconds = float(text) * 60
    except ValueError:
        try:
            seconds = parse_fsd("-t, --time-limit", text)
        except ConfigError as error:
            raise OptionError(str(error)) from None
    if not math.isfinite(seconds) or seconds < 0:
        raise OptionError(f"-t, --time-limit: '{text}' is no time limit, expected 30m")
    return seconds


def _unknown(arg: str, parser: argparse.ArgumentParser) -> str:
    name = arg.partition("=")[0]
    if name in NOT_HERE:
        return f"{name} is an option of Flux that its stand-in does not have"
    if not arg.startswith("-"):
        return f"'{arg}' is not an option"
    known = [
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    ]
    guess = difflib.get_close_matches(name, known, n=1)
    hint = f", did you mean {guess[0]}?" if guess else ""
    return f"unknown option {name}{hint}"


def _number(minimum: int, what: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}")
        return int(text)

    return parse


_positive = _number(1, "a positive integer")
_natural = _number(0, "an integer, 0 or more")


def _urgency(text: str) -> int:
    names = {"hold": 0, "default": 16, "expedite": 31}
    if text in names:
        return names[text]
    if re.fullmatch(r"\d+", text) and int(text) <= 31:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"'{text}' is not an urgency: 0 to 31, hold, default or expedite"
    )
