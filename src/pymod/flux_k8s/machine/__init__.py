# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The machine: the health and the free storage of Rabbits, and the reconcilers that
bring Fluxion, Flux's resource module and the SystemStatus of DWS in line with them.

It knows the world through :mod:`flux_k8s.ports`, and does no input or output itself.
It knows of jobs what functions say that :mod:`flux_k8s.jobs` passes to constructors.
Read :mod:`.manager` first.
"""
