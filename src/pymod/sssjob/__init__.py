# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The SSS job object (seed 003): how a job is told to accounting and to others.

:func:`read` makes a tree of :class:`Element` of an XML document, :func:`write` a
document of a tree; :func:`effective` writes out what it has by default.

:mod:`sssjob.schema` says what a job object is, :mod:`sssjob.xml` reads and writes the
documents, :mod:`sssjob.from_flux` makes a job object of what Flux has of a job,
:mod:`sssjob.to_jobspec` a jobspec of a job object. Both know the words of Flux and
those of the job object from :mod:`~sssjob.terms`, :mod:`~sssjob.shape` (how large a job
is) and :mod:`~sssjob.expression` (constraints on its nodes).
"""

from sssjob.schema.defaults import effective, walk_with_policy
from sssjob.schema.model import Element, ObjectError, check, element, walk
from sssjob.xml.reading import ObjectWarning, read
from sssjob.xml.writing import write

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
