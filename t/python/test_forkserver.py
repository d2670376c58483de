# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""``t/forkserver.py``: a program is as if it had been started by itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest

from support.tree import TOP

Done = subprocess.CompletedProcess


class Forks:
    """A server, and its client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "socket"
        self.client = str(folder / "client")
        compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
        if compiler is None:
            pytest.skip("there is no C compiler")
        flags = ["-Wall", "-Wextra", "-Werror", "-o", self.client]
        subprocess.run([compiler, *flags, TOP / "t/forkclient.c"], check=True)
        self.server = subprocess.Popen(
            [sys.executable, TOP / "t/forkserver.py", self.socket, "json"],
            start_new_session=True,
        )
        while not self.socket.exists():
            assert self.server.poll() is None
            time.sleep(0.01)

    def run(self, program: str, *args: str, text: str = "", **env: str) -> Done:
        path = self.folder / "program.py"
        path.write_text(program)
        return self.ask(str(path), *args, text=text, **env)

    def ask(self, *args: str, text: str = "", **env: str) -> Done:
        return subprocess.run(
            [self.client, self.socket, *args],
            input=text,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=env,
            timeout=60,
        )

    def stop(self) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.stop()


def test_a_program_has_the_arguments_folder_environment_and_files_of_its_caller(
    forks: Forks,
) -> None:
    done = forks.run(
        "import os, sys\n"
        "print(sys.argv[1:], os.getcwd(), dict(os.environ), sys.stdin.read())\n"
        "print('to the other', file=sys.stderr)",
        *("a b", "", "ä=1\n"),
        text="what it reads",
        KEY="a=b\nc",
    )
    words = ["a b", "", "ä=1\n"], os.path.realpath(forks.folder), {"KEY": "a=b\nc"}
    assert done.stdout == " ".join(map(str, words)) + " what it reads\n"
    assert (done.stderr, done.returncode) == ("to the other\n", 0)


@pytest.mark.parametrize(
    "end, status, said",
    [
        ("", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("import sys; sys.exit(('a', 1))", 1, "('a', 1)\n"),
        ("import os; os._exit(7)", 7, ""),
        ("import os; os.kill(os.getpid(), 15)", -15, ""),
        (
            "import atexit, sys; atexit.register(print, 'end', file=sys.stderr)",
            0,
            "end\n",
        ),
    ],
)
def test_a_program_ends_as_python_would(
    forks: Forks, end: str, status: int, said: str
) -> None:
    done = forks.run(end)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", said)


def test_an_exception_is_a_traceback(forks: Forks) -> None:
    done = forks.run("1 / 0")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback ")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_client_that_is_killed_stops_no_other_program(forks: Forks) -> None:
    slow = forks.folder / "slow.py"
    slow.write_text("import time; print(1, flush=True); time.sleep(600)")
    client = subprocess.Popen(
        [forks.client, forks.socket, slow], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None and client.stdout.readline() == "1\n"
    client.kill()
    client.wait()
    client.stdout.close()
    assert forks.run("print(2)").stdout == "2\n"


def test_a_program_changes_nothing_for_the_next(forks: Forks) -> None:
    forks.run("import json, os; json.broken = 1; os.chdir('/')")
    done = forks.run("import json, os; print(hasattr(json, 'broken'), os.getcwd())")
    assert done.stdout == f"False {os.path.realpath(forks.folder)}\n"
