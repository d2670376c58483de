# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The job exceptions (RFC 21) that are about storage: their types and severities."""

from __future__ import annotations

DWS = "dws"
"""A job's storage is in trouble, or something of it is lost."""

NODE_FAILURE = "dws-node-failure"
"""A job goes on without the storage of a node, or a node has not unmounted."""

EPILOG_TIMEOUT = "dws-epilog-timeout"
"""The plugin gives an epilog up: it raises this one itself."""

FATAL = 0
WARNING = 1

UNKNOWN_LOSS = "what was to be copied may not be copied"
"""The loss of a job whose Workflow is gone, and with it the directives."""
