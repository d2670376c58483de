# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The SSS job object (seed 003): how a job is told to accounting and to others.

:func:`read` makes a tree of :class:`Element` of an XML document, :func:`write` a
document of a tree; :func:`effective` writes out what it has by default.
:mod:`~flux_k8s.jobobject.properties` is the table of all elements,
:mod:`~flux_k8s.jobobject.fromflux` makes a job object of what Flux has of a job,
:mod:`~flux_k8s.jobobject.toflux` a jobspec of a job object.
"""

from flux_k8s.jobobject.defaults import effective, walk_with_policy
from flux_k8s.jobobject.model import Element, ObjectError, check, element, walk
from flux_k8s.jobobject.reading import ObjectWarning, read
from flux_k8s.jobobject.writing import write

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
