# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""One job, one Workflow: the decision on the next step, the steps, the reports to the
user, the orphans of earlier modules, and the protocol with the jobtap plugin.

It knows the world through :mod:`flux_k8s.ports`, and does no input or output itself.
It asks :mod:`flux_k8s.machine` about the machine. Read :mod:`.workflow` (the decision
on the next step), :mod:`.reconciler` (its caller) and :mod:`.service` (the connection
of the parts) first.
"""
