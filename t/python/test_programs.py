# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Programs of the administrator: what they print, and each way in which they fail."""

from __future__ import annotations

import os
import pathlib
import sys
import threading

import pytest

programs = pytest.importorskip("flux_k8s.broker.programs")


def python(text: str, timeout: float = 60.0) -> object:
    return programs.run([sys.executable, "-c", text], timeout)


def test_a_program_gets_its_arguments_and_no_input_and_what_it_prints_is_returned() -> (
    None
):
    text = "import sys; print(sys.argv[1:], repr(sys.stdin.read()))"
    found = programs.run([sys.executable, "-c", text, "a b", ";$(x)"], 60.0)
    assert found == "['a b', ';$(x)'] ''\n"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("raise SystemExit(3)", "it ended with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "it was killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "it was killed by signal 40"),
        ("print('x' * 2000000)", "it prints more than 1048576 bytes"),
        ("while True: print('x' * 2000)", "it prints more than 1048576 bytes"),
        ("import os; os.write(1, b'\\xff')", "it prints what is not UTF-8"),
    ],
)
def test_a_program_that_fails_is_an_error_with_the_reason(
    text: str, reason: str
) -> None:
    found = python(text)
    assert isinstance(found, OSError) and found.strerror == reason


def test_a_program_that_hangs_is_killed_though_its_child_keeps_the_output_open() -> (
    None
):
    hangs = "import subprocess, time; subprocess.Popen(['sleep', '600'])"
    found = python(f"{hangs}; time.sleep(600)", timeout=1.0)
    assert isinstance(found, OSError) and found.strerror == "it took more than 1 s"


def test_what_a_program_that_hangs_has_started_is_killed_with_it(
    tmp_path: pathlib.Path,
) -> None:
    """Else each time one more of them would be left."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = 'sleep 600 >"$0" & sleep 600'
    found = programs.run(["/bin/sh", "-c", script, str(pipe)], 1.0)
    assert isinstance(found, OSError) and found.strerror == "it took more than 1 s"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # nobody has it open for writing
    os.close(reader)


def test_a_program_that_is_missing_or_may_not_be_run_is_an_error() -> None:
    for path in ("/nonexistent/x", "/etc/hostname", "/"):
        found = programs.run([path], 60.0)
        assert isinstance(found, OSError) and found.strerror


def test_programs_may_run_on_threads_beside_each_other() -> None:
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(python("print(1)")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["1\n"] * 4
