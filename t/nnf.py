# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a real DWS and NNF may lack for a test: data movers, and trouble.

usage: nnf.py KUBECONFIG COMMAND

    movers FILE     until SIGTERM, have each NnfDataMovement do what FILE says: "wait",
                    "succeed" or "fail", and those of some directives what it says
                    of them, as in "wait 1=fail". Meanwhile /lustre is a global file
                    system.
    allocations WORKFLOW  on the Rabbits, one on a line
    silence NODE    nobody is told that this node, which has something mounted, has
                    unmounted, as if its agent were dead
    link NODE STATUS  of its PCIe connection, whatever it really is
    restore         undo the last two, for all nodes

Movers of the cluster itself are an error: they would carry out the same requests.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, Optional

from kube import GROUP, Cluster, Refused, of, set_link

TIMEOUT = 30.0
"""Seconds for a request."""
INTERVAL = 0.1
"""Seconds between two looks at what there is to do."""

GROUP_OF_NNF = "nnf.cray.hpe.com"
SYSTEMS = "namespaces/default/lustrefilesystems"
MANAGERS = "namespaces/nnf-dm-system/nnfdatamovementmanagers"
MANAGER = "nnf-dm-manager-controller-manager"
"""NNF moves no data until the object of this name is there, and is ready."""
POLICIES = (
    ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
)
DIRECTIVE_LABEL = "nnf.cray.hpe.com/directive_index"
NAME = "flux-dws-test"
"""That of each object and annotation that is made here, and that NNF does not name."""


def movers(config: str, file: str) -> None:
    """Stand in for nnf-dm."""
    nnf = Cluster(config, TIMEOUT, GROUP_OF_NNF)
    lustre = Cluster(config, TIMEOUT, "lus.cray.hpe.com")
    manager = {
        "kind": "NnfDataMovementManager",
        "metadata": {"name": MANAGER},
        "spec": {
            "hostPath": "/mnt/nnf",
            "mountPath": "/mnt/nnf",
            "podSpec": {"containers": [{"name": "none", "image": "none"}]},
            "selector": {},
            "updateStrategy": {},
        },
    }
    system = {
        "kind": "LustreFileSystem",
        "metadata": {"name": NAME},
        "spec": {"name": "test", "mgsNids": "127.0.0.1@tcp", "mountRoot": "/lustre"},
    }
    with made(nnf, MANAGERS, manager), made(lustre, SYSTEMS, system):
        nnf.patch(f"{MANAGERS}/{MANAGER}/status", {"status": {"ready": True}})
        print("movers are ready", flush=True)
        while True:
            for movement in nnf.list("nnfdatamovements")["items"]:
                move(nnf, movement, file)
            time.sleep(INTERVAL)


@contextlib.contextmanager
def made(cluster: Cluster, path: str, body: Any) -> Iterator[None]:
    """An object that is there as long as the context."""
    cluster.create(path, body)
    try:
        yield
    finally:
        cluster.delete(f"{path}/{body['metadata']['name']}")


def move(nnf: Cluster, movement: Any, file: str) -> None:
    """Do what there is to do for a movement. One without a status begins."""
    state = movement.get("status", {}).get("state")
    with open(file, encoding="utf-8") as words:
        word, *others = words.read().split()
    of_directive = dict(other.split("=") for other in others)
    word = of_directive.get(movement["metadata"]["labels"][DIRECTIVE_LABEL], word)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    status: dict[str, Any]
    if state is None:
        status = {"state": "Running", "startTime": now}
    elif state == "Finished" or word == "wait":
        return
    else:
        status = {"state": "Finished", "status": "Success", "endTime": now}
        if word == "fail":
            status |= {"status": "Failed", "message": "No space left on device"}
    metadata = movement["metadata"]
    path = f"namespaces/{metadata['namespace']}/nnfdatamovements/{metadata['name']}"
    try:
        nnf.patch(f"{path}/status", {"status": status})
    except Refused:  # it may be gone
        pass


def allocations(config: str, workflow: str) -> None:
    """Print what NNF has on the Rabbits for a Workflow."""
    nnf = Cluster(config, TIMEOUT, GROUP_OF_NNF)
    for item in of(nnf.list("nnfnodeblockstorages")["items"], [workflow]):
        print(item["metadata"]["namespace"], item["metadata"]["name"])


def silence(config: str, node: str) -> None:
    """Have the API server refuse reports that a node has unmounted."""
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["clientmounts", "clientmounts/status"],
    }
    policy = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": node}},
            "resourceRules": [rule],
        },
        "validations": [
            {"expression": "object.status.mounts.all(m, m.state != 'unmounted')"}
        ],
    }
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    admission = Cluster(config, TIMEOUT, "admissionregistration.k8s.io")
    for (kind, plural), spec in zip(POLICIES, (policy, binding)):
        admission.create(
            plural, {"kind": kind, "metadata": {"name": NAME}, "spec": spec}
        )
    cluster = Cluster(config, TIMEOUT)
    mount = next(
        item["metadata"]["name"]
        for item in cluster.list("clientmounts")["items"]
        if item["metadata"]["namespace"] == node
    )
    # The API server does not do so at once.
    path = f"namespaces/{node}/clientmounts/{mount}/status?dryRun=All"
    body = {"status": {"mounts": [{"state": "unmounted", "ready": False}]}}
    try:
        while True:
            cluster.patch(path, body)
            time.sleep(INTERVAL)
    except Refused:
        pass


def link(config: str, node: str, status: str) -> None:
    """Have the Storage of a node show another state of the connection to it."""
    cluster = Cluster(config, TIMEOUT)
    for storage in cluster.list("storages")["items"]:
        computes = storage["status"]["access"]["computes"]
        if any(compute["name"] == node for compute in computes):
            set_mode(cluster, storage, "Testing", NAME)
    set_link(cluster, node, status)


def set_mode(cluster: Cluster, storage: Any, mode: str, mark: Optional[str]) -> None:
    """In mode Testing NNF leaves the status of a Storage alone, in Live it writes it.
    The mark tells that it was set here."""
    path = f"namespaces/default/storages/{storage['metadata']['name']}"
    metadata = {"annotations": {NAME: mark}}
    cluster.patch(path, {"metadata": metadata, "spec": {"mode": mode}})


def restore(config: str) -> None:
    """Undo ``silence`` and ``link``, where that is to be done."""
    admission = Cluster(config, TIMEOUT, "admissionregistration.k8s.io")
    for _, plural in reversed(POLICIES):
        if admission.find(plural, NAME):
            admission.delete(f"{plural}/{NAME}")
    cluster = Cluster(config, TIMEOUT)
    for storage in cluster.list("storages")["items"]:
        if NAME in storage["metadata"].get("annotations", {}):
            set_mode(cluster, storage, "Live", None)


def main() -> None:
    """Carry out one command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config, command, *words = sys.argv[1:]
    commands: dict[str, Callable[..., None]] = {
        "movers": movers,
        "allocations": allocations,
        "silence": silence,
        "link": link,
        "restore": restore,
    }
    if command not in commands:
        sys.exit(f"{command}: unknown command\n{__doc__}")
    commands[command](config, *words)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
