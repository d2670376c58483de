# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The name by which others import :mod:`flux_k8s.machine.manager`."""

from flux_k8s.machine.ledger import Ledger
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.machine.storages import RabbitState, parse_storage

__all__ = ["Ledger", "RabbitManager", "RabbitState", "parse_storage"]
