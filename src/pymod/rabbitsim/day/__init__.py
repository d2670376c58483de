# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A day of a whole machine, in virtual time: ``python -m rabbitsim day``.

Thousands of jobs come and go on a machine of any size, with the plugin, the service and
its cache as they ship. What is assumed of the machine is in :mod:`.site`; start reading
there, then :mod:`.run`. ``doc/scale.md`` says what it writes.
"""
