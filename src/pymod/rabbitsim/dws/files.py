# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The file systems: real directories that stand for storage on Rabbits.

Below a scratch directory::

    mnt/nnf/<workflow uid>-<directive>   storage of a job, while it has it
    persistent/<name>                    persistent storage
    lustre/                              the global file system /lustre

All compute nodes of the stand-in share one machine, so what would be one file
system per compute node (XFS, GFS2) is one directory here.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Protocol

CHUNK = 1 << 20


class CopyError(Exception):
    """Data movement that failed; the message says what and why."""


@dataclass
class Progress:
    """The progress of a copy. ``bytes_total`` has the bytes of the whole copy."""

    files: int = 0
    directories: int = 0
    links: int = 0
    bytes: int = 0
    bytes_total: int = 0


class Copy(Protocol):
    """Data movement under way."""

    progress: Progress

    @property
    def pause(self) -> float:
        """Seconds after a step until the next one is of use."""

    def step(self, limit: int) -> bool:
        """Copy about ``limit`` bytes more. True when all is done. Raises
        :class:`CopyError`."""


class FileSystems(Protocol):
    """The file systems, as the controllers see them."""

    roots: tuple[str, ...]
    """The global file systems that data may be copied from and to."""

    def mount_path(self, uid: str, index: int) -> str: ...

    def create(self, path: str, size: Optional[int] = None) -> None:
        """Make a job's storage: a directory, or a file of ``size`` bytes."""

    def create_persistent(self, name: str, size: Optional[int] = None) -> None: ...

    def attach(self, path: str, name: str) -> None:
        """Make persistent storage visible to a job at ``path``."""

    def remove(self, path: str) -> None: ...

    def remove_persistent(self, name: str) -> None: ...

    def copy(self, source: str, destination: str, variables: Mapping[str, str]) -> Copy:
        """Begin data movement; ``$DW_JOB_x`` and ``$DW_PERSISTENT_x`` in the
        paths come from ``variables``. Raises :class:`CopyError`."""


class NoCopy:
    """A copy of ``size`` bytes that exist on paper only, for runs without files."""

    pause = 0.0

    def __init__(self, size: int = 0) -> None:
        self.progress = Progress(files=1 if size else 0, bytes_total=size)

    def step(self, limit: int) -> bool:
        progress = self.progress
        progress.bytes = min(progress.bytes + limit, progress.bytes_total)
        return progress.bytes == progress.bytes_total


class NoFiles:
    """Storage that exists on paper only, for runs in virtual time.

    Args:
        size: the bytes of each copy.
    """

    def __init__(self, roots: tuple[str, ...] = ("/lustre",), *, size: int = 0) -> None:
        self.roots = roots
        self._size = size

    def mount_path(self, uid: str, index: int) -> str:
        return f"/mnt/nnf/{uid}-{index}"

    def create(self, path: str, size: Optional[int] = None) -> None: ...

    def create_persistent(self, name: str, size: Optional[int] = None) -> None: ...

    def attach(self, path: str, name: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_persistent(self, name: str) -> None: ...

    def copy(self, source: str, destination: str, variables: Mapping[str, str]) -> Copy:
        return NoCopy(self._size)


class Files:
    """Storage that consists of real directories.

    Args:
        scratch: the directory to keep them in; it is made when missing.
        filesystems: the global file systems: what users call them (``/lustre``)
            and the real directory of each. By default ``/lustre`` is
            ``<scratch>/lustre``.
    """

    def __init__(
        self, scratch: Path, filesystems: Optional[Mapping[str, Path]] = None
    ) -> None:
        self.scratch = Path(scratch).resolve()
        self._mounts = self.scratch / "mnt" / "nnf"
        self._persistent = self.scratch / "persistent"
        chosen = filesystems or {"/lustre": self.scratch / "lustre"}
        self.filesystems = {
            posixpath.normpath(name): Path(path).resolve()
            for name, path in chosen.items()
        }
        self.roots = tuple(self.filesystems)
        for path in (self._mounts, self._persistent, *self.filesystems.values()):
            path.mkdir(parents=True, exist_ok=True)

    def mount_path(self, uid: str, index: int) -> str:
        return str(self._mounts / f"{uid}-{index}")

    def create(self, path: str, size: Optional[int] = None) -> None:
        _make(Path(path), size)

    def create_persistent(self, name: str, size: Optional[int] = None) -> None:
        _make(self._persistent / name, size)

    def attach(self, path: str, name: str) -> None:
        if not os.path.islink(path):
            os.symlink(self._persistent / name, path)

    def remove(self, path: str) -> None:
        _remove(Path(path))

    def remove_persistent(self, name: str) -> None:
        _remove(self._persistent / name)

    def copy(self, source: str, destination: str, variables: Mapping[str, str]) -> Copy:
        origin = self._resolve(source, variables)
        target = self._resolve(destination, variables)
        if not os.path.lexists(origin):
            raise CopyError(f"source '{source}' does not exist")
        into = destination.endswith("/") or target.is_dir()
        contents = source.endswith("/") and origin.is_dir()
        if into and not contents:
            target = target / origin.name
        real = os.path.realpath(target)
        if real == os.path.realpath(origin) or (
            real.startswith(os.path.realpath(origin) + os.sep)
        ):
            raise CopyError(f"destination '{destination}' lies in source '{source}'")
        return TreeCopy(origin, target)

    def _resolve(self, text: str, variables: Mapping[str, str]) -> Path:
        """The real path for a path in a directive. It must lie in the file
        system that it names, also after following ``..`` and symbolic links."""
        root, rest = self._split(text, variables)
        path = root / posixpath.normpath("/" + rest).lstrip("/")
        top = os.path.realpath(root)
        real = os.path.realpath(path)
        if ".." in rest.split("/") or (
            real != top and not real.startswith(top + os.sep)
        ):
            raise CopyError(f"'{text}' leads out of its file system")
        return Path(real)

    def _split(self, text: str, variables: Mapping[str, str]) -> tuple[Path, str]:
        if text.startswith("$"):
            variable, _, rest = text[1:].partition("/")
            if variable not in variables:
                raise CopyError(f"'{text}': there is no storage ${variable}")
            return Path(variables[variable]), rest
        name = global_root(text, self.roots)
        if name is None:
            raise CopyError(
                f"'{text}' is in none of the file systems {', '.join(self.roots)}"
            )
        return self.filesystems[name], posixpath.normpath(text)[len(name) :]


def global_root(path: str, roots: tuple[str, ...]) -> Optional[str]:
    """The longest of ``roots`` that ``path`` lies in, or None."""
    normal = posixpath.normpath(path)
    found = [r for r in roots if normal == r or normal.startswith(r + "/")]
    return max(found, key=len, default=None)


class TreeCopy:
    """Copies a file or a tree, a bounded amount at a time.

    Symbolic links are copied as links; what is neither file, directory nor
    link is left out. What is at the destination already is written over.
    """

    pause = 0.0

    def __init__(self, source: Path, destination: Path) -> None:
        self.progress = Progress()
        self._work = self._run(source, destination)
        self._budget = 0
        self._failure = ""

    def step(self, limit: int) -> bool:
        self._budget = limit
        try:
            while self._budget > 0 and not self._failure:
                next(self._work)
        except StopIteration:
            return True
        except OSError as exc:
            self._failure = f"{exc.filename or 'copy'}: {exc.strerror}"
        # A generator that has raised is at its end, and the next step would be too.
        if self._failure:
            raise CopyError(self._failure)
        return False

    def _run(self, source: Path, destination: Path) -> Iterator[None]:
        entries = []
        for path in _walk(source):
            info = path.lstat()
            self.progress.bytes_total += info.st_size if _is_file(info) else 0
            entries.append((path, info))
            yield from self._spend(CHUNK // 64)
        destination.parent.mkdir(parents=True, exist_ok=True)
        for path, info in entries:
            yield from self._copy(path, destination / path.relative_to(source), info)

    def _copy(self, path: Path, to: Path, info: os.stat_result) -> Iterator[None]:
        if stat.S_ISDIR(info.st_mode):
            to.mkdir(exist_ok=True)
            self.progress.directories += 1
        elif stat.S_ISLNK(info.st_mode):
            if os.path.lexists(to):
                to.unlink()
            to.symlink_to(os.readlink(path))
            self.progress.links += 1
        elif _is_file(info):
            yield from self._copy_file(path, to)
            shutil.copystat(path, to)
            self.progress.files += 1
        yield from self._spend(CHUNK // 16)

    def _copy_file(self, path: Path, to: Path) -> Iterator[None]:
        if os.path.islink(to):
            to.unlink()
        with open(path, "rb") as reader, open(to, "wb") as writer:
            while True:
                block = reader.read(CHUNK)
                if not block:
                    return
                writer.write(block)
                self.progress.bytes += len(block)
                yield from self._spend(len(block))

    def _spend(self, cost: int) -> Iterator[None]:
        """Every yield ends a turn of :meth:`step`'s loop, and costs something,
        so that a million empty files do not count as nothing."""
        self._budget -= cost
        if self._budget <= 0:
            yield


def _is_file(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode)


def _walk(top: Path) -> Iterator[Path]:
    """``top`` and all below it, parents first, in order of names. Symbolic
    links are not followed below ``top``."""
    yield top
    if top.is_symlink() or not top.is_dir():
        return
    for name in sorted(os.listdir(top)):
        yield from _walk(top / name)


def _make(path: Path, size: Optional[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if size is None:
        path.mkdir(exist_ok=True)
    elif not path.exists():
        with open(path, "wb") as file:
            file.truncate(size)  # sparse: it takes no space


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path, ignore_errors=True)
