# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""When something is done: portions, and pauses between tries.

It imports :mod:`flux_k8s.ports` alone. Read :mod:`.gather` first.
"""
