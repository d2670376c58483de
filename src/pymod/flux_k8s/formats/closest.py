# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The word that a user may have meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Iterable, Optional

_LENGTH = 64
"""Characters of a word that is compared: comparing takes the square of them."""


def closest(word: str, known: Iterable[str]) -> Optional[str]:
    """The known word that is most like ``word``, or differs from it in the case of
    letters only; None if none is like it."""
    if len(word) > _LENGTH:
        return None
    by_folded = {name.casefold(): name for name in known if len(name) <= _LENGTH}
    for folded in get_close_matches(word.casefold(), by_folded, n=1):
        return by_folded[folded]
    return None
