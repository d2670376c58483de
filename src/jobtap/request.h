/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* Requests to the dws module and to other services of Flux */

#ifndef DWS_REQUEST_H
#define DWS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>
#include <flux/core.h>

#include "job.h"

/* rpc.c: RPCs to the module and its answers, and one to the job manager.
 */
enum dws_answer {
    DWS_ANSWER_YES,
    DWS_ANSWER_NO,
    DWS_ANSWER_ABSENT, // no module is loaded
    DWS_ANSWER_LATER,  // its service is not ready, and has not seen the request
    DWS_ANSWER_LOST,   // the service died, and may have acted on it
};

/* Get the answer, and why it is not DWS_ANSWER_YES. */
enum dws_answer dws_answer_get (flux_future_t *f, char *reason, size_t size);

/* Have 'cb' called when 'f' is fulfilled. Return 'f', or NULL if it is NULL or
 * had to be destroyed.
 */
flux_future_t *dws_then (flux_future_t *f, flux_continuation_f cb, void *arg);

/* Look up the job manager's own copy of a job's eventlog: {"eventlog":[o]}. */
flux_future_t *dws_eventlog_lookup (struct dws *dws, flux_jobid_t id);

/* Tell the module that the plugin is there: it answers with its own hello. */
void dws_hello (struct dws *dws);

/* R.c: the nodes of a job, and the text of R, from the KVS into dws.setup, in
 * three steps.
 */

/* Put the names of a job's nodes into 'buf', cut to fit, or "unknown nodes". */
void dws_R_nodes (struct dws *dws, flux_jobid_t id, char *buf, size_t size);

/* Look up where R of a job is. */
flux_future_t *dws_R_lookup (struct dws *dws, flux_jobid_t id);

/* Load R. 'f' is the look-up. */
flux_future_t *dws_R_load (struct dws *dws, flux_future_t *f);

/* Return the payload of dws.setup, which the caller frees. 'f' is the load.
 * Fail with EPROTO if R is no JSON object. Its members are not checked.
 */
char *dws_R_setup (flux_jobid_t id, flux_future_t *f);

/* abort.c: the epilog timeout, and dws.abort.
 */

/* Start the epilog timeout. */
void dws_job_epilog_timer (struct dws_job *job, double epilog_start);

/* Have the module take nodes and Rabbits in use out of service, and release the
 * epilog.
 */
void dws_job_epilog_abort (struct dws_job *job);

/* Send dws.abort. */
void dws_abort (struct dws *dws, flux_jobid_t id);

/* The module said hello: send the requests that it has not answered again. */
void dws_abort_resume (struct dws *dws);
void dws_abort_clear (struct dws *dws);

/* request.c: the requests to the module, and their answers.
 * Sending posts nothing.
 */

/* Send the request of the job's phase, or send it again, when its turn comes.
 * In DWS_POST_RUN there is none as long as the job has tasks.
 */
void dws_job_send_request (struct dws_job *job);

/* It is the job's turn: dws->send_request. */
void dws_send_request (struct dws_job *job);

/* The payload of dws.create has changed: send it again, but not before the one
 * that is in flight is answered.
 */
void dws_job_note_change (struct dws_job *job);

/* The job has ended in DWS_POST_RUN, so it has no tasks: the module is to know,
 * if it does not, and nobody waits for its answer.
 */
void dws_job_ended (struct dws_job *job);

/* Have the module go to Teardown at once. */
void dws_job_ask_teardown (struct dws_job *job);

/* tasks.c: when a job's tasks have ended.
 */

/* If the job is in DWS_POST_RUN and has tasks, send its request when they have
 * ended, should no event tell.
 */
void dws_job_await_tasks (struct dws_job *job);
void dws_tasks_clear (struct dws *dws);

#endif // !DWS_REQUEST_H
