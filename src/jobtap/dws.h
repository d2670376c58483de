/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* What the files of the dws jobtap plugin share. */

#ifndef DWS_H
#define DWS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include <flux/core.h>
#include <flux/jobtap.h>

#define DWS_DEPENDENCY "dws-create"
#define DWS_PROLOG "dws-setup"
#define DWS_EPILOG "dws-epilog"
#define DWS_MEMO "dws"
#define DWS_MODULE_MEMO "rabbit_waits_for"
#define DWS_EXCEPTION "dws"
#define DWS_EPILOG_TIMEOUT "dws-epilog-timeout"

#define DWS_AUX "dws"
#define DWS_JOB_AUX "dws::job"

// What a job's directives may amount to, as in flux_k8s/limits.py.
#define DWS_DIRECTIVES_BYTES 65536
#define DWS_DIRECTIVES 64

/* What a job waits for, or does, as far as its storage is concerned. */
enum dws_phase {
    DWS_NEW,      // submitted, but not in DEPEND yet
    DWS_RECOVER,  // the plugin was loaded meanwhile: reading the eventlog
    DWS_DEPEND,   // dws-create is outstanding: the Workflow is in Proposal
    DWS_SCHED,    // dws-create was removed, the job waits for resources
    DWS_SETUP,    // dws-setup is outstanding: Setup, DataIn, PreRun
    DWS_RUNNING,  // dws-setup was finished
    DWS_POST_RUN, // dws-epilog is outstanding: PostRun, DataOut, Teardown
    DWS_DONE,     // nothing of ours is left, or there never was
};

struct dws_abort;

/* The plugin: one per load. */
struct dws {
    flux_plugin_t *p;
    flux_t *h;
    json_int_t owner;            // the instance owner's user ID
    double epilog_timeout;       // seconds; 0: none
    bool away;                   // the module is known to be away
    int recovering;              // how many jobs are in DWS_RECOVER
    int lookups;                 // for how many of them one is in flight
    uint64_t serial;             // of the last job
    struct dws_job *first;       // jobs in the order in which they were seen
    struct dws_job *last;
    struct dws_abort *aborts;    // dws.abort requests not answered yet
    flux_future_t *f_exec;       // asks job-exec which jobs have tasks
    flux_watcher_t *exec_timer;  // when to ask
};

/* One job with #DW directives, owned by the job's aux items. */
struct dws_job {
    struct dws *dws;
    struct dws_job *prev;
    struct dws_job *next;
    uint64_t serial;             // later jobs have greater ones
    flux_jobid_t id;
    uint32_t userid;
    json_t *directives;          // array of strings
    int failure_tolerance;
    char error[256];             // why the jobspec is bad, or ""
    enum dws_phase phase;
    int state;                   // as of the last callback while DWS_RECOVER
    bool stale;                  // state changed while DWS_RECOVER
    bool admitted;               // dws-create was added to the job
    bool delivered;              // the module may have a Workflow for the job
    bool released;               // the dws_environment event was posted
    bool startable;              // dws-setup was finished in time: tasks may run
    bool started;                // the start event was posted
    bool ended;                  // finish, or the last release, was posted
    bool exec_done;              // the last release was posted
    bool asked;                  // job-exec is being asked about its tasks
    bool teardown;               // an exception asks for Teardown at once
    bool told;                   // a fatal exception is about its storage
    bool aborted;                // dws-epilog-timeout: the module is asked what
                                 // is in use, then the epilog is released
    bool held;                   // a memo says that the module is away
    bool waits;                  // a memo of the module says what for
    int prologs;                 // prolog and epilog actions that are open
    int epilogs;
    flux_future_t *f;            // the phase's request or look-up, in flight
    bool accepted;               // dws.post_run was answered
    flux_watcher_t *timer;
};

/* text.c: text from others, for the log, exceptions and memos.
 */

/* Put 'value' into 'buf' as JSON in ASCII, cut to fit. */
const char *dws_show (json_t *value, char *buf, size_t size);

/* Format into 'buf', with control characters escaped, cut to fit, but not within
 * a UTF-8 sequence: Flux refuses text that is not valid UTF-8.
 */
void dws_format (char *buf, size_t size, const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));
void dws_vformat (char *buf, size_t size, const char *fmt, va_list ap);

/* jobspec.c: what a jobspec says of storage.
 */

/* A job whose attributes.system.dw is an empty string or list has no directives.
 */
bool dws_jobspec_is_empty (json_t *dw);

/* Check attributes.system.dw and attributes.system.dw_failure_tolerance (NULL
 * when missing). On success return 0 and the directives as a new array of
 * strings. On failure return -1 with a sentence in 'error'.
 */
int dws_jobspec_parse (json_t *dw,
                       json_t *tolerance,
                       json_t **directivesp,
                       int *failure_tolerancep,
                       char *error,
                       size_t size);

/* job.c: the life of the struct.
 */

/* Create the job and tie it to the job's aux items. The job is in DWS_NEW. */
struct dws_job *dws_job_create (struct dws *dws,
                                flux_jobid_t id,
                                uint32_t userid);

/* Return NULL for a job without #DW directives, or one that is not active. */
struct dws_job *dws_job_lookup (struct dws *dws, flux_jobid_t id);

/* Enter a phase. All that is in flight for the last one is dropped. */
void dws_job_enter (struct dws_job *job, enum dws_phase phase);

/* What a fatal exception during the epilog asks for. */
enum dws_demand {
    DWS_DEMAND_NOTHING,
    DWS_DEMAND_TEARDOWN, // at once
    DWS_DEMAND_ABORT,    // the last resort: raised by the epilog-timeout, or by a
                         // person who may take nodes and Rabbits out of service
};

/* Take note of a fatal exception, and return what it would ask for. */
enum dws_demand dws_job_note_exception (struct dws_job *job,
                                        const char *type,
                                        json_int_t userid);

/* Take note of an event of the job that says something about its tasks. */
void dws_job_note_event (struct dws_job *job, const char *name, bool final);

/* Return true if the job's tasks may be running, or may be started yet. */
bool dws_job_has_tasks (struct dws_job *job);

/* eventlog.c: what a job's eventlog says of its storage.
 */

/* Set what the job's eventlog (an array of RFC 18 entries) says about us, and
 * '*epilog_start' to the time at which our epilog was started, 0 if it was not.
 * Return the phase that it and job->state put the job in.
 */
enum dws_phase dws_job_replay (struct dws_job *job,
                               json_t *eventlog,
                               double *epilog_start);

/* rpc.c: RPCs to the module, and its answers.
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

/* Send 'payload', which is stolen. */
flux_future_t *dws_request_send (struct dws *dws,
                                 const char *topic,
                                 json_t *payload,
                                 flux_continuation_f cb,
                                 void *arg);

/* Have 'cb' called when 'f' is fulfilled. Return 'f', or NULL if it is NULL or
 * had to be destroyed.
 */
flux_future_t *dws_then (flux_future_t *f, flux_continuation_f cb, void *arg);

/* Tell the module that the plugin is there: it answers with its own hello. */
void dws_hello (struct dws *dws);

/* request.c: the requests to the module, and what is done about the answers.
 * Sending posts nothing.
 */

/* Send, or send again, what the module has to know in the job's phase. In
 * DWS_POST_RUN that is nothing as long as the job has tasks.
 */
void dws_job_send_request (struct dws_job *job);

/* Have the module go to Teardown at once. */
void dws_job_ask_teardown (struct dws_job *job);

/* abort.c: the epilog timeout, and dws.abort.
 */

/* Start the epilog timeout. */
void dws_job_epilog_timer (struct dws_job *job, double epilog_start);

/* Have the module take out of service what is in use, and release the epilog. */
void dws_job_epilog_abort (struct dws_job *job);

/* Send dws.abort. */
void dws_abort (struct dws *dws, flux_jobid_t id);

/* The module said hello: send again what it has not answered. */
void dws_abort_resume (struct dws *dws);
void dws_abort_clear (struct dws *dws);

/* R.c: the nodes of a job, and the text of R, from the KVS into dws.setup, in
 * three steps.
 */

/* Put the names of a job's nodes into 'buf', cut to fit, or "unknown nodes". */
void dws_R_nodes (struct dws *dws, flux_jobid_t id, char *buf, size_t size);

/* Look up where R of a job is. */
flux_future_t *dws_R_lookup (struct dws *dws, flux_jobid_t id);

/* Load R. 'f' is the look-up. */
flux_future_t *dws_R_load (struct dws *dws, flux_future_t *f);

/* Return the payload of dws.setup, which the caller frees. 'f' is the load. Fail
 * with EPROTO if R is no JSON object; what is in it is not looked at.
 */
char *dws_R_setup (flux_jobid_t id, flux_future_t *f);

/* tasks.c: when a job's tasks have ended.
 */

/* If the job is in DWS_POST_RUN and has tasks, send its request when they have
 * ended, should no event tell.
 */
void dws_job_await_tasks (struct dws_job *job);
void dws_tasks_clear (struct dws *dws);

/* action.c: what is done to a job. Nothing else posts events.
 *
 * Outside of a callback for the same job, an event that is posted takes effect
 * at once: callbacks are called, ours and those of other plugins, which may
 * raise an exception or post events in turn. When the call returns the job may
 * have ended, and the struct may have been freed.
 *
 * So whatever posts takes the address of the caller's only pointer to the job,
 * and looks the job up again: afterwards *jobp is NULL unless the job is still
 * there, in the phase that it was in. A job that has moved on was dealt with in
 * the callback that moved it. A function that takes struct dws_job * does not
 * post (t/python/test_jobtap_source.py).
 */
void dws_job_raise (struct dws_job **jobp, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));
int dws_job_raise_timeout (struct dws_job **jobp);
int dws_job_dependency_add (struct dws_job **jobp);
int dws_job_dependency_remove (struct dws_job **jobp);
int dws_job_update (struct dws_job **jobp, json_t *updates);
int dws_job_environment (struct dws_job **jobp, json_t *variables);
int dws_job_prolog_start (struct dws_job **jobp);
void dws_job_prolog_release (struct dws_job **jobp, int status);
int dws_job_epilog_start (struct dws_job **jobp);
void dws_job_epilog_release (struct dws_job **jobp, int status);

/* Release the epilog of a job whose storage may be in use, and say so. */
void dws_job_epilog_abandon (struct dws_job **jobp, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

/* Say in a memo, and once in the log, that jobs wait for the module. */
void dws_job_hold (struct dws_job **jobp, const char *reason);
void dws_job_unhold (struct dws_job **jobp);

/* Log 'fmt' with the job's F58 ID in front of it. */
void dws_log (struct dws *dws,
              int level,
              flux_jobid_t id,
              const char *fmt,
              ...) __attribute__ ((format (printf, 4, 5)));

/* phase.c: what the phases of a job begin with.
 */

/* The job leaves NEW: ask for its Workflow. */
void dws_job_begin_depend (struct dws_job **jobp);

/* The job has resources, and its prolog was started: ask for Setup. */
void dws_job_begin_setup (struct dws_job **jobp);

/* The job's epilog was started, at 'epilog_start', or just now if that is 0. */
void dws_job_begin_post_run (struct dws_job *job, double epilog_start);

/* Send again what the module has to know in the job's phase. */
void dws_job_resume (struct dws_job *job);

/* recover.c: finding back into the life of a job after the plugin was loaded.
 */

/* Take up a job that was active when the plugin was loaded, in any state. */
void dws_job_adopt (struct dws_job **jobp);

/* Set the phase of a job in DWS_RECOVER. After the last one the module is told
 * that the plugin is there.
 */
void dws_job_recovered (struct dws_job *job, enum dws_phase phase);

/* conf.c: what the plugin was loaded with.
 */

/* Set dws->epilog_timeout. On failure return -1 with a sentence in 'error'. */
int dws_conf_parse (struct dws *dws, char *error, size_t size);

/* callback.c: what the job manager calls, for each job. */
extern const struct flux_plugin_handler dws_callbacks[];

/* service.c: the job-manager.dws.* services. */
int dws_service_register (struct dws *dws);

#endif // !DWS_H
