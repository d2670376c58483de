# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A stand-in Kubernetes whose users get other tokens now and then.

usage: tokens.py KUBECONFIG TOKENS

Writes KUBECONFIG, for an administrator whose token stays. At SIGHUP the tokens
in the file TOKENS, one on a line, are good, and no others any more. Watches are
ended then, as a server does every few minutes. When that is done TOKENS is
removed.
"""

from __future__ import annotations

import pathlib
import random
import secrets
import signal
import sys
import time

from rabbitsim.dws import Options, admission
from rabbitsim.kube.server import KubeServer
from rabbitsim.kube.store import Store


def main(kubeconfig: str, tokens: str) -> None:
    signals = {signal.SIGHUP, signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    store = Store(time.time, random.Random())
    store.admission.append(admission(Options().rules))
    administrator = {secrets.token_urlsafe(): "admin"}
    good = dict(administrator)
    server = KubeServer(store, tokens=good)
    url = server.start()
    server.write_kubeconfig(kubeconfig)
    print(f"Kubernetes API at {url}", flush=True)
    file = pathlib.Path(tokens)

    def replace() -> None:
        good.clear()
        good.update(administrator)
        good.update(dict.fromkeys(file.read_text().split(), "flux"))

    while signal.sigwait(signals) == signal.SIGHUP:
        server.call(replace)
        server.drop_watches()
        file.unlink()
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
