# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The SSS job object (seed 003): how a job is told to accounting and to others.

:func:`read` makes a tree of :class:`Element` of an XML document, :func:`write` a
document of a tree; :func:`effective` writes out what it has by default.
:mod:`~sssjob.properties` is the table of all elements,
:mod:`~sssjob.fromflux` makes a job object of what Flux has of a job,
:mod:`~sssjob.toflux` a jobspec of a job object.
"""

from sssjob.defaults import effective, walk_with_policy
from sssjob.model import Element, ObjectError, check, element, walk
from sssjob.reading import ObjectWarning, read
from sssjob.writing import write

__all__ = [
    "Element",
    "ObjectError",
    "ObjectWarning",
    "check",
    "effective",
    "element",
    "read",
    "walk",
    "walk_with_policy",
    "write",
]
