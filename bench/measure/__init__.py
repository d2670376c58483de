# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The measurements of ``make bench``, and the programs that they run.

``jobs``, ``flight``, ``ideal``, ``scale``, ``servers`` and ``realflux`` are the
measurements. ``cluster``, ``standin``, ``alone``, ``client`` and ``inside`` run in
processes of their own, so that each one's time and memory are its own. ``results`` are
the files that hold what was measured, and ``compare`` compares them.
"""
