/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* dws_environment: the variables of a job with #DW directives
 *
 * dws-jobtap posts a dws_environment event, with the variables that DWS gave
 * to the job, when it releases the dws-setup prolog. This plugin sets them in
 * the environment of the tasks, on every shell.
 *
 * A job may have ten thousand shells. Each of them reads the event from its own
 * broker's job-info service, which every rank has. The eventlog is fetched
 * through the KVS caches of the TBON: rank 0 sends each part of it once to each
 * of its children, however many shells there are. The shell has the same
 * eventlog open already anyway, as it watches R (job-info.update-watch). A read
 * by one shell that hands the variables on to the others would send each of
 * them a message of its own across the tree.
 *
 * It is a watch and not a look-up because the KVS is only eventually consistent
 * across ranks: a shell may be there before the event is. The events come in
 * order, so it ends at dws_environment, or at start (which is posted when all
 * shells run, whether or not they are initialized): then there is none to come.
 * The job asked for storage and has none, because dws-jobtap is not loaded
 * where it was submitted, so it must not run.
 *
 * A watch may stay behind for ever: the kvs module of a broker that reads the
 * KVS for the first time subscribes to commits after it has fetched the root,
 * and misses a commit between the two (flux-core 0.88). So the job manager is
 * asked when the event does not come. It has the event before the first shell
 * is there.
 *
 * The workflow token is a secret, and eventlogs are archived: the dws module
 * has committed it to the job's KVS before it had the event posted. job-info
 * shows it to the job's user and the instance owner only. The local kvs module
 * knows the commit of the event, and so the one before it, when the event was
 * read from it. When the job manager had to be asked, rank 0 is asked for the
 * token as well.
 *
 * The event may say which data is copied after the tasks. The first shell says
 * so to those who look at the job with flux job attach, as flux run and flux
 * alloc do: users have looked for data that was not there yet.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <jansson.h>

#define FLUX_SHELL_PLUGIN_NAME "dws_environment"

#include <flux/core.h>
#include <flux/shell.h>

#define TOKEN_KEY "dws_token"
#define TOKEN_VARIABLE "DW_WORKFLOW_TOKEN"
#define COPY_OUT "dws::copy_out"
#define PATIENCE 2.0 // seconds without the event

static int set_variables (flux_shell_t *shell, json_t *variables)
{
    const char *name;
    json_t *value;

    json_object_foreach (variables, name, value) {
        const char *s = json_string_value (value);
        if (!s) {
            shell_log_error ("variable %s of the dws_environment event"
                             " is not a string",
                             name);
            return -1;
        }
        if (flux_shell_setenvf (shell, 1, name, "%s", s) < 0) {
            shell_log_error ("error setting %s: %s", name, strerror (errno));
            return -1;
        }
    }
    return 0;
}

/* Whether only flux job attach shows what shells log. Otherwise it would go to
 * a file that is the user's. As in output_config_create() of the shell.
 */
static bool is_attached (flux_shell_t *shell)
{
    const char *type = "";
    const char *path = NULL;
    const char *err_type = "";
    const char *err_path = NULL;

    if (flux_shell_getopt_unpack (shell,
                                  "output",
                                  "{s?{s?s s?s} s?{s?s s?s}}",
                                  "stdout",
                                    "type", &type,
                                    "path", &path,
                                  "stderr",
                                    "type", &err_type,
                                    "path", &err_path) < 0)
        return false;
    if (strcmp (err_type, "kvs") == 0)
        return true;
    return !err_path && (!path || strcmp (type, "kvs") == 0);
}

/* flux job attach leaves a terminal that it has opened in the job as soon as
 * that is closed: it does not show later lines.
 */
static bool has_terminal (flux_shell_t *shell)
{
    int interactive = 0;

    return flux_shell_getopt_unpack (shell,
                                     "pty",
                                     "{s?i}",
                                     "interactive", &interactive) == 1
           && interactive;
}

static void log_copy_out (flux_shell_t *shell,
                          const char *when,
                          const char *copy_out)
{
    json_int_t id;
    char f58[32];

    if (flux_shell_info_unpack (shell, "{s:I}", "jobid", &id) < 0
        || flux_job_id_encode (id, "f58", f58, sizeof (f58)) < 0)
        return;
    shell_log ("%s, copy_out copies %s: flux dws wait %s waits for that",
               when,
               copy_out,
               f58);
}

/* Log the copies that follow when the tasks have ended, for the job's user. */
static void announce_copy_out (flux_plugin_t *p,
                               flux_shell_t *shell,
                               const char *copy_out)
{
    char *copy;
    int rank;

    if (flux_shell_info_unpack (shell, "{s:i}", "rank", &rank) < 0
        || rank != 0
        || !is_attached (shell))
        return;
    if (has_terminal (shell))
        log_copy_out (shell, "after the job", copy_out);
    else if (!(copy = strdup (copy_out))
             || flux_plugin_aux_set (p, COPY_OUT, copy, free) < 0)
        free (copy);
}

/* Whether an entry of the eventlog says that the job's storage has failed. */
static bool is_failure (json_t *entry)
{
    const char *name;
    const char *type;
    int severity = -1;

    return json_unpack (entry,
                        "{s:s s:{s:s s:i}}",
                        "name", &name,
                        "context",
                          "type", &type,
                          "severity", &severity) == 0
           && strcmp (name, "exception") == 0
           && strcmp (type, "dws") == 0
           && severity == 0;
}

/* The eventlog as the job manager has it, which is ahead of the one in the KVS.
 * Return a future that keeps it, NULL on error.
 */
static flux_future_t *get_eventlog (flux_shell_t *shell, json_t **eventlog)
{
    flux_future_t *f;
    json_int_t id;

    if (flux_shell_info_unpack (shell, "{s:I}", "jobid", &id) < 0
        || !(f = flux_rpc_pack (flux_shell_get_flux (shell),
                                "job-manager.getattr",
                                0,
                                0,
                                "{s:I s:[s]}",
                                "id", id,
                                "attrs", "eventlog")))
        return NULL;
    if (flux_rpc_get_unpack (f, "{s:o}", "eventlog", eventlog) < 0) {
        int errnum = errno;

        flux_future_destroy (f);
        errno = errnum;
        return NULL;
    }
    return f;
}

/* The data of a job whose storage has failed is not copied; that of one that
 * was cancelled, or that has reached its time limit, is. The KVS may get the
 * exception after the tasks are killed. Return -1 on error.
 */
static int has_failed (flux_shell_t *shell)
{
    flux_future_t *f;
    json_t *eventlog;
    json_t *entry;
    size_t index;
    int rc = 0;

    if (!(f = get_eventlog (shell, &eventlog)))
        return -1;
    json_array_foreach (eventlog, index, entry) {
        if (is_failure (entry))
            rc = 1;
    }
    flux_future_destroy (f);
    return rc;
}

static void no_storage (void)
{
    shell_log_error ("the job has #DW directives but no storage:"
                     " this Flux instance gives none, as dws-jobtap.so is not"
                     " loaded");
}

/* Return 1 if 'event' was the last one of interest, 0 if not, -1 on error. */
static int process_event (flux_plugin_t *p,
                          flux_shell_t *shell,
                          json_t *entry)
{
    const char *name;
    json_t *variables = NULL;
    const char *copy_out = NULL;
    int rc = -1;

    if (json_unpack (entry, "{s:s}", "name", &name) < 0)
        shell_log_error ("the job's eventlog has a malformed entry");
    else if (strcmp (name, "start") == 0)
        no_storage ();
    else if (strcmp (name, "dws_environment") != 0)
        rc = 0;
    else if (json_unpack (entry,
                          "{s:{s:o s?s}}",
                          "context",
                            "variables", &variables,
                            "copy_out", &copy_out) < 0
             || !json_is_object (variables))
        shell_log_error ("the job's dws_environment event is malformed");
    else if (set_variables (shell, variables) == 0) {
        if (copy_out)
            announce_copy_out (p, shell, copy_out);
        rc = 1;
    }
    return rc;
}

/* The event did not come. Return 1 if it was found, -1 on error. */
static int process_posted (flux_plugin_t *p, flux_shell_t *shell)
{
    flux_future_t *f;
    json_t *eventlog;
    json_t *entry;
    size_t index;
    int rc = 0;

    if (!(f = get_eventlog (shell, &eventlog))) {
        shell_log_error ("error reading the job's eventlog: %s",
                         strerror (errno));
        return -1;
    }
    json_array_foreach (eventlog, index, entry) {
        if ((rc = process_event (p, shell, entry)) != 0)
            break;
    }
    flux_future_destroy (f);
    if (rc == 0) {
        no_storage ();
        rc = -1;
    }
    return rc;
}

/* Set '*nodeid' to the broker whose KVS has all commits before the event. */
static int import_variables (flux_plugin_t *p,
                             flux_shell_t *shell,
                             flux_jobid_t id,
                             uint32_t *nodeid)
{
    flux_t *h = flux_shell_get_flux (shell);
    flux_future_t *f;
    const char *event;
    json_t *entry;
    int rc = 0;

    *nodeid = FLUX_NODEID_ANY;
    if (!h || !(f = flux_job_event_watch (h, id, "eventlog", 0))) {
        shell_log_error ("error reading the job's eventlog: %s",
                         strerror (errno));
        return -1;
    }
    while (rc == 0) {
        if (flux_future_wait_for (f, PATIENCE) < 0 && errno == ETIMEDOUT) {
            rc = process_posted (p, shell);
            *nodeid = 0;
            break;
        }
        if (flux_job_event_watch_get (f, &event) < 0) {
            if (errno == ENODATA)
                no_storage ();
            else
                shell_log_error ("error reading the job's eventlog: %s",
                                 future_strerror (f, errno));
            rc = -1;
            break;
        }
        entry = json_loads (event, 0, NULL);
        rc = process_event (p, shell, entry);
        json_decref (entry);
        flux_future_reset (f);
    }
    if (flux_job_event_watch_cancel (f) < 0)
        shell_log_error ("error ending the watch of the job's eventlog: %s",
                         strerror (errno));
    flux_future_destroy (f);
    return rc < 0 ? -1 : 0;
}

/* Only a job that works with DWS itself has a token. */
static int import_token (flux_shell_t *shell,
                         flux_jobid_t id,
                         uint32_t nodeid)
{
    flux_t *h = flux_shell_get_flux (shell);
    flux_future_t *f;
    const char *token;
    int rc = -1;

    if (!(f = flux_rpc_pack (h,
                             "job-info.lookup",
                             nodeid,
                             0,
                             "{s:I s:[s] s:i}",
                             "id", (json_int_t)id,
                             "keys", TOKEN_KEY,
                             "flags", 0)))
        shell_log_error ("error asking for the workflow token: %s",
                         strerror (errno));
    else if (flux_rpc_get_unpack (f, "{s:s}", TOKEN_KEY, &token) < 0) {
        if (errno == ENOENT)
            rc = 0;
        else
            shell_log_error ("error reading the workflow token: %s",
                             future_strerror (f, errno));
    }
    else if (flux_shell_setenvf (shell, 1, TOKEN_VARIABLE, "%s", token) < 0)
        shell_log_error ("error setting %s: %s",
                         TOKEN_VARIABLE,
                         strerror (errno));
    else
        rc = 0;
    flux_future_destroy (f);
    return rc;
}

/* As dws-jobtap sees it. */
static bool asks_for_storage (json_t *dw)
{
    const char *s = json_string_value (dw);

    if (s)
        return s[strspn (s, " \t\n\v\f\r")] != '\0';
    return dw && !(json_is_array (dw) && json_array_size (dw) == 0);
}

static int init_cb (flux_plugin_t *p,
                    const char *topic,
                    flux_plugin_arg_t *args,
                    void *data)
{
    flux_shell_t *shell = flux_plugin_get_shell (p);
    json_int_t id;
    json_t *dw = NULL;
    uint32_t nodeid;

    if (!shell
        || flux_shell_info_unpack (shell,
                                   "{s:I s:{s?{s?{s?o}}}}",
                                   "jobid", &id,
                                   "jobspec",
                                     "attributes",
                                       "system",
                                         "dw", &dw) < 0) {
        shell_log_error ("error reading the jobspec: %s", strerror (errno));
        return -1;
    }
    if (!asks_for_storage (dw))
        return 0;
    // A job that asked for storage must not run without knowing where it is.
    if (import_variables (p, shell, id, &nodeid) < 0
        || import_token (shell, id, nodeid) < 0)
        return -1;
    return 0;
}

/* The first shell comes here when the others have sent all output. */
static int exit_cb (flux_plugin_t *p,
                    const char *topic,
                    flux_plugin_arg_t *args,
                    void *data)
{
    const char *copy_out = flux_plugin_aux_get (p, COPY_OUT);
    flux_shell_t *shell = flux_plugin_get_shell (p);

    if (copy_out && shell && has_failed (shell) == 0)
        log_copy_out (shell, "now, after the tasks", copy_out);
    return 0;
}

static const struct flux_plugin_handler tab[] = {
    { "shell.init", init_cb, NULL },
    { "shell.exit", exit_cb, NULL },
    { 0 },
};

int flux_plugin_init (flux_plugin_t *p)
{
    return flux_plugin_register (p, "dws_environment", tab);
}

// vi:ts=4 sw=4 expandtab
