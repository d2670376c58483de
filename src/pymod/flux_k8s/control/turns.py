# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Work that is too long for one turn of the reactor, a part in each turn."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Generator, Generic, Optional, TypeVar, Union

from flux_k8s.ports import Clock, Timer

T = TypeVar("T")

TURN = 2000
"""Microseconds of work in one turn of the reactor."""

Parts = Generator[int, None, T]
"""Work in parts, none of which takes longer than a turn: it yields after each of them
how many microseconds that took, about, and returns the result."""

Done = Callable[[Union[T, Exception]], None]
"""Receives the result, or the exception that the work raised."""


class Shared(Generic[T]):
    """Work in parts whose result several pieces of work need: each of them does the
    next part in its turn, until all parts are done."""

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        self._result: list[Union[T, Exception]] = []

    def wait(self) -> Parts[T]:
        """Do the parts that are left.

        Raises:
            Exception: the work raised it.
        """
        while not self._result:
            try:
                took = next(self._parts)
            except StopIteration as stop:
                self._result.append(stop.value)
            except Exception as error:
                self._result.append(error)
            else:
                yield took
        (result,) = self._result
        if isinstance(result, Exception):
            raise result
        return result


class Turns(Generic[T]):
    """Does parts of one piece of work in each turn of the reactor, for :data:`TURN`.
    Pieces of work that wait take turns with each other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[Parts[T], Done[T]]] = deque()
        self._timer: Optional[Timer] = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, parts: Parts[T], done: Done[T]) -> None:
        """Do work. If nothing else waits, it begins at once."""
        self._waiting.append((parts, done))
        if self._timer is None:
            self._turn()

    def stop(self) -> None:
        """Do nothing any more. ``done`` is not called."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._timer = None
        parts, done = self._waiting.popleft()
        left = TURN
        result: Any
        try:
            while left > 0:
                left -= next(parts)
        except StopIteration as stop:
            result = stop.value
        except Exception as error:
            result = error
        else:
            self._waiting.append((parts, done))
            self._schedule()
            return
        self._schedule()
        done(result)

    def _schedule(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = self._clock.call_later(0.0, self._turn)
