/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* R.c: the nodes of a job, and the text of R, from the KVS into dws.setup
 *
 * R of a large job has 100 MB. The job manager does not need to know what is in
 * it, so it neither parses nor encodes it. A KVS look-up of the value would do
 * both: values are base64 in JSON there. A look-up of the tree object (RFC 11)
 * says which blob R is, and the content service (RFC 10) returns that as it is.
 */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

#define DIGEST_MAX 64

/* The R of a callback's arguments has the nodes, but no scheduling key. */
void dws_R_nodes (struct dws *dws, flux_jobid_t id, char *buf, size_t size)
{
    flux_plugin_arg_t *args = flux_jobtap_job_lookup (dws->p, id);
    json_t *nodelist = NULL;
    size_t index;
    json_t *entry;
    size_t used = 0;

    if (args)
        (void)flux_plugin_arg_unpack (args,
                                      FLUX_PLUGIN_ARG_IN,
                                      "{s:{s:{s:o}}}",
                                      "R",
                                        "execution",
                                          "nodelist", &nodelist);
    json_array_foreach (nodelist, index, entry) {
        const char *s = json_string_value (entry);
        if (s && used < size)
            used += snprintf (buf + used,
                              size - used,
                              "%s%s",
                              used > 0 ? "," : "",
                              s);
    }
    if (used == 0)
        snprintf (buf, size, "unknown nodes");
    flux_plugin_arg_destroy (args);
}

flux_future_t *dws_R_lookup (struct dws *dws, flux_jobid_t id)
{
    char key[64];

    if (flux_job_kvs_key (key, sizeof (key), id, "R") < 0)
        return NULL;
    return flux_kvs_lookup (dws->h, NULL, FLUX_KVS_TREEOBJ, key);
}

/* Decode the hash of a blobref, "sha1-0123..." say. Return its size, or -1. */
static ssize_t blobref_decode (const char *blobref, uint8_t *hash, size_t size)
{
    const char *s = strchr (blobref, '-');
    size_t n;
    unsigned int byte;

    if (!s || strlen (++s) % 2 != 0 || strlen (s) / 2 > size)
        return -1;
    for (n = 0; s[2 * n] != '\0'; n++) {
        if (!isxdigit ((unsigned char)s[2 * n])
            || !isxdigit ((unsigned char)s[2 * n + 1])
            || sscanf (s + 2 * n, "%2x", &byte) != 1)
            return -1;
        hash[n] = byte;
    }
    return n;
}

/* A valid R is longer than a blobref, so the KVS stores it as one blob. */
flux_future_t *dws_R_load (struct dws *dws, flux_future_t *f)
{
    const char *s;
    json_t *treeobj = NULL;
    const char *type;
    const char *blobref;
    uint8_t hash[DIGEST_MAX];
    ssize_t size;

    if (flux_kvs_lookup_get_treeobj (f, &s) < 0)
        return NULL;
    if (!(treeobj = json_loads (s, 0, NULL))
        || json_unpack (treeobj,
                        "{s:s s:[s!]}",
                        "type", &type,
                        "data", &blobref) < 0
        || strcmp (type, "valref") != 0
        || (size = blobref_decode (blobref, hash, sizeof (hash))) < 0) {
        json_decref (treeobj);
        errno = EPROTO;
        return NULL;
    }
    json_decref (treeobj);
    return flux_rpc_raw (dws->h,
                         "content.load",
                         hash,
                         size,
                         FLUX_NODEID_ANY,
                         0);
}

/* Return true if the text may be a JSON object. The module reads it. */
static bool is_object (const char *s, size_t size)
{
    while (size > 0 && isspace ((unsigned char)s[size - 1]))
        size--;
    while (size > 0 && isspace ((unsigned char)*s)) {
        size--;
        s++;
    }
    return size >= 2
        && s[0] == '{'
        && s[size - 1] == '}'
        && !memchr (s, '\0', size);
}

char *dws_R_setup (flux_jobid_t id, flux_future_t *f)
{
    const void *R;
    size_t size;
    char *payload;
    int n;

    if (flux_rpc_get_raw (f, &R, &size) < 0)
        return NULL;
    if (!is_object (R, size)) {
        errno = EPROTO;
        return NULL;
    }
    if (!(payload = malloc (size + 64)))
        return NULL;
    n = sprintf (payload, "{\"jobid\":%ju,\"R\":", (uintmax_t)id);
    memcpy (payload + n, R, size);
    strcpy (payload + n + size, "}");
    return payload;
}

// vi:ts=4 sw=4 expandtab
