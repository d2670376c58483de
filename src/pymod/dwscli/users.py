# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The names of users."""

from __future__ import annotations

import pwd
from functools import lru_cache
from typing import Optional

from flux_k8s.command import CommandError
from flux_k8s.text import quoted

EVERYBODY = "all"
"""The user whose jobs are everybody's, as in ``flux jobs -u all``."""


@lru_cache(maxsize=None)
def user_name(userid: int) -> Optional[str]:
    """The name of a user, None for one that this machine does not know."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return None


def user_id(text: str) -> Optional[int]:
    """The user ID of a user's name or number; None for ``EVERYBODY``.

    Raises:
        CommandError: there is no such user.
    """
    if text == EVERYBODY:
        return None
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        pass
    if text.isascii() and text.isdecimal() and len(text) < 11:
        return int(text)
    raise CommandError(f"--user: there is no user {quoted(text)}")
