#!/bin/sh
test_description='The user database fails, and is asked again'
. "$(dirname "$0")/tap.sh"

# A look-up of users that fails for as long as there is a file.
library_make () {
    cat >"$TRASH/users.c" <<-'END'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <errno.h>
	#include <pwd.h>
	#include <stdlib.h>
	#include <unistd.h>
	typedef int look_up_f (uid_t, struct passwd *, char *, size_t, struct passwd **);
	int getpwuid_r (uid_t uid, struct passwd *pw, char *buf, size_t n,
	                struct passwd **r)
	{
	    look_up_f *look_up = (look_up_f *)dlsym (RTLD_NEXT, "getpwuid_r");
	    *r = NULL;
	    if (access (getenv ("USERS_FAIL"), F_OK) == 0)
	        return ECONNREFUSED;
	    return look_up (uid, pw, buf, n, r);
	}
	END
    cc -shared -fPIC -o "$TRASH/users.so" "$TRASH/users.c" -ldl
}

cluster_start
if test -z "$FLUX_DWS_INSIDE"; then
    library_make || die "cc failed"
    export LD_PRELOAD="$TRASH/users.so"
    export USERS_FAIL="$TRASH/users.fail"
fi
instance_start 1

test_expect_success 'the module is loaded' '
    module_load
'
test_expect_success 'while the user database fails a job waits, and the log says why' '
    touch "$USERS_FAIL" &&
    id=$(job_submit true) &&
    eventually log_says "dws.warning[0]: the user database fails: user $(id -u): Connection refused; asking it again in 1 s" &&
    eventually log_says "asking it again in 2 s" &&
    flux module stats dws &&
    ! has_event $id exception
'
test_expect_success 'a job goes on when the user database answers' '
    rm "$USERS_FAIL" &&
    job_succeeds $id
'
test_done
