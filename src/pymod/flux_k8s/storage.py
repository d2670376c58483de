# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.rabbits.manager`."""

from flux_k8s.rabbits.ledger import Ledger
from flux_k8s.rabbits.manager import RabbitManager
from flux_k8s.rabbits.storages import RabbitState, parse_storage

__all__ = ["Ledger", "RabbitManager", "RabbitState", "parse_storage"]
