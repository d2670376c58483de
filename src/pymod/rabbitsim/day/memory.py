# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The memory of a part of a process."""

from __future__ import annotations

import gc
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

_SHARED = (type, ModuleType, CodeType)


def held_bytes(root: object, foreign: str) -> int:
    """The bytes of an object and of all that it refers to, except for code, and for
    objects whose classes are in the package ``foreign``."""
    seen = {id(root)}
    stack: list[Any] = [root]
    size = 0
    while stack:
        found = stack.pop()
        size += sys.getsizeof(found)
        if isinstance(found, FunctionType):
            below: list[Any] = [*(found.__closure__ or ()), found.__defaults__]
        else:
            below = gc.get_referents(found)
        for each in below:
            if id(each) not in seen and not _is_foreign(each, foreign):
                seen.add(id(each))
                stack.append(each)
    return size


def _is_foreign(found: object, foreign: str) -> bool:
    if isinstance(found, _SHARED):
        return True
    place = found if isinstance(found, FunctionType) else type(found)
    return place.__module__.partition(".")[0] == foreign
