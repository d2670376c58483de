# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.rules.directivebreakdown`."""

from flux_k8s.rules.directivebreakdown.allocation import Allocation, job_allocation
from flux_k8s.rules.directivebreakdown.breakdown import parse
from flux_k8s.rules.directivebreakdown.resources import apply_breakdowns
from flux_k8s.rules.directivebreakdown.servers import build_servers

__all__ = ["Allocation", "apply_breakdowns", "build_servers", "job_allocation", "parse"]
