# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Several requests at once, one answer."""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional, Sequence, Union

from flux_k8s.ports import Json, KubeDone, KubeError


def gather(
    calls: Sequence[Callable[[KubeDone], None]],
    done: Callable[[Union[list[Json], KubeError]], None],
) -> None:
    """Start all ``calls``, wait for all, and give their results in order.

    If some fail, ``done`` gets the first error (in the order of the calls).
    Without calls it is called at once.
    """
    results: list[Optional[Union[Json, KubeError]]] = [None] * len(calls)
    missing = len(calls)

    def finish() -> None:
        objects: list[Json] = []
        for result in results:
            if isinstance(result, KubeError):
                done(result)
                return
            if result is not None:
                objects.append(result)
        done(objects)

    def one(index: int, result: Union[Json, KubeError]) -> None:
        nonlocal missing
        results[index] = result
        missing -= 1
        if missing == 0:
            finish()

    for index, call in enumerate(calls):
        call(partial(one, index))
    if not calls:
        finish()
