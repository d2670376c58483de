#!/bin/sh
# Run the tests in t/*.t against the flux on PATH, and count.

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
    output=$(timeout 300 ./"$test" 2>&1)
    status=$?
    ok=$(printf '%s\n' "$output" | grep -c '^ok ')
    skip=$(printf '%s\n' "$output" | grep -c '^ok .* # skip ')
    bad=$(printf '%s\n' "$output" | grep -c '^not ok ')
    if test "$status" -ne 0 && test "$bad" -eq 0; then
        bad=1
    fi
    passed=$((passed + ok - skip))
    skipped=$((skipped + skip))
    failed=$((failed + bad))
    printf '%-48s %s passed' "$test" "$((ok - skip))"
    test "$skip" -eq 0 || printf ', %s skipped' "$skip"
    echo
    if test "$bad" -ne 0; then
        printf '%s\n' "$output"
        echo "$test: $bad failed (exit $status)"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
test "$failed" -eq 0
