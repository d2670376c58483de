# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The check of jobs at their submission, for the plugins of Flux's commands and of its
job validator.

:mod:`flux_k8s.config.submission` has the rules. This module gets the facts of the site
that they need from Flux, and from the rabbitmapping file.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Optional

from flux_k8s.config.submission import Site, check_submission
from flux_k8s.errors import BadObject, DirectiveError, DWSError
from flux_k8s.json_reader import Reader
from flux_k8s.objects import mapping as rabbitmapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.rules.directiverules import NO_RULES, RuleSet, read_rules
from flux_k8s.rules.underline import message

RULES_AGE = 60.0
"""Seconds after which the rules of DWS are asked for again."""

RULES_TIMEOUT = 1.0
"""Seconds that a submission waits for them."""


Handle = Any
"""``flux.Flux``: its ``conf_get``, ``attr_get`` and ``rpc`` are called."""


class Ingest:
    """The check of many jobs. It asks for the rules of DWS once a minute, and reads the
    rabbitmapping file again after a change."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rules, self._scheduler = NO_RULES, False
        self._rules_until: Optional[float] = None
        self._mapping: Optional[RabbitMapping] = None
        self._mapping_from: Any = None

    def check(
        self,
        handle: Handle,
        jobspec: Any,
        userid: Optional[int] = None,
        columns: Optional[int] = None,
    ) -> None:
        """Refuse a job whose request for storage is wrong. A Flux without a
        ``[rabbit]`` table checks none.

        Args:
            jobspec: a jobspec, as in JSON.
            userid: the job's owner; None if that is not known.
            columns: those of the user's terminal; None if they are not known.

        Raises:
            ValueError: has the text for the user. Its cause is the DirectiveError, if
                a directive is wrong.
            OSError: from ``handle``.
        """
        site = self.site(handle)
        if site is None:
            return
        try:
            reader = Reader("jobspec", jobspec)
            system = reader.object("attributes.system").value
            resources = list(reader.list("resources"))
            check_submission(system, resources, site, userid)
        except DirectiveError as error:
            raise ValueError(message(error, columns)) from error
        except DWSError as error:
            raise ValueError(str(error)) from None

    def site(self, handle: Handle) -> Optional[Site]:
        """The facts that jobs are checked against; None without a ``[rabbit]`` table.

        Raises:
            OSError: from ``handle``.
        """
        table = handle.conf_get("rabbit")
        if table is None:
            return None
        self._ask(handle)
        return Site(
            table,
            self._rules,
            self._read_mapping(table),
            int(handle.attr_get("security.owner")),
            self._scheduler,
        )

    def _ask(self, handle: Handle) -> None:
        """Get the live rules, and whether the scheduler knows Rabbits. A module that
        does not answer is not asked again for a while, either."""
        now = self._clock()
        if self._rules_until is None or now >= self._rules_until:
            self._rules, self._scheduler = _ask_for_rules(handle)
            self._rules_until = self._clock() + RULES_AGE

    def _read_mapping(self, table: Any) -> Optional[RabbitMapping]:
        """The mapping; None where the file is not on this node, or is wrong."""
        path = table.get("mapping") if isinstance(table, dict) else None
        if not isinstance(path, str):
            return None
        try:
            found = os.stat(path)
            version = (path, found.st_mtime_ns, found.st_size)
            if version != self._mapping_from:
                self._mapping_from, self._mapping = version, None
                with open(path, encoding="utf-8") as file:
                    self._mapping = rabbitmapping.parse(json.load(file), path)
        except (OSError, ValueError, RecursionError, BadObject):
            return None
        return self._mapping


def _ask_for_rules(handle: Handle) -> tuple[RuleSet, bool]:
    """The rules that the module has, none where there is no module, or it does not
    know; and whether it says that the scheduler knows Rabbits."""
    try:
        future = handle.rpc("dws.rules", {})
        future.wait_for(RULES_TIMEOUT)
        answer = future.get()
    except (OSError, ValueError):
        return NO_RULES, False
    if not isinstance(answer, dict):
        return NO_RULES, False
    return read_rules(answer.get("rules")), answer.get("scheduler") is True
