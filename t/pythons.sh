#!/bin/sh
# Run the Python tests on other Pythons, and say what none of them could run.
#
# usage: t/pythons.sh [PYTHON...]
#
# Without PYTHON: on the oldest and on the newest Python 3 that is found, of those that
# flux-dws is for, as python3.N on PATH or as one of pyenv's. Each has a virtual
# environment in build/. The exit status is 0 if all passed.

cd "$(dirname "$0")/.." || exit 1
OUTPUT=$(mktemp -d "${TMPDIR:-/tmp}/flux-dws-pythons.XXXXXX") || exit 1
trap 'rm -rf "$OUTPUT"' EXIT

# usage: minor PYTHON: the N of its version 3.N; nothing if it cannot be run
minor () {
    "$1" -c 'import sys, venv, ensurepip; print(sys.version_info[1])' 2>/dev/null
}

# Those that are found, "N PYTHON" on a line, the oldest first
pythons () {
    for python in $(seq -f 'python3.%g' 9 30) \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
        python_minor=$(minor "$python") || continue
        test "$python_minor" -lt 9 || echo "$python_minor $python"
    done | sort -n -u -k 1,1
}

# usage: test_on PYTHON
test_on () {
    venv=build/python-3.$(minor "$1") || return
    echo "$1: $("$1" --version)"
    make PYTHON="$1" VENV="$venv" pytest PYTEST_FLAGS="-n auto --dist worksteal -rs" \
        >"$OUTPUT/log" 2>&1
    status=$?
    grep -a '^SKIPPED' "$OUTPUT/log" >>"$OUTPUT/skipped"
    if test "$status" -eq 0; then
        tail -n 1 "$OUTPUT/log"
    else
        cat "$OUTPUT/log"
    fi
    return "$status"
}

if test $# -eq 0; then
    pythons >"$OUTPUT/pythons"
    # shellcheck disable=SC2046
    set -- $(sed -n '1p;$p' "$OUTPUT/pythons" | cut -d ' ' -f 2 | uniq)
    test $# -gt 0 || { echo "no Python 3.9 or newer was found" >&2; exit 1; }
fi
failed=
for python; do
    test_on "$python" || failed="$failed $python"
done
echo "Skipped:"
sed 's/^SKIPPED \[[0-9]*\] [^ ]*: /  /' "$OUTPUT/skipped" | sort | uniq -c | sort -rn
test -z "$failed" || { echo "failed on:$failed" >&2; exit 1; }
