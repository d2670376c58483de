# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The objects of one kind, and lists of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import NamedTuple, Optional

from rabbitsim.kube.errors import bad_request
from rabbitsim.kube.kinds import Resource
from rabbitsim.kube.selectors import Selector, both, field_selector, label_selector
from rabbitsim.kube.watch import History, Stored


class Page(NamedTuple):
    """A list, or the part of it that ``limit`` left.

    ``version`` is the resourceVersion to watch from; ``token`` continues the
    list where it was cut, and is empty at its end.
    """

    items: list[Stored]
    version: int
    token: str

    @property
    def metadata(self) -> dict[str, str]:
        """That of a List object."""
        found = {"resourceVersion": str(self.version)}
        return {**found, "continue": self.token} if self.token else found


class Table:
    """The objects of one kind, by namespace ("" for a cluster's) and name."""

    def __init__(self, resource: Resource, history: int) -> None:
        self.resource = resource
        self.history = History(history)
        self.objects: dict[str, dict[str, Stored]] = {}

    def find(self, namespace: str, name: str) -> Optional[Stored]:
        return self.objects.get(namespace, {}).get(name)

    def put(self, obj: Stored) -> None:
        metadata = obj["metadata"]
        names = self.objects.setdefault(metadata.get("namespace", ""), {})
        names[metadata["name"]] = obj

    def drop(self, obj: Stored) -> None:
        namespace = obj["metadata"].get("namespace", "")
        names = self.objects[namespace]
        del names[obj["metadata"]["name"]]
        if not names:
            del self.objects[namespace]

    def in_order(self, namespace: Optional[str]) -> Iterator[Stored]:
        """The objects of a namespace, or of all, by namespace and name."""
        spaces = sorted(self.objects) if namespace is None else [namespace]
        for space in spaces:
            names = self.objects.get(space, {})
            for name in sorted(names):
                yield names[name]

    def selector(self, labels: str, fields: str) -> Optional[Selector]:
        """Raises ApiError 400 for a bad selector."""
        return both(
            label_selector(labels), field_selector(fields, self.resource.selectable)
        )

    def page(
        self,
        namespace: Optional[str],
        selector: Optional[Selector],
        version: int,
        limit: int,
        token: str,
    ) -> Page:
        """At most ``limit`` objects (0: all) from where ``token`` points.

        The parts of a list show the present, but all name the resourceVersion
        of the first: a watch from there tells what changed in between.

        Raises:
            ApiError: 400 for a bad token, 410 for one that is too old.
        """
        after = ("", "")
        if token:
            version, after = _read_token(token)
            self.history.check(version)
        found: list[Stored] = []
        for obj in self.in_order(namespace):
            if token and _position(obj) <= after:
                continue
            if selector is not None and not selector(obj):
                continue
            if limit and len(found) == limit:
                return Page(found, version, _make_token(version, found[-1]))
            found.append(obj)
        return Page(found, version, "")


def _position(obj: Stored) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _make_token(version: int, last: Stored) -> str:
    token = json.dumps([version, *_position(last)])
    return base64.urlsafe_b64encode(token.encode()).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        return int(version), (str(namespace), str(name))
    except (TypeError, ValueError):
        raise bad_request("continue key is not valid") from None


def read_version(text: str) -> int:
    """A resourceVersion that a client gave. Raises ApiError 400."""
    if not text.isdecimal():
        raise bad_request(f"resourceVersion: Invalid value: {json.dumps(text)}")
    return int(text)
