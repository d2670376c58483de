# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The level-triggered loops of the module: the controller that runs reconcilers, their
pauses, and coroutines over the requests of the ports.

It imports :mod:`flux_k8s.ports` alone. Read :mod:`.controller` first, then
:mod:`.coroutines`.
"""
