# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Requests to Kubernetes that can be awaited."""

from __future__ import annotations

from typing import Callable, Optional, Union

from flux_k8s.control.coroutines import Answer, Call, call
from flux_k8s.ports import Json, Kind, Kube, KubeError, Patch, gone

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


class KubeCalls:
    """:class:`flux_k8s.ports.Kube`, for coroutines. The arguments are the same;
    :class:`~flux_k8s.ports.KubeError` is raised."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def create(self, kind: Kind, namespace: str, body: Json, *, key: str) -> Call[Json]:
        return call(self._kube.create, kind, namespace, body, key=key)

    def get(self, kind: Kind, namespace: str, name: str, *, key: str) -> Call[Json]:
        return call(self._kube.get, kind, namespace, name, key=key)

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

            self._kube.get(kind, namespace, name, got, key=key)

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
        return call(
            self._kube.list,
            kind,
            namespace,
            key=key,
            label_selector=label_selector,
            limit=limit,
            token=token,
        )

    def patch(
        self, kind: Kind, namespace: str, name: str, body: Patch, *, key: str
    ) -> Call[Json]:
        return call(self._kube.patch, kind, namespace, name, body, key=key)

    def patch_status(
        self, kind: Kind, namespace: str, name: str, body: Json, *, key: str
    ) -> Call[Json]:
        return call(self._kube.patch_status, kind, namespace, name, body, key=key)

    def delete(self, kind: Kind, namespace: str, name: str, *, key: str) -> Call[Json]:
        return call(self._kube.delete, kind, namespace, name, key=key)

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
