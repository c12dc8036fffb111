#!/bin/sh
# Creates a small git repository to release from: scratch.sh FOLDER [PORT]
# It has a release, v1.1.0, and two commits after it. PORT is the webhook's port, which the policy allows.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
port=${2:-8787}
if [ -e "$1" ]; then
    echo "$1 already exists. Remove it, or choose a different folder." >&2
    exit 2
fi
mkdir -p "$1"
cd "$1"

# The machine's own git settings (hooks, signatures, names) must not affect the repository.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git init --quiet --initial-branch=main
git config user.name 'Release demo'
git config user.email release@example.com

commit() {
    git add --all
    git commit --quiet --message "$1"
}

cat > greeting.py <<'END'
def greeting(name):
    return "Hello " + name
END
cat > test_greeting.py <<'END'
import unittest

from greeting import greeting


class Greeting(unittest.TestCase):
    def test_it_names_the_guest(self):
        self.assertIn("Ada", greeting("Ada"))
END
cp "$here/make_tag.py" "$here/release.yml" "$here/release.test.yaml" .
sed "s/8787/$port/" "$here/cuebook.policy.toml" > cuebook.policy.toml
printf '__pycache__/\n' > .gitignore
commit 'Greet a guest by name'
git tag --annotate --message 'The first one' v1.1.0

cat > greeting.py <<'END'
def greeting(name):
    return f"Hello {name}!"
END
commit 'End the greeting with an exclamation mark'

cat > greeting.py <<'END'
def greeting(name):
    return f"Hello {name or 'stranger'}!"
END
commit 'Greet strangers too'
