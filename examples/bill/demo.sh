#!/bin/sh
# Talks to the program. In a terminal, you answer; otherwise each line of stdin is an answer, as in demo.sh < answers.txt.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cuebook=${CUEBOOK:-cuebook}
if [ -t 0 ] && [ -t 1 ]; then
    exec "$cuebook" run "$here/bill.pbasm" "$@"
fi
echo 'There is no terminal, so the answers are read from stdin, one per line.' >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
answer=
run=
while :; do
    if [ -z "$run" ]; then
        "$cuebook" run "$here/bill.pbasm" --no-ask "$@" 2>"$log" >/dev/null || code=$?
        run=$(sed -n 's/^run: //p' "$log")
        sed -n '1p' "$log" >&2
    else
        code=0
        "$cuebook" answer "$run" "$answer" --no-ask 2>"$log" >/dev/null || code=$?
    fi
    if [ "$code" != 3 ]; then break; fi
    sed -n '2,/^status: /{/^status: /!p;}' "$log" >&2
    if ! IFS= read -r answer; then
        sed -n '/^status: /,$p' "$log" >&2
        exit "$code"
    fi
done
sed -n '2,$p' "$log" >&2
exit "$code"
