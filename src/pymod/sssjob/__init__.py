# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The SSS job object (Scalable Systems Software, Job Object Specification 3.1.0, "the
specification" in what follows): the description of a job for accounting and for other
systems.

:func:`read` makes a tree of :class:`Element` of an XML document, :func:`write` makes a
document of a tree, :func:`effective` adds the default values to a tree.

:mod:`sssjob.schema` defines the elements of a job object, :mod:`sssjob.xml` reads and
writes documents, :mod:`sssjob.from_flux` makes job objects of the records that Flux
keeps of jobs, :mod:`sssjob.to_jobspec` makes jobspecs of job objects. These two share
:mod:`~sssjob.terms` (terms of Flux and of the job object), :mod:`~sssjob.shape` (the
size of a job) and :mod:`~sssjob.expression` (constraints on its nodes).

The package imports :mod:`flux_k8s.config` and below. Read :mod:`.schema.properties`
first.
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
