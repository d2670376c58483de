# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Parts of an event loop: of the reactor's thread, and of the Kubernetes adapter's."""
