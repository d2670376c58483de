# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The shipped job manager plugin, hosted outside of Flux."""

from __future__ import annotations

import errno
import json
from typing import Any, Callable, Mapping, Optional, Protocol

from flux_k8s.ports import Json, Timer
from rabbitsim._jobtap import ffi, lib

RpcDone = Callable[[int, str, Optional[Json]], None]
"""Gets ``errnum`` (0 for success), ``errstr`` and the response's payload."""

KvsDone = Callable[[int, Optional[str]], None]
"""Gets ``errnum`` (0 for success) and the value as it is stored (R: JSON text)."""

Respond = Callable[[int, str, Optional[Json]], None]
"""Gets ``errnum`` (0 for success), ``errstr`` and the payload of the response
that the plugin gave to a request."""


class JobtapHost(Protocol):
    """The job manager as the plugin sees it. Errors: ``OSError(errno, text)``.

    ``done`` functions are never called from within the call they were given to.
    Job IDs are integers. The names are those of flux-jobtap-plugins(7).
    """

    @property
    def owner(self) -> int:
        """The instance owner's user ID."""

    def now(self) -> float:
        """UNIX time in seconds."""

    def call_later(self, delay: float, function: Callable[[], None]) -> Timer: ...

    def log(self, level: int, message: str) -> None:
        """Log a line. ``level`` as in :mod:`syslog`."""

    def rpc(self, topic: str, payload: Optional[Json], done: RpcDone) -> None:
        """Send a request. Besides ``dws.*`` the plugin uses the job manager's
        own ``job-manager.getattr`` ``{"id": jobid, "attrs": ["eventlog"]}``,
        answered by ``{"eventlog": [entries of RFC 18]}``: after it was loaded
        while jobs are active it learns from this how far each is. And
        ``job-info.lookup`` ``{"id": jobid, "keys": [key], "flags": 0}``, answered
        by ``{key: text}``, ENOENT for a job or a key that does not exist."""

    def kvs_lookup(self, key: str, done: KvsDone) -> None:
        """Look up ``key``, as in ``job.0000.0000.0001.0000.R``."""

    def dependency_add(self, jobid: int, description: str) -> None:
        """A dependency that the job already has, or had, changes nothing."""

    def dependency_remove(self, jobid: int, description: str) -> None:
        """ENOENT when the job does not exist or has no such dependency."""

    def prolog_start(self, jobid: int, description: str) -> None: ...

    def prolog_finish(self, jobid: int, description: str, status: int) -> None: ...

    def epilog_finish(self, jobid: int, description: str, status: int) -> None: ...

    def raise_exception(
        self, jobid: int, type: str, severity: int, note: str
    ) -> None: ...

    def event_post(
        self, jobid: int, name: str, context: Optional[Mapping[str, Any]]
    ) -> None: ...

    def jobspec_update(self, jobid: int, updates: Mapping[str, Any]) -> None:
        """Post a ``jobspec-update`` event and apply it; keys are dotted paths.

        EINVAL when the job is in RUN, CLEANUP or INACTIVE, or when called
        from within a callback for that job.
        """

    def job_lookup(self, jobid: int) -> Json:
        """What a callback for the job would get as arguments (``id``,
        ``userid``, ``state``, ``jobspec``...). ENOENT for an unknown job."""

    def event_posted(self, jobid: int, name: str) -> bool:
        """Whether an event of this name was ever posted to the job."""

    def subscribe(self, jobid: int) -> None:
        """From now on ``job.event.*`` is called for events of this job."""

    def unsubscribe(self, jobid: int) -> None: ...


HOST_OPERATIONS = frozenset(
    name for name in vars(JobtapHost) if not name.startswith("_")
) - {"owner", "call_later", "rpc", "kvs_lookup"}
"""The operations that the stand-in libflux calls by name, with their arguments."""

ROLE_OWNER = 1
ROLE_USER = 2


class Plugin:
    """One loaded ``dws-jobtap``.

    Loading calls the plugin's init function and ``conf.update``. The host then
    calls ``job.new`` for each active job, and for those in DEPEND
    ``job.dependency.*`` and ``job.state.depend``, as the job manager does.
    """

    def __init__(self, host: JobtapHost, conf: Optional[Json] = None) -> None:
        """Load the plugin. A bad ``conf`` raises ``OSError`` with the text
        that the plugin gave."""
        self._host = host
        self._timers: dict[int, Timer] = {}
        self._requests: dict[int, Respond] = {}
        self._serial = 0
        self._failure: Optional[Exception] = None
        self._self = ffi.new_handle(self)
        self._flux = ffi.NULL
        text = ffi.NULL if conf is None else json.dumps(conf).encode()
        error = ffi.new("char **")
        self._flux = lib.standin_load(self._self, host.owner, text, error)
        message = take_string(ffi, lib, error[0]) or "out of memory"
        self._check()
        if self._flux == ffi.NULL:
            raise OSError(errno.EINVAL, message)

    def call(self, topic: str, args: Json) -> tuple[int, Json]:
        """Call the plugin's handler for ``topic`` ("job.state.depend"...).

        Args:
            topic: the topic for ``flux_plugin_call``.
            args: the IN arguments; ``args["id"]`` is the current job.

        Returns:
            What ``flux_plugin_call`` does (0: no handler, 1: success, -1:
            failure) and the OUT arguments, such as ``errmsg``.
        """
        out = ffi.new("char **")
        rc = lib.standin_call(
            self._loaded(), topic.encode(), json.dumps(args).encode(), out
        )
        text = take_string(ffi, lib, out[0])
        self._check()
        return rc, json.loads(text) if text else {}

    def request(
        self,
        method: str,
        payload: Optional[Json],
        respond: Respond,
        owner: bool = True,
    ) -> None:
        """Deliver a request to ``job-manager.dws.<method>``.

        ``respond`` gets ENOSYS when there is no such service and EPERM when
        ``owner`` is false. It may be called before this returns.
        """
        self._serial += 1
        self._requests[self._serial] = respond
        rc = lib.standin_request(
            self._loaded(),
            method.encode(),
            ROLE_OWNER if owner else ROLE_USER,
            self._serial,
            json.dumps({} if payload is None else payload).encode(),
        )
        if rc < 0:
            self._respond(self._serial, -rc, "", None)
        self._check()

    def job_destroyed(self, jobid: int) -> None:
        """Free the memory that the plugin holds for a job (its aux items)."""
        lib.standin_job_destroyed(self._loaded(), jobid)
        self._check()

    def unload(self) -> None:
        """Unload the plugin: frees aux items of all jobs, drops pending
        answers, stops timers. Nothing is called any more afterwards."""
        flux, self._flux = self._loaded(), ffi.NULL
        lib.standin_unload(flux)
        self._check()

    def _loaded(self) -> Any:
        if self._flux == ffi.NULL:
            raise ValueError("the plugin is not loaded any more")
        return self._flux

    def _check(self) -> None:
        """Raise the exception that the host raised inside of a call from C, through
        which it could not pass."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def host_call(self, operation: str, args: Json) -> Any:
        """Carry out an operation for the stand-in libflux."""
        if operation in HOST_OPERATIONS:
            return getattr(self._host, operation)(*args.values())
        return getattr(self, "_" + operation)(**args)

    def host_failed(self, failure: Exception) -> None:
        """Remember an exception of the host that is not an ``OSError``."""
        if self._failure is None:
            self._failure = failure

    def _rpc(self, future: int, topic: str, payload: Optional[Json]) -> None:
        def done(errnum: int, errstr: str, response: Optional[Json]) -> None:
            text = None if response is None else json.dumps(response)
            self._fulfill(future, errnum, errstr, text)

        self._host.rpc(topic, payload, done)

    def _kvs_lookup(self, future: int, key: str) -> None:
        self._host.kvs_lookup(
            key, lambda errnum, value: self._fulfill(future, errnum, "", value)
        )

    def _fulfill(
        self, future: int, errnum: int, errstr: str, payload: Optional[str]
    ) -> None:
        if self._flux == ffi.NULL:
            return
        lib.standin_future_fulfill(
            self._flux,
            future,
            errnum,
            (errstr or "").encode(),
            ffi.NULL if payload is None else payload.encode(),
        )
        self._check()

    def _timer_start(self, timer: int, after: float) -> None:
        def expire() -> None:
            if self._timers.pop(timer, None) is not None and self._flux != ffi.NULL:
                lib.standin_timer_expire(self._flux, timer)
                self._check()

        self._timers[timer] = self._host.call_later(after, expire)

    def _timer_stop(self, timer: int) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()

    def _respond(
        self, request: int, errnum: int, errstr: str, payload: Optional[Json]
    ) -> None:
        self._requests.pop(request)(errnum, errstr, payload)


def take_string(ffi: Any, lib: Any, text: Any) -> Optional[str]:
    """The string that C gave away, freed; None for NULL."""
    if text == ffi.NULL:
        return None
    try:
        return bytes(ffi.string(text)).decode(errors="replace")
    finally:
        lib.standin_free(text)


def answer_host_call(
    ffi: Any, lib: Any, host: Any, operation: Any, args: Any, result: Any
) -> int:
    """What ``standin_host_call`` does: let the Python object behind ``host``
    carry out the operation. Returns 0, or minus an errno."""
    target = ffi.from_handle(host)
    try:
        value = target.host_call(
            ffi.string(operation).decode(), json.loads(ffi.string(args))
        )
        if value is not None:
            result[0] = lib.standin_strdup(json.dumps(value).encode())
    except OSError as error:
        return -(error.errno or errno.EIO)
    except Exception as error:
        target.host_failed(error)
        return -errno.EIO
    return 0


@ffi.def_extern(error=-errno.EIO)  # type: ignore[untyped-decorator]
def standin_host_call(host: Any, operation: Any, args: Any, result: Any) -> int:
    return answer_host_call(ffi, lib, host, operation, args, result)
