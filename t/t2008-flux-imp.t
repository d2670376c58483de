#!/bin/sh
test_description='The site files, with the prolog and epilog scripts below flux-imp'

# An installed flux-imp takes its configuration from nobody. The one in a build tree
# of flux-security does: FLUX_IMP=.../flux-security/src/imp/flux-imp
if ! test -x "${FLUX_IMP:-}"; then
    echo "1..0 # SKIP FLUX_IMP names no flux-imp"
    exit 0
fi

# It never works for root, but for the user who called sudo, who must find the
# scripts.
perilog () {
    test -z "$FLUX_DWS_INSIDE" || return 0
    imp_user=$(id -un)
    if test "$imp_user" = root; then
        imp_user=nobody
        chmod a+x "$TRASH"
        export SUDO_USER="$imp_user"
    fi
    export FLUX_IMP_CONFIG_PATTERN="$TRASH/imp.toml"
    echo "allow-sudo = true" >"$FLUX_IMP_CONFIG_PATTERN"
    for name in prolog epilog; do
        cat >>"$FLUX_IMP_CONFIG_PATTERN" <<-END
	[run.$name]
	path = "$TRASH/bin/$name"
	allowed-users = [ "$imp_user" ]
	allowed-environment = [ "FLUX_*" ]
	END
    done
    prolog="\"$FLUX_IMP\", \"run\", \"prolog\""
    epilog="\"$FLUX_IMP\", \"run\", \"epilog\""
}

. "$(dirname "$0")/t2004-site-files.t"
