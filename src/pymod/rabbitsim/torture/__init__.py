# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Random jobs under random trouble, in virtual time.

``plan`` makes jobs and troubles of a seed, ``world`` lets them happen to a whole
system, ``monitor`` checks what must hold after every step, ``shrink`` looks for
the least that breaks it; ``crashpoints`` goes through every crash there can be.
"""
