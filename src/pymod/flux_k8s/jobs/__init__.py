# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One job, one Workflow: what is to be done next, the steps that do it, what its user
is told, what earlier modules left behind, and the protocol with the jobtap plugin.

It knows the world through :mod:`flux_k8s.ports`, and does no input or output itself.
It imports :mod:`flux_k8s.control` and below. Read :mod:`.workflow` (which step comes
next), :mod:`.reconciler` (who asks for it) and :mod:`.service` (how the parts are
connected) first.
"""
