# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Formats of Flux: hostlists (RFC 29), idsets (RFC 22), job IDs (RFC 19), R (RFC 20),
constraints (RFC 31), JGF and the configuration of resources; ``#DW`` directives, and
durations as Go writes them.

The folder is pure: data in, data out. It imports :mod:`flux_k8s.errors`,
:mod:`flux_k8s.json_reader` and :mod:`flux_k8s.text`. Read :mod:`.hostlist` first.
"""
