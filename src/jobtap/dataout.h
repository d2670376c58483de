/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* What became of the data of a job, and who is told */

#ifndef DWS_DATAOUT_H
#define DWS_DATAOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <flux/core.h>

#include "target.h"

#define DWS_OUT "dws-out"

/* fate.c: what became of the data of a job, by its eventlog and its record:
 * ask, and get the answer.
 */

/* Nobody learns here whether a job of somebody else exists. */
extern const char dws_no_such_job[];
extern const char dws_no_storage[];

flux_future_t *dws_fate_ask_eventlog (struct dws *dws, flux_jobid_t id);
flux_future_t *dws_fate_ask_record (struct dws *dws, flux_jobid_t id);

/* Return DWS_FATE_LOST, with the reason, unless this is a job with storage of
 * this user. Set '*releasedp' if its epilog ended before its data was out.
 */
enum dws_fate dws_fate_by_eventlog (flux_future_t *f,
                                    uint32_t userid,
                                    bool *releasedp,
                                    char *reason,
                                    size_t size);

/* Return what the record says, and the reason if the data is lost. */
enum dws_fate dws_fate_by_record (flux_future_t *f, char *reason, size_t size);

/* dataout.c: the turns of the targets.
 */

/* Let the current job, 'id' of 'userid', wait for the data of 'target'. The job
 * is being submitted, or it is 'recovered': then it may wait no more.
 * 'checked': the target is the user's, has storage, and has not ended. If not,
 * it is looked up. On failure return -1 with errno set.
 */
int dws_dataout_wait (struct dws *dws,
                      flux_jobid_t id,
                      uint32_t userid,
                      bool recovered,
                      flux_jobid_t target,
                      bool checked);

/* The module says that the data of a job is out, or with 'errstr' that it is
 * lost.
 */
void dws_dataout_tell (struct dws *dws,
                       flux_jobid_t target,
                       const char *errstr);

/* A job has ended. Its record knows what the module may not have told. */
void dws_dataout_ended (struct dws *dws, flux_jobid_t target);

#endif // !DWS_DATAOUT_H
