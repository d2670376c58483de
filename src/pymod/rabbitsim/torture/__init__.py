# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Random jobs under random trouble, in virtual time.

:mod:`.plan` makes jobs and troubles of a seed, :mod:`.world` submits the jobs and makes
the troubles in a whole system, :mod:`.data` follows the contents of its file systems.
:mod:`.monitor` checks the invariants after every step, :mod:`.storage` those of the
jobs' storage; :mod:`.record` keeps the events that happened, :mod:`.allowances` the
troubles that excuse a job's failure. :mod:`.shrink` looks for the smallest plan that
breaks an invariant. :mod:`.story` says what happens to a job in a row of a table, with
:mod:`.deeds`, :mod:`.life` has it happen, and :mod:`.crashpoints` tries it to death.

It imports the rest of :mod:`rabbitsim`. Read :mod:`.run` first.
"""
