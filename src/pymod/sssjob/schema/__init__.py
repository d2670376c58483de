# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a job object is: its elements, their values, and the rules that make it valid.

It imports nothing else of this package. Read :mod:`.properties` first: the table of all
elements.
"""
