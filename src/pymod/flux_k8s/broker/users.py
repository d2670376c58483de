# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The user database (NSS), which may be on the network, and may fail.

``pwd.getpwuid`` raises KeyError both for an unknown user and for a database that fails,
so this module calls the C library itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Optional

MAX_ENTRY_SIZE = 1 << 20
"""The most bytes of an entry of the user database."""


class Passwd(ctypes.Structure):
    """``struct passwd`` of Linux."""

    _fields_ = [
        ("pw_name", ctypes.c_char_p),
        ("pw_passwd", ctypes.c_char_p),
        ("pw_uid", ctypes.c_uint32),
        ("pw_gid", ctypes.c_uint32),
        ("pw_gecos", ctypes.c_char_p),
        ("pw_dir", ctypes.c_char_p),
        ("pw_shell", ctypes.c_char_p),
    ]


def primary_group(userid: int) -> Optional[int]:
    """The ID of a user's primary group; None for an unknown user. The call may take
    long.

    Raises:
        OSError: the database fails.
    """
    libc = ctypes.CDLL(None)
    entry = Passwd()
    found = ctypes.POINTER(Passwd)()
    size = 1024
    while True:
        buffer = ctypes.create_string_buffer(size)
        error = libc.getpwuid_r(
            ctypes.c_uint32(userid),
            ctypes.byref(entry),
            buffer,
            ctypes.c_size_t(size),
            ctypes.byref(found),
        )
        if error == errno.EINTR:
            continue
        if error == errno.ERANGE and size < MAX_ENTRY_SIZE:
            size *= 4
            continue
        if error:
            raise OSError(error, os.strerror(error))
        return int(entry.pw_gid) if found else None
