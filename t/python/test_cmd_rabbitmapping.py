# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux rabbitmapping, against a cluster."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flux_k8s.ports import SERVERS, STORAGE, SYSTEMCONFIGURATION, Json
from rabbitsim.dws.topology import Topology, system_configuration
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store
from support.commands import refused, run
from support.mapping import EXAMPLE, HETCHY, of_system, servers, storages, system_of


class Cluster:
    """A cluster with no controllers, and its kubeconfig."""

    def __init__(self, path: Path) -> None:
        self.server = KubeServer(Store(time.time, random.Random(1)))
        self.server.start()
        self.kubeconfig = str(path)
        self.server.write_kubeconfig(self.kubeconfig)

    def has(self, system: Topology, held: Sequence[Json] = ()) -> None:
        self.create(system_configuration(system), storages(system), held)

    def create(
        self, configuration: Json, storages: Sequence[Json], held: Sequence[Json] = ()
    ) -> None:
        def fill() -> None:
            store = self.server.store
            store.create(SYSTEMCONFIGURATION, "default", configuration)
            for kind, objects in ((STORAGE, storages), (SERVERS, held)):
                for body in objects:
                    store.create(kind, "default", body)
                    name, status = body["metadata"]["name"], {"status": body["status"]}
                    where: Any = ("default", name, status)
                    store.merge_patch(kind, *where, subresource="status")

        self.server.call(fill)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "kubeconfig")
    yield cluster
    cluster.server.stop()


def test_the_mapping_of_hetchy_is_that_of_the_seed_byte_for_byte(
    cluster: Cluster,
) -> None:
    cluster.has(HETCHY)
    done = run("rabbitmapping", "--indent=4", "-k", cluster.kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == json.dumps(EXAMPLE, indent=4) + "\n"
    done = run("rabbitmapping", KUBECONFIG=cluster.kubeconfig)
    assert done.stdout == json.dumps(EXAMPLE) + "\n"
    (line,) = refused(run("rabbitmapping", "--indent=-1", "-k", cluster.kubeconfig))
    assert line.endswith("ERROR: --indent: -1 is negative, expected 0 or more")


def test_options_ask_for_the_order_and_the_size_of_the_cluster(
    cluster: Cluster,
) -> None:
    system = system_of({"r2": ("n3", "n1"), "r1": ("n2",)}, capacity=1000)
    cluster.has(system, [of_system(servers("system", r1=300))])
    usual, unsorted, whole = (
        json.loads(run("rabbitmapping", "-k", cluster.kubeconfig, *words).stdout)
        for words in ((), ("--nosort",), ("--system-storage",))
    )
    assert list(usual["rabbits"]) == ["r1", "r2"] != list(unsorted["rabbits"])
    assert unsorted["rabbits"]["r2"]["hostlist"] == "n[3,1]"
    # The Storages say that all is free.
    assert usual["rabbits"]["r1"]["capacity"] == 1000
    assert whole["rabbits"]["r1"]["capacity"] == 1300


def test_each_problem_of_the_cluster_is_one_line(cluster: Cluster) -> None:
    configuration = system_configuration(HETCHY)
    nodes = configuration["spec"]["storageNodes"]
    nodes[0]["computesAccess"].append(nodes[1]["computesAccess"][0])
    cluster.create(configuration, storages(HETCHY)[:1])
    lines = refused(run("rabbitmapping", "-k", cluster.kubeconfig))
    start = "flux-rabbitmapping: ERROR: "
    assert lines == [
        f"{start}SystemConfiguration default/default: compute node hetchy1003 is listed"
        " under hetchy201 and under hetchy202, expected one Rabbit",
        f"{start}Rabbit hetchy202 has no capacity: it has no Storage",
    ]


def test_a_cluster_that_gives_no_answer_is_an_error_of_one_line(
    cluster: Cluster, tmp_path: Path
) -> None:
    def error(*args: Any, **environment: str) -> str:
        (line,) = refused(run("rabbitmapping", *args, **environment))
        return str(line)

    empty = error("-k", cluster.kubeconfig)
    assert "systemconfigurations" in empty and "not found" in empty
    tls = tmp_path / "tls"
    tls.write_text(Path(cluster.kubeconfig).read_text().replace("http:", "https:"))
    assert cluster.server.url.replace("http:", "https:") in error("-k", tls)
    none = tmp_path / "none"
    named = f"--kubeconfig: {none}: No such file or directory"
    assert named in error("-k", none)
    default = f"--kubeconfig: none is given, none is at {tmp_path}/.kube/config"
    assert default in error(HOME=str(tmp_path), KUBECONFIG="")
    cluster.server.stop()
    gone = f"flux-rabbitmapping: ERROR: {cluster.server.url}: connection refused"
    assert error("-k", cluster.kubeconfig) == gone
