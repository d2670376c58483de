# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What flux submit does with these options, without the time that it takes to start.

usage: submit.py [OPTION...] COMMAND...

    -N NODES, -n TASKS            of one core each, as many on each node; without -n
                                  one on each, and the nodes are the job's alone
    --requires=host:HOSTS
    --setattr=system.KEY=VALUE    or -S KEY=VALUE; a later one replaces an earlier one
    --urgency=URGENCY
    --cc=1-COPIES                 up to 9
    --dry-run                     write the jobspec

With any other option flux submit itself is started.
"""

from __future__ import annotations

import json
import os
import re
import sys

OPTION = re.compile(
    r"-N ?(?P<nodes>\d+)"
    r"|-n ?(?P<tasks>\d+)"
    r"|--requires=host:(?P<hosts>[^|,()^ ]+)"
    r"|(?:--setattr=system\.|-S )(?P<attribute>[a-z_]+=.*)"
    r"|--urgency=(?P<urgency>\w+)"
    r"|--cc=1-(?P<copies>\d)"
    r"|(?P<dry_run>--dry-run)",
    re.DOTALL,
)
SEPARATE = ("-N", "-n", "-S")
"""The options whose value may be the next word."""

URGENCIES = {"hold": "0", "default": "16", "expedite": "31"}

Found = list[tuple[str, str]]


def parse(words: list[str]) -> tuple[Found, list[str]] | None:
    """The options, with their values, and the command; None if another one is used."""
    found, left = [], list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        if word in SEPARATE and left:
            word = f"{word} {left.pop(0)}"
        match = OPTION.fullmatch(word)
        if match is None or match.lastgroup is None:
            return None
        found.append((match.lastgroup, match[match.lastgroup]))
    return (found, left) if left else None


def jobspec(found: Found, command: list[str]) -> dict[str, object] | None:
    """The jobspec (RFC 25) that flux submit would make; None for one of a form that
    this program does not know."""
    options = dict(found)
    nodes, tasks = (int(options.get(key, 0)) for key in ("nodes", "tasks"))
    alone = {"exclusive": True} if nodes and not tasks else {}
    tasks = tasks or nodes or 1
    if tasks % (nodes or 1):
        return None
    count = tasks // (nodes or 1)
    core = {"type": "core", "count": 1}
    slot = {"type": "slot", "count": count, "with": [core], "label": "task"}
    node = {"type": "node", "count": nodes, "with": [slot], **alone}
    system = {"duration": 0, "environment": dict(os.environ), "cwd": os.getcwd()}
    if "hosts" in options:
        system["constraints"] = {"hostlist": [options["hosts"]]}
    for attribute in (value for key, value in found if key == "attribute"):
        key, _, text = attribute.partition("=")
        try:
            system[key] = json.loads(text)
        except ValueError:
            system[key] = text
    return {
        "resources": [node if nodes else slot],
        "tasks": [{"command": command, "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
        "version": 1,
    }


def submit(spec: dict[str, object], urgency: str, copies: int) -> None:
    """Have flux job submit read the jobspec, once for each copy."""
    file = os.memfd_create("jobspec")
    os.write(file, json.dumps(spec).encode())
    os.dup2(file, 0)
    # In an instance flux(1) has told where its programs are.
    program = os.environ.get("FLUX_EXEC_PATH", "").split(":")[-1] + "/flux-job"
    command = [program, "submit", f"--urgency={urgency}"]
    for _ in range(copies - 1):
        os.lseek(0, 0, os.SEEK_SET)
        pid = os.posix_spawn(command[0], command, os.environ)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            sys.exit(status)
    os.lseek(0, 0, os.SEEK_SET)
    os.execv(command[0], command)


def main(words: list[str]) -> None:
    """Submit the job of these words."""
    parsed = parse(words)
    spec = jobspec(*parsed) if parsed else None
    if parsed is None or spec is None:
        os.execvp("flux", ["flux", "submit", *words])
    options = dict(parsed[0])
    if "dry_run" in options:
        print(json.dumps(spec))
        return
    urgency = options.get("urgency", "default")
    submit(spec, URGENCIES.get(urgency, urgency), int(options.get("copies", 1)))


if __name__ == "__main__":
    main(sys.argv[1:])
