# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""NnfDataMovements: the copies of files for jobs. Nothing depends on them but what is
told to users: a field that is malformed is unknown, and no error."""

from __future__ import annotations

from typing import Any, Optional

from msgspec import Struct, field

from flux_k8s.errors import BadObject
from flux_k8s.objects.decoding import decode
from flux_k8s.objects.metadata import Metadata, names_of
from flux_k8s.ports import Encoded


class _Place(Struct):
    path: Any = None


class _Spec(Struct):
    source: Optional[_Place] = None
    destination: Optional[_Place] = None


class Command(Struct, rename="camel"):
    """``status.commandStatus``: how far the copy is."""

    last_message: Any = None
    progress: Any = None
    data: Any = None
    rate: Any = None
    elapsed_time: Any = None


class Status(Struct, rename="camel"):
    state: Any = None
    status: Any = None
    message: Any = None
    start_time: Any = None
    end_time: Any = None
    command_status: Optional[Command] = None

    @property
    def command(self) -> Command:
        return self.command_status or Command()


class NnfDataMovement(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    spec: Optional[_Spec] = None
    reported: Optional[Status] = field(name="status", default=None)

    @classmethod
    def read(cls, object: Encoded) -> NnfDataMovement:
        try:
            return decode(cls, object, "NnfDataMovement {reference}")
        except BadObject:
            return cls(names_of(object))

    @property
    def status(self) -> Status:
        return self.reported or Status()

    @property
    def source(self) -> Any:
        return self.spec and self.spec.source and self.spec.source.path

    @property
    def destination(self) -> Any:
        return self.spec and self.spec.destination and self.spec.destination.path
