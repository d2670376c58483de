# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What flux-modprobe(1) does for flux-dws when an instance starts.

The module ``dws`` is loaded where modprobe.d/dws.toml says; where it cannot be,
because of what is in ``[rabbit]``, say, the instance starts without it. In an
instance that is a job with Rabbit storage, nodes that the job has no storage on
are drained.
"""

import json
import sys

from flux.hostlist import Hostlist
from flux.job import JobID, job_kvs_lookup
from flux.modprobe import task
from flux.resource import resource_status

import flux

EXCEPTION = "dws-node-failure"
"""What the module raises, with a severity that is not fatal, for a job that goes
on without the storage of some nodes. The note begins with their hostlist and a
colon."""


def setup(context):
    context.load_modules(["dws"])
    module = context.modprobe.get_task("dws")
    if not context.dry_run:  # which would say that it is removed
        module.run = optional(module.run)


def optional(load):
    """Load a module, but let the instance start when that fails: the jobs that
    want it wait."""

    def run(context):
        try:
            load(context)
        except OSError as error:
            print(
                f"dws: {error.strerror}: not loaded, jobs with #DW directives wait;"
                " flux dmesg says why, flux modprobe load dws tries again",
                file=sys.stderr,
            )

    return run


@task(
    "dws-drain",
    ranks="0",
    after=["resource"],
    before=["sched"],
    needs=["resource"],
    needs_attrs=["parent-uri", "jobid"],
)
def drain_nodes_without_storage(context):
    """An instance starts all the same when this fails."""
    try:
        jobid = JobID(context.attr_get("jobid"))
        parent = flux.Flux(context.attr_get("parent-uri"))
        own = frozenset(resource_status(context.handle).get().nodelist)
        hosts = [host for host in nodes_without_storage(parent, jobid) if host in own]
        if hosts:
            payload = {
                "targets": Hostlist(hosts).encode(),
                "reason": f"job {jobid.f58} has no Rabbit storage here",
                "mode": "update",
            }
            context.rpc("resource.drain", payload).get()
    except (OSError, ValueError, RecursionError) as error:
        print(f"dws-drain: {error}", file=sys.stderr)


def nodes_without_storage(parent, jobid):
    """The hosts that such exceptions of the job name, in their order, each once.

    Args:
        parent: a handle of the instance that the job is in.

    Raises:
        OSError: the eventlog cannot be read.
        ValueError: an exception does not begin with a hostlist.
    """
    found = job_kvs_lookup(parent, jobid, keys=["eventlog"])
    if found is None:
        raise OSError(f"job {jobid.f58} is unknown to the parent instance")
    hosts = {}
    # Not splitlines(): that would split at separators that JSON allows in strings.
    for line in found["eventlog"].split("\n"):
        if EXCEPTION not in line:
            continue
        event = json.loads(line)
        context = event.get("context", {})
        if event["name"] == "exception" and context["type"] == EXCEPTION:
            hosts.update(dict.fromkeys(Hostlist(context["note"].partition(":")[0])))
    return list(hosts)
