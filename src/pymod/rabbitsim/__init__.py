# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Stand-ins for Flux, Kubernetes and DWS, for machines that lack them."""
