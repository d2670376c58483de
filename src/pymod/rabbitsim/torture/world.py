# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A whole system to which a plan happens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, Mapping, Sequence

from flux_k8s.dws.workflowmarks import KEPT_FOR
from flux_k8s.dws.workflowview import FINALIZER
from flux_k8s.ports import SERVERS, STORAGE, SYSTEMSTATUS, WORKFLOW, Json, KubeError
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws.options import Fault as DwsFault
from rabbitsim.flux.events import Event, JobState
from rabbitsim.flux.fluid import FluidGenerator
from rabbitsim.flux.job import Job
from rabbitsim.flux.manager import UPTIME, SubmitError
from rabbitsim.kube.direct import DirectKube
from rabbitsim.kube.errors import ApiError
from rabbitsim.loop import VirtualLoop
from rabbitsim.torture.jobs import PlannedJob
from rabbitsim.torture.plan import FENCE, Plan
from rabbitsim.torture.record import ABORT
from rabbitsim.torture.rescues import Rescues
from rabbitsim.torture.system import TorturedSystem
from rabbitsim.torture.troubles import PARTS, Trouble, part_state

ROUND = 600.0
"""Seconds between two rounds of the administrator, who puts nodes and Rabbits back
into service."""


OFF = 60.0
"""Seconds for which the administrator switches off a node."""

FOREIGN = (("fluxjob-77", "slurm"), ("mine", "flux"))
"""Workflows that are not ours: names, and workload managers."""

PURGED = 7777
"""A job that Flux does not know any more, but whose Workflow exists."""

_MEDDLING: Mapping[str, Json] = {
    "purge": {"metadata": {"finalizers": None}},
    "teardown": {"spec": {"desiredState": "Teardown"}},
}
"""What an administrator writes to a Workflow."""


def jobids(plan: Plan) -> dict[int, int]:
    """The IDs that the plan's jobs are going to have, by their numbers."""
    start = VirtualLoop().now()
    fluids = FluidGenerator(start - UPTIME)
    jobs = sorted(plan.jobs, key=lambda job: job.at)
    return {job.number: fluids.next(start + job.at) for job in jobs}


def dws_faults(plan: Plan, ids: Mapping[int, int]) -> tuple[DwsFault, ...]:
    """The faults within DWS."""
    return tuple(
        DwsFault(
            state=part_state(trouble) if trouble.kind in PARTS else trouble.name,
            kind=trouble.what,
            match=workflow_name(ids[trouble.job]),
            duration=trouble.duration,
            node=trouble.name if trouble.kind in PARTS else "",
            message="a trouble that was planned",
            directive=None if trouble.copy is None else _copy_out(plan, trouble),
        )
        for trouble in plan.troubles
        if trouble.kind in ("dws", *PARTS) and trouble.job is not None
    )


def _copy_out(plan: Plan, trouble: Trouble) -> int:
    """The number of the directive whose data movements fail; -1 if there is none."""
    (job,) = (job for job in plan.jobs if job.number == trouble.job)
    dw = job.jobspec["attributes"]["system"].get("dw")
    texts = dw.splitlines() if isinstance(dw, str) else dw
    if not isinstance(texts, list):
        return -1
    found = [i for i, text in enumerate(texts) if str(text).startswith("#DW copy_out")]
    return dict(enumerate(found)).get(trouble.copy or 0, -1)


class World:
    """Carries out a plan.

    Attributes:
        ids: the IDs of the plan's jobs, by their numbers; ``numbers`` the reverse.
        plugin_outages: when the plugin was not loaded.
        meddled_jobs: the IDs of jobs whose Workflows an administrator took away.
        taken_names: the numbers of jobs whose Workflows' names others have.
        foreign: the names of the Workflows that are not ours.
        lost_nodes: the nodes that were lost, ever.
        aborted: the IDs of jobs whose epilogs somebody gives up.
        disabled: the nodes that an operator disabled in SystemStatus, ever;
            ``disabled_now`` those that are.
        filled: when others last filled a Rabbit.
        fenced: the nodes that cannot write any more, though nothing else shows it.
        put_back: when (UNIX time) an administrator last undrained a node, by its host
            name.
        note: takes a line for the trace.
    """

    def __init__(self, plan: Plan, note: Callable[[str], None]) -> None:
        self.plan = plan
        self.ids = jobids(plan)
        self.numbers = {jobid: number for number, jobid in self.ids.items()}
        self.system = TorturedSystem(plan, dws_faults(plan, self.ids))
        self.note = note
        self.plugin_outages: list[tuple[float, float]] = []
        self.meddled_jobs: set[int] = set()
        self.taken_names: set[int] = set()
        self.foreign: set[str] = set()
        self.lost_nodes: set[str] = set()
        self.aborted: set[int] = set()
        self.disabled: set[str] = set()
        self.disabled_now: set[str] = set()
        self.put_back: dict[str, float] = {}
        self.fenced: set[str] = set()
        self.system.instance.programs[FENCE] = self._fenced
        self.filled = float("-inf")
        self._start = self.system.loop.now()
        self._armed: dict[tuple[int, int], list[Trouble]] = {}
        self._counting: list[tuple[int, Trouble]] = []
        self._steps = 0
        self._down = 0
        self._actions: Mapping[str, Callable[[Trouble], None]] = {
            "module": self._module,
            "plugin": self._plugin,
            "watch": self._watch,
            "api": self.system.api_troubles.add,
            "outage": self.system.api_troubles.add,
            "unready": self.system.api_troubles.add,
            "controllers": self._controllers,
            "rabbit": self._rabbit,
            "storage": self._storage,
            "node": self._node,
            "user": self._user,
            "queue": self._queue,
            "admin": self._admin,
            "operator": self._operator,
            "exec": self._exec,
        }
        self._hostile: dict[tuple[int, str], Trouble] = {}
        Rescues(self.system, plan.seed, note)
        self._schedule()

    def _schedule(self) -> None:
        loop = self.system.loop
        self.system.instance.manager.listeners.append(self._seen)
        for job in self.plan.jobs:
            loop.call_later(job.at, partial(self._submit, job))
        for trouble in self.plan.troubles:
            if trouble.kind in ("dws", *PARTS):
                continue
            if trouble.kind == "hostile" and trouble.job is not None:
                self._hostile[self.ids[trouble.job], trouble.name] = trouble
                continue
            if trouble.kind == "fault" and trouble.job is not None:
                self.system.step_faults[self.ids[trouble.job]] = trouble.skip
                continue
            if trouble.at is not None:
                loop.call_later(trouble.at, partial(self._begin, trouble))
            elif trouble.job is not None:
                moment = self.ids[trouble.job], trouble.events
                self._armed.setdefault(moment, []).append(trouble)
        loop.call_later(ROUND, self._round)

    def settle(self) -> None:
        """Make the objects that are there before the service comes."""
        for name, wlm in FOREIGN:
            self._make_foreign(name, wlm)
        name = workflow_name(PURGED)
        orphan = _workflow(name, "flux", f58(PURGED))
        orphan["metadata"]["finalizers"] = [FINALIZER]
        self.system.store.create(WORKFLOW, "default", orphan)

    def _make_foreign(self, name: str, wlm: str) -> None:
        self.foreign.add(name)
        self.system.store.create(WORKFLOW, "default", _workflow(name, wlm, "x"))

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.system.loop.now() - self._start

    def step(self) -> bool:
        """Let one thing happen; False when there is nothing to happen."""
        if not self.system.loop.step():
            return False
        self._steps += 1
        if self._counting:
            due = [t for step, t in self._counting if step <= self._steps]
            self._counting = [c for c in self._counting if c[0] > self._steps]
            for trouble in due:
                self._begin(trouble)
        return True

    @property
    def steps(self) -> int:
        return self._steps

    def calm(self) -> None:
        """All trouble is over: nodes, Rabbits and servers that are away come back."""
        self.note("all trouble is over")
        self._counting = []
        self._armed = {}
        self.system.api_troubles.clear()
        self.system.controllers.resume()
        if self.system.instance.jobtap.plugin is None:
            self._load_plugin()
        if not self.system.instance.module_loaded:
            self.system.load_module()
        for host in sorted(self.disabled_now):
            self._operator_enables(host)
        self.restore()

    def _fenced(self, arguments: Sequence[str]) -> str:
        """Which nodes are fenced, for ``rabbit.fence_command``."""
        return "\n".join(self.fenced.intersection(hostlist.decode(arguments[-1])))

    def switch_off_kept(self) -> None:
        """Switch off the nodes that storage is kept for, as an administrator does whom
        ``flux dws show`` tells so; or fence them, where the site has a program that
        tells."""
        for workflow in self.system.workflows():
            annotations = workflow["metadata"].get("annotations") or {}
            for host in hostlist.decode(annotations.get(KEPT_FOR, "")):
                if self.plan.site.config.fence_command:
                    self.note(f"fence {host}")
                    self.fenced.add(host)
                    self.system.controllers.rabbits.fence(host)
                    continue
                for kind, what in (("node", "lost"), ("rabbit", "link")):
                    self._begin(Trouble(kind, what, duration=OFF, name=host))

    def cancel_all(self) -> None:
        """Cancel all jobs that are still active, once."""
        for job in self.system.instance.manager.active_jobs:
            self.note(f"cancel job {self.numbers[job.id]}")
            self.system.instance.cancel(job.id)

    def is_kept_out(self, host: str) -> bool:
        """Whether a node is drained, or an administrator has put it back since."""
        nodes = self.system.instance.scheduler.pool.nodes
        if any(node.drained is not None for node in nodes if node.host == host):
            return True
        begin = f"resource: drained {host}: "
        drains = [time for time, _, line in self.system.log if line.startswith(begin)]
        put_back = self.put_back.get(host)
        return bool(drains) and put_back is not None and put_back >= drains[-1]

    def restore(self) -> None:
        """Put all nodes and Rabbits back into service."""
        system = self.system
        for node in system.instance.scheduler.pool.nodes:
            if node.drained is not None:
                self.put_back[node.host] = system.loop.now()
                self.fenced.discard(node.host)
                system.instance.undrain(node.host)
        for storage in system.store.list(STORAGE, None)["items"]:
            if storage["spec"].get("state") == "Disabled":
                name = storage["metadata"]["name"]
                body: Json = {"spec": {"state": "Enabled"}}
                system.store.merge_patch(STORAGE, "default", name, body)

    def _round(self) -> None:
        self.restore()
        self.system.loop.call_later(ROUND, self._round)

    def _submit(self, job: PlannedJob) -> None:
        try:
            jobid = self.system.instance.submit(self._jobspec(job), userid=job.userid)
        except SubmitError as error:
            self.note(f"job {job.number} is refused: {error}")
            return
        if jobid != self.ids[job.number]:
            raise AssertionError(f"job {job.number} got the ID {jobid}")

    def _jobspec(self, job: PlannedJob) -> Json:
        if job.after not in self.ids:  # or it is left out of the plan
            return job.jobspec
        after = {"scheme": "dws-out", "value": f58(self.ids[job.after])}
        system = {**job.jobspec["attributes"]["system"], "dependencies": [after]}
        return {**job.jobspec, "attributes": {"system": system}}

    def _seen(self, job: Job, event: Event, before: JobState) -> None:
        armed = self._armed.pop((job.id, len(job.events)), [])
        hostile = self._hostile.pop((job.id, event.name), None)
        if hostile is not None and job.active:
            self.note(f"trouble: {hostile}")
            instance = self.system.instance
            note, owner = f"in job.event.{event.name}", instance.broker.owner
            instance.manager.raise_exception(job.id, "hostile", 0, note, owner)
        for trouble in armed:
            self._counting.append((self._steps + 1 + trouble.skip, trouble))

    def _begin(self, trouble: Trouble) -> None:
        self.note(f"trouble: {trouble}")
        self._actions[trouble.kind](trouble)

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        self.system.loop.call_later(seconds, function)

    # Each kind of trouble

    def _module(self, trouble: Trouble) -> None:
        system = self.system
        if not system.instance.module_loaded:
            return
        if trouble.what == "remove":
            system.unload_module()
        else:
            kube = system.troubled
            left = [] if kube is None else kube.on_the_way()
            system.kill_module()
            if trouble.what == "late-crash":
                # Requests that were on the way arrive all the same, some time later.
                for request in left:
                    wait = system.rng.uniform(0.0, 5.0)
                    self._later(wait, partial(system.api_troubles.carry_out, request))
        self._later(trouble.duration, self._load_module)

    def _load_module(self) -> None:
        if not self.system.instance.module_loaded:
            self.note("the module is loaded")
            self.system.load_module()

    def _plugin(self, trouble: Trouble) -> None:
        if self.system.instance.jobtap.plugin is None:
            return
        self.system.instance.unload_plugin()
        self.plugin_outages.append((self.system.loop.now(), float("inf")))
        if trouble.duration:
            self._later(trouble.duration, self._load_plugin)
        else:
            self._load_plugin()

    def _load_plugin(self) -> None:
        if self.system.instance.jobtap.plugin is None:
            begin, _ = self.plugin_outages.pop()
            if self.system.loop.now() > begin:
                self.plugin_outages.append((begin, self.system.loop.now()))
            self.note("the plugin is loaded")
            self.system.load_plugin()

    def _exec(self, trouble: Trouble) -> None:
        instance = self.system.instance
        if trouble.what == "cancel":
            self._user(trouble)
            return
        if trouble.what == "reload":
            instance.reload_exec()
            return
        self.system.reload_manager()
        self._later(trouble.duration, instance.reload_exec)

    def _watch(self, trouble: Trouble) -> None:
        kube = self.system.troubled
        if trouble.what in ("delay", "duplicate", "stale", "replay", "miss"):
            self.system.api_troubles.add(trouble)
            if trouble.what in ("miss", "stale", "replay"):
                # The next list shows the objects as they are.
                self._later(trouble.duration, self._list_again)
        elif kube is None or not self.system.instance.module_loaded:
            return
        elif trouble.what == "end":
            kube.end_watches()
        elif trouble.what == "silence":
            kube.silence_watches()
            self._later(trouble.duration, lambda: self._drop(kube, "drop"))
        else:
            self._drop(kube, trouble.what)

    def _list_again(self) -> None:
        if self.system.troubled is not None:
            self._drop(self.system.troubled, "expire")

    def _drop(self, kube: DirectKube, what: str) -> None:
        if kube is self.system.troubled:
            expired = KubeError(410, "Expired", "too old resource version")
            kube.drop_watches(expired if what == "expire" else None)

    def _controllers(self, trouble: Trouble) -> None:
        self._down += 1
        self.system.controllers.pause()
        self._later(trouble.duration, self._controllers_back)

    def _controllers_back(self) -> None:
        self._down -= 1
        if self._down == 0:
            self.note("the controllers go on")
            self.system.controllers.resume()

    def _rabbit(self, trouble: Trouble) -> None:
        rabbits, name = self.system.controllers.rabbits, trouble.name
        topology = self.system.topology
        if trouble.what == "offline" and name in topology.rabbits:
            rabbits.set_status(name, "Offline")
            self._later(trouble.duration, lambda: rabbits.set_status(name, "Ready"))
        elif trouble.what == "link" and name in topology.rabbit_of:
            rabbits.set_link(name, False)
            self._later(trouble.duration, lambda: rabbits.set_link(name, True))

    def _storage(self, trouble: Trouble) -> None:
        """Others than jobs fill a Rabbit: 20 GiB are left for these."""
        store, name = self.system.store, f"others-{self._steps}"
        used = [{"name": trouble.name, "allocationCount": 1}]
        size = self.plan.site.capacity - (20 << 30)
        sets = [{"label": "xfs", "allocationSize": size, "storage": used}]
        body = {"metadata": {"name": name}, "spec": {"allocationSets": sets}}
        if store.find(SERVERS, "default", name) is None:
            store.create(SERVERS, "default", body)
            self.filled = self.system.loop.now()

            def leave() -> None:
                store.delete(SERVERS, "default", name)

            self._later(trouble.duration, leave)

    def _node(self, trouble: Trouble) -> None:
        instance, name = self.system.instance, trouble.name
        self.lost_nodes.add(name)
        instance.set_up(name, False)
        if trouble.what == "fenced":
            self.fenced.add(name)
            self.system.controllers.rabbits.fence(name)

        def back() -> None:
            self.fenced.discard(name)
            instance.set_up(name, True)

        self._later(trouble.duration, back)

    def _user(self, trouble: Trouble) -> None:
        if trouble.job is None:
            return
        instance, jobid = self.system.instance, self.ids[trouble.job]
        if jobid not in instance.manager.jobs:
            return
        if trouble.what == "cancel":
            instance.cancel(jobid)
        elif trouble.what == "abort":
            job = instance.job(jobid)
            if job.active and job.was_posted("epilog-start"):
                self.aborted.add(jobid)
                owner = instance.broker.owner
                instance.manager.raise_exception(jobid, ABORT, 0, "enough", owner)
        elif instance.job(jobid).active:
            owner = instance.broker.owner
            instance.manager.raise_exception(jobid, "user", 3, "by the way", owner)

    def _queue(self, trouble: Trouble) -> None:
        manager = self.system.instance.manager
        job = manager.jobs.get(self.ids[trouble.job or 0])
        waiting = (JobState.DEPEND, JobState.PRIORITY, JobState.SCHED)
        if job is None or job.state not in waiting:
            return
        if trouble.what != "requires":
            urgency = 0 if trouble.what == "hold" else self.system.rng.randint(1, 31)
            manager.set_urgency(job.id, urgency, manager.owner)
            if urgency == 0:
                again = partial(self._queue, replace(trouble, what="urgency"))
                self._later(trouble.duration, again)
        elif job.state is JobState.DEPEND and len(self.system.topology.rabbit_of) > 4:
            # Enough nodes for any job. As flux update does with another queue.
            hosts = sorted(self.system.topology.rabbit_of)[::2]
            key = "attributes.system.constraints"
            manager.post(job, "jobspec-update", {key: {"hostlist": hosts}})

    def _operator(self, trouble: Trouble) -> None:
        self.disabled.add(trouble.name)
        if trouble.name not in self.disabled_now:
            if self._set_node(trouble.name, "Disabled"):
                self.disabled_now.add(trouble.name)
            enable = partial(self._operator_enables, trouble.name)
            self._later(trouble.duration, enable)

    def _operator_enables(self, host: str) -> None:
        if host in self.disabled_now:
            self.disabled_now.discard(host)
            self._set_node(host, "Enabled")

    def _set_node(self, host: str, status: str) -> bool:
        """Whether that changed anything."""
        store = self.system.store
        found: Json = store.find(SYSTEMSTATUS, "default", "default") or {}
        nodes = (found.get("data") or {}).get("nodes") or {}
        if nodes.get(host, "Enabled") == status:
            return False
        body: Json = {"data": {"nodes": {host: status}}}
        store.merge_patch(SYSTEMSTATUS, "default", "default", body)
        return True

    def _admin(self, trouble: Trouble) -> None:
        if trouble.job is None:
            return
        if trouble.what == "cancel":
            self._user(trouble)
            return
        jobid = self.ids[trouble.job]
        name = workflow_name(jobid)
        try:
            if trouble.what == "squat":
                self.taken_names.add(trouble.job)
                self._make_foreign(name, "slurm")
                return
            self.meddled_jobs.add(jobid)
            if trouble.what != "teardown":
                self.system.store.delete(WORKFLOW, "default", name)
            body = _MEDDLING.get(trouble.what)
            if body is not None:
                self.system.store.merge_patch(WORKFLOW, "default", name, body)
        except ApiError as error:
            self.note(f"{f58(jobid)}: {error}")


def _workflow(name: str, wlm: str, jobid: str) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": [],
            "forceReady": False,
            "groupID": 0,
            "jobID": jobid,
            "userID": 0,
            "wlmID": wlm,
        },
    }
