# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws disable`` and ``flux dws enable``: take Rabbits out of service, as ``flux
resource drain`` does it with nodes, and put them back."""

from __future__ import annotations

import argparse
import errno
from typing import Iterable

from dwscli.instance import Instance, Refused, all_rabbits, ask
from dwscli.rabbits import decode
from dwscli.reading import objects, part, text, texts
from dwscli.terminal import KUBERNETES, Notice, warn
from dwscli.units import user_of
from flux_k8s.command import CommandError
from flux_k8s.formats import hostlist
from flux_k8s.ports import Json
from flux_k8s.text import quoted

ENABLE, DISABLE = "enable", "disable"
DISABLED = "Disabled"
"""The state of a Rabbit whose Storage has it in ``spec.state``."""

DESCRIPTIONS = {
    DISABLE: "Take Rabbits out of service: jobs that come later get no storage there.",
    ENABLE: "Put Rabbits back into service that flux dws disable took out of it.",
}


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws disable`` and ``flux dws enable`` take."""
    verb = args.prog.split()[-1]
    args.description = DESCRIPTIONS[verb]
    args.add_argument("rabbits", metavar="HOSTS", nargs="+", help="the Rabbits")
    if verb == DISABLE:
        args.add_argument(
            "--reason", metavar="TEXT", required=True, help="why, for others to read"
        )
    args.set_defaults(function=change)


def change(args: argparse.Namespace, instance: Instance) -> None:
    """Take Rabbits out of service, or put them back.

    Raises:
        CommandError: the user is not the instance owner, or a Rabbit is unknown, or
            Disabled in DWS.
    """
    names = dict.fromkeys(decode(args.rabbits) or ())
    if not names:
        raise CommandError("no Rabbit is named")
    verb = args.command
    request: Json = {"rabbits": [*names]}
    if verb == DISABLE:
        if not args.reason.strip():
            raise CommandError("--reason: expected a text, as in --reason='slow ssd'")
        request["reason"] = args.reason
        request["by"] = user_of(instance.userid)
    try:
        tick = Notice(KUBERNETES).tick
        answer = ask(instance, f"dws.rabbit-{verb}", request, tick)
        changed = texts(answer, "rabbits")
    except Refused as error:
        if error.errno == errno.ETIMEDOUT:
            text = f"{error}: flux dws rabbits shows which Rabbits it has {verb}d"
            raise CommandError(text) from None
        if error.errno != errno.EPERM:
            raise
        raise CommandError(f"only the instance owner may {verb} Rabbits") from None
    for name, reason in part(answer, "replaced").items():
        warn(
            f"{name} was disabled already: this replaces the reason"
            f" {quoted(str(reason))}"
        )
    rest = hostlist.encode(name for name in names if name not in changed)
    if verb == ENABLE:
        check_states(names, instance)
    if rest:
        warn(f"{verb}d already: {rest}")


def check_states(names: Iterable[str], instance: Instance) -> None:
    """Rabbits without the annotation may be out of service all the same.

    Raises:
        CommandError: one of them is Disabled in DWS.
    """
    rows = objects(all_rabbits(instance), "rabbits")
    disabled = [text(row, "name") for row in rows if text(row, "state") == DISABLED]
    found = [name for name in names if name in disabled]
    if found:
        raise CommandError(
            f"Disabled in DWS, which is not undone here: {hostlist.encode(found)};"
            " see to what is left there, then: kubectl patch storage RABBIT"
            """ --type=merge -p '{"spec":{"state":"Enabled"}}'"""
        )
