# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compiled job manager plugin: the module dies, and is loaded again."""

from __future__ import annotations

import errno
import syslog
from typing import Any, Callable, Iterator, Optional

import pytest
from jobtap_host import JobManager

LOAD = {"path": "/x/dws.py", "args": ["scheduler=none"]}
NO_AUTOLOAD = pytest.mark.parametrize("manager", [{"autoload": False}], indirect=True)


@pytest.fixture
def manager(request: pytest.FixtureRequest) -> Iterator[JobManager]:
    manager = JobManager(getattr(request, "param", None))
    manager.rpcs.clear()
    yield manager
    if manager.plugin is not None:
        manager.unload()


def hello(manager: JobManager) -> Callable[[int, str, Optional[dict[str, Any]]], None]:
    """The module says hello; what ends the request by which it is watched."""
    manager.rpcs = [rpc for rpc in manager.rpcs if rpc[0] != "dws.alive"]
    manager.request("hello", {"load": LOAD})
    return manager.take("dws.alive")[1]


def die(manager: JobManager) -> None:
    hello(manager)(errno.EHOSTUNREACH, "", None)


def delays(manager: JobManager, count: int, step: Callable[[], None]) -> list[float]:
    """How long the plugin waits before each of the next loads, when each time
    ``step`` is what comes of it."""
    found = []
    for _ in range(count):
        begin = manager.clock
        while "module.load" not in manager.topics():
            manager.advance(0.5)
        found.append(manager.clock - begin)
        step()
    return found


@pytest.mark.parametrize("errnum", [errno.EHOSTUNREACH, errno.ENOSYS])
def test_a_module_that_died_is_loaded_as_it_was_loaded_before(
    manager: JobManager, errnum: int
) -> None:
    hello(manager)(errnum, "", None)
    assert manager.rpcs == []
    manager.advance(1.0)
    assert manager.take("module.load")[0] == LOAD
    assert manager.rpcs == []


def test_a_module_that_said_bye_is_not_loaded_again(manager: JobManager) -> None:
    end = hello(manager)
    manager.request("bye", {})
    end(errno.EHOSTUNREACH, "", None)
    manager.advance(1000.0)
    assert manager.rpcs == []


def test_a_bye_that_comes_late_is_heard(manager: JobManager) -> None:
    die(manager)
    manager.request("bye", {})
    manager.advance(1000.0)
    assert manager.rpcs == []


def test_a_module_that_was_never_there_is_not_loaded(manager: JobManager) -> None:
    manager.submit(1, {"dw": "#DW a"})
    manager.take("dws.create")[1](errno.ENOSYS, "", None)
    manager.advance(1000.0)
    assert manager.rpcs == []


def test_one_that_does_not_say_how_it_was_loaded_is_not_watched(
    manager: JobManager,
) -> None:
    manager.request("hello", {})
    manager.request("bye", {})
    assert manager.rpcs == []


def test_one_that_answers_is_left_alone(manager: JobManager) -> None:
    hello(manager)(0, "", {"success": True})
    hello(manager)(errno.EPERM, "", None)
    manager.advance(1000.0)
    assert manager.rpcs == []


def test_the_end_of_an_earlier_module_says_nothing_about_this_one(
    manager: JobManager,
) -> None:
    earlier = hello(manager)
    now = hello(manager)
    earlier(errno.EHOSTUNREACH, "", None)
    manager.advance(1000.0)
    assert manager.rpcs == []
    now(errno.EHOSTUNREACH, "", None)
    manager.advance(1.0)
    assert manager.topics() == ["module.load"]


def test_one_that_is_loaded_by_hand_meanwhile_is_not_loaded_twice(
    manager: JobManager,
) -> None:
    die(manager)
    hello(manager)
    manager.advance(1000.0)
    assert manager.rpcs == []


def test_one_that_is_there_already_is_no_error(manager: JobManager) -> None:
    die(manager)
    manager.advance(1.0)
    manager.logged.clear()
    manager.take("module.load")[1](errno.EEXIST, "", None)
    manager.advance(1000.0)
    assert manager.rpcs == [] and manager.logged == []


def test_one_that_dies_before_it_says_hello_is_loaded_again(
    manager: JobManager,
) -> None:
    die(manager)
    manager.advance(1.0)
    manager.take("module.load")[1](0, "", None)
    manager.take("dws.alive")[1](errno.ENOSYS, "", None)
    manager.advance(2.0)
    assert manager.topics() == ["module.load"]


def test_one_that_died_before_the_load_is_answered_counts_once(
    manager: JobManager,
) -> None:
    die(manager)
    manager.advance(1.0)
    loaded = manager.take("module.load")[1]
    die(manager)
    loaded(0, "", None)
    assert manager.rpcs == []
    manager.advance(2.0)
    assert manager.topics() == ["module.load"]


def test_it_waits_longer_each_time_when_the_module_dies_at_once(
    manager: JobManager,
) -> None:
    def dies_again() -> None:
        manager.take("module.load")[1](0, "", None)
        die(manager)

    die(manager)
    assert delays(manager, 9, dies_again) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_so_it_does_when_the_module_dies_some_seconds_after_its_start(
    manager: JobManager,
) -> None:
    def lives_a_while() -> None:
        manager.take("module.load")[1](0, "", None)
        end = hello(manager)
        manager.advance(50.0)
        end(errno.EHOSTUNREACH, "", None)

    die(manager)
    assert delays(manager, 9, lives_a_while) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_it_waits_longer_each_time_when_the_module_cannot_be_loaded(
    manager: JobManager,
) -> None:
    die(manager)
    manager.logged.clear()
    fail = (errno.EINVAL, "broken", None)
    step = lambda: manager.take("module.load")[1](*fail)  # noqa: E731
    assert delays(manager, 9, step) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(manager.logged) == 9
    assert manager.logged[0] == (
        syslog.LOG_ERR,
        "dws: the dws module cannot be loaded again: broken; trying again in 2 s",
    )


def test_it_is_quick_again_for_a_module_that_was_up_for_a_while(
    manager: JobManager,
) -> None:
    die(manager)
    manager.advance(1.0)
    manager.take("module.load")[1](0, "", None)
    end = hello(manager)
    manager.advance(60.0)
    end(errno.EHOSTUNREACH, "", None)
    manager.advance(1.0)
    assert manager.topics() == ["module.load"]


@NO_AUTOLOAD
def test_autoload_can_be_turned_off(manager: JobManager) -> None:
    die(manager)
    manager.advance(1000.0)
    assert manager.rpcs == []
    assert manager.logged[-1] == (
        syslog.LOG_ERR,
        "dws: the dws module died: jobs with #DW directives wait until it is loaded",
    )


def test_the_plugin_may_be_unloaded_at_any_stage(manager: JobManager) -> None:
    end = hello(manager)
    manager.unload()
    end(errno.EHOSTUNREACH, "", None)
    manager.load()
    die(manager)
    manager.unload()
    manager.load()
    manager.rpcs.clear()
    die(manager)
    manager.advance(1.0)
    loaded = manager.take("module.load")[1]
    manager.unload()
    loaded(0, "", None)


@pytest.mark.parametrize(
    "load",
    [
        7,
        {},
        {"path": "/x"},
        {"path": 1, "args": []},
        {"path": "/x", "args": {}},
        {"path": "/x", "args": [1]},
    ],
)
def test_a_malformed_load_is_refused(manager: JobManager, load: Any) -> None:
    with pytest.raises(OSError) as caught:
        manager.request("hello", {"load": load})
    assert caught.value.errno == errno.EPROTO
    assert manager.rpcs == []
