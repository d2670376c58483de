# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Several requests at once, one answer."""

from __future__ import annotations

from functools import partial
from typing import Callable, Sequence, Union

from flux_k8s.ports import Json, KubeDone, KubeError

Result = Union[Json, KubeError]


def gather(
    calls: Sequence[Callable[[KubeDone], None]],
    done: Callable[[Union[list[Json], KubeError]], None],
) -> None:
    """Start all ``calls``, wait for all, and give their results in order.

    If some fail, ``done`` gets the first error (in the order of the calls).
    Without calls it is called at once.
    """

    def finish(results: list[Result]) -> None:
        objects: list[Json] = []
        for result in results:
            if isinstance(result, KubeError):
                done(result)
                return
            objects.append(result)
        done(objects)

    gather_each(calls, finish)


def gather_each(
    calls: Sequence[Callable[[KubeDone], None]],
    done: Callable[[list[Result]], None],
) -> None:
    """The same; ``done`` gets the result or the error of each call."""
    results: dict[int, Result] = {}

    def one(index: int, result: Result) -> None:
        results[index] = result
        if len(results) == len(calls):
            done([results[i] for i in range(len(calls))])

    for index, call in enumerate(calls):
        call(partial(one, index))
    if not calls:
        done([])
