# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rules about the storage of a job at its start, and about its data at its end.

A job that starts writes a word to all its storage, at the paths that its
environment names; in the end the word must be where copy_out was to bring it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from fnmatch import fnmatchcase
from typing import Callable, Collection, Iterable, Mapping, Sequence

from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.jobs.outcomes import DATA_OUT
from flux_k8s.objects.workflowmarks import STAGED_FOR
from flux_k8s.ports import (
    CLIENTMOUNT,
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    PERSISTENTSTORAGE,
    SERVERS,
    STORAGE,
    WORKFLOW,
    Json,
    Kind,
    Request,
)
from flux_k8s.reasons import Reason, read_reason
from rabbitsim.dws.directive import Directive, parse
from rabbitsim.dws.objects import WORKFLOW_NAME
from rabbitsim.dws.options import Fault
from rabbitsim.dws.proposal import job_variable
from rabbitsim.dws.storage import usage, wanted
from rabbitsim.flux.job import Job
from rabbitsim.flux.pool import Pool
from rabbitsim.kube.store import Store
from rabbitsim.torture.data import INPUT, FileContents
from rabbitsim.torture.record import Record

NOBODY_KNOWS = (
    Reason.BAD_OBJECT,
    Reason.CAUSE_UNKNOWN,
    Reason.EPILOG_GIVEN_UP,
    Reason.NAME_TAKEN,
    Reason.SERVICE_FAULT,
    Reason.USE_UNKNOWN,
    Reason.WORKFLOW_DELETED,
    Reason.WORKFLOW_MOVED,
)
"""The reasons for which it may not be known which data a job loses."""

Fail = Callable[[str, str], None]


class StorageMonitor:
    """Checks jobs' storage, and their data.

    Args:
        fail: takes the rule that is broken, and a text.
        sizes: the bytes of each Rabbit.
        pool: what the scheduler has.
        faults: those of DWS that are planned.
    """

    def __init__(
        self,
        store: Store,
        data: FileContents,
        fail: Fail,
        sizes: Mapping[str, int],
        pool: Pool,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._store = store
        self._faults = faults
        self._data = data
        self._fail = fail
        self._sizes = sizes
        self._pool = pool
        self._destroyed: set[str] = set()
        self._cut_off: set[str] = set()
        self._colocation: dict[str, Mapping[str, set[str]]] = {}

    def made(self, workflow: Json) -> None:
        """A Workflow was made: persistent storage that it destroys may be gone
        from now on."""
        for directive in _directives(workflow):
            if directive.command == "destroy_persistent":
                self._destroyed.add(directive.name)

    def fills(self, request: Request, allowed: bool) -> None:
        """Storage is asked for: each Rabbit has room for it, and no other storage with
        one of its colocation keys."""
        body: Json = request.body if isinstance(request.body, dict) else {}
        total = Counter(wanted(body.get("spec") or {}))
        if allowed or not total:
            return
        name = request.name or ""
        self._learn_colocation(request.namespace or "", name)
        asked, own = tuple(total), self._keys(name, body)
        for servers in self._store.list(SERVERS, None)["items"]:
            gone = _is_torn_down(self._store, servers)
            other = servers["metadata"]["name"]
            if other == name or gone:
                continue
            total.update(_held(servers))
            for key, _ in own & self._keys(other, servers):
                self._fail("key", f"{name} is where {key!r} is in use")
        for rabbit in asked:
            if total[rabbit] > self._sizes.get(rabbit, total[rabbit]):
                self._fail("room", f"{name} asks for what {rabbit} has not")

    def _learn_colocation(self, namespace: str, name: str) -> None:
        """The colocation keys of each allocation set of some Servers, which may be
        there for longer than the DirectiveBreakdown that has them."""
        found: Json = self._store.find(DIRECTIVEBREAKDOWN, namespace, name) or {}
        storage = (found.get("status") or {}).get("storage") or {}
        if storage:
            self._colocation[name] = {
                each["label"]: {
                    rule["key"] for rule in each["constraints"].get("colocation") or ()
                }
                for each in storage["allocationSets"]
            }

    def _keys(self, name: str, servers: Json) -> set[tuple[str, str]]:
        """The colocation keys of Servers, each with a Rabbit that they are on."""
        keys, held = self._colocation.get(name, {}), _held(servers)
        return {
            (key, storage["name"])
            for each in (servers.get("spec") or {}).get("allocationSets") or ()
            for key in keys.get(each["label"], ())
            for storage in each["storage"]
            if held[storage["name"]]
        }

    def allocated(self, job: Job) -> None:
        """A job got nodes, and ``ssd``: these are not held for one without nodes."""
        held, pool = held_ahead(self._store), self._pool
        for chassis in pool.chassis:
            free = chassis.ssds - len(pool.ssds_taken(chassis.index))
            if free * chassis.ssd_size * GIB < held[chassis.rabbit]:
                text = f"{job} has ssd of {chassis.rabbit} that another has ahead"
                self._fail("twice", text)

    def sets_up(self, job: Job, workflow: Json, broken: Callable[[str], bool]) -> None:
        """A job that needs the Rabbits of its nodes for persistent storage goes on:
        they are not broken. (DWS asks for no Rabbit where the persistent storage was
        not set up yet when the job was submitted.)"""
        if job.R is None or not self._needs_existing_storage(workflow):
            return
        for rabbit in rabbits_below(self._store, job.R):
            if broken(rabbit):
                self._fail("broken", f"{job} has its nodes below {rabbit}")

    def _needs_existing_storage(self, workflow: Json) -> bool:
        references = (workflow.get("status") or {}).get("directiveBreakdowns") or ()
        for directive, reference in zip(_directives(workflow), references):
            if directive.command != "persistentdw":
                continue
            name, namespace = reference["name"], reference["namespace"]
            found: Json = self._store.find(DIRECTIVEBREAKDOWN, namespace, name) or {}
            compute = (found.get("status") or {}).get("compute") or {}
            if (compute.get("constraints") or {}).get("location"):
                return True
        return False

    def starts(self, job: Job, record: Record) -> None:
        """A job's tasks start."""
        workflow = self._store.find(WORKFLOW, "default", workflow_name(job.id))
        if workflow is None:
            self._fail("start", f"{job} runs without a Workflow")
            return
        self._check_mounts(job, workflow)
        environment = _environment(job)
        directives = _directives(workflow)
        for directive in directives:
            variable = job_variable(directive)
            if variable and not self._data.write(
                environment.get(variable, ""), _output(job)
            ):
                self._fail("start", f"{job} has no storage at ${variable}")
        for directive in directives:
            if directive.command == "copy_in":
                place = _place(directive.args["destination"], environment)
                if not self._data.has(place, INPUT):
                    self._fail("start", f"{job} misses its input in {place}")
        record.outputs = _arguments(directives, "copy_out", "destination")
        record.unfailing = tuple(
            directive.args["destination"]
            for index, directive in enumerate(directives)
            if directive.command == "copy_out" and not self._fails(job, index)
        )
        record.creates = _arguments(directives, "create_persistent", "name")

    def _fails(self, job: Job, index: int) -> bool:
        """Whether the data movements of a copy_out may fail."""
        return any(
            fault.kind == "copy"
            and fault.directive in (None, index)
            and fnmatchcase(workflow_name(job.id), fault.match)
            for fault in self._faults
        )

    def _check_mounts(self, job: Job, workflow: Json) -> None:
        """Its storage is mounted on all its nodes, but for as many as may fail."""
        if job.R is None:
            return
        hosts = set(hostlist.decode_all(job.R["execution"]["nodelist"]))
        reference = workflow["status"]["computes"]
        name, namespace = reference["name"], reference["namespace"]
        computes: Json = self._store.find(COMPUTES, namespace, name) or {}
        missing = hosts - {entry["name"] for entry in computes.get("data") or ()}
        if any(job_variable(d) for d in _directives(workflow)):
            mounts = self._belonging(CLIENTMOUNT, workflow["metadata"]["name"])
            missing |= hosts - {
                mount["metadata"]["namespace"] for mount in mounts if _mounted(mount)
            }
        system = job.jobspec["attributes"]["system"]
        if len(missing) > system.get("dw_failure_tolerance", 0):
            self._fail("start", f"{job} has no storage on {sorted(missing)}")

    def is_out(self, job: Job, record: Record) -> bool:
        """Whether all data of a job is where it was to be in the end, although DWS did
        not say so."""
        return all(self._data.has(place, _output(job)) for place in record.outputs)

    def ends(self, job: Job, record: Record, allowed: bool, untold: bool) -> None:
        """A job has ended: ``allowed`` is whether its data may be lost, ``untold``
        whether there was nobody to tell that."""
        for place in record.outputs:
            if self._data.has(place, _output(job)):
                if place in record.unfailing and _is_told_lost(record, place):
                    self._fail("untrue", f"{job} was told that {place} lacks its data")
                continue
            if not allowed:
                self._fail("data", f"{job} was to have its data in {place}")
            elif not (untold or _tells(job, record, place)):
                self._fail("silent", f"nobody told {job} that {place} lacks its data")
        for name in record.creates:
            found = self._store.find(PERSISTENTSTORAGE, "default", name)
            gone = found is None and name not in self._destroyed
            if gone and not allowed and not record.fatal:
                self._fail("data", f"{job} made {name}, which is not there")

    def let_go(
        self, job: Job, drained: Callable[[str], bool], waits: bool = False
    ) -> None:
        """A job's nodes are about to be given to others: those of
        :meth:`_not_unmounted` must be out of service."""
        for host in self._not_unmounted(job, waits):
            if not host.startswith("rabbit-") and not drained(host):
                self._fail("mounted", f"{job} lets {host} go, which has not unmounted")

    def put_back(self, host: str, job: Job, waits: bool) -> None:
        """Jobs are given a node again: it is none of :meth:`_not_unmounted` of a job
        that has ended."""
        if host in self._not_unmounted(job, waits):
            self._fail("mounted", f"{host} is put back, with a mount of {job}")

    def _not_unmounted(self, job: Job, waits: bool) -> Collection[str]:
        """The nodes that still have a job's storage mounted. While DWS ``waits`` for
        some of those that it has told to unmount, the others do not count: it unmounts
        the storage of one directive after that of another."""
        mounts = self._belonging(CLIENTMOUNT, workflow_name(job.id))
        told = _mounting(filter(_is_told, mounts)) if waits else ()
        return told or _mounting(mounts)

    def cut_off(self, name: str, drained: Callable[[str], bool]) -> None:
        """After an abort the service goes on: whatever the job still uses must be
        out of service. (It is only looked at once: an administrator may put it
        back.)"""
        if name in self._cut_off:
            return
        self._cut_off.add(name)
        for host in _mounting(self._belonging(CLIENTMOUNT, name)):
            if not host.startswith("rabbit-") and not drained(host):
                self._fail("in use", f"{host} still has a mount of {name}")
        made = Counter[str]()
        for servers in self._belonging(SERVERS, name):
            made.update(usage(servers))
        for rabbit in +made:
            storage = self._store.find(STORAGE, "default", rabbit)
            if storage is not None and storage["spec"].get("state") != "Disabled":
                self._fail("in use", f"{rabbit} still has storage of {name}")

    def _belonging(self, kind: Kind, name: str) -> list[Json]:
        found = self._store.list(kind, None, label_selector=f"{WORKFLOW_NAME}={name}")
        items: list[Json] = found["items"]
        return items


def _is_told_lost(record: Record, place: str) -> bool:
    """Whether an exception about a copy that failed names the data of another one."""
    return any(
        told.reason is Reason.DWS_FAILED
        and told.state == "DataOut"
        and _names(told.note, place)
        for told in record.fatal
    )


def _tells(job: Job, record: Record, place: str) -> bool:
    """Whether an exception, or the record of a job that ended before, names the data
    that was not copied, or none, where nobody can say what is lost."""
    found = [(told.note, told.reason) for told in record.fatal]
    recorded = json.loads(job.kvs.get(DATA_OUT, "{}"))
    if record.nodes_released and "errstr" in recorded:
        found.append((recorded["errstr"], read_reason(recorded.get("reason"))))
    return any(
        _names(note, place)
        or (
            reason in NOBODY_KNOWS
            and not any(_names(note, each) for each in record.outputs)
        )
        for note, reason in found
    )


def _names(note: str, place: str) -> bool:
    """Whether a note has a place, not as the beginning of another one."""
    return re.search(rf"{re.escape(place)}(?![\w/-])", note) is not None


def _held(servers: Json) -> Counter[str]:
    """Bytes on each Rabbit that nobody else can have: those that are made, and those
    that are to be made."""
    made, status = Counter(usage(servers)), servers.get("status") or {}
    if status.get("ready") or "deletionTimestamp" in (servers.get("metadata") or {}):
        return made
    return made | Counter(wanted(servers.get("spec") or {}))


def _is_told(mount: Json) -> bool:
    """Whether DWS has told a node to unmount."""
    told = mount["spec"]["desiredState"] == "unmounted"
    return told or "deletionTimestamp" in mount["metadata"]


def _mounting(mounts: Iterable[Json]) -> Collection[str]:
    """The nodes that have not unmounted all of these."""
    return {m["metadata"]["namespace"]: None for m in mounts if not _is_unmounted(m)}


def _is_unmounted(mount: Json) -> bool:
    """Whether a node has unmounted; or that it could not mount, and was not told to
    unmount then: the job went on without it."""
    status = mount.get("status") or {}
    desired, mounts = mount["spec"]["desiredState"], status.get("mounts")
    if not mounts:
        return bool(desired == "unmounted")
    failed = desired == "mounted" and "error" in status
    return all(
        not m["ready"] if failed else m["state"] == "unmounted" and m["ready"]
        for m in mounts
    )


def _is_torn_down(store: Store, servers: Json) -> bool:
    """Whether Servers are only still there since nobody has deleted them yet."""
    name = (servers["metadata"].get("labels") or {}).get(WORKFLOW_NAME)
    if name is None:
        return False
    workflow: Json = store.find(WORKFLOW, "default", name) or {}
    status = workflow.get("status") or {}
    return status.get("state") == "Teardown" and status.get("ready") is True


def storage_in_use(store: Store, *workflows: str) -> Counter[str]:
    """Bytes on each Rabbit: of these Workflows, or of all."""
    used: Counter[str] = Counter()
    for servers in store.list(SERVERS, None)["items"]:
        labels = servers["metadata"].get("labels") or {}
        if not workflows or labels.get(WORKFLOW_NAME) in workflows:
            used.update(_held(servers))
    return used


def withheld(pool: Pool, store: Store) -> list[str]:
    """The Rabbits without storage of which ``ssd`` are out of service."""
    used = storage_in_use(store)
    return [
        chassis.rabbit
        for chassis in pool.chassis
        if pool.ssds_down(chassis.index) and not used[chassis.rabbit]
    ]


def drained_nodes(pool: Pool) -> set[str]:
    """The nodes that are out of service."""
    return {node.host for node in pool.nodes if node.drained is not None}


def held_ahead(store: Store) -> Counter[str]:
    """Bytes on each Rabbit that jobs have had since before they had nodes."""
    names = [
        workflow["metadata"]["name"]
        for workflow in store.list(WORKFLOW, None)["items"]
        if STAGED_FOR in (workflow["metadata"].get("annotations") or {})
    ]
    return storage_in_use(store, *names) if names else Counter()


def rabbits_below(store: Store, R: Json) -> list[str]:
    """The Rabbits of an allocation's nodes."""
    hosts = set(hostlist.decode_all(R["execution"]["nodelist"]))
    return [
        storage["metadata"]["name"]
        for storage in store.list(STORAGE, None)["items"]
        if hosts & {c["name"] for c in storage["status"]["access"]["computes"]}
    ]


def _directives(workflow: Json) -> list[Directive]:
    return [parse(text) for text in workflow["spec"]["dwDirectives"]]


def _arguments(
    directives: Sequence[Directive], command: str, argument: str
) -> tuple[str, ...]:
    return tuple(d.args[argument] for d in directives if d.command == command)


def _environment(job: Job) -> Mapping[str, str]:
    """The variables that the job's shell sets."""
    for event in job.events:
        if event.name == "dws_environment" and event.context is not None:
            variables: Mapping[str, str] = event.context["variables"]
            return variables
    return {}


def _place(path: str, environment: Mapping[str, str]) -> str:
    variable, slash, rest = path.partition("/")
    return environment.get(variable[1:], variable) + slash + rest


def _mounted(mount: Json) -> bool:
    mounts = (mount.get("status") or {}).get("mounts") or ()
    return bool(mounts) and all(m["state"] == "mounted" and m["ready"] for m in mounts)


def _output(job: Job) -> str:
    return f"output of {job}"
