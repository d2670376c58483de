# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The order of requests; test_client.py has it with a server."""

from __future__ import annotations

from typing import Callable

from flux_k8s.kube.requestqueue import RequestQueue


def test_any_number_of_requests_may_be_over_as_soon_as_they_begin() -> None:
    queue = RequestQueue(1)
    over: list[Callable[[], None]] = []
    made: list[int] = []

    def hold(ended: Callable[[], None]) -> None:
        over.append(ended)

    def make(ended: Callable[[], None]) -> None:
        made.append(len(made))
        ended()

    queue.submit("first", hold)
    for number in range(10_000):
        queue.submit(str(number % 100), make)
    over.pop()()
    assert len(made) == 10_000
