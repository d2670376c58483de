/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* conf.c: the arguments of the plugin (the epilog-timeout), its key of the
 * configuration (directives_limit), and the Flux that it is loaded into
 */

#include <stdio.h>
#include <string.h>

#include "text.h"
#include "plugin.h"

/* The build refuses a Flux that is too old, but the plugin may have been built
 * elsewhere. DWS_OLDEST_FLUX is that of flux_k8s/version.py.
 */
static int check_flux (struct dws *dws, char *error, size_t size)
{
    const char *version = flux_attr_get (dws->h, "version");

    if (!version || strverscmp (version, DWS_OLDEST_FLUX) >= 0)
        return 0;
    snprintf (error,
              size,
              "dws-jobtap.so needs flux-core %s or newer, this is %s",
              DWS_OLDEST_FLUX,
              version);
    return -1;
}

static int conf_parse_key (struct dws *dws,
                           const char *key,
                           json_t *value,
                           char *error,
                           size_t size)
{
    char shown[40];

    if (strcmp (key, "epilog-timeout") != 0) {
        dws_format (error,
                    size,
                    "dws: expected epilog-timeout, found unknown key %s",
                    key);
        return -1;
    }
    if (!json_is_number (value) || !(json_number_value (value) > 0.)) {
        snprintf (error,
                  size,
                  "dws: %s is %s, expected seconds > 0",
                  key,
                  dws_show (value, shown, sizeof (shown)));
        return -1;
    }
    dws->epilog_timeout = json_number_value (value);
    return 0;
}

int dws_conf_parse (struct dws *dws, char *error, size_t size)
{
    const char *s = flux_plugin_get_conf (dws->p);
    json_t *conf;
    const char *key;
    json_t *value;
    int rc = 0;

    if (check_flux (dws, error, size) < 0)
        return -1;
    dws->epilog_timeout = 0.;
    if (!s || !(conf = json_loads (s, 0, NULL)))
        return 0;
    json_object_foreach (conf, key, value) {
        if (conf_parse_key (dws, key, value, error, size) < 0)
            rc = -1;
    }
    json_decref (conf);
    return rc;
}

void dws_conf_limit_directives (struct dws *dws, json_t *limit)
{
    json_int_t n = json_integer_value (limit);

    dws->directives_limit = DWS_DIRECTIVES_LIMIT;
    if (json_is_integer (limit) && n > 0 && n <= DWS_DIRECTIVES_BYTES)
        dws->directives_limit = n;
}

// vi:ts=4 sw=4 expandtab
