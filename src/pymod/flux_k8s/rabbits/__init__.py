# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The machine: which Rabbits serve and have room, and the reconcilers that bring
Fluxion, Flux's resource module and the SystemStatus of DWS in line with that.

It knows the world through :mod:`flux_k8s.ports`, and does no input or output itself.
It imports :mod:`flux_k8s.control` and below; what it needs of :mod:`flux_k8s.jobs`
comes in through constructors. Read :mod:`.availability` first.
"""
