# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The RBAC manifest for sites grants what the service needs, and no more."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import kubernetes
import pytest
import yaml

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.ports import (
    DWDIRECTIVERULE,
    STORAGE,
    SYSTEMSTATUS,
    Json,
    KubeError,
    Request,
)
from rabbitsim.dws import Topology
from rabbitsim.dws.files import NoFiles
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.dws.options import Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.kube.assets import ApiServer
from rabbitsim.kube.direct import Fault
from rabbitsim.kube.rbac import Rbac, account_user, groups_of
from rabbitsim.kube.routes import Target, authorize
from rabbitsim.kube.server import KubeServer
from rabbitsim.system import LocalFlux, LocalKube, VirtualSystem
from support.apiserver import WHY_NOT, install_crds
from support.queries import query
from support.rabbits import MOUNT, STATES, drained, wait
from support.records import COPY_IN, OFFLOAD, movements, offloading, pod
from support.service import (
    COPY_OUT,
    HOUR,
    LIFE,
    LUSTRE,
    MGT,
    XFS,
    exceptions,
    in_state,
    jobspec,
    labelled,
    long,
    names,
    placed,
    running,
    settle,
    settle_jobs,
    wants,
)

MANIFEST = Path(__file__).parents[2] / "etc/examples/rbac.yaml"
OBJECTS: list[Json] = list(yaml.safe_load_all(MANIFEST.read_text()))
USER = account_user("flux-dws", "flux-dws")
PATIENCE = 60.0
TOPOLOGY = Topology.regular(4, 2)


class Permission(NamedTuple):
    """One verb on one resource, in all namespaces or in that of Workflows."""

    everywhere: bool
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (" everywhere" * self.everywhere)


def roles(objects: list[Json]) -> list[Json]:
    return [item for item in objects if item["kind"] in ("Role", "ClusterRole")]


def permissions(objects: list[Json]) -> list[Permission]:
    return [
        Permission(role["kind"] == "ClusterRole", group, resource, verb)
        for role in roles(objects)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def with_only(granted: list[Permission]) -> list[Json]:
    """The manifest, with these permissions instead of its own."""
    objects = copy.deepcopy(OBJECTS)
    for role in roles(objects):
        role["rules"] = [
            {"apiGroups": [p.group], "resources": [p.resource], "verbs": [p.verb]}
            for p in granted
            if p.everywhere == (role["kind"] == "ClusterRole")
        ]
    return objects


def confined(rbac: Rbac, **options: Any) -> VirtualSystem:
    """A system whose service may do what ``rbac`` allows."""
    system = VirtualSystem(**options)
    system.start()
    assert system.service_kube is not None
    system.service_kube.guard = partial(authorize, rbac, USER)
    return system


# What sites rely on, each needing something of the manifest


def a_job_gets_its_storage_and_leaves_nothing(rbac: Rbac) -> None:
    system = confined(rbac)
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert names(system, jobid) == LIFE


def a_time_limit_does_not_strike_what_was_only_not_told(rbac: Rbac) -> None:
    system = confined(
        rbac,
        config=Config.parse({"setup_timeout": 60}),
        options=Options(latency=table({"Setup": 1.0})),
    )
    jobid = system.instance.submit(jobspec())
    assert system.loop.run(in_state(system, "Setup"), HOUR)
    system.loop.run(timeout=0.5)  # it learns when the state began
    assert system.service_kube is not None
    system.service_kube.silence_watches()
    assert system.loop.run(in_state(system, "DataIn"), HOUR)
    system.service_kube.drop_watches()
    settle(system)
    assert names(system, jobid) == LIFE


def jobs_that_need_a_rabbit_of_their_own_get_one(rbac: Rbac) -> None:
    """Where others have theirs is known from the watch: there may be many of them."""
    system = confined(rbac)
    listed = lists_of(system)
    first, second = (system.instance.submit(long(MGT)) for _ in range(2))
    running(system, first, second)
    settle_jobs(system)
    assert listed["servers"] == 1


def a_rabbit_without_the_right_label_is_not_used(rbac: Rbac) -> None:
    topology, options = labelled(tier="fast"), wants("tier=fast")
    system = confined(rbac, topology=topology, options=options)
    running(system, system.instance.submit(long(LUSTRE, 2)))
    assert all(set(counts) == {"rabbit-02"} for counts in placed(system).values())
    settle_jobs(system)


def storage_on_rabbits_outlives_the_job_that_made_it(rbac: Rbac) -> None:
    system = confined(rbac)
    for directive in (
        "#DW create_persistent type=xfs capacity=50GiB name=keep",
        "#DW persistentdw name=keep",
        "#DW destroy_persistent name=keep",
    ):
        jobid = system.instance.submit(jobspec(directive))
        settle(system)
        assert names(system, jobid) == LIFE


def a_job_that_requires_a_token_gets_it(rbac: Rbac) -> None:
    system = confined(rbac, config=Config.parse({"daemons": {"copy-offload": {}}}))
    jobid = system.instance.submit(jobspec(OFFLOAD))
    settle(system)
    assert names(system, jobid) == LIFE
    for variables in system.executor.environments[jobid]:
        assert variables["DW_WORKFLOW_TOKEN"]


def what_containers_wrote_is_recorded(rbac: Rbac) -> None:
    system = confined(
        rbac,
        config=Config.parse({"daemons": {"copy-offload": {}}}),
        options=Options(latency=table({"PreRun": 0.1, "DataOut": 0.1})),
    )
    jobid = offloading(system)
    pod(system, jobid, "launcher", {"copy-offload": "hello\n"})
    settle(system)
    assert system.instance.job(jobid).kvs.get("rabbit_container_log") == "hello\n"


def data_movements_are_recorded(rbac: Rbac) -> None:
    system = confined(rbac, config=Config.parse({"save_datamovements": 10}))
    jobid = system.instance.submit(jobspec([XFS, COPY_IN, COPY_OUT], nodes=1))
    settle(system)
    assert "rabbit_datamovements" in system.instance.job(jobid).kvs
    assert len(movements(system, jobid)) == 2


def a_job_goes_on_without_a_node_that_fails(rbac: Rbac) -> None:
    system = confined(rbac, options=Options(latency=table(STATES), faults=(MOUNT,)))
    jobid = system.instance.submit(jobspec(nodes=4, dw_failure_tolerance=1))
    settle(system)
    assert [e["type"] for e in exceptions(system, jobid)] == ["dws-node-failure"]
    assert "start" in names(system, jobid)


def a_rabbit_is_disabled_when_a_job_cannot_free_it(rbac: Rbac) -> None:
    faults = (DwsFault("PostRun", "never"),)
    conf = {"epilog-timeout": 60.0}
    system = confined(rbac, options=Options(faults=faults), plugin_conf=conf)
    system.instance.submit(jobspec())
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    system.loop.run(timeout=HOUR)
    storages = system.store.list(STORAGE, None)["items"]
    assert any(s["spec"].get("state") == "Disabled" for s in storages)


def a_node_that_may_have_been_mounted_is_given_back(rbac: Rbac) -> None:
    faults = (DwsFault("PostRun", "mount", node="compute-02", duration=300.0),)
    options = Options(faults=faults, latency=table({"Teardown": 300.0}))
    system = confined(rbac, options=options, plugin_conf={"epilog-timeout": 60.0})
    system.instance.submit(jobspec())
    assert system.loop.run(in_state(system, "PostRun"), HOUR)
    assert system.service_kube is not None
    until = system.loop.now() + 120.0
    error = KubeError(503, "ServiceUnavailable", "the lights are out")
    system.service_kube.faults = lambda request: (
        Fault(error=error) if system.loop.now() < until else None
    )
    system.service_kube.drop_watches(error)
    assert system.loop.run(system.instance.idle, timeout=HOUR)
    assert set(drained(system)) == {"compute-01", "compute-02"}
    listed = lists_of(system)
    system.loop.run(timeout=HOUR)
    assert drained(system) == {}
    assert listed["clientmounts"] < 40  # every 15 s until they have unmounted


def each_kind_is_listed_once_and_then_watched(rbac: Rbac) -> None:
    """A watch that is refused is opened again, and lists each time."""
    system = confined(rbac)
    listed = lists_of(system)
    system.loop.run(timeout=HOUR)
    assert set(listed.values()) == {1}


def lists_of(system: VirtualSystem) -> Counter[str]:
    """How often the service has listed a kind from now on."""
    listed: Counter[str] = Counter()
    kube = system.service_kube
    assert kube is not None and kube.guard is not None
    may = kube.guard

    def note(verb: str, target: Target) -> None:
        listed[target.resource.kind.plural] += verb == "list"
        may(verb, target)

    kube.guard = note
    return listed


def take_offline(system: VirtualSystem) -> None:
    """Have a node go offline; DWS must be told."""
    system.instance.set_up("compute-02", False)
    wait(system)
    (status,) = system.store.list(SYSTEMSTATUS, "default")["items"]
    assert status["data"]["nodes"].get("compute-02") == "Disabled"


def dws_is_told_of_a_node_that_is_offline(rbac: Rbac) -> None:
    system = confined(rbac)
    wait(system)
    if not system.store.list(SYSTEMSTATUS, "default")["items"]:
        metadata = {"name": "default"}
        system.store.create(SYSTEMSTATUS, "default", {"metadata": metadata})
    take_offline(system)


def dws_is_told_when_it_knew_nothing(rbac: Rbac) -> None:
    system = confined(rbac)
    wait(system)
    for item in system.store.list(SYSTEMSTATUS, "default")["items"]:
        system.store.delete(SYSTEMSTATUS, "default", item["metadata"]["name"])
    wait(system)
    assert system.store.list(SYSTEMSTATUS, "default")["items"]
    take_offline(system)


def mounts_are_looked_at_only_where_dws_may_not_have_waited(rbac: Rbac) -> None:
    system = confined(rbac)
    wait(system)
    assert system.service_kube is not None
    before = system.service_kube.faults
    asked: list[str] = []

    def note(request: Request) -> Optional[Fault]:
        asked.append(f"{request.verb} {request.kind.name}")
        return None if before is None else before(request)

    system.service_kube.faults = note
    jobid = system.instance.submit(jobspec())
    settle(system)
    assert names(system, jobid) == LIFE
    assert "list ClientMount" not in asked


def a_long_copy_shows_how_far_it_is(rbac: Rbac) -> None:
    options = Options(copy_rate=GIB / 20, copy_step=GIB // 4)
    system = confined(rbac, options=options, files=NoFiles(size=10 * GIB))
    jobid = system.instance.submit(jobspec([XFS, COPY_IN], 1))
    assert system.loop.run(in_state(system, "DataIn"), HOUR)
    listed = lists_of(system)
    system.loop.run(timeout=100.0)
    assert listed["nnfdatamovements"] == 1
    percent = query(system, "job-show", {"id": jobid})["percent"]
    assert percent is not None and 40 <= percent <= 60
    settle(system)


def a_long_mount_shows_how_far_it_is(rbac: Rbac) -> None:
    faults = (DwsFault("PreRun", "never", node="compute-02", duration=120.0),)
    system = confined(rbac, options=Options(faults=faults))
    jobid = system.instance.submit(jobspec(XFS, 2))
    assert system.loop.run(in_state(system, "PreRun"), HOUR)
    listed = lists_of(system)
    system.loop.run(timeout=60.0)
    assert listed["clientmounts"] == 1
    assert query(system, "job-show", {"id": jobid})["mounts"]["waiting"] == "compute-02"
    settle(system)


def a_copy_that_has_failed_is_made_again(rbac: Rbac) -> None:
    fault = DwsFault("DataOut", "copy", duration=60.0)
    config = Config.parse({"keep_failed": 3600})
    system = confined(rbac, options=Options(faults=(fault,)), config=config)
    jobid = system.instance.submit(jobspec([XFS, COPY_OUT]))
    system.loop.run(timeout=120.0)
    assert query(system, "rescue", {"id": jobid})["copies"] > 0
    settle(system)
    assert "true" in system.instance.job(jobid).kvs["rabbit_data_out"]


def rules_for_directives_are_followed(rbac: Rbac) -> None:
    system = confined(rbac)
    wait(system)
    assert query(system, "rules")["rules"] is not None
    for rule in system.store.list(DWDIRECTIVERULE, None)["items"]:
        metadata = rule["metadata"]
        system.store.delete(DWDIRECTIVERULE, metadata["namespace"], metadata["name"])
    wait(system)
    assert query(system, "rules")["rules"] is None


Need = Callable[[Rbac], None]

NEEDED: dict[str, Need] = {
    "create workflows": a_job_gets_its_storage_and_leaves_nothing,
    "delete workflows": a_job_gets_its_storage_and_leaves_nothing,
    "list workflows": a_job_gets_its_storage_and_leaves_nothing,
    "patch workflows": a_job_gets_its_storage_and_leaves_nothing,
    "watch workflows": each_kind_is_listed_once_and_then_watched,
    "get workflows": a_time_limit_does_not_strike_what_was_only_not_told,
    "get directivebreakdowns": a_job_gets_its_storage_and_leaves_nothing,
    "get servers": storage_on_rabbits_outlives_the_job_that_made_it,
    "patch servers": a_job_gets_its_storage_and_leaves_nothing,
    "list servers everywhere": jobs_that_need_a_rabbit_of_their_own_get_one,
    "get computes": a_job_goes_on_without_a_node_that_fails,
    "patch computes": a_job_gets_its_storage_and_leaves_nothing,
    "list storages": a_rabbit_without_the_right_label_is_not_used,
    "watch storages": each_kind_is_listed_once_and_then_watched,
    "patch storages": a_rabbit_is_disabled_when_a_job_cannot_free_it,
    "create systemstatuses": dws_is_told_when_it_knew_nothing,
    "get systemstatuses": mounts_are_looked_at_only_where_dws_may_not_have_waited,
    "list systemstatuses": dws_is_told_of_a_node_that_is_offline,
    "patch systemstatuses": dws_is_told_of_a_node_that_is_offline,
    "watch systemstatuses": each_kind_is_listed_once_and_then_watched,
    "watch servers everywhere": each_kind_is_listed_once_and_then_watched,
    "list clientmounts everywhere": a_node_that_may_have_been_mounted_is_given_back,
    "watch clientmounts everywhere": a_long_mount_shows_how_far_it_is,
    "list nnfdatamovements everywhere": data_movements_are_recorded,
    "watch nnfdatamovements everywhere": a_long_copy_shows_how_far_it_is,
    "patch nnfdatamovements/status everywhere": a_copy_that_has_failed_is_made_again,
    "list dwdirectiverules everywhere": rules_for_directives_are_followed,
    "watch dwdirectiverules everywhere": each_kind_is_listed_once_and_then_watched,
    "get secrets": a_job_that_requires_a_token_gets_it,
    "list pods": what_containers_wrote_is_recorded,
    "get pods/log": what_containers_wrote_is_recorded,
}
"""Each permission, and what does not work without it."""


@pytest.mark.parametrize("need", dict.fromkeys(NEEDED.values()))
def test_the_permissions_of_the_manifest_are_enough(need: Need) -> None:
    need(Rbac(OBJECTS))


@pytest.mark.parametrize("lacking", permissions(OBJECTS), ids=str)
def test_each_permission_of_the_manifest_is_needed(lacking: Permission) -> None:
    granted = [p for p in permissions(OBJECTS) if p != lacking]
    with pytest.raises(AssertionError):
        NEEDED[str(lacking)](Rbac(with_only(granted)))


def test_each_permission_is_there_once_and_has_its_reason() -> None:
    found = [str(permission) for permission in permissions(OBJECTS)]
    assert sorted(found) == sorted(NEEDED)


def test_no_permission_uses_a_wildcard() -> None:
    assert not [p for p in permissions(OBJECTS) if "*" in p.group + p.resource + p.verb]


# The authorizer

ACCOUNT = {"kind": "ServiceAccount", "name": "sa", "namespace": "x"}


def rbac(rule: Json, subject: Json, namespace: str = "") -> Rbac:
    """One role with one rule, and who has it in ``namespace``, or everywhere."""
    prefix = "" if namespace else "Cluster"
    metadata: Json = {"name": "r", **({"namespace": namespace} if namespace else {})}
    version = "rbac.authorization.k8s.io/v1"
    return Rbac(
        [
            {
                "apiVersion": version,
                "kind": f"{prefix}Role",
                "metadata": metadata,
                "rules": [rule],
            },
            {
                "apiVersion": version,
                "kind": f"{prefix}RoleBinding",
                "metadata": metadata,
                "roleRef": {"kind": f"{prefix}Role", "name": "r"},
                "subjects": [subject],
            },
        ]
    )


PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
ADA = {"kind": "User", "name": "ada"}


@pytest.mark.parametrize(
    ("request_", "allowed"),
    [
        (("ada", "get", "", "pods", "n", "p"), True),
        (("ada", "list", "", "pods", "n", ""), True),
        (("bob", "get", "", "pods", "n", "p"), False),
        (("ada", "delete", "", "pods", "n", "p"), False),
        (("ada", "get", "x.io", "pods", "n", "p"), False),
        (("ada", "get", "", "secrets", "n", "p"), False),
        (("ada", "get", "", "pods/log", "n", "p"), False),
        (("ada", "get", "", "pods", "other", "p"), False),
        (("ada", "list", "", "pods", "", ""), False),
    ],
)
def test_a_rule_allows_what_it_says_where_it_is_bound(
    request_: tuple[str, str, str, str, str, str], allowed: bool
) -> None:
    assert rbac(PODS, ADA, "n")(*request_) is allowed


def test_a_rule_that_is_bound_cluster_wide_holds_in_all_namespaces() -> None:
    everywhere = rbac(PODS, ADA)
    assert everywhere("ada", "get", "", "pods", "n", "p")
    assert everywhere("ada", "list", "", "pods", "", "")


@pytest.mark.parametrize(
    ("resource", "rule"),
    [("pods", "*"), ("pods/log", "*"), ("pods/log", "*/log"), ("pods/log", "pods/log")],
)
def test_wildcards_stand_for_anything(resource: str, rule: str) -> None:
    wild = {"apiGroups": ["*"], "resources": [rule], "verbs": ["*"]}
    assert rbac(wild, ADA, "n")("ada", "get", "any.io", resource, "n", "p")


def test_a_rule_may_be_about_objects_of_some_names() -> None:
    named = rbac({**PODS, "resourceNames": ["p"]}, ADA, "n")
    assert named("ada", "get", "", "pods", "n", "p")
    assert not named("ada", "get", "", "pods", "n", "q")
    assert not named("ada", "list", "", "pods", "n", "")


@pytest.mark.parametrize("group", groups_of(account_user("x", "sa")))
def test_a_service_account_is_a_user_with_groups(group: str) -> None:
    subject = {"kind": "Group", "name": group}
    user = account_user("x", "sa")
    assert rbac(PODS, subject)(user, "get", "", "pods", "n", "p")
    assert rbac(PODS, ACCOUNT)(user, "get", "", "pods", "n", "p")
    assert not rbac(PODS, ACCOUNT)(account_user("y", "sa"), "get", "", "pods", "n", "p")


def test_a_binding_to_a_role_that_is_not_there_is_refused() -> None:
    missing = [item for item in OBJECTS if item["kind"] != "ClusterRole"]
    with pytest.raises(ValueError, match="names ClusterRole flux-dws, which is not"):
        Rbac(missing)


def test_a_refusal_reads_like_that_of_the_api_server() -> None:
    system = confined(Rbac(with_only([])))
    system.loop.run(timeout=1)
    lines = [line for _, _, line in system.log]
    words = (
        f'storages.dataworkflowservices.github.io is forbidden: User "{USER}" cannot'
        ' list resource "storages" in API group "dataworkflowservices.github.io"'
        ' in the namespace "default"'
    )
    assert any(words in line for line in lines), lines


# Over HTTP


def whole_job(kubeconfig: Path, folder: Path) -> list[str]:
    """Run a job with the service's real client; the names of its events."""
    flux = LocalFlux(
        TOPOLOGY,
        kubeconfig,
        folder,
        output=lambda rank, stream, data: None,
        seed=1,
        log=lambda level, line: print(line),
    )
    try:
        assert flux.wait_until_ready(PATIENCE)
        job = flux.instance.job(flux.instance.submit(jobspec(nodes=2)))
        assert flux.loop.run(lambda: job.state is JobState.INACTIVE, PATIENCE), (
            job.events
        )
        return [event.name for event in job.events if event.name != "memo"]
    finally:
        flux.stop()


def test_a_job_runs_against_an_api_server_with_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = partial(KubeServer, authorizer=Rbac(OBJECTS))
    monkeypatch.setattr("rabbitsim.system.KubeServer", server)
    kubeconfig = tmp_path / "kubeconfig"
    kube = LocalKube(
        TOPOLOGY,
        options=Options(),
        files=NoFiles(),
        seed=1,
        kubeconfig=kubeconfig,
        log=print,
        tokens={"t": USER},
    )
    try:
        assert whole_job(kubeconfig, tmp_path) == LIFE
    finally:
        kube.stop()


def confined_kubeconfig(admin: Path, folder: Path) -> Path:
    """Apply the manifest; a kubeconfig with a token of its ServiceAccount."""
    client = kubernetes.config.new_client_from_config(str(admin))
    for item in OBJECTS:
        kubernetes.utils.create_from_dict(client, item)
    core = kubernetes.client.CoreV1Api(client)
    answer = core.create_namespaced_service_account_token(
        "flux-dws", "flux-dws", {"spec": {}}
    )
    document = yaml.safe_load(admin.read_text())
    document["users"][0]["user"] = {"token": answer.status.token}
    path = folder / "confined"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
def test_a_job_runs_against_a_real_api_server_with_the_manifest(
    tmp_path: Path,
) -> None:
    admin = tmp_path / "admin"
    server = ApiServer(tmp_path)
    server.start()
    try:
        server.write_kubeconfig(admin)
        install_crds(str(admin))
        command = [sys.executable, "-m", "rabbitsim", "dws", "--kubeconfig", str(admin)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dws:
            try:
                assert dws.stdout is not None
                assert "driving Workflows" in dws.stdout.readline()
                confined = confined_kubeconfig(admin, tmp_path)
                assert whole_job(confined, tmp_path) == LIFE
            finally:
                dws.terminate()
    finally:
        server.stop()
