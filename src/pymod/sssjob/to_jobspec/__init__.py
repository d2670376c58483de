# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobspecs of job objects, to be submitted to Flux.

It imports :mod:`sssjob.schema`, :mod:`sssjob.xml` and the modules beside it. Read
:mod:`.convert` first.
"""
