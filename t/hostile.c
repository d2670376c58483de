/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* hostile.c: a jobtap plugin that raises a fatal exception on each job, once, in
 * the callback that its configuration names: topic=job.update
 */

#include <string.h>
#include <jansson.h>
#include <flux/core.h>
#include <flux/jobtap.h>

static int callback (flux_plugin_t *p,
                     const char *topic,
                     flux_plugin_arg_t *args,
                     void *data)
{
    const char *expected;

    if (strcmp (topic, "job.new") == 0)
        return flux_jobtap_job_subscribe (p, FLUX_JOBTAP_CURRENT_JOB);
    if (flux_plugin_conf_unpack (p, "{s:s}", "topic", &expected) < 0
        || strcmp (topic, expected) != 0
        || flux_jobtap_job_aux_get (p, FLUX_JOBTAP_CURRENT_JOB, "raised"))
        return 0;
    if (flux_jobtap_job_aux_set (p,
                                 FLUX_JOBTAP_CURRENT_JOB,
                                 "raised",
                                 "yes",
                                 NULL) < 0)
        return -1;
    return flux_jobtap_raise_exception (p,
                                        FLUX_JOBTAP_CURRENT_JOB,
                                        "hostile",
                                        0,
                                        "in %s",
                                        topic);
}

static const struct flux_plugin_handler tab[] = {
    { "job.*", callback, NULL },
    { 0 },
};

int flux_plugin_init (flux_plugin_t *p)
{
    return flux_plugin_register (p, "hostile", tab);
}

// vi:ts=4 sw=4 expandtab
