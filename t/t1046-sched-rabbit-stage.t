#!/bin/sh
# The tests of t1042-dws-stage.t, with sched-rabbit instead of Fluxion.
FLUX_DWS_SCHEDULER=sched-rabbit
. "$(dirname "$0")/t1042-dws-stage.t"
