# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Queries to the service of a whole system under virtual time."""

from __future__ import annotations

import json
from typing import Any, Callable, Optional

from flux_k8s.ports import Json
from rabbitsim.system import VirtualSystem

Answer = tuple[int, str, Optional[Json]]
"""errno, what is wrong, the payload."""

GUEST = 4711
OTHER = 4712


ROW: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "userid": (int,),
    "state": (str,),
    "status": (str,),
    "since": (int, float, type(None)),
    "ready": (bool,),
    "wants": (str,),
    "nodes": (str,),
    "nnodes": (int,),
    "rabbits": (str,),
    "capacity": (int,),
    "types": (list,),
    "moved": (int, type(None)),
    "total": (int, type(None)),
    "percent": (int, type(None)),
    "waits": (str,),
    "cancel": (str,),
}
DETAILS: dict[str, tuple[type, ...]] = {
    **ROW,
    "serial": (int,),
    "directives": (list,),
    "message": (str,),
    "states": (list,),
    "allocations": (list,),
    "mounts": (dict, type(None)),
    "movements": (list,),
    "nmovements": (int,),
    "limits": (list,),
    "failed": (str,),
    "kept_until": (int, float, type(None)),
}
SITUATION: dict[str, tuple[type, ...]] = {
    "now": (int, float),
    "kubernetes": (str,),
    "incomplete": (bool,),
    "age": (int, float, type(None)),
}


def check(found: Json, contract: dict[str, tuple[type, ...]]) -> None:
    """An answer has the fields of the contract, of its types, and JSON can have it."""
    assert set(found) == set(contract)
    for key, types in contract.items():
        assert type(found[key]) in types, key
    json.dumps(found, allow_nan=False)


def ask(
    system: VirtualSystem,
    method: str,
    payload: Any = None,
    userid: Optional[int] = None,
) -> Callable[[], Optional[Answer]]:
    """Send a query. The function that is returned gives the answer, None without
    one."""
    answers: list[Answer] = []
    system.instance.request(
        f"dws.{method}",
        {} if payload is None else payload,
        lambda *answer: answers.append(answer),
        userid,
    )
    return lambda: answers[0] if answers else None


def answer_of(
    system: VirtualSystem,
    method: str,
    payload: Any = None,
    userid: Optional[int] = None,
) -> Answer:
    """Send a query, and wait for the answer."""
    asked = ask(system, method, payload, userid)
    assert system.loop.run(lambda: asked() is not None, timeout=60.0)
    answer = asked()
    assert answer is not None
    return answer


def query(
    system: VirtualSystem,
    method: str,
    payload: Any = None,
    userid: Optional[int] = None,
) -> Json:
    """Send a query that succeeds, and wait for its payload."""
    errnum, text, found = answer_of(system, method, payload, userid)
    assert errnum == 0 and found is not None, text
    return found


def refusal(
    system: VirtualSystem,
    method: str,
    payload: Any = None,
    userid: Optional[int] = None,
) -> tuple[int, str]:
    """Send a query that is refused, and wait for the error."""
    errnum, text, found = answer_of(system, method, payload, userid)
    assert errnum and found is None
    return errnum, text


def seen(system: VirtualSystem) -> None:
    """Let the service see what there is."""
    system.loop.run(timeout=1.0)


def told_by_plugin(answer: Json) -> VirtualSystem:
    """A system whose plugin answers each hello by this; no module is loaded yet."""
    system = VirtualSystem()
    system.load_plugin()
    system.instance.broker.stand_in(
        "job-manager.dws",
        lambda before: lambda method, payload, user, respond: respond(0, "", answer),
    )
    return system
