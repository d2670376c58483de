# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The configuration of a site: the ``[rabbit]`` table, its policy, the arguments of the
module, and the check of a job at its submission.

The folder is pure: data in, data out. It imports :mod:`flux_k8s.rules` and below. Read
:mod:`.table` first.
"""
