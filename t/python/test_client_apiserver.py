# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The real kube-apiserver that tests use where there is one; no tests."""

from __future__ import annotations

from rabbitsim.kube.assets import ApiServer, missing

__all__ = ["ApiServer", "missing"]
