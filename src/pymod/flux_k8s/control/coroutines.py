# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Coroutines over functions with callbacks. The callbacks drive them.

A step of several requests is an ``async def`` that awaits :class:`Call` objects::

    workflow = await calls.get(WORKFLOW, namespace, name)

A request is sent when it is awaited. Its answer resumes the coroutine, on the thread
and at the time at which the callback is called: there is no loop besides the reactor.
An answer that is an exception is raised where the call is awaited.

A loop over many things lets the reactor have its turn by :class:`Turns`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Generic,
    Iterable,
    Optional,
    TypeVar,
    Union,
)

from flux_k8s.ports import Clock

T = TypeVar("T")

Answer = Callable[[Any], None]
"""Takes the result of a request, or the exception that it failed with."""

Bind = Callable[[Callable[..., None]], Callable[..., None]]
"""Makes a callback one of the job for which something is done."""


class Call(Generic[T]):
    """A request that is sent when it is awaited, once.

    Args:
        start: sends it. The function that it gets is to be called with the answer, at
            once or later. The first answer counts.
    """

    def __init__(self, start: Callable[[Answer], object]) -> None:
        self.start = start

    def __await__(self) -> Generator[Call[T], Any, T]:
        answer: T = yield self
        return answer


def call(function: Callable[..., object], *args: Any, **options: Any) -> Call[Any]:
    """A call of ``function``, whose last positional argument is the callback."""
    return Call(lambda answer: function(*args, answer, **options))


def pause(clock: Clock, seconds: float) -> Call[None]:
    """A wait of so many seconds; 0: until the reactor has had its turn."""
    return Call(lambda answer: clock.call_later(seconds, partial(answer, None)))


def settle(calls: Iterable[Call[T]]) -> Call[list[Union[T, Any]]]:
    """Make all calls at once. Returns their results or errors, in the order of the
    calls."""
    pending = list(calls)

    def start(answer: Answer) -> None:
        answers: dict[int, Any] = {}

        def one(index: int, each: Any) -> None:
            answers[index] = each
            if len(answers) == len(pending):
                answer([answers[number] for number in range(len(pending))])

        for index, each in enumerate(pending):
            each.start(partial(one, index))
        if not pending:
            answer([])

    return Call(start)


async def gather(calls: Iterable[Call[T]]) -> list[T]:
    """All of these at once. The results are in the order of the calls; if some fail,
    the first error in that order is raised when all are answered."""
    answers = await settle(calls)
    for each in answers:
        if isinstance(each, Exception):
            raise each
    return answers


def drive(
    coroutine: Coroutine[Call[Any], Any, T],
    done: Callable[[Union[T, Any]], None],
    expected: tuple[type[Exception], ...],
    bind: Bind = lambda callback: callback,
) -> None:
    """Run a coroutine.

    Args:
        done: is called with the value that the coroutine returns, or with an error of
            an ``expected`` type that it raises. Other errors go to the caller of the
            callback.
        bind: is applied to each callback that resumes the coroutine.
    """
    _Driver(coroutine, done, expected, bind).resume(None)


class _Driver(Generic[T]):
    def __init__(
        self,
        coroutine: Coroutine[Call[Any], Any, T],
        done: Callable[[Union[T, Any]], None],
        expected: tuple[type[Exception], ...],
        bind: Bind,
    ) -> None:
        self._coroutine = coroutine
        self._done = done
        self._expected = expected
        self._bind = bind
        self._awaited: Optional[Call[Any]] = None

    def resume(self, answer: Any) -> None:
        """Go on until an answer has to be waited for. One that comes at once is used
        in the same loop: any number of them needs no deeper stack."""
        answers = [answer]
        while answers:
            try:
                request = self._advance(answers.pop())
            except StopIteration as stop:
                self._done(stop.value)
                return
            except self._expected as error:
                self._done(error)
                return
            answers = self._send(request)

    def _advance(self, answer: Any) -> Call[Any]:
        if isinstance(answer, Exception):
            # One error may answer many requests: it must not collect their frames.
            return self._coroutine.throw(answer.with_traceback(None))
        return self._coroutine.send(answer)

    def _send(self, request: Call[Any]) -> list[Any]:
        """Send a request. Return its answer if that comes at once. An answer that
        comes again is none to the request that follows."""
        at_once: list[Any] = []
        sending = True
        self._awaited = request

        def answered(answer: Any) -> None:
            if self._awaited is not request:
                return
            self._awaited = None
            if sending:
                at_once.append(answer)
            else:
                self.resume(answer)

        request.start(self._bind(answered))
        sending = False
        return at_once


class Turns:
    """Gives the reactor its turn in long loops. In each turn one of the loops does a
    portion; its length is the number of loops that wait for that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Answer] = deque()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def each(self, items: Iterable[T], portion: int) -> AsyncIterator[T]:
        """The items, of which ``portion`` take about a millisecond."""
        for number, item in enumerate(items):
            if number and number % portion == 0:
                await self.next()
            yield item

    async def next(self) -> None:
        """Wait for a turn."""
        await Call[None](self._wait)

    def stop(self) -> None:
        """No loop goes on."""
        self._stopped = True
        self._waiting.clear()

    def _wait(self, answer: Answer) -> None:
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._clock.call_later(0.0, self._go_on)

    def _go_on(self) -> None:
        if self._stopped:
            return
        answer = self._waiting.popleft()
        if self._waiting:
            self._clock.call_later(0.0, self._go_on)
        answer(None)
