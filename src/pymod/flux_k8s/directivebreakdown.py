# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.rules.directivebreakdown`."""

from flux_k8s.rules.directivebreakdown import *  # noqa: F403
from flux_k8s.rules.directivebreakdown import __all__ as __all__
