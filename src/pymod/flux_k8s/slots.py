# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Data classes without a dictionary in each instance.

There may be ten thousand jobs. A dictionary of more than 30 attributes shares its keys
with no other one (CPython 3.11), and takes 2 KiB.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar, cast

T = TypeVar("T")


def slotted(cls: type[T]) -> type[T]:
    """Return a data class like ``cls`` with ``__slots__``: ``@slotted`` goes above
    ``@dataclass``. Python 3.10 has this as ``dataclass(slots=True)``.

    Methods of the class cannot use ``super()`` without arguments.
    """
    names = tuple(field.name for field in fields(cls))  # type: ignore[arg-type]
    dropped = {*names, "__dict__", "__weakref__"}
    body = {key: value for key, value in vars(cls).items() if key not in dropped}
    body["__slots__"] = names
    return cast("type[T]", type(cls.__name__, cls.__bases__, body))
