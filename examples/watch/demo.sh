#!/bin/sh
# The complete demo: demo.sh [ask|approve|deny] starts a shop on this machine, looks at its page in a browser, lowers the price,
# and looks again. Before anything is ordered, it asks (with approve or deny, it decides by itself).
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
    echo "demo.sh: there is no terminal to ask in. Use make watch ARGS=approve, or ARGS=deny." >&2
    exit 2
fi
folder=$(mktemp -d)
shop=
finish() {
    trap - EXIT
    if [ -n "$shop" ]; then kill "$shop" 2>/dev/null || true; fi
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

heading() {
    printf '\n==> %s\n' "$*"
}

heading 'The shop'
echo 20 > "$folder/shop-price"
python3 "$here/shop.py" 0 "$folder" > "$folder/url" &
shop=$!
while [ ! -s "$folder/url" ]; do
    kill -0 "$shop" || exit 1
    sleep 0.1
done
url=$(cat "$folder/url")
echo "$url"

mkdir -p "$folder/workspace" "$folder/config/cuebook"
cp "$here/watch.yml" "$folder/workspace"
printf '[egress]\nallow = ["%s*"]\n[commands]\nallow = ["tee price"]\n' "$url" > "$folder/config/cuebook/policy.toml"
export XDG_CONFIG_HOME="$folder/config" CUEBOOK_STORE="$folder/runs.db"
cd "$folder/workspace"

heading "cuebook run watch.yml --shop $url (the price is 20)"
"$cuebook" run watch.yml --shop "$url" --no-ask

echo 15 > "$folder/shop-price"
silent=--no-ask
if [ "$decision" = ask ]; then silent=; fi
heading "cuebook run watch.yml --shop $url $silent (the price is 15)"
code=0
"$cuebook" run watch.yml --shop "$url" $silent || code=$?
if [ "$code" = 3 ] && [ "$decision" != ask ]; then
    run=$("$cuebook" inbox --json | tr ',' '\n' | sed -n 's/.*"run": *"\([^"]*\)".*/\1/p' | head -n 1)
    code=0
    heading "cuebook decide $run $decision"
    "$cuebook" decide "$run" "$decision" || code=$?
fi

heading 'What was ordered'
cat "$folder/orders" 2>/dev/null || echo nothing
if [ "$code" = 5 ]; then code=0; fi
exit "$code"
