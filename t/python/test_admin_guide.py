# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What the commands of the administrator's guide leave behind."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from support.tree import TOP

KUBECTL = """#!/bin/sh
case "$*" in
"create token "*) echo secret ;;
"config --kubeconfig="*) echo "$*" >>"${2#*=}" ;;
esac
"""


def test_nobody_else_can_read_the_token_where_the_guide_is_followed(
    tmp_path: Path,
) -> None:
    programs, site = tmp_path / "bin", tmp_path / "site"
    programs.mkdir()
    site.mkdir()
    for name, text in (("kubectl", KUBECTL), ("chown", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    guide = (TOP / "doc/admin.md").read_text()
    _, _, section = guide.partition("\n## Credentials for Kubernetes\n")
    section, _, _ = section.partition("\n## ")
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    seen = set()
    for block in blocks:
        script = "umask 022\n" + block.replace("/etc/flux/system", str(site))
        command = ["sh", "-e", "-c", script]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        for file in tmp_path.glob("**/*"):
            if file.is_file() and file.parent != programs:
                if "secret" in file.read_text():
                    seen.add(file.name)
                    assert file.stat().st_mode & 0o077 == 0, file
    assert seen == {"token", "kubeconfig"}
    assert not (tmp_path / "token").exists()
