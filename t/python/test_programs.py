# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Programs of the administrator: what they print, and each way in which they fail."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
from typing import Any, Sequence

import pytest

from flux_k8s.broker.programs import Programs


def sh(text: str, *args: str, timeout: float = 60.0) -> object:
    return run(Programs(), ["/bin/sh", "-c", text, *args], timeout)


def run(programs: Programs, argv: Sequence[str], timeout: float, *more: Any) -> object:
    """What a program prints, or the error."""
    try:
        return programs.run(argv, timeout, *more)
    except (OSError, ValueError) as error:
        return error


def nobody_writes(reader: int) -> bool:
    """Whether nobody has a pipe open for writing any more, soon."""
    return bool(select.select([reader], [], [], 60.0)[0]) and os.read(reader, 1) == b""


def test_a_program_gets_its_arguments_and_no_input_and_what_it_prints_is_returned() -> (
    None
):
    found = sh('printf "<%s>" "$0" "$1"; cat', "a b", ";$(x)")
    assert found == "<a b><;$(x)>"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("exit 3", "it ended with status 3"),
        ("kill -KILL $$", "it was killed by SIGKILL"),
        ("kill -40 $$", "it was killed by signal 40"),
        ("head -c 2000000 /dev/zero", "it prints more than 1048576 bytes"),
        ("yes", "it prints more than 1048576 bytes"),
        (r"printf '\377'", "it prints what is not UTF-8"),
    ],
)
def test_a_program_that_fails_is_an_error_with_the_reason(
    text: str, reason: str
) -> None:
    found = sh(text)
    assert isinstance(found, OSError) and found.strerror == reason


def test_what_a_program_prints_is_read_where_it_is_waited_for() -> None:
    """The nodes of a large machine take longer than the reactor may be held up for."""
    running, text = Programs(), ["/bin/echo", "12"]
    assert running.run(text, 60.0, int) == 12
    found = run(running, ["/bin/echo", "twelve"], 60.0, int)
    assert isinstance(found, ValueError) and "twelve" in str(found)


def test_a_program_gets_a_text_and_may_print_as_much() -> None:
    text = b"x" * 2_000_000
    assert Programs().run(["/bin/cat"], 60.0, len, text) == len(text)
    argv = ["/bin/sh", "-c", "cat; echo more"]
    found = run(Programs(), argv, 60.0, str, memoryview(text))
    assert isinstance(found, OSError)
    assert found.strerror == "it prints more than 2000000 bytes"


def test_what_a_program_that_hangs_has_started_is_killed_with_it(
    tmp_path: pathlib.Path,
) -> None:
    """Else each time one more of them would be left."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = 'exec 3>"$0"; sleep 600 & echo >&3; sleep 600'
    for timeout in (1, 10, 60):
        found = sh(script, str(pipe), timeout=timeout)
        text = f"it took more than {timeout} s"
        assert isinstance(found, OSError) and found.strerror == text
        if select.select([reader], [], [], 0.0)[0]:
            break  # it had begun
    assert os.read(reader, 1) == b"\n" and nobody_writes(reader)
    os.close(reader)


def test_a_program_that_is_missing_or_may_not_be_run_is_an_error(
    tmp_path: pathlib.Path,
) -> None:
    text, empty = tmp_path / "text", tmp_path / "empty"
    text.touch(0o644)
    empty.touch(0o755)
    reasons = {
        "/nonexistent/x": "No such file or directory",
        str(text): "Permission denied",
        str(tmp_path): "Permission denied",
        str(empty): "Exec format error",
    }
    for path, reason in reasons.items():
        found = run(Programs(), [path], 60.0)
        assert isinstance(found, OSError) and found.strerror == reason


def test_a_program_has_no_other_file_open_than_its_standard_ones() -> None:
    found = Programs().run(["/bin/ls", "/proc/self/fd"], 60.0)
    assert found == "0\n1\n2\n3\n"  # the last is the folder


def test_a_program_takes_the_signals_that_the_threads_of_the_service_block() -> None:
    """Else a program could not end what it has started."""
    blocked = {signal.SIGTERM, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        found = sh("kill $$; sleep 60")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert isinstance(found, OSError) and found.strerror == "it was killed by SIGTERM"


@pytest.mark.parametrize("name", ["PIPE", "XFSZ"])
def test_a_program_does_not_ignore_the_signals_that_python_ignores(name: str) -> None:
    """Else it would not end when nobody reads any more, but print errors for ever."""
    found = sh(f"kill -{name} $$")
    assert isinstance(found, OSError) and found.strerror.endswith(f"by SIG{name}")


def test_programs_that_run_at_the_end_of_the_service_are_killed_with_their_children(
    tmp_path: pathlib.Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    running = Programs()
    script = 'exec 3>"$0"; echo >&3; sleep 600 & sleep 600'
    threads = [
        threading.Thread(
            target=run,
            args=(running, ["/bin/sh", "-c", script, str(pipe)], 60),
            daemon=True,
        )
        for _ in range(2)
    ]
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for thread in threads:
        thread.start()
    begun = b""
    while len(begun) < len(threads):
        assert select.select([reader], [], [], 60.0)[0]
        with contextlib.suppress(BlockingIOError):
            begun += os.read(reader, len(threads))
    running.close()
    for thread in threads:
        thread.join(60.0)
    assert nobody_writes(reader)
    os.close(reader)


def test_a_program_that_is_started_while_the_service_ends_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Programs()
    start = subprocess.Popen

    def end(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        program = start(*args, **options)
        running.close()
        return program

    monkeypatch.setattr(subprocess, "Popen", end)
    found = run(running, ["/bin/sleep", "600"], 300.0)
    assert isinstance(found, OSError) and found.strerror == "it was killed by SIGKILL"


def test_a_program_ends_with_a_service_that_is_killed(tmp_path: pathlib.Path) -> None:
    """Nobody else would end it, and the next service starts another one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    argv = ["/bin/sh", "-c", 'exec 3>"$0"; echo >&3; exec sleep 600', str(pipe)]
    text = f"""
import threading
from flux_k8s.broker.programs import Programs
thread = threading.Thread(target=Programs().run, args=({argv}, 600.0))
thread.start()
thread.join()
"""
    service = subprocess.Popen([sys.executable, "-c", text])
    assert select.select([reader], [], [], 60.0)[0]
    assert os.read(reader, 1) == b"\n"
    service.kill()
    service.wait()
    assert nobody_writes(reader)
    os.close(reader)


def test_a_program_that_may_not_be_killed_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that runs as root by sudo, for example. Else no program would run after it,
    or the service would end."""

    def refuse(group: int, number: int) -> None:
        raise PermissionError

    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def note(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*args, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    monkeypatch.setattr(os, "killpg", refuse)
    found = sh("exec sleep 600", timeout=1.0)
    assert isinstance(found, OSError) and found.strerror == "it took more than 1 s"
    (program,) = started
    assert program.poll() is None
    program.kill()
    program.wait()
