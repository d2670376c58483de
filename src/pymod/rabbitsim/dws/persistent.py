# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The deletion of a PersistentStorageInstance."""

from __future__ import annotations

from flux_k8s.ports import SERVERS, Json
from rabbitsim.dws.cluster import Key
from rabbitsim.dws.storage import release, remove, usage
from rabbitsim.dws.task import World


def reconcile(world: World, key: Key, persistent: Json) -> None:
    """Destroy the storage, then its Servers, then the instance itself."""
    going = "deletionTimestamp" in persistent["metadata"]
    if not going and persistent["spec"]["state"] != "Destroying":
        return
    if persistent["spec"].get("consumerReferences"):
        return
    cluster = world.cluster
    status = persistent.get("status") or {}
    if status and status.get("state") != "Destroying":
        cluster.patch_status(key, {"state": "Destroying"})
        return
    servers_key = Key(SERVERS, key.namespace, key.name)
    servers = cluster.get(*servers_key)
    if servers is not None:
        if any(usage(servers).values()):
            release(cluster, servers_key, world.clock.now())
        else:
            remove(cluster, servers_key)
        return
    world.files.remove_persistent(key.name)
    remove(cluster, key)
