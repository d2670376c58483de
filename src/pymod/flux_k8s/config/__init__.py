# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a site configures: the ``[rabbit]`` table, its policy, the arguments of the
module, and the check of a job at its submission.

All is pure: data in, data out. It imports :mod:`flux_k8s.dws` and below. Read
:mod:`.table` first.
"""
