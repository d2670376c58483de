# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Find a kubeconfig, read the context that it selects, and check it.

The ``kubernetes`` package (31 and 37 were tried) reads a kubeconfig as well, but does
not check it. It accepts a missing user, a server that is missing or has no scheme, and
a token that is a list: requests would be sent without credentials, or to
http://localhost. For malformed base64 and values of a wrong type it raises an exception
of Python's that names neither file nor key. The errors of this module name both, and
never a value that could be a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import urlsplit

import yaml

from flux_k8s.errors import ConfigError
from flux_k8s.ports import Json

KEY = "rabbit.kubeconfig"


@dataclass(frozen=True)
class Kubeconfig:
    """One context of a kubeconfig, with the contents of the files that it names.

    Attributes:
        origin: the path of the kubeconfig, for messages.
        server: the API server's URL, without a slash at its end.
        ca: PEM certificates to trust, or None for those of the system.
        certificate: PEM client certificate, or None.
        key: PEM key of the client certificate, or None.
        insecure: whether to accept any certificate of the server.
        server_name: the name that the server's certificate must have; None for the
            name in the URL.
        proxy: URL of an HTTP proxy, or None.
        user: the rest of the user's entry, with absolute paths.
    """

    origin: str
    server: str
    ca: Optional[bytes]
    certificate: Optional[bytes]
    key: Optional[bytes]
    insecure: bool
    server_name: Optional[str]
    proxy: Optional[str]
    user: Json

    def __repr__(self) -> str:
        return f"Kubeconfig({self.origin!r})"

    @property
    def asks_others(self) -> bool:
        """Whether a plugin or an identity provider gives the credentials. Either may
        take any time."""
        return "exec" in self.user or "auth-provider" in self.user

    @property
    def is_fixed(self) -> bool:
        """Whether the kubeconfig itself has the credentials, which then do not change
        unless it does."""
        return not self.asks_others and "tokenFile" not in self.user


@dataclass(frozen=True)
class _Entry:
    """A cluster, context or user of a kubeconfig.

    Attributes:
        what: the kind and the name of the entry, for messages.
        file: the path of the kubeconfig.
        value: the entry.
    """

    what: str
    file: str
    value: Json

    def wrong(self, problem: str) -> ConfigError:
        """The error to raise for this entry."""
        return ConfigError(KEY, f"{self.file}: {self.what}: {problem}")

    def text(self, key: str) -> Optional[str]:
        """The string at ``key``; None when it is missing or empty."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"{key} must be a string")
        return value or None

    def path(self, key: str) -> Optional[str]:
        """The path at ``key``, which is relative to the kubeconfig."""
        path = self.text(key)
        return path and os.path.join(os.path.dirname(self.file), path)

    def data_or_file(self, key: str) -> Optional[bytes]:
        """The content of ``<key>-data``, or else of the file at ``key``."""
        data = self.text(key + "-data")
        if data is not None:
            try:
                return base64.b64decode(data, validate=False)
            except (binascii.Error, ValueError):
                raise self.wrong(f"{key}-data is not base64") from None
        path = self.path(key)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise self.wrong(f"{key}: {path}: {error.strerror}") from None


def read(path: Optional[str]) -> Optional[Kubeconfig]:
    """The current context of the kubeconfig ``path``.

    ``path`` None stands for the default of kubectl: the files of ``KUBECONFIG``, else
    ``~/.kube/config``, else the service account of the pod that this process runs in.
    For a service account the result is None.

    Raises:
        ConfigError: there is no kubeconfig, or it is invalid.
    """
    files = _find(path)
    if not files:
        return None
    contents = [(file, _parse(file)) for file in files]
    selected = [c.get("current-context") for _, c in contents]
    name = next((s for s in selected if s), None)
    origin = os.pathsep.join(files)
    if not isinstance(name, str):
        raise ConfigError(KEY, f"{origin}: no current-context is set")
    context = _entry(contents, "context", name, f"{origin}: current-context")
    cluster_name = context.text("cluster")
    if cluster_name is None:
        raise context.wrong("no cluster is named")
    where = f"{context.file}: {context.what}"
    cluster = _entry(contents, "cluster", cluster_name, where)
    user_name = context.text("user")
    if user_name is None:
        user = _Entry("user", context.file, {})
    else:
        user = _entry(contents, "user", user_name, where)
    return _combine(origin, cluster, user)


def _find(path: Optional[str]) -> list[str]:
    if path is not None:
        return [os.path.expanduser(path)]
    named = os.environ.get("KUBECONFIG") or os.path.join("~", ".kube", "config")
    paths = [os.path.expanduser(p) for p in named.split(os.pathsep) if p]
    files = [p for p in paths if os.path.exists(p)]
    if not files and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise ConfigError(
            KEY,
            f"none is given, none is at {os.pathsep.join(paths)} (KUBECONFIG names"
            " another), and this is no pod with a service account",
        )
    return files


def _parse(file: str) -> Json:
    try:
        with open(file, encoding="utf-8") as stream:
            content = yaml.safe_load(stream)
    except OSError as error:
        raise ConfigError(KEY, f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(KEY, f"{file}: is not text in UTF-8") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(KEY, f"{file}: is not YAML{where}") from None
    if not isinstance(content, dict) or not _looks_right(content):
        raise ConfigError(
            KEY,
            f"{file}: is not a kubeconfig, which has lists of clusters, contexts"
            " and users, and a current-context",
        )
    return content


def _looks_right(content: Json) -> bool:
    lists = [content.get(k) or [] for k in ("clusters", "contexts", "users")]
    return any(lists) and all(isinstance(value, list) for value in lists)


def _entry(contents: list[tuple[str, Json]], noun: str, name: str, user: str) -> _Entry:
    """The entry ``name`` of kind ``noun``, from the first file that has it. ``user`` is
    the subject of the error message if no file has it."""
    for file, content in contents:
        for item in content.get(noun + "s") or []:
            if not isinstance(item, dict) or item.get("name") != name:
                continue
            entry = _Entry(f"{noun} {name}", file, item)
            value = item.get(noun)
            if not isinstance(value, dict):
                raise entry.wrong(f"{noun} must be a mapping")
            return _Entry(entry.what, file, value)
    raise ConfigError(KEY, f"{user} names the {noun} {name}, which is not there")


def _combine(origin: str, cluster: _Entry, user: _Entry) -> Kubeconfig:
    server = cluster.text("server")
    if server is None or not _is_url(server):
        raise cluster.wrong("server must be a URL that begins with https://")
    proxy = cluster.text("proxy-url")
    if proxy is not None and not _is_url(proxy):
        raise cluster.wrong("proxy-url must begin with http:// or https://")
    certificate = user.data_or_file("client-certificate")
    key = user.data_or_file("client-key")
    if (certificate is None) != (key is None):
        raise user.wrong("client-certificate and client-key need each other")
    return Kubeconfig(
        origin=origin,
        server=server.rstrip("/"),
        ca=cluster.data_or_file("certificate-authority"),
        certificate=certificate,
        key=key,
        insecure=cluster.value.get("insecure-skip-tls-verify") is True,
        server_name=cluster.text("tls-server-name"),
        proxy=proxy,
        user=_user(user),
    )


def _is_url(text: str) -> bool:
    """Whether this is a URL of HTTP with a host, which libcurl understands."""
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # the port is no number, or a bracket is missing
        return False
    return bool(usable) and text.isascii() and text.isprintable()


def _user(entry: _Entry) -> Json:
    """The entry of a user, without certificates, with absolute paths."""
    user: dict[str, Any] = {
        key: value
        for key, value in entry.value.items()
        if not str(key).startswith("client-") and value not in (None, "")
    }
    for key in ("token", "username", "password"):
        entry.text(key)
    token_file = entry.path("tokenFile")
    if token_file is not None:
        if not os.access(token_file, os.R_OK):
            raise entry.wrong(f"tokenFile: {token_file}: cannot be read")
        user["tokenFile"] = token_file
    plugin = user.get("exec")
    if plugin is not None:
        user["exec"] = _plugin(entry, plugin)
    return user


def _plugin(entry: _Entry, plugin: Any) -> Json:
    if not isinstance(plugin, dict) or not isinstance(plugin.get("command"), str):
        raise entry.wrong("exec must be a mapping with a command")
    if not isinstance(plugin.get("apiVersion"), str):
        raise entry.wrong("exec must have an apiVersion")
    command = plugin["command"]
    if os.path.dirname(command):
        command = os.path.join(os.path.dirname(entry.file), command)
    if shutil.which(command) is None:
        raise entry.wrong(f"exec: {command}: no such command")
    return {**plugin, "command": command}
