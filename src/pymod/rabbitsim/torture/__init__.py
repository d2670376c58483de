# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Random jobs under random trouble, in virtual time.

``plan`` makes jobs and troubles of a seed, ``world`` lets them happen to a whole
system in which ``data`` remembers what is in the file systems. ``monitor`` checks
what must hold after every step, with ``storage`` for what jobs find and leave;
``record`` knows what truly happened, ``allowances`` what was planned. ``shrink`` looks
for the least that breaks a rule. ``crashpoints`` goes through every crash there can
be.
"""
