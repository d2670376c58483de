# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Bounds of the queries that guests may send, so that no guest keeps the service from
its work. The module applies them before it passes a request on."""

from __future__ import annotations

import errno
from typing import Optional

QUERIES_PER_SECOND = 20.0
"""Queries of one guest, on average. As many may come at once."""

QUERIES_IN_WORK = 32
"""Queries of one guest that are not answered yet."""

QUERY_BYTES = 16 * 1024
"""Bytes of the payload of a guest's query."""

USERS = 1024
"""Users whose last queries are remembered; those who asked least recently are
forgotten."""

Refusal = tuple[int, str]
"""An errno, and the text of the error."""


class QueryBounds:
    """Counts the queries of each guest (a token bucket)."""

    def __init__(self) -> None:
        self._buckets: dict[int, tuple[float, float]] = {}

    def refuse(
        self, userid: int, size: int, in_work: int, now: float
    ) -> Optional[Refusal]:
        """The reason to refuse a query of a guest, which counts as one; or None.

        Args:
            size: the bytes of its payload.
            in_work: the guest's queries that are not answered yet.
            now: seconds, by a clock that does not go back.
        """
        left, then = self._buckets.pop(userid, (QUERIES_PER_SECOND, now))
        left += (now - then) * QUERIES_PER_SECOND
        left = min(QUERIES_PER_SECOND, left)
        allowed = left >= 1.0
        self._buckets[userid] = (left - 1.0 if allowed else left), now
        if len(self._buckets) > USERS:
            self._buckets.pop(next(iter(self._buckets)))
        if not allowed:
            text = f"more than {QUERIES_PER_SECOND:g} queries a second: ask again later"
            return errno.EAGAIN, text
        if in_work >= QUERIES_IN_WORK:
            text = f"{in_work} of your queries wait for their answers: ask again later"
            return errno.EAGAIN, text
        if size > QUERY_BYTES:
            text = f"the query has {size} bytes, expected at most {QUERY_BYTES}"
            return errno.EMSGSIZE, text
        return None
