# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How much a guest may ask us to read.

A job's owner writes its directives, and rank 0 reads them, at submission and in the
module. So their size is bounded, far above what DWS is ever asked for, and what is
beyond is refused before it is looked at. ``src/jobtap/job.h`` has the first two as
well: a site may have no validator.
"""

from __future__ import annotations

DIRECTIVES_BYTES = 65536
"""Bytes (UTF-8) of ``attributes.system.dw``: of all its strings together."""

DIRECTIVES = 64
"""Directives of a job, and strings in ``attributes.system.dw``."""

NAME_LENGTH = 253
"""Characters of a ``name=`` or ``profile=``: of the name of a Kubernetes object."""

DIGITS = 32
"""Digits of a number in a directive: 2^63 has 19, and zeros may stand before them."""

LEVELS = 128
"""Levels of arrays and objects in a job's ``resources``."""

NODES = 2**31 - 1
"""Nodes that a job may ask for."""
