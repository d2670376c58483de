#!/bin/sh
# The tests of t1041-dws-release.t, with sched-rabbit instead of Fluxion.
FLUX_DWS_SCHEDULER=sched-rabbit
. "$(dirname "$0")/t1041-dws-release.t"
