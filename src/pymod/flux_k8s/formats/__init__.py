# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Formats of Flux: hostlists (RFC 29), idsets (RFC 22), job IDs (RFC 19), R (RFC 20),
constraints (RFC 31) and JGF; ``#DW`` directives, time stamps, and sets of numbers as
bits.

The folder is pure: data in, data out. It imports :mod:`flux_k8s.errors`,
:mod:`flux_k8s.json_reader` and :mod:`flux_k8s.text`. Read :mod:`.hostlist` first.
"""
