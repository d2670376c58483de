# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a C component is built from, and how.

A component is built twice: as a Python extension, together with the stand-in
libflux of this folder, through which tests and ``rabbitsim`` drive it; and as
the plugin that Flux loads, which holds no Python. Both come from one
:class:`Component`. All paths are relative to the top of the source tree, where
the build runs.

``DWS_SANITIZE=1`` in the environment builds the extension with
AddressSanitizer and UndefinedBehaviorSanitizer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from cffi import FFI

sys.path.insert(0, "src/pymod")

from flux_k8s.errors import DWSError as DWSError  # noqa: E402
from flux_k8s.version import OLDEST_FLUX, check_flux  # noqa: E402

STANDIN = "src/standin"
CFLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra"]
CFLAGS += ["-Wno-unused-parameter", "-Werror"]
CFLAGS += [f'-DDWS_OLDEST_FLUX="{OLDEST_FLUX}"']
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
SANITIZE += ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]

HOST_CDEF = """
    extern "Python+C" int standin_host_call (void *host,
                                             const char *op,
                                             const char *args,
                                             char **result);
    char *standin_strdup (const char *s);
    void standin_free (char *s);
"""


def pkg_config(*args: str) -> Optional[list[str]]:
    """What pkg-config prints, split; None if it does not know the packages.

    A Flux that is on PATH has its pkg-config files beside it, often in a place
    where pkg-config does not look by itself.
    """
    env = dict(os.environ)
    flux = shutil.which("flux")
    if flux:
        prefix = Path(flux).resolve().parents[1]
        places = [str(path) for path in sorted(prefix.glob("lib*/pkgconfig"))]
        places += [str(path) for path in sorted(prefix.glob("lib/*/pkgconfig"))]
        given = env.get("PKG_CONFIG_PATH")
        env["PKG_CONFIG_PATH"] = os.pathsep.join([given] * bool(given) + places)
    try:
        done = subprocess.run(
            [env.get("PKG_CONFIG", "pkg-config"), *args],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return shlex.split(done.stdout)


@dataclass(frozen=True)
class Component:
    """One plugin, and the extension that hosts it.

    Attributes:
        extension: the Python module, as in ``rabbitsim._jobtap``.
        plugin: the file that Flux loads.
        directory: where that is installed, below the prefix.
        sources: the C files that ship.
        headers: the headers that ``sources`` include besides those of Flux.
        host_sources: the files of the stand-in libflux that host it.
        host_header: the header with the declarations of ``cdef``.
        cdef: the declarations of the functions that Python calls.
    """

    extension: str
    plugin: str
    directory: str
    sources: list[str]
    headers: list[str]
    host_sources: list[str]
    host_header: str
    cdef: str

    def ffi(self) -> FFI:
        """The extension, for setuptools' ``cffi_modules``."""
        sanitize = SANITIZE if os.environ.get("DWS_SANITIZE") == "1" else []
        ffi = FFI()
        ffi.cdef(HOST_CDEF + self.cdef)
        ffi.set_source(
            self.extension,
            f'#include "host.h"\n#include "{self.host_header}"\n',
            sources=self.sources + self.host_sources,
            depends=self.headers + sorted(map(str, Path(STANDIN).rglob("*.h"))),
            include_dirs=[STANDIN],
            extra_compile_args=CFLAGS
            + (pkg_config("--cflags", "jansson") or [])
            + sanitize,
            extra_link_args=(pkg_config("--libs", "jansson") or ["-ljansson"])
            + sanitize,
        )
        return ffi

    def plugin_command(self, output: str, version: str = "unknown") -> list[str]:
        """The compiler's command line for the plugin, which says that it is of this
        version."""
        cflags, libs = flux_flags()
        return [
            *shlex.split(os.environ.get("CC", "cc")),
            *CFLAGS,
            *shlex.split(os.environ.get("CFLAGS", "")),
            "-fPIC",
            "-shared",
            f'-DDWS_VERSION="{version}"',
            *cflags,
            *self.sources,
            *shlex.split(os.environ.get("LDFLAGS", "")),
            *libs,
            "-o",
            output,
        ]


def of_flux(option: str) -> Optional[list[str]]:
    """What pkg-config prints of Flux and jansson; None without Flux.

    Raises:
        DWSError: the Flux is too old.
    """
    for version in pkg_config("--modversion", "flux-core") or []:
        check_flux(version)
    return pkg_config(option, "flux-core", "jansson")


def flux_flags() -> tuple[list[str], list[str]]:
    """The compiler's and the linker's flags for a plugin. Without Flux the
    stand-in headers serve; ``flux_*`` stay undefined until Flux loads it."""
    cflags = of_flux("--cflags")
    libs = of_flux("--libs")
    if cflags is not None and libs is not None:
        return cflags, libs
    return (
        [f"-I{STANDIN}", *(pkg_config("--cflags", "jansson") or [])],
        pkg_config("--libs", "jansson") or ["-ljansson"],
    )


def check_command() -> Optional[list[str]]:
    """The command line that shows that the stand-in declarations agree with
    Flux's; None without Flux's headers."""
    cflags = of_flux("--cflags")
    if cflags is None:
        return None
    return [
        *shlex.split(os.environ.get("CC", "cc")),
        *CFLAGS,
        *cflags,
        "-fsyntax-only",
        f"{STANDIN}/check.c",
    ]
