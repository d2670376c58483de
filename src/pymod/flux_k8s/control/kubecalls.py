# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Requests to Kubernetes that can be awaited."""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional, Union

from flux_k8s.control.coroutines import Answer, Call, call
from flux_k8s.ports import WORKFLOW, Json, Kind, Kube, KubeError, Patch, gone

REOPEN_DELAY = 3600.0
"""Seconds until a watch that Kubernetes forbids, or whose kind it does not know, is
tried again."""


def absent(error: KubeError) -> bool:
    """The object does not exist, or not even its kind."""
    return error.status == 404


def absent_or_forbidden(error: KubeError) -> bool:
    """The object does not exist, not even its kind, or Kubernetes forbids the request.
    A watch that fails by another error tries again by itself."""
    return error.status in (403, 404)


def check_list(kind: Kind, answer: Json) -> None:
    """Refuse what is no list of a kind.

    Raises:
        KubeError: it is not.
    """
    if answer.get("kind") != f"{kind.name}List":
        raise _malformed(f"{kind.name}List")


def _check_items(kind: Kind, answer: Json) -> None:
    """Refuse what is no list of objects of a kind. One of none, which a server may
    write as null, has no items then."""
    check_list(kind, answer)
    if answer.get("items") is None:
        answer["items"] = []
    items = answer["items"]
    if not isinstance(items, list) or not all(map(_is_object, items)):
        raise _malformed(f"{kind.name}List")


def _is_object(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("metadata"), dict)


def _check_object(kind: Kind, name: str, answer: Json) -> None:
    """Refuse what is not the object that was asked for. The spec of each Workflow
    says whose it is."""
    metadata = answer.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    uid = found.get("uid")
    identified = found.get("name") == name and isinstance(uid, str) and bool(uid)
    empty = kind is WORKFLOW and not _is_specified(answer.get("spec"))
    if answer.get("kind") != kind.name or not identified or empty:
        raise _malformed(f"{kind.name} {name}")


def _is_specified(spec: object) -> bool:
    return isinstance(spec, dict) and "wlmID" in spec and "jobID" in spec


def _check_deleted(kind: Kind, name: str, answer: Json) -> None:
    """The same for an object that was deleted: it may be gone."""
    if answer.get("kind") != "Status":
        _check_object(kind, name, answer)


def _malformed(expected: str) -> KubeError:
    return KubeError(0, "BadResponse", f"the answer is malformed: it is no {expected}")


def _checked(request: Call[Json], check: Callable[[Json], None]) -> Call[Json]:
    """A request whose answer is an error if it is malformed."""

    def start(answer: Answer) -> None:
        def got(result: Union[Json, KubeError]) -> None:
            try:
                if not isinstance(result, KubeError):
                    check(result)
            except KubeError as error:
                result = error
            answer(result)

        request.start(got)

    return Call(start)


def _of(kind: Kind, name: str, request: Call[Json]) -> Call[Json]:
    """A request that is answered with an object."""
    return _checked(request, partial(_check_object, kind, name))


class KubeCalls:
    """:class:`flux_k8s.ports.Kube`, for coroutines. The arguments are the same;
    :class:`~flux_k8s.ports.KubeError` is raised, also for an answer that is not about
    the object that was asked for: a proxy may answer anything."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def create(self, kind: Kind, namespace: str, body: Json, *, key: str) -> Call[Json]:
        name = str(body.get("metadata", {}).get("name"))
        return _of(kind, name, call(self._kube.create, kind, namespace, body, key=key))

    def get(self, kind: Kind, namespace: str, name: str, *, key: str) -> Call[Json]:
        return _of(kind, name, call(self._kube.get, kind, namespace, name, key=key))

    def find(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        key: str,
        missing: Callable[[KubeError], bool] = gone,
    ) -> Call[Json]:
        """Get an object; an empty one if it does not exist."""

        def start(answer: Answer) -> None:
            def got(result: Union[Json, KubeError]) -> None:
                lacks = isinstance(result, KubeError) and missing(result)
                answer({} if lacks else result)

            self.get(kind, namespace, name, key=key).start(got)

        return Call(start)

    def list(
        self,
        kind: Kind,
        namespace: Optional[str],
        *,
        key: str,
        label_selector: str = "",
        limit: int = 0,
        token: str = "",
    ) -> Call[Json]:
        listed = call(
            self._kube.list,
            kind,
            namespace,
            key=key,
            label_selector=label_selector,
            limit=limit,
            token=token,
        )
        return _checked(listed, partial(_check_items, kind))

    def patch(
        self, kind: Kind, namespace: str, name: str, body: Patch, *, key: str
    ) -> Call[Json]:
        patched = call(self._kube.patch, kind, namespace, name, body, key=key)
        return _of(kind, name, patched)

    def patch_status(
        self, kind: Kind, namespace: str, name: str, body: Json, *, key: str
    ) -> Call[Json]:
        patched = call(self._kube.patch_status, kind, namespace, name, body, key=key)
        return _of(kind, name, patched)

    def delete(self, kind: Kind, namespace: str, name: str, *, key: str) -> Call[Json]:
        deleted = call(self._kube.delete, kind, namespace, name, key=key)
        return _checked(deleted, partial(_check_deleted, kind, name))

    def pod_log(
        self, namespace: str, name: str, container: str, *, key: str, characters: int
    ) -> Call[str]:
        return call(
            self._kube.pod_log,
            namespace,
            name,
            container,
            key=key,
            characters=characters,
        )
