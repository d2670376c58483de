# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.machine.systemstatus`."""

from flux_k8s.machine.systemstatus import SystemStatus
from flux_k8s.machine.wanted import disabled_nodes

__all__ = ["SystemStatus", "disabled_nodes"]
