# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The job object: its elements, their values, and the rules of a valid object.

It imports nothing else of this package. Read :mod:`.properties` first: the table of all
elements.
"""
