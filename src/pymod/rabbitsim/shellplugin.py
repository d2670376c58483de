# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The shipped job shell plugin, hosted outside of Flux."""

from __future__ import annotations

import errno
from typing import Any, Iterable, Iterator, Mapping, Optional, Protocol, Union

from rabbitsim._shell import ffi, lib
from rabbitsim.jobtap import answer_host_call


class ShellPluginError(Exception):
    """The shell plugin ended the shell (``shell_die``), or failed."""


class ShellHost(Protocol):
    """One job shell as the plugin sees it. Errors: ``OSError(errno, text)``.

    The plugin reads the eventlog in order and stops at ``dws_environment``, or
    at ``start`` or the end, which say that there will be none.

    Attributes:
        info: the object for ``flux_shell_info_unpack``: ``jobid``, ``rank`` (of
            the shell), ``ntasks``, ``service``, ``options``, ``jobspec``, ``R``.
        jobspec: the jobspec, also at ``info["jobspec"]``.
    """

    @property
    def info(self) -> Mapping[str, Any]: ...

    @property
    def jobspec(self) -> Mapping[str, Any]: ...

    def eventlog(self, jobid: int) -> Iterable[Optional[Mapping[str, Any]]]:
        """The job's eventlog (RFC 18), as ``job-info.eventlog-watch`` streams
        it: first the events so far, then new ones as they are posted, until the job
        has ended. A list of the events so far will do. None is an event that does
        not come in time."""

    def kvs_lookup(self, jobid: int, key: str, leader: bool = False) -> str:
        """What a key of the job's KVS directory has, as ``job-info.lookup`` tells
        the job's user, on the broker of the shell or on rank 0, the leader."""

    def posted(self, jobid: int) -> list[Mapping[str, Any]]:
        """The events so far, as ``job-manager.getattr`` tells the job's user."""

    def setenv(self, name: str, value: str) -> None:
        """Set a variable in the environment that tasks will get."""

    def log(self, level: int, message: str) -> None:
        """Log a line. ``level`` as in :mod:`syslog`."""


def run_shell_init(host: ShellHost) -> None:
    """Load the plugin into a shell and run its ``shell.init`` handler.

    Raises:
        ShellPluginError: the plugin refuses to let tasks start. Its text is
            the last line that the plugin logged.
    """
    _run(host, to_the_end=False)


def run_shell(host: ShellHost) -> None:
    """As :func:`run_shell_init`, and the ``shell.exit`` handler as well: the tasks end
    at once."""
    _run(host, to_the_end=True)


def _run(host: ShellHost, to_the_end: bool) -> None:
    shell = _Shell(host)
    handle = ffi.new_handle(shell)
    rc = lib.standin_shell_run(handle, to_the_end)
    if shell.failure is not None:
        raise shell.failure
    if rc < 0:
        raise ShellPluginError(shell.message)


class _Shell:
    """The operations that the stand-in libflux calls."""

    def __init__(self, host: ShellHost) -> None:
        self.failure: Optional[Exception] = None
        self.message = ""
        self._host = host
        self._events: Iterator[Optional[Mapping[str, Any]]] = iter(())
        self._next: Union[Mapping[str, Any], OSError] = {}

    def host_call(self, operation: str, args: dict[str, Any]) -> Any:
        return getattr(self, "_" + operation)(**args)

    def host_failed(self, failure: Exception) -> None:
        self.failure = failure

    def _info(self) -> dict[str, Any]:
        return dict(self._host.info)

    def _setenv(self, name: str, value: str) -> None:
        self._host.setenv(name, value)

    def _rpc(self, topic: str, leader: bool, payload: dict[str, Any]) -> dict[str, Any]:
        if topic == "job-manager.getattr":
            return {"eventlog": self._host.posted(payload["id"])}
        if topic != "job-info.lookup":
            raise OSError(errno.ENOSYS, f"no service matching {topic} is registered")
        lookup, jobid = self._host.kvs_lookup, payload["id"]
        where = {"leader": True} if leader else {}
        return {key: lookup(jobid, key, **where) for key in payload["keys"]}

    def _log(self, level: int, message: str) -> None:
        self.message = message
        self._host.log(level, message)

    def _eventlog_watch(self, jobid: int) -> None:
        self._events = iter(self._host.eventlog(jobid))

    def _eventlog_wait(self) -> None:
        try:
            event = next(self._events)
        except StopIteration:
            self._next = OSError(errno.ENODATA, "the job has ended")
        except OSError as error:
            self._next = error
        else:
            if event is None:
                raise TimeoutError(errno.ETIMEDOUT, "no event has come")
            self._next = event

    def _eventlog_next(self) -> dict[str, Any]:
        if isinstance(self._next, OSError):
            raise self._next
        return dict(self._next)


@ffi.def_extern(error=-errno.EIO)  # type: ignore[untyped-decorator]
def standin_host_call(host: Any, operation: Any, args: Any, result: Any) -> int:
    return answer_host_call(ffi, lib, host, operation, args, result)
