# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The error of the command line."""

from __future__ import annotations


class UsageError(Exception):
    """The request of the user is not possible. The message is one line."""
