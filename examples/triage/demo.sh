#!/bin/sh
# The complete demo: creates a shop with a bug in a temporary folder, starts the services around it and the web app, runs the
# workflow, and shows what was pushed. At a terminal, it leaves the page open until you press Enter.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cuebook=${CUEBOOK:-cuebook}
if ! command -v git >/dev/null; then
    echo "demo.sh: git is missing. Install it, for example with: apt-get install git" >&2
    exit 2
fi
folder=$(mktemp -d)
started=
finish() {
    trap - EXIT
    for process in $started; do kill "$process" 2>/dev/null || true; done
    for process in $started; do wait "$process" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

heading() {
    printf '\n==> %s\n' "$*"
}

# Waits for the first line that a process writes to a file.
first_line() {
    while [ ! -s "$2" ]; do
        kill -0 "$1" || exit 1
        sleep 0.1
    done
    head -n 1 "$2"
}

heading 'The model, the git server and the GitHub of this demo'
TRIAGE_PAUSE=${TRIAGE_PAUSE:-0.5} python3 "$here/services.py" 0 "$folder" >"$folder/services.url" &
started="$started $!"
url=$(first_line $! "$folder/services.url")
echo "$url"

heading 'The shop, with a bug'
python3 "$here/scratch.py" "$folder" "$url"
cd "$folder/shop"
tail -n 2 logs/shop.log
echo
cat "$folder/config/cuebook/policy.toml"

export XDG_CONFIG_HOME="$folder/config" CUEBOOK_STORE="$folder/runs.db"
export GITHUB_TOKEN=token-of-the-demo GITHUB_API_URL="$url/api"

heading 'cuebook explain triage.yml: what would be asked'
"$cuebook" explain triage.yml | sed -n '/^what would be asked/,/^$/p'

heading 'cuebook serve'
"$cuebook" serve --port 0 >"$folder/serve.log" 2>&1 &
started="$started $!"
first_line $! "$folder/serve.log" >/dev/null
grep -o 'http://[^ ]*' "$folder/serve.log" | head -n 1
if [ -t 0 ]; then
    printf 'Open this link to watch, then press Enter to start the run. '
    read -r _
fi

code=0
heading 'cuebook run triage.yml'
"$cuebook" run triage.yml || code=$?

heading 'What arrived at the git server'
git --no-pager --git-dir="$folder/git/shop.git" log --oneline --decorate --all
git --no-pager --git-dir="$folder/git/shop.git" diff main fix-discount || true
heading 'The pull request'
cat "$folder/pulls.jsonl" 2>/dev/null || echo none
if [ -t 0 ]; then
    printf '\nThe page stays open until you press Enter. '
    read -r _
fi
exit "$code"
