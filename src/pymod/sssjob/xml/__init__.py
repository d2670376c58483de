# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Job objects as XML documents: read (hostile ones, too) and written.

It imports :mod:`sssjob.schema`. Read :mod:`.reading` first.
"""
