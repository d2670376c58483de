# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The tests of both plugins again, under AddressSanitizer and
UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rabbitsim
from support.effort import SOAKING
from support.tree import TOP, copy_sources, quick_compiler

OUR_SOURCES = re.compile(r"\bsrc/(jobtap|shell|standin)/|rabbitsim/_(jobtap|shell)\.")
TESTS = [
    "jobtap",
    "jobtap_dataout",
    "jobtap_hostile",
    "jobtap_lost",
    "jobtap_memory",
    "jobtap_stateful",
    "jobtap_tasks",
    "shell_plugin",
]


def libasan() -> str:
    """The compiler's libasan, or a skip with the reason."""
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = "int main (void) { return 0; }"
    flags = ["-fsanitize=address,undefined", "-x", "c", "-", "-o", os.devnull]
    if subprocess.run([compiler, *flags], input=program, text=True).returncode != 0:
        pytest.skip("the compiler has no AddressSanitizer")
    path = subprocess.run(
        [compiler, "-print-file-name=libasan.so"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    if not os.path.isabs(path):
        pytest.skip("the compiler has no shared libasan")
    return path


BUILD = """
import runpy
for name in "jobtap", "shell":
    runpy.run_path(f"src/{name}/build_{name}.py")["ffibuilder"].compile()
"""


def build(sources: Path) -> Path:
    """Build the extensions with the sanitizers, and return where the packages are."""
    subprocess.run(
        [sys.executable, "-c", BUILD],
        cwd=sources,
        env={**quick_compiler(sources), "DWS_SANITIZE": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # As it is installed, so that Python has compiled it.
    lib = sources / "lib"
    left_out = shutil.ignore_patterns("*.so")
    shutil.copytree(Path(rabbitsim.__file__).parent, lib / "rabbitsim", ignore=left_out)
    built = list(sources.glob("rabbitsim/*.so"))
    assert len(built) == 2
    for extension in built:
        shutil.move(str(extension), lib / "rabbitsim")
    return lib


def leaks(log: str) -> list[str]:
    """The leaks in a report for which our code is to blame. Python leaves
    things behind when it exits."""
    return [part for part in log.split("\n\n") if " leak of " in part and ours(part)]


def ours(stack: str) -> bool:
    return OUR_SOURCES.search(stack) is not None and "PyInit_" not in stack


def let_requests_wait(sources: Path, requests: int) -> None:
    """Have the plugin send no more requests at once, as few as random jobs have."""
    window = sources / "src/jobtap/window.c"
    line = re.compile("^#define REQUESTS_MAX .*", re.M)
    text, count = line.subn(f"#define REQUESTS_MAX {requests}", window.read_text())
    assert count == 1
    window.write_text(text)


@pytest.mark.parametrize(
    "requests, tests",
    [(64, TESTS), (2, ["jobtap_stateful"])],
    ids=["as it is", "requests wait"],
)
def test_no_memory_is_misused_or_leaked(
    tmp_path: Path, requests: int, tests: list[str]
) -> None:
    preload = libasan()
    sources = copy_sources(tmp_path / "sources")
    let_requests_wait(sources, requests)
    lib = build(sources)
    # Exit codes do not tell Python's leaks from ours: what counts is the report.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + [f"--hypothesis-profile={'soak' if SOAKING else 'brief'}"]
        + [f"t/python/test_{name}.py" for name in tests],
        cwd=TOP,
        env={
            **os.environ,
            "PYTHONPATH": str(lib),
            "PYTHONMALLOC": "malloc",
            "LD_PRELOAD": preload,
            # Python allocates much: what a report needs to name our code is kept of
            # the stack of each allocation, and no more.
            "ASAN_OPTIONS": f"log_path={tmp_path}/asan:malloc_context_size=12",
            "UBSAN_OPTIONS": f"log_path={tmp_path}/ubsan:print_stacktrace=1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = "\n\n".join(path.read_text() for path in tmp_path.glob("*san.*"))
    assert "ERROR: AddressSanitizer" not in log and "runtime error" not in log, log
    assert " passed" in done.stdout and " failed" not in done.stdout, done.stdout
    assert leaks(log) == []
