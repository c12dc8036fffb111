#!/bin/sh
# The whole of it: demo.sh [ask|approve|deny] makes a scratch repository in a temporary folder, starts the webhook, runs
# the release, has it decided (ask: by you), shows what came of it, and removes everything again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
decision=${1:-ask}
cuebook=${CUEBOOK:-cuebook}
folder=$(mktemp -d)
hook=
finish() {
    trap - EXIT
    if [ -n "$hook" ]; then kill "$hook" 2>/dev/null || true; fi
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

heading() {
    printf '\n==> %s\n' "$*"
}

heading 'The webhook'
python3 "$here/webhook.py" 0 "$folder/announced.jsonl" > "$folder/webhook.url" 2>"$folder/webhook.log" &
hook=$!
while [ ! -s "$folder/webhook.url" ]; do
    kill -0 "$hook" || exit 1
    sleep 0.1
done
url=$(cat "$folder/webhook.url")
port=${url#http://127.0.0.1:}
port=${port%%/*}
echo "$url"

heading 'The scratch repository'
sh "$here/scratch.sh" "$folder/repository" "$port"
cd "$folder/repository"
git log --oneline --decorate

export CUEBOOK_STORE="$folder/runs.db"
heading 'cuebook policy trust'
"$cuebook" policy trust

code=0
if [ "$decision" = ask ]; then
    heading 'cuebook run release.yml'
    "$cuebook" run release.yml --version 1.2.0 --webhook "$url" || code=$?
    run=$("$cuebook" runs --json | sed -n 's/.*"run": *"\([^"]*\)".*/\1/p' | head -n 1)
else
    heading 'cuebook run release.yml --no-ask'
    "$cuebook" run release.yml --version 1.2.0 --webhook "$url" --no-ask || code=$?
    run=$("$cuebook" runs --json | sed -n 's/.*"run": *"\([^"]*\)".*/\1/p' | head -n 1)
    if [ "$code" = 3 ]; then
        code=0
        heading "cuebook decide $run $decision"
        "$cuebook" decide "$run" "$decision" --reason 'as the demo was told' || code=$?
    fi
fi

heading "cuebook audit $run"
"$cuebook" audit "$run"
heading 'The tags'
git tag --list -n9
heading 'What the webhook has accepted'
cat "$folder/announced.jsonl" 2>/dev/null || echo nothing
exit "$code"
