# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``flux dws rescue``: have data copied again that could not be copied out."""

from __future__ import annotations

import argparse
import errno

from dwscli.instance import Instance, Refused, ask, job_id, unknown_job
from dwscli.reading import number
from dwscli.terminal import KUBERNETES, Notice, write
from dwscli.units import f58
from flux_k8s.command import CommandError
from flux_k8s.ports import Json

DESCRIPTION = """
Have the data of a job copied out again after that has failed, while its storage is kept
(rabbit.keep_failed). Copies that have failed are started again, others go on, and the
time limits count anew.
"""


def add_arguments(args: argparse.ArgumentParser) -> None:
    """Add what ``flux dws rescue`` takes."""
    args.description = DESCRIPTION
    args.add_argument("jobid", metavar="JOBID", help="the job, which may have ended")
    args.add_argument(
        "--give-up",
        action="store_true",
        help="give the storage back at once; what is not copied out is lost",
    )
    args.set_defaults(function=rescue)


def rescue(args: argparse.Namespace, instance: Instance) -> None:
    """Have data copied again, or give it up.

    Raises:
        CommandError: the data is not kept, or Kubernetes does not allow it.
    """
    id = job_id(instance, args.jobid)
    request: Json = {"id": id, **({"give_up": True} if args.give_up else {})}
    try:
        answer = ask(instance, "dws.rescue", request, Notice(KUBERNETES).tick)
    except Refused as error:
        if error.errno != errno.ENOENT:
            raise
        if instance.job(id) is None:
            raise unknown_job(instance, id) from None
        hint = f"flux dws show {f58(id)} says what became of its data"
        raise CommandError(f"{error}; {hint}") from None
    copies = int(number(answer, "copies") or 0)
    if args.give_up:
        done = "its data is given up, and its storage goes"
    elif copies:
        done = f"{copies} {'copy is' if copies == 1 else 'copies are'} started again"
    else:
        done = "no copy has failed: those that have not ended get more time"
    write([f"Job {f58(id)}: {done}. flux dws wait {f58(id)} shows what comes of it."])
