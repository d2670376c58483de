# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The options of ``flux dws list`` and ``flux dws usage`` that select jobs."""

from __future__ import annotations

import argparse
import time
from typing import Optional

from dwscli import ended, when
from dwscli.instance import Instance
from dwscli.messages import warn
from dwscli.users import user_id
from flux_k8s.command import CommandError
from flux_k8s.ports import Json
from flux_k8s.text import quoted


def count(args: argparse.Namespace) -> int:
    """How many jobs that have ended are considered at most (``--count``). 0 is any
    number, as in ``flux jobs``.

    Raises:
        CommandError: the number is negative.
    """
    if args.count < 0:
        raise CommandError(f"--count: {args.count} is negative, expected 0 or more")
    return int(args.count) or ended.LARGEST_LIST


def counted(found: list[Json], most: int, no_header: bool) -> list[Json]:
    """As many jobs as ``--count`` wants, with a warning where there are more: as in
    ``flux jobs``, it belongs to the header."""
    if len(found) > most and not no_header:
        warn(f"output truncated at {most} jobs that have ended: see --count, --since")
    return found[:most]


def since(args: argparse.Namespace) -> float:
    """The UNIX time since when jobs have ended (``--since``); 0.0 for all.

    Raises:
        CommandError: the option is no moment, or in the future.
    """
    return when.parse(args.since, time.time()) if args.since else 0.0


def user(text: str, instance: Instance) -> Optional[int]:
    """The user ID of ``--user``; None for ``EVERYBODY``.

    Raises:
        CommandError: there is no such user, or a guest asks for another one.
    """
    found = user_id(text)
    if found not in (None, instance.userid) and not instance.is_owner:
        raise CommandError(f"the jobs of user {quoted(text)} are not yours")
    return found
