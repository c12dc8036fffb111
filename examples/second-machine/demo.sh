#!/bin/sh
# The complete demo: demo.sh [ask|approve|deny] starts a server and a second machine (a process with its own token, key and folder),
# and runs a command there after two of three people approved (with approve or deny, alice and bob decide by themselves).
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
    echo "demo.sh: there is no terminal to ask in. Use make node ARGS=approve, or ARGS=deny." >&2
    exit 2
fi
folder=$(mktemp -d)
server=
laptop=
finish() {
    trap - EXIT
    for process in $laptop $server; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

heading() {
    printf '\n==> %s\n' "$*"
}

# Waits until a file contains something, as long as its process runs.
await() {
    until grep -q "$2" "$1" 2>/dev/null; do
        kill -0 "$3" 2>/dev/null || {
            cat "$1" >&2
            exit 1
        }
        sleep 0.1
    done
}

mkdir -p "$folder/workspace" "$folder/config" "$folder/laptop"
cp "$here/inspect.yml" "$folder/workspace"
cp "$here/report.sh" "$folder/laptop"
echo 'the laptop' > "$folder/laptop/name"
export XDG_CONFIG_HOME="$folder/config" CUEBOOK_STORE="$folder/runs.db"
cd "$folder/workspace"

heading 'The people'
for name in alice bob carol; do
    "$cuebook" users add $name --role approver --role viewer > /dev/null
    echo "$name"
done

heading 'The server'
"$cuebook" serve --port 0 --folder . > "$folder/server.log" 2>&1 &
server=$!
await "$folder/server.log" 'Open http' "$server"
url=$(sed -n 's|.*Open \(http://[^/]*\).*|\1|p' "$folder/server.log")
echo "$url"

heading 'cuebook nodes add laptop'
token=$("$cuebook" nodes add laptop --json | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
echo 'It prints a token, which pairs one machine.'

heading "cuebook node --connect $url --token ... --allow 'sh report.sh'   (the second machine)"
(cd "$folder/laptop" && CUEBOOK_NODE_TOKEN=$token exec "$cuebook" node --connect "$url" --data "$folder/laptop-data" \
    --allow 'sh report.sh' --no-desktop) > "$folder/laptop.log" 2>&1 &
laptop=$!
await "$folder/laptop.log" 'is connected' "$laptop"
cat "$folder/laptop.log"

heading 'cuebook run inspect.yml --no-ask'
code=0
"$cuebook" run inspect.yml --no-ask || code=$?
run=$("$cuebook" runs --json | sed -n 's/.*"run": *"\([^"]*\)".*/\1/p')
if [ "$code" != 3 ] || [ -z "$run" ]; then exit "$code"; fi

for name in alice bob; do
    vote=$decision
    if [ "$decision" = ask ]; then
        printf '\n%s, may the laptop write its report? [y/n] ' "$name"
        read -r reply
        case $reply in [yY]*) vote=approve ;; *) vote=deny ;; esac
    fi
    heading "cuebook decide $run $vote --as $name"
    code=0
    "$cuebook" decide "$run" "$vote" --as "$name" || code=$?
    if [ "$vote" = deny ]; then break; fi
done

heading 'What the second machine says'
cat "$folder/laptop.log"
heading 'Its folder'
ls "$folder/laptop"
if [ "$code" = 5 ]; then code=0; fi
exit "$code"
