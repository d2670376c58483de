# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is built, what it links to, and where it is installed (make soak)."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Optional

import pytest

from support.compiled import readelf
from support.effort import night
from support.tree import TOP, copy_sources, quick_compiler

pytestmark = night

PAGES = runpy.run_path(str(TOP / "doc/manpages.py"))["MAN_PAGES"]
PLACES = {
    "dws-jobtap.so": "lib/flux/job-manager/plugins/dws-jobtap.so",
    "dws_environment.so": "lib/flux/shell/plugins/dws_environment.so",
}


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of a commit with the tag v1.2.3, unpacked."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("sdist")
    sources = copy_sources(folder / "sources")
    for name in (".gitattributes", ".git_archival.txt"):
        shutil.copy(TOP / name, sources)
    commit(sources)
    git(sources, "tag", "v1.2.3")
    run_setup(sources, "sdist", "-d", str(folder))
    (archive,) = folder.glob("flux_dws-*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name[: -len(".tar.gz")]


@pytest.fixture(scope="module")
def wheel(
    source_distribution: Path, tmp_path_factory: pytest.TempPathFactory
) -> zipfile.ZipFile:
    """The wheel that is built of the source distribution."""
    pytest.importorskip("wheel", reason="the wheel package is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    environment = quick_compiler(folder)
    run_setup(source_distribution, "bdist_wheel", "-d", str(folder), env=environment)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def run_setup(folder: Path, *words: str, env: Optional[dict[str, str]] = None) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *words],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def data_files(wheel: zipfile.ZipFile) -> list[str]:
    return [
        name.split(".data/data/")[1]
        for name in wheel.namelist()
        if ".data/data/" in name
    ]


def test_a_wheel_puts_everything_where_flux_looks(wheel: zipfile.ZipFile) -> None:
    files = set(data_files(wheel))
    commands = {f"libexec/flux/cmd/{p.name}" for p in (TOP / "src/cmd").glob("flux-*")}
    pages = {f"share/man/man{section}/{name}.{section}" for name, section, _ in PAGES}
    site = {
        f"etc/flux/{path.relative_to(TOP / 'etc')}".replace(
            "etc/flux/examples", "share/doc/flux-dws"
        ).replace("etc/flux/xdg", "etc/xdg")
        for path in (TOP / "etc").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    others = {"lib/flux/modules/dws.py", "share/flux/help.d/dws.json"}
    assert commands | pages | site | others | set(PLACES.values()) <= files
    places = (
        "(lib/flux|libexec/flux/cmd|etc/flux|etc/xdg/flux"
        "|share/(doc/flux-dws|flux/help.d|man))/"
    )
    assert [name for name in files if not re.match(places, name)] == []


def test_a_wheel_has_the_extensions_and_the_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    for extension in ("_jobtap", "_shell"):
        assert [n for n in names if re.match(rf"rabbitsim/{extension}\..*so$", n)]
    assert [name for name in names if name.endswith("COPYING.LESSER")]
    (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
    text = wheel.read(metadata).decode()
    assert "LGPL-3.0-only" in text and "Requires-Python: >=3.9" in text


@pytest.mark.parametrize("plugin", PLACES)
def test_a_plugin_needs_no_python(
    wheel: zipfile.ZipFile, plugin: str, tmp_path: Path
) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith(PLACES[plugin]))
    path = wheel.extract(name, tmp_path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path))
    assert needed and not [library for library in needed if "python" in library]
    symbols = readelf("--dyn-syms", path)
    assert not re.search(r" UND _?Py", symbols)
    assert re.search(r"FUNC .* \d+ flux_plugin_init$", symbols, re.M)


# make install WHEELS=DIR


class Node:
    """A compute node that has a Flux, but neither a network nor a compiler."""

    TOOLS = (
        "basename cat chmod dirname env find grep ln ls make mkdir readlink realpath"
        " rm rmdir sed sh test mv touch flock"
    )

    def __init__(self, folder: Path) -> None:
        self.places = folder / "flux"
        self.destination = folder / "flux-dws"
        self.python = sys.executable
        tools = folder / "bin"
        tools.mkdir()
        for tool in self.TOOLS.split():
            found = shutil.which(tool)
            if found is None:
                pytest.skip(f"{tool} is not installed")
            (tools / tool).symlink_to(found)
        self.flux = tools / "flux"
        self.make_flux(sys.executable)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MAKE", "MFLAGS", "PIP_"))
        }
        nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0"}
        nowhere["PIP_NO_COMPILE"] = "1"  # pip takes longer for that than for all else
        self.environment = {
            **kept,
            **nowhere,
            "PATH": str(tools),
            "PIP_CONFIG_FILE": os.devnull,
            "XDG_CONFIG_DIRS": str(self.places / "xdg"),
        }

    def make_flux(self, python: str) -> None:
        """Have a Flux whose modules run under this Python."""
        self.flux.write_text(
            f'#!/bin/sh\nif test "$1" = python; then shift; exec {python} "$@"; fi\n'
            f'echo "{self.places}/$3"\n'
        )
        self.flux.chmod(0o755)

    def copy_environments(self, folder: Path) -> None:
        """Have virtual environments copied from one that has the pip of this: it takes
        seconds to install pip."""
        venv.create(folder, symlinks=True)
        base = {"base": str(folder), "platbase": str(folder)}
        library = sysconfig.get_path("purelib", vars=base)
        for path in Path(sysconfig.get_path("purelib")).glob("pip*"):
            shutil.copytree(path, Path(library) / path.name)
        script = folder / "python"
        script.write_text(
            "#!/bin/sh\n"
            'if test "$1 $2" = "-m venv"; then\n'
            f'    exec {shutil.which("cp")} -Rp {folder}/. "$3"\n'
            "fi\n"
            f'exec {sys.executable} "$@"\n'
        )
        script.chmod(0o755)
        self.python = str(script)

    def make(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["make", f"PYTHON={self.python}", f"DEST={self.destination}"]
        return subprocess.run(
            [*command, *args],
            cwd=TOP,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def install(self, wheels: Path) -> None:
        done = self.make("install", f"WHEELS={wheels}")
        next_step = 'next: "Load it" in doc/admin.md'
        said = f"installed into {self.destination}; {next_step}\n"
        assert (done.returncode, done.stdout) == (0, said)

    def refusal(self, *args: str) -> str:
        """What make says that fails, but for its own line."""
        done = self.make(*args)
        assert done.returncode != 0, done.stdout
        lines = done.stdout.splitlines()
        said = [line for line in lines if not line.startswith("make: ")]
        assert len(said) == 1, done.stdout
        return said[0]

    def linked(self) -> list[Path]:
        return [path for path in self.places.rglob("*") if path.is_symlink()]


def empty_wheel(requirement: str, folder: Path) -> None:
    """The wheel of a package of which nothing is there but its name and version."""
    name, version = re.fullmatch(r"(\w+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = f"{name}-{version}.dist-info"
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(wheel: zipfile.ZipFile, tmp_path: Path) -> Path:
    """A folder with the wheels of flux-dws and of what it needs."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    shutil.copy(str(wheel.filename), folder)
    (metadata,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    text = wheel.read(metadata).decode()
    needed = re.findall(r"^Requires-Dist: ([^;\n]+)$", text, re.M)
    assert {"pycurl>=7.45.3", "pyyaml>=6"} <= set(needed)
    for requirement in needed:
        empty_wheel(requirement, folder)
    return folder


def test_a_node_without_network_and_compiler_installs_from_a_folder_of_wheels(
    wheels: Path, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    node.copy_environments(tmp_path / "venv")
    (kubernetes,) = wheels.glob("kubernetes-*")
    kubernetes.rename(tmp_path / kubernetes.name)
    done = node.make("install", f"WHEELS={wheels}")
    assert done.returncode != 0 and "kubernetes" in done.stdout, done.stdout
    assert f"install.sh: WHEELS={wheels}: lacks what pip names" in done.stdout
    assert not node.linked() and not node.destination.exists()

    (tmp_path / kubernetes.name).rename(kubernetes)
    copying, node.python = node.python, sys.executable
    node.install(wheels)
    node.python = copying
    assert not (node.destination / ".new").exists()
    script = (node.destination / "bin/pip").read_text()
    assert script.startswith(f"#!{node.destination}/bin/python")
    plugin = node.destination / PLACES["dws-jobtap.so"]
    assert plugin.exists()
    linked = {str(path.relative_to(node.places)) for path in node.linked()}
    assert {"module_path/dws.py", "python_path/flux_k8s"} <= linked
    assert "man_path/man1/flux-dws.1" in linked
    assert all(path.exists() for path in node.linked())

    plugin.unlink()
    node.install(wheels)
    assert plugin.exists() and all(path.exists() for path in node.linked())

    done = node.make("uninstall")
    assert (done.returncode, done.stdout) == (0, "")
    left = [path for path in node.places.rglob("*") if not path.is_dir()]
    assert not left and not node.destination.exists()


def installed(wheels: Path, folder: Path) -> Node:
    """A node with a version of flux-dws."""
    node = Node(folder)
    node.copy_environments(folder / "venv")
    node.install(wheels)
    return node


def test_what_is_linked_is_there_while_it_is_installed_again(
    wheels: Path, tmp_path: Path
) -> None:
    """A job that starts meanwhile fails without its plugin, or lacks its storage."""
    node = installed(wheels, tmp_path)
    linked = node.linked()
    with ThreadPoolExecutor() as pool:
        again = pool.submit(node.make, "install", f"WHEELS={wheels}")
        gone: set[Path] = set()
        while not again.done():
            before, gone = gone, {path for path in linked if not path.exists()}
            assert not before & gone
            time.sleep(0.05)
    assert again.result().returncode == 0


def around_replace(node: Node, script: str) -> None:
    """Have the Python of an installation do something else for src/replace.py."""
    python = Path(node.python)
    lines = python.read_text().split("\n", 1)
    case = f'if test "$1" = src/replace.py; then\n{script}\nfi\n'
    python.write_text(f"{lines[0]}\n{case}{lines[1]}")


KILL_IN_REPLACE = f"""exec {sys.executable} -c '
import os, pathlib, runpy, sys
rename, calls = pathlib.Path.rename, []
def until(*args):
    calls.append(args)
    if len(calls) == 4:
        os.kill(os.getpid(), 9)
    return rename(*args)
pathlib.Path.rename = until
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@\""""


@pytest.mark.parametrize("all_die", [False, True])
def test_an_upgrade_that_is_killed_half_way_leaves_the_version_before(
    wheels: Path, tmp_path: Path, all_die: bool
) -> None:
    """As by a machine that has no memory left, or no power."""
    node = installed(wheels, tmp_path)
    before = sorted(node.destination.rglob("*"))
    inode = (node.destination / "lib").stat().st_ino
    healthy = Path(node.python).read_text()
    die = KILL_IN_REPLACE.replace("exec ", "") + "\nkill -9 $PPID" if all_die else ""
    around_replace(node, die or KILL_IN_REPLACE)
    assert node.make("install", f"WHEELS={wheels}").returncode != 0
    if all_die:  # what begins next finds what is left
        Path(node.python).write_text(healthy)
        kubernetes = next(wheels.glob("kubernetes-*"))
        kubernetes.rename(tmp_path / kubernetes.name)
        assert "kubernetes" in node.make("install", f"WHEELS={wheels}").stdout
    assert sorted(node.destination.rglob("*")) == before
    assert (node.destination / "lib").stat().st_ino == inode
    assert all(path.exists() for path in node.linked())


@pytest.mark.parametrize("anew", [False, True])
def test_a_second_installation_at_the_same_time_is_refused(
    wheels: Path, tmp_path: Path, anew: bool
) -> None:
    node = installed(wheels, tmp_path)
    if anew:
        assert node.make("uninstall").returncode == 0
    marks = tmp_path / "begun", tmp_path / "go"
    begin = f"test ! -e {marks[0]} || exit 1; touch {marks[0]}"
    around_replace(node, f"{begin}; until test -e {marks[1]}; do :; done")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(node.make, "install", f"WHEELS={wheels}")
        while not (marks[0].exists() or first.done()):
            time.sleep(0.05)
        try:
            said = node.refusal("install", f"WHEELS={wheels}")
            assert node.refusal("uninstall") == said
        finally:
            marks[1].touch()
    assert said == f"install.sh: DEST={node.destination}: is being installed already"
    assert first.result().returncode == 0, first.result().stdout
    assert all(path.exists() for path in node.linked())


Setup = Callable[[Node, Path], object]


def a_python(node: Node, folder: Path) -> None:
    """That of Flux is another."""
    other = folder / "python"
    other.write_text("#!/bin/sh\necho 3.8\n")
    other.chmod(0o755)
    node.make_flux(str(other))


def below_a_file(node: Node, folder: Path) -> None:
    (folder / "file").touch()
    node.destination = folder / "file/below"


@pytest.mark.parametrize(
    ("setup", "words", "said"),
    [
        (None, "install WHEELS={0}/gone", "WHEELS={0}/gone: is no folder"),
        (
            lambda _, folder: (folder / "flux_dws-0.1.0-cp38-cp38-l.whl").touch(),
            "install WHEELS={0}",
            "flux_dws-0.1.0-cp38-cp38-l.whl is not for Python ",
        ),
        (a_python, "install", ", that of Flux is 3.8"),
        (lambda node, _: node.flux.unlink(), "install", "no flux on PATH"),
        (below_a_file, "install", "DEST={0}/file/below: "),
        # As with a variable that is not set: make install DEST=$WHERE.
        (None, "install DEST=", "install.sh: DEST=: expected a folder"),
        (None, "uninstall DEST=", "install.sh: DEST=: expected a folder"),
        (
            lambda node, _: (node.places / "python_path/flux_k8s").mkdir(parents=True),
            "install",
            "python_path/flux_k8s: is another flux_k8s; remove it first",
        ),
    ],
)
def test_what_cannot_be_installed_is_refused_and_changes_nothing(
    tmp_path: Path, setup: Optional[Setup], words: str, said: str
) -> None:
    node = Node(tmp_path)
    if setup is not None:
        setup(node, tmp_path)
    assert said.format(tmp_path) in node.refusal(*words.format(tmp_path).split())
    assert not node.linked() and not os.path.exists(node.destination)


@pytest.mark.parametrize("target", ["install", "uninstall"])
@pytest.mark.parametrize("file", ["pyvenv.cfg", "bin/ls"])
def test_a_folder_of_others_is_not_touched(
    target: str, file: str, tmp_path: Path
) -> None:
    node = Node(tmp_path)
    path = node.destination / file
    path.parent.mkdir(parents=True)
    path.touch()
    said = node.refusal(target)
    assert said.startswith(f"install.sh: DEST={node.destination}: is ")
    assert said.endswith(" no installation of flux-dws")
    assert [p for p in node.destination.rglob("*") if p.is_file()] == [path]


# Versions


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a version is found out from, in no checkout."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in ("pyproject.toml", ".gitattributes", ".git_archival.txt"):
        shutil.copy(TOP / name, folder / name)
    return folder


def git(folder: Path, *args: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    author = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *author, *args], cwd=folder, env=environment, check=True)


def commit(folder: Path) -> None:
    git(folder, "init", "-q", ".")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "everything")


def version(folder: Path) -> str:
    pytest.importorskip("setuptools_scm")
    done = subprocess.run(
        [sys.executable, "-m", "setuptools_scm"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(
    "$Format" not in (TOP / ".git_archival.txt").read_text(),
    reason="this tree is an archive itself",
)
def test_a_source_distribution_keeps_its_version(
    source_distribution: Path, wheel: zipfile.ZipFile
) -> None:
    assert source_distribution.name == "flux_dws-1.2.3"
    assert version(source_distribution) == "1.2.3"
    assert Path(str(wheel.filename)).name.startswith("flux_dws-1.2.3-")
