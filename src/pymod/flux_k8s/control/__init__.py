# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""How something is done: steps as coroutines over the ports, and their requests.

It imports :mod:`flux_k8s.ports` alone. Read :mod:`.coroutines` first.
"""
