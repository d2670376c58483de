# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The command line: ``python -m rabbitsim
run|demo|plan|kube|dws|cluster|torture|day``."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import signal
import sys
from typing import Callable, Iterator, NoReturn, Sequence

from flux_k8s.text import printable
from rabbitsim.cli.errors import UsageError
from rabbitsim.day import arguments as day_arguments
from rabbitsim.torture import arguments as torture_arguments


def main(argv: Sequence[str]) -> int:
    """Run a command; its exit status. Errors are one line on stderr."""
    try:
        args = _parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = args.function
        return command(args)
    except UsageError as error:
        print(f"rabbitsim: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # or Python complains about it at its end
        return 141


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM, and the terminal's SIGHUP, end the command, but not before it has
    cleaned up."""

    def end(number: int, frame: object) -> None:
        for each in before:  # a second one would cut that short
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as nohup wants it
        numbers.remove(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m rabbitsim",
        description="Watch Flux jobs get storage on Rabbits, without any hardware.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_demo(commands)
    _add_plan(commands)
    _add_kube(commands)
    _add_dws(commands)
    _add_cluster(commands)
    _add_torture(commands)
    _add_day(commands)
    return parser


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port, 0 to 65535")
    return int(text)


def _add(
    commands: argparse._SubParsersAction[_Parser], name: str, help: str
) -> _Parser:
    return commands.add_parser(name, help=help, description=help, allow_abbrev=False)


def _add_system(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=_number, default=4, metavar="N", help="compute nodes")
    add("--rabbits", type=_number, default=2, metavar="N", help="Rabbits")
    add("--seed", type=int, default=0, metavar="N", help="of all randomness")
    add("--scratch", type=pathlib.Path, metavar="DIR", help="keep all files here")


def _add_job(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--flux",
        choices=("auto", "real", "sim"),
        default="auto",
        help="which Flux to use (auto: a real one, if it is on PATH)",
    )
    add(
        "--kube",
        choices=("auto", "real", "sim"),
        default="auto",
        help="which Kubernetes to use (real: the cluster of KUBECONFIG, which no"
        " other Flux may use, or else the kube-apiserver and etcd of"
        " KUBEBUILDER_ASSETS; auto: these, if they are set)",
    )
    # What is left out is for the cluster to say, if there is one.
    parser.set_defaults(nodes=None, rabbits=None)
    add(
        "--eventlog",
        type=pathlib.Path,
        metavar="FILE",
        help="write the job's eventlog, one RFC 18 event a line",
    )
    add("--verbose", action="store_true", help="show all events and the log")


def _add_run(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(
        commands, "run", "run a batch script; exit with the status of the job"
    )
    _add_system(parser)
    _add_job(parser)
    parser.add_argument(
        "--lustre",
        type=pathlib.Path,
        metavar="DIR",
        help="what /lustre has at first (default: 'lustre' beside the script)",
    )
    parser.add_argument(
        "--save",
        type=pathlib.Path,
        metavar="DIR",
        help="write what Flux has of the job to files in DIR/ID, for"
        " 'flux dws job-object --from'",
    )
    parser.add_argument("script", metavar="SCRIPT", help="as for flux batch")
    parser.add_argument("args", nargs="*", metavar="ARG", help="for the script")

    def run(args: argparse.Namespace) -> int:
        from rabbitsim.cli.run import run_command

        with _ended_by_signals():
            return run_command(args)

    parser.set_defaults(function=run)


def _add_demo(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(commands, "demo", "watch one job from submit to inactive")
    _add_system(parser)
    _add_job(parser)

    def demo(args: argparse.Namespace) -> int:
        from rabbitsim.cli.demo import demo_command

        with _ended_by_signals():
            return demo_command(args)

    parser.set_defaults(function=demo)


def _add_plan(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(
        commands, "plan", "show what directives, or breakdowns of DWS, lead to"
    )
    add = parser.add_argument
    add("--mapping", required=True, metavar="FILE", help="a rabbitmapping")
    add("--nodes", required=True, metavar="HOSTLIST", help="the nodes of the job")
    add(
        "--breakdown",
        action="append",
        default=[],
        metavar="FILE",
        help="DirectiveBreakdowns in YAML or JSON, and the Servers that exist on which "
        "they depend",
    )
    add("--json", action="store_true", help="print JSON")
    add("directives", nargs="*", metavar="DIRECTIVE", help="as in '#DW jobdw ...'")

    def plan(args: argparse.Namespace) -> int:
        from rabbitsim.cli.plan import plan_command

        return plan_command(args)

    parser.set_defaults(function=plan)


def _add_kube(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(
        commands, "kube", "serve a Kubernetes API with DWS's webhooks on loopback"
    )
    parser.add_argument(
        "--port", type=_port, default=0, metavar="N", help="0: any that is free"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="write a kubeconfig")

    def kube(args: argparse.Namespace) -> int:
        from rabbitsim.dws import Options, admission
        from rabbitsim.kube.cli import serve

        webhook = admission(Options().rules)
        return serve(args.port, args.kubeconfig, admission=[webhook])

    parser.set_defaults(function=kube)


def _add_dws(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(
        commands, "dws", "run stand-ins for the DWS and NNF controllers in a cluster"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: KUBECONFIG, ~/.kube/config"
    )
    _add_storage(parser)

    def dws(args: argparse.Namespace) -> int:
        from rabbitsim.dws.cli import serve

        return _serve_storage(serve, args)

    parser.set_defaults(function=dws)


def _add_cluster(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(
        commands, "cluster", "serve a Kubernetes API with DWS and NNF in it on loopback"
    )
    parser.add_argument(
        "--kubeconfig", required=True, metavar="FILE", help="write a kubeconfig"
    )
    _add_storage(parser)

    def cluster(args: argparse.Namespace) -> int:
        from rabbitsim.cli.cluster import serve

        return _serve_storage(serve, args)

    parser.set_defaults(function=cluster)


def _add_storage(parser: argparse.ArgumentParser) -> None:
    _add_system(parser)
    parser.add_argument(
        "--mapping", metavar="FILE", help="a rabbitmapping, instead of --nodes etc."
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="STATE:KIND[:NODE[:SECONDS]]",
        help="what goes wrong, as in PreRun:mount:compute-02 (a wrong one has the"
        " kinds listed)",
    )


def _serve_storage(serve: Callable[..., int], args: argparse.Namespace) -> int:
    """Serve what the options of :func:`_add_storage` say."""
    from rabbitsim.dws import Fault, Options
    from rabbitsim.dws.cli import read_topology

    try:
        topology = read_topology(args.mapping, args.nodes, args.rabbits)
        options = Options(faults=tuple(map(Fault.parse, args.fault)))
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{args.mapping}: {error.strerror}") from None
    return serve(
        args.kubeconfig,
        topology,
        options=options,
        scratch=args.scratch,
        seed=args.seed,
    )


def _add_torture(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(
        commands, "torture", "random jobs under random trouble, in virtual time"
    )
    torture_arguments.add_arguments(parser)

    def torture(args: argparse.Namespace) -> int:
        from rabbitsim.torture.command import torture_command

        return torture_command(args)

    parser.set_defaults(function=torture)


def _add_day(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _add(commands, "day", "a day of a whole machine, in virtual time")
    day_arguments.add_arguments(parser)

    def day(args: argparse.Namespace) -> int:
        from rabbitsim.day.command import day_command

        return day_command(args)

    parser.set_defaults(function=day)
