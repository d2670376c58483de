#!/bin/sh
# Run the tests in t/*.t against the flux on PATH, and count.
#
# usage: t/run.sh [FILE...]
#
# The exit status is 0 if all passed, or if there is no Flux.

cd "$(dirname "$0")" || exit 1
if ! command -v flux >/dev/null; then
    echo "t/*.t skipped: no flux on PATH"
    exit 0
fi
echo "t/*.t with $(flux version | sed -n 's/^commands:[[:space:]]*/flux /p')"

passed=0
failed=0
skipped=0
for test in ${*:-t[0-9]*.t}; do
    begin=$(date +%s)
    output=$(timeout -k 10 300 "./${test##*/}" 2>&1)
    status=$?
    ok=$(printf '%s\n' "$output" | grep -c '^ok ')
    skip=$(printf '%s\n' "$output" | grep -c '^ok .* # skip ')
    bad=$(printf '%s\n' "$output" | grep -c '^not ok ')
    plan=$(printf '%s\n' "$output" | sed -n 's/^1\.\.\([0-9]*\)$/\1/p')
    if test "$bad" -eq 0; then
        # It did not get to its end, or something went wrong after that.
        test "$status" -eq 0 && test "$plan" = "$ok" || bad=1
    fi
    passed=$((passed + ok - skip))
    skipped=$((skipped + skip))
    failed=$((failed + bad))
    printf '%-24s %3d passed' "${test##*/}" "$((ok - skip))"
    test "$skip" -eq 0 || printf ', %d skipped' "$skip"
    test "$bad" -eq 0 || printf ', %d failed' "$bad"
    printf ' in %d s\n' "$(($(date +%s) - begin))"
    if test "$bad" -ne 0; then
        printf '%s\n' "$output" | sed 's/^/    /'
        echo "    ${test##*/} ended with status $status"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
test "$failed" -eq 0
