#!/bin/sh
# The complete demo: demo.sh [ask|approve|deny] creates a scratch repository in a temporary folder, starts the webhook, runs
# the release, approves or denies it (with ask, you decide), shows the result, and removes everything again. After Ctrl-C, the
# release continues where it stopped; a second Ctrl-C ends the demo.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
decision=${1:-ask}
cuebook=${CUEBOOK:-cuebook}
case $decision in
    ask | approve | deny) ;;
    *)
        echo "demo.sh: '$decision' is not a decision. Use ask, approve or deny." >&2
        exit 2
        ;;
esac
if [ "$decision" = ask ] && [ ! -t 0 ]; then
    echo "demo.sh: there is no terminal to ask in. Use make pipeline DECISION=approve, or DECISION=deny." >&2
    exit 2
fi
if ! command -v git >/dev/null; then
    echo "demo.sh: git is missing. Install it, for example with: apt-get install git" >&2
    exit 2
fi
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
git --no-pager log --oneline --decorate

export CUEBOOK_STORE="$folder/runs.db"
heading 'cuebook policy trust'
"$cuebook" policy trust

code=0
silent=--no-ask
if [ "$decision" = ask ]; then silent=; fi
heading "cuebook run release.yml --version 1.2.0 $silent"
trap : INT
"$cuebook" run release.yml --version 1.2.0 --webhook "$url" $silent || code=$?
trap 'echo "The demo is over: its scratch repository and its runs were removed." >&2; exit 130' INT
run=$("$cuebook" runs --json | sed -n 's/.*"run": *"\([^"]*\)".*/\1/p')
if [ -z "$run" ]; then exit "$code"; fi
if [ "$code" = 130 ]; then
    code=0
    heading "cuebook resume $run $silent"
    "$cuebook" resume "$run" $silent || code=$?
fi
if [ "$code" = 3 ] && [ "$decision" != ask ]; then
    code=0
    heading "cuebook decide $run $decision"
    "$cuebook" decide "$run" "$decision" --reason 'as requested by the demo' || code=$?
fi

heading "cuebook audit $run"
"$cuebook" audit "$run"
heading 'The tags'
git --no-pager tag --list -n9
heading 'Announcements that the webhook accepted'
cat "$folder/announced.jsonl" 2>/dev/null || echo nothing
if [ "$code" = 5 ] && [ "$decision" = deny ]; then
    echo 'The release was denied, as requested: it is cancelled, and nothing was tagged or sent.'
    code=0
fi
exit "$code"
