/* Copyright 2026 the flux-dws developers
 * SPDX-License-Identifier: LGPL-3.0-only
 */

/* check.c: the stand-in declarations agree with Flux's
 *
 * Compiled, and not linked into anything, where Flux's headers are installed.
 */

#define FLUX_SHELL_PLUGIN_NAME "check"

#include <flux/core.h>
#include <flux/jobtap.h>
#include <flux/shell.h>

#define STANDIN_CHECK

#include "flux/core.h"
#include "flux/jobtap.h"
#include "flux/shell.h"

// vi:ts=4 sw=4 expandtab
