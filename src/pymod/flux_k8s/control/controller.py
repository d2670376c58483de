# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A level-triggered loop: a queue of keys, and a reconciler that is run for each.

News about an object add its key. The reconciler reads the present state, decides by a
pure function, and does one thing. News during a run have the reconciler run again; an
error has it run again later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Callable, Coroutine, Generic, Hashable, Optional, TypeVar

from flux_k8s.control.backoff import Backoff
from flux_k8s.control.coroutines import Call, drive
from flux_k8s.ports import Clock, KindOfRequest, KubeError, RpcError, Timer
from flux_k8s.slots import slotted

Key = TypeVar("Key", bound=Hashable)

Reconcile = Callable[[Key], Coroutine[Call[Any], Any, Optional[float]]]
"""Does one thing about a key. Returns the seconds after which it is to be run for the
key again; None: when the key is added again; 0.0: at once: there is more to do."""

BATCH = 16
"""Keys handled in one go, so that the reactor is never held up for long."""


@slotted
@dataclass
class _Item:
    """The state of a key that is queued, or that the reconciler runs for.

    Attributes:
        backoff: the pauses between failures.
        run: which run is under way; an answer to any other does not count. None when
            none is.
        added: the key was added while the reconciler ran: seconds until it is to be
            run again.
        pausing: the timer ends the pause after a failure.
        timer: runs the reconciler later, or reports that it takes long.
        due: when the timer fires.
        wish: the requests that the server wants later, while the pause lasts for that
            reason, and when it would have ended without.
    """

    backoff: Backoff
    run: Optional[int] = None
    added: Optional[float] = None
    pausing: bool = False
    timer: Optional[Timer] = None
    due: float = 0.0
    wish: Optional[tuple[KindOfRequest, float]] = None

    def stop_timer(self) -> None:
        self.pausing = False
        self.wish = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _call(key: Any, function: Callable[..., object], *args: Any) -> None:
    function(*args)


def _ignore(key: Any) -> None:
    pass


@dataclass
class Options(Generic[Key]):
    """How a :class:`Controller` runs its reconciler.

    Attributes:
        debounce: seconds from the first change until the reconciler is run: changes
            come many at once.
        backoff: gives the pauses of a key, which may be kept elsewhere.
        forgets: failures are forgotten when a run leaves nothing to be done at once.
            False: the owner of the ``backoff`` resets it.
        news_end_pauses: a key that is added is handled although the pause after a
            failure is not over. False: a server that fails gets no more requests than
            the pauses allow.
        expected: the errors that have the reconciler run again later. Their
            ``retry_after``, if they have one, is the pause in seconds at least, and
            ``request`` which requests are wanted later. Another error goes to the
            caller of the callback.
        patience: seconds after which a run that is under way is reported to ``slow``.
        slow: gets the key of a run that is under way for that long.
        scope: calls a function with arguments on behalf of a key. It handles
            unexpected exceptions.
    """

    debounce: float = 0.0
    backoff: Callable[[Key], Backoff] = lambda key: Backoff(1.0, 60.0)
    forgets: bool = True
    news_end_pauses: bool = False
    expected: tuple[type[Exception], ...] = (KubeError, RpcError)
    patience: Optional[float] = None
    slow: Callable[[Key], None] = _ignore
    scope: Callable[..., None] = _call


class Controller(Generic[Key]):
    """Runs a reconciler for the keys that are added, one run at a time for each.

    Args:
        reconcile: the reconciler.
        failed: gets a key and the expected error that its reconciler raised, before
            the pause until the next try begins.
    """

    def __init__(
        self,
        clock: Clock,
        reconcile: Reconcile[Key],
        failed: Callable[[Key, Any], None] = lambda key, error: None,
        options: Optional[Options[Key]] = None,
    ) -> None:
        self._clock = clock
        self._reconcile = reconcile
        self._failed = failed
        self._options = options or Options[Key]()
        self._items: dict[Key, _Item] = {}
        self._ready: dict[Key, None] = {}
        self._pump_timer: Optional[Timer] = None
        self._runs = 0
        self._stopped = False

    def __len__(self) -> int:
        """The number of keys that are queued, or that the reconciler runs for."""
        return len(self._items)

    def stop(self) -> None:
        """Run nothing any more. Answers that come do not count."""
        self._stopped = True
        for item in self._items.values():
            item.stop_timer()
        if self._pump_timer is not None:
            self._pump_timer.cancel()

    def add(self, key: Key, delay: Optional[float] = None) -> None:
        """Run the reconciler for a key within ``delay`` seconds (None: ``debounce``),
        or, while it runs, as long after it has ended well. After a failure it is
        run when the pause is over, unless ``news_end_pauses``."""
        if self._stopped:
            return
        delay = self._options.debounce if delay is None else delay
        item = self._item(key)
        if item.run is not None:
            item.added = delay if item.added is None else min(delay, item.added)
        elif self._options.news_end_pauses or not item.pausing:
            self._schedule(key, item, delay)

    def run(self, key: Key) -> None:
        """Add a key, and begin its run before this returns, unless one is under way:
        the reconciler's first request is sent before those of the caller that
        follow."""
        if self._stopped or self.busy(key):
            self.add(key, 0.0)
            return
        self._ready.pop(key, None)
        self._options.scope(key, self._begin, key, self._item(key))

    def restart(self, key: Key, delay: Optional[float] = None) -> None:
        """Forget the state of a key, and begin anew. Answers to a run that is under way
        do not count."""
        self.forget(key)
        self.add(key, delay)

    def forget(self, key: Key) -> None:
        """Remove a key. Answers to a run that is under way do not count."""
        item = self._items.pop(key, None)
        if item is not None:
            item.stop_timer()
        self._ready.pop(key, None)

    def abandon(self, key: Key) -> None:
        """Ignore answers to the run that is under way. The caller cleans up after the
        run."""
        item = self._items.get(key)
        if item is not None and item.run is not None:
            added = self._end(item)
            if added is not None:
                self._schedule(key, item, added)

    def retry(self, key: Key) -> None:
        """Abandon the run that is under way, and run the reconciler again after a
        pause, as after an error."""
        self.abandon(key)
        self._pause(key, self._item(key), None)

    def failures(self, key: Key) -> int:
        """How many runs for a key have failed since one did not."""
        item = self._items.get(key)
        return 0 if item is None else item.backoff.failures

    @property
    def ready(self) -> int:
        """The number of keys whose turn has come, and that are not handled yet."""
        return len(self._ready)

    def busy(self, key: Key) -> bool:
        """Whether the reconciler is run for a key."""
        item = self._items.get(key)
        return item is not None and item.run is not None

    def counts(self) -> tuple[int, int]:
        """The keys for which the reconciler is run, and those whose last run failed."""
        items = self._items.values()
        busy = sum(item.run is not None for item in items)
        return busy, sum(item.backoff.failures > 0 for item in items)

    def _item(self, key: Key) -> _Item:
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item(self._options.backoff(key))
        return item

    def _schedule(self, key: Key, item: _Item, delay: float) -> None:
        """Have a key handled within ``delay`` seconds, unless it is before."""
        if delay <= 0.0:
            item.stop_timer()
            self._ready[key] = None
            self._pump_later()
            return
        due = self._clock.now() + delay
        if key in self._ready or (item.timer is not None and item.due <= due):
            return
        item.stop_timer()
        item.due = due
        item.timer = self._clock.call_later(delay, partial(self._add_ready, key))

    def _pause(self, key: Key, item: _Item, error: Optional[Exception]) -> None:
        """A run has failed: have the key handled again later."""
        pause, wanted = item.backoff.fail(), getattr(error, "retry_after", None) or 0.0
        self._schedule(key, item, max(pause, wanted))
        item.pausing = item.timer is not None
        request = getattr(error, "request", None)
        if wanted > pause and request is not None:
            item.wish = request, self._clock.now() + pause

    def end_wish(self, request: KindOfRequest) -> None:
        """A server carries out requests again that it had wanted later: pauses are no
        longer than they are without that."""
        for key, item in self._items.items():
            if item.wish is not None and item.wish[0] == request:
                self._schedule(key, item, item.wish[1] - self._clock.now())
                item.pausing = item.timer is not None

    def _add_ready(self, key: Key) -> None:
        item = self._items[key]
        item.timer, item.pausing = None, False
        self._ready[key] = None
        self._pump_later()

    def _pump_later(self) -> None:
        if self._pump_timer is None and not self._stopped:
            self._pump_timer = self._clock.call_later(0.0, self._pump)

    def _pump(self) -> None:
        """Handle the keys that are ready, in their order."""
        self._pump_timer = None
        for key in list(islice(self._ready, BATCH)):
            if self._stopped or key not in self._ready:
                continue
            del self._ready[key]
            self._options.scope(key, self._begin, key, self._items[key])
        if self._ready:
            self._pump_later()

    def _begin(self, key: Key, item: _Item) -> None:
        item.stop_timer()
        item.added = None
        self._runs += 1
        run = item.run = self._runs
        guard = partial(self._guard, key, item, run)
        done = partial(self._done, key, item, run)

        def start() -> None:
            drive(self._reconcile(key), done, self._options.expected, bind)

        def bind(callback: Callable[..., None]) -> Callable[..., None]:
            return partial(self._options.scope, key, guard(callback))

        guard(start)()
        if self._options.patience is not None and self._is_current(key, item, run):
            slow = partial(self._options.scope, key, self._options.slow, key)
            item.timer = self._clock.call_later(self._options.patience, slow)

    def _is_current(self, key: Key, item: _Item, run: int) -> bool:
        """Whether a run is under way, and its answers count."""
        known = self._items.get(key) is item
        return known and item.run == run and not self._stopped

    def _guard(
        self, key: Key, item: _Item, run: int, function: Callable[..., None]
    ) -> Callable[..., None]:
        """``function``, which is not called any more when its run has ended, and whose
        exception ends the run."""

        def call(*args: Any) -> None:
            if not self._is_current(key, item, run):
                return
            try:
                function(*args)
            except Exception:
                if self._is_current(key, item, run):
                    self.abandon(key)
                raise

        return call

    def _end(self, item: _Item) -> Optional[float]:
        """A run has ended. Return the delay with which the key was added meanwhile."""
        item.run = None
        item.stop_timer()
        return item.added

    def _done(self, key: Key, item: _Item, run: int, result: Any) -> None:
        if not self._is_current(key, item, run):
            return  # it was forgotten, abandoned or stopped by its own run
        if isinstance(result, self._options.expected):
            self._failed(key, result)  # a key that it adds waits for the pause, too
            if self._is_current(key, item, run):
                self._end(item)
                self._pause(key, item, result)
            return
        added = self._end(item)
        if self._options.forgets and (result is None or result > 0.0):
            item.backoff.reset()
        delays = [delay for delay in (added, result) if delay is not None]
        if delays:
            self._schedule(key, item, min(delays))
        else:
            del self._items[key]
