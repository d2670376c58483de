# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.rabbits.storage` and
:mod:`flux_k8s.rabbits.freestorage`.
"""

from flux_k8s.rabbits.freestorage import FreeStorage
from flux_k8s.rabbits.storage import RabbitManager, RabbitState, parse_storage

__all__ = ["RabbitManager", "RabbitState", "FreeStorage", "parse_storage"]
