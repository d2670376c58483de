# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Bounds on the size of a job's request.

Guests write directives, and rank 0 reads them, at submission and in the module. So
their size is bounded, far above the size of any sensible request, and a larger
request is refused before it is parsed. ``src/jobtap/job.h`` has the first two bounds as
well: a site may have no validator.
"""

from __future__ import annotations

DIRECTIVES_BYTES = 65536
"""Bytes (UTF-8) of all strings in ``attributes.system.dw`` together."""

DIRECTIVES = 64
"""Directives of a job, and strings in ``attributes.system.dw``."""

WORDS = 1024
"""Words of all strings in ``attributes.system.dw`` together. To parse so many takes a
few milliseconds."""

NAME_LENGTH = 253
"""Characters of ``name=`` and ``profile=``, which are names of Kubernetes objects."""

DIGITS = 32
"""Digits of a number in a directive: 2^63 has 19, and zeros may stand before them."""

LEVELS = 128
"""Levels of arrays and objects in a job's ``resources``."""

VALUES = 4096
"""Values in all arrays and objects of a job's ``resources``. A vertex has four or five,
and takes the module about 10 microseconds."""

NODES = 2**31 - 1
"""Nodes that a job may ask for."""
