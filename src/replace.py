# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Put a virtual environment in the place of another one, for ``src/install.sh``.

usage: python replace.py NEW DEST

NEW is a folder in DEST. What is in it takes the places of files and folders of the same
names in DEST, each by two renames: nothing is away for longer than that. Others in DEST
stay. Scripts in NEW have its path in them, and get that of DEST.

What was in DEST is in NEW/.before until all is done: ``src/install.sh`` puts it back
when this is killed.
"""

import os
import shutil
import sys
from pathlib import Path


def move_scripts(new: Path, dest: Path) -> None:
    """Replace the path of NEW in the files that have it: the others have relative ones,
    and Python corrects those in what it has compiled."""
    for path in [new / "pyvenv.cfg", *(new / "bin").iterdir()]:
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            path.write_bytes(data.replace(os.fsencode(new), os.fsencode(dest)))


def replace(new: Path, dest: Path) -> None:
    """Have what is in NEW take its places in DEST."""
    before = new / ".before"
    before.mkdir()
    for path in list(new.iterdir()):
        if path != before:
            if os.path.lexists(dest / path.name):
                (dest / path.name).rename(before / path.name)
            path.rename(dest / path.name)
    before.rename(new / ".old")
    shutil.rmtree(new, ignore_errors=True)  # a job may have some of it open, on NFS


if __name__ == "__main__":
    new, dest = map(Path, sys.argv[1:])
    move_scripts(new, dest)
    replace(new, dest)
