# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What an event loop needs besides its sockets: timers, and calls from other threads.

:mod:`.loop` says what the Kubernetes adapter needs of one, and has one for commands.
"""
