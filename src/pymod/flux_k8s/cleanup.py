# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.objects.cleanup`."""

from flux_k8s.objects.cleanup import (
    allocated_rabbits,
    disable_patch,
    finalizer_patch,
    workflow_selector,
)

__all__ = [
    "allocated_rabbits",
    "disable_patch",
    "finalizer_patch",
    "workflow_selector",
]
