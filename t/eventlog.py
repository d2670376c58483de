# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What t/*.t ask of a job's eventlog, which is standard input, an event on a line.

usage: eventlog.py COMMAND

    memos [KEY]             the memos in force, or the value of one of them
    context EVENT           the context of each of these events, in JSON
    exception TYPE [TEXT]   whether there is one fatal exception, of this type, and its
                            note has the text
"""

from __future__ import annotations

import json
import sys

Events = list[dict]


def memos(events: Events, key: str = "") -> str:
    found: dict[str, object] = {}
    for context in _contexts(events, "memo"):
        found.update(context)
    found = {name: value for name, value in found.items() if value is not None}
    return str(found.get(key, "")) if key else json.dumps(found)


def context(events: Events, name: str) -> str:
    return "\n".join(map(json.dumps, _contexts(events, name)))


def exception(events: Events, kind: str, text: str = "") -> str:
    raised = _contexts(events, "exception")
    fatal = [context for context in raised if context["severity"] == 0]
    if len(fatal) != 1 or fatal[0]["type"] != kind or text not in fatal[0]["note"]:
        sys.exit(f"expected one {kind} {text}, got {fatal}")
    return ""


def _contexts(events: Events, name: str) -> Events:
    return [event.get("context") for event in events if event["name"] == name]


if __name__ == "__main__":
    answer = globals()[sys.argv[1]](list(map(json.loads, sys.stdin)), *sys.argv[2:])
    print(answer, end="\n" if answer else "")
