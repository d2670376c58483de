# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name that seed 001 gives to :mod:`flux_k8s.kube.watch`."""

from flux_k8s.kube.watch import Informer, Watchers

__all__ = ["Informer", "Watchers"]
