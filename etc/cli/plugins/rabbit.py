# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""flux-dws for the commands that submit jobs (flux.cli.plugin)."""

import errno
import os
import sys

from flux.cli.plugin import CLIPlugin

import flux

SCHEDULERS = ("sched-fluxion-", "sched-rabbit")
"""How the names of modules begin that can place a job below chassis."""

DIGITS = 9
"""Of a number of chassis, at most: Python refuses to read thousands."""

ATTACHING = ("alloc", "run")
WAITS = "the job starts when its storage is ready: flux dws list shows how far it is"
"""The status line of flux job attach only says that the job waits for its prolog."""


class RabbitPlugin(CLIPlugin):
    r"""Rabbit storage: --dw=DIRECTIVE and --rabbit-chassis=N

    --dw asks for storage with a #DW directive, or with the name of a preset of the
    site. Give it once for each directive:

        flux batch -N2 --dw="#DW jobdw type=xfs capacity=10GiB name=demo" \
            --dw="#DW copy_in source=/lustre/in destination=\$DW_JOB_demo/" script.sh

    or in the script itself:

        #flux: -N2
        #flux: --dw="#DW jobdw type=xfs capacity=10GiB name=demo"

    The job finds the storage in $DW_JOB_demo. Directives that are wrong are refused
    at once. In a terminal, flux run and flux alloc say that the job waits for its
    storage. A line of a script that begins with #DW or "#flux: #DW" is not read: flux
    batch warns of it.

    With --rabbit-chassis the nodes of the job are taken from N chassis, as many from
    each, so that the Rabbits of all of them serve the job. The number of nodes (-N,
    --nodes) must be given, and be a multiple of N:

        flux alloc -N8 --rabbit-chassis=4

    gets two nodes on each of four chassis. More chassis give more bandwidth to
    storage, and may have to be waited for longer. The scheduler must know
    chassis: sched-rabbit does, and Fluxion where its graph is from `flux dws2jgf`.
    """

    def __init__(self, prog):
        super().__init__(prog, prefix="")
        self.ingest = None
        self.handle = None
        self.add_option(
            "--dw",
            action="append",
            metavar="DIRECTIVE",
            help="Ask for Rabbit storage with a #DW directive, or with the name of a"
            " preset of the site. May be given several times.",
        )
        self.add_option(
            "--rabbit-chassis",
            metavar="N",
            help="Spread the job's nodes (-N) evenly over N chassis, to be served"
            " by the Rabbits of all. -N must be a multiple of N.",
        )

    def preinit(self, args):
        """With --cc, --bcc and flux bulksubmit, a job has a copy of the options that
        lacks those of plugins: modify_jobspec would not see them."""
        for name in ("dw", "rabbit_chassis"):
            setattr(args, name, getattr(args, name, None))

    def modify_jobspec(self, args, jobspec):
        directives = getattr(args, "dw", None)
        if directives:
            if "dw" in jobspec.attributes.get("system", {}):
                raise ValueError("--dw and -S dw: give only one of them")
            jobspec.setattr("system.dw", directives)
        chassis = getattr(args, "rabbit_chassis", None)
        if chassis is not None:
            chassis = positive(chassis)
            jobspec.jobspec["resources"] = spread(jobspec.resources, chassis)
            check_scheduler(jobspec, chassis)
        self.check(jobspec, os.getuid(), terminal_columns())
        self.announce(args, jobspec)
        if self.prog == "batch":
            warn_of_unread(jobspec.attributes["system"])

    def announce(self, args, jobspec):
        """Say what an interactive job waits for, to somebody who looks at it."""
        if self.prog not in ATTACHING or not jobspec.attributes["system"].get("dw"):
            return
        if is_watched(args):
            print(f"flux-{self.prog}: {WAITS}", file=sys.stderr)

    def validate(self, jobspec):
        """Refuse wrong #DW directives. Called for each job that is submitted, by
        Flux's own validator, which does not say whose job it is."""
        self.check(jobspec)

    def check(self, jobspec, userid=None, columns=None):
        """Refuse wrong #DW directives. Costs a job without directives one lookup.
        Without a Flux, as with --dry-run, none is refused. One connection is for all
        jobs; after an error the next job opens another.

        Raises:
            ValueError: names the word that is wrong, and underlines it.
        """
        system = jobspec.attributes.get("system")
        if not isinstance(system, dict) or system.get("dw") is None:
            return
        if self.ingest is None:
            from flux_k8s.ingest import Ingest

            self.ingest = Ingest()
        try:
            if self.handle is None:
                self.handle = flux.Flux()
            self.ingest.check(self.handle, jobspec.jobspec, userid, columns)
        except OSError:
            self.handle = None


def warn_of_unread(system):
    """Say that a #DW line of a batch script (RFC 37) is not read. Costs a job whose
    script has none one search."""
    script = system["files"]["script"]["data"]
    if "#DW" not in script:
        return
    from flux_k8s.rules.unread import unread_line

    unread = unread_line(script, system.get("dw"))
    if unread is not None:
        print(f"flux-batch: WARNING: {unread}", file=sys.stderr)


def is_watched(args):
    """Whether somebody looks at the job: the command attaches to it, and flux job
    attach shows its status line, under the conditions that are its own."""
    if args.dry_run or getattr(args, "bg", False):
        return False
    if "FLUX_ATTACH_NONINTERACTIVE" in os.environ:
        return False
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def terminal_columns():
    """The columns of the terminal that shows errors; None if it is none, or does not
    know."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None


def positive(value):
    """The number of chassis: a string on the command line, or an integer from
    Python. Raises ValueError."""
    text = str(value)
    if not text.isdecimal() or len(text) > DIGITS or int(text) == 0:
        raise ValueError(f"--rabbit-chassis={text}: must be a number from 1")
    return int(text)


def check_scheduler(jobspec, chassis):
    """Ask the instance whether its scheduler can place the job. Without a Flux, as
    with --dry-run, that is not known.

    Raises:
        ValueError: it cannot.
    """
    option = f"--rabbit-chassis={chassis}"
    try:
        handle = flux.Flux()
        modules = handle.rpc("module.list", nodeid=0).get()["mods"]
    except OSError:
        return
    # Others take a chassis for whatever is below it, and place the job anywhere.
    others = [
        module["name"]
        for module in modules
        if "sched" in module["services"] and not module["name"].startswith(SCHEDULERS)
    ]
    if others:
        raise ValueError(
            f"{option} needs Fluxion, with a graph from flux dws2jgf, or sched-rabbit;"
            f" the scheduler here is {others[0]}"
        )
    try:
        handle.rpc("feasibility.check", {"jobspec": jobspec.jobspec}).get()
    except OSError as error:
        if error.errno != errno.ENOSYS:
            reason = error.strerror.splitlines()[0]
            raise ValueError(f"{option}: the scheduler: {reason}") from None


def spread(resources, chassis):
    """A jobspec's resources, with its nodes below ``chassis`` chassis (RFC 14).

    Raises:
        ValueError: that cannot be done evenly.
    """
    option = f"--rabbit-chassis={chassis}"
    if len(resources) != 1 or resources[0]["type"] != "node":
        raise ValueError(f"{option} needs a number of nodes (-N, --nodes)")
    node = resources[0]
    count = node["count"]
    if count % chassis:
        raise ValueError(
            f"{option} cannot share {count} nodes evenly: -N must be a multiple"
            f" of {chassis}"
        )
    below = {**node, "count": count // chassis}
    return [{"type": "chassis", "count": chassis, "with": [below]}]
