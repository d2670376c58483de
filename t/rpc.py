# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Send a request to Flux, without the time that it takes to import its package.

usage: rpc.py TOPIC [JSON [SECONDS]]

Prints the response, for which the program waits that long. An error is written as
NAME: text, and the exit status is 1.
"""

import ctypes
import errno
import json
import os
import sys

NODEID_ANY = 0xFFFFFFFF
FOREVER = "-1"


def library() -> ctypes.CDLL:
    """libflux-core, which is beside the folder with its connectors."""
    folder = os.environ["FLUX_CONNECTOR_PATH"].split(":")[-1]
    path = os.path.join(folder, "../../libflux-core.so.2")
    lib = ctypes.CDLL(path, use_errno=True)
    lib.flux_open.restype = lib.flux_rpc.restype = ctypes.c_void_p
    lib.flux_open.argtypes = [ctypes.c_char_p, ctypes.c_int]
    lib.flux_rpc.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_uint32,
        ctypes.c_int,
    ]
    lib.flux_future_wait_for.argtypes = [ctypes.c_void_p, ctypes.c_double]
    lib.flux_rpc_get.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)]
    lib.flux_future_error_string.restype = ctypes.c_char_p
    lib.flux_future_error_string.argtypes = [ctypes.c_void_p]
    return lib


def fail(text: bytes = b"") -> None:
    """Exit with the error that the library has set."""
    number = ctypes.get_errno()
    sys.exit(f"{errno.errorcode[number]}: {text.decode() or os.strerror(number)}")


def main(topic: str, payload: str = "{}", seconds: str = FOREVER) -> None:
    """Send one request, and print its response."""
    lib = library()
    handle = lib.flux_open(None, 0)
    if not handle:
        fail()
    future = lib.flux_rpc(handle, topic.encode(), payload.encode(), NODEID_ANY, 0)
    if not future:
        fail()
    if lib.flux_future_wait_for(future, float(seconds)) < 0:
        fail()
    response = ctypes.c_char_p()
    if lib.flux_rpc_get(future, ctypes.byref(response)) < 0:
        fail(lib.flux_future_error_string(future))
    print(json.dumps(json.loads(response.value) if response.value else None))


if __name__ == "__main__":
    main(*sys.argv[1:])
