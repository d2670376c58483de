# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The logic of the Flux-DWS integration.

Start with :mod:`flux_k8s.workflow` (which step comes next for a job) and
:mod:`flux_k8s.service` (who is told). :mod:`flux_k8s.ports` has the two
interfaces through which the service sees the world.
"""
