# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.kube.watch`."""

from flux_k8s.kube.watch import Informer, Watchers

__all__ = ["Informer", "Watchers"]
