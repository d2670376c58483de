/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* What became of the data of a job, and the jobs that wait for it */

#ifndef DWS_DATAOUT_H
#define DWS_DATAOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <flux/core.h>

#include "target.h"

#define DWS_OUT "dws-out"

/* fate.c: what became of the data of a job, by what the module has recorded.
 */

/* Return why no job of this user can wait for the data of a job, or NULL. A job
 * of another user is as one that does not exist.
 */
const char *dws_fate_check (struct dws *dws,
                            flux_jobid_t target,
                            uint32_t userid);

/* Ask for the record, and get what it says: the fate, and the reason if the
 * data is lost. Without a record the fate is DWS_FATE_OPEN.
 */
flux_future_t *dws_fate_ask_record (struct dws *dws, flux_jobid_t id);
enum dws_fate dws_fate_by_record (flux_future_t *f, char *reason, size_t size);

/* The same for a job that has ended without that record: the fate is
 * DWS_FATE_OPEN if its epilog ended before its data was out.
 */
flux_future_t *dws_fate_ask_release (struct dws *dws, flux_jobid_t id);
enum dws_fate dws_fate_by_release (struct dws_target *target,
                                   flux_future_t *f,
                                   char *reason,
                                   size_t size);

/* Have the module report what became of the data of such a job, also if it
 * knows nothing of it any more. A module that is loaded later is to be asked
 * again. Return -1 with errno set if the request cannot be sent.
 */
int dws_fate_report (struct dws *dws, flux_jobid_t id);

/* dataout.c: the turns of the targets.
 */

/* Let the current job, 'id' of 'userid', wait for the data of 'target'. The job
 * is being submitted, or it is 'recovered': then its dependency may be over. On
 * failure return -1 with errno set.
 */
int dws_dataout_wait (struct dws *dws,
                      flux_jobid_t id,
                      uint32_t userid,
                      bool recovered,
                      flux_jobid_t target);

/* The module reports that the data of a job is out, or with 'errstr' that it is
 * lost.
 */
void dws_dataout_report (struct dws *dws,
                         flux_jobid_t target,
                         const char *errstr);

/* A job has ended: the module may have written its record without a report. */
void dws_dataout_ended (struct dws *dws, flux_jobid_t target);

/* The module said hello: it may have missed the end of a Workflow. */
void dws_dataout_resume (struct dws *dws);

#endif // !DWS_DATAOUT_H
