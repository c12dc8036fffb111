"""Creates a small shop with a bug, and the repository it is pushed to: `scratch.py FOLDER URL`.

FOLDER/shop is the clone to work in, with 1,200 files that git ignores; FOLDER/git/shop.git is its origin, which a server offers
below URL.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
IGNORED = 1_200

PRICES = '''\
"""The prices of the shop, in cents."""


def subtotal(items):
    return sum(price * count for price, count in items)


def discount(total, percent):
    """The part of the total that the customer saves."""
    return total * percent // 10


def to_pay(items, percent=0):
    total = subtotal(items)
    saved = discount(total, percent)
    if saved > total:
        raise ValueError(f"a discount of {saved} is more than the total of {total}")
    return total - saved
'''

TESTS = """\
import unittest

from shop.prices import to_pay


class Prices(unittest.TestCase):
    def test_without_a_discount_everything_is_paid(self):
        self.assertEqual(to_pay([(250, 2), (100, 1)]), 600)

    def test_a_discount_is_a_percentage(self):
        self.assertEqual(to_pay([(250, 2), (100, 1)], percent=20), 480)
"""

LOG = """\
2026-11-02 09:14:07 INFO  order 1041: paid 480
2026-11-02 09:15:55 INFO  order 1042: no discount
2026-11-02 09:16:03 ERROR order 1043: ValueError: a discount of 1200 is more than the total of 600
2026-11-02 09:16:03 ERROR   at to_pay (shop/prices.py:17)
"""

# The machine's own git settings (hooks, signatures, names) must not affect the repository.
SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **SETTINGS}, check=True)


def settings(url: str) -> str:
    """The settings file: the model is the one of `engineer.py`."""
    return f'model = "demo/engineer"\n\n[providers.demo]\nbase_url = "{url}/v1"\n'


def policy(host: str) -> str:
    """The policy: the preset for nodes that work on their own, and what it would ask about: this host, and pull requests."""
    return f"""version = 1
preset = "agent"

[tools]
allow = ["github_create_pr"]

[egress]
allow = ["http://{host}/*"]
"""


def create(folder: Path, url: str) -> None:
    bare, shop = folder / "git" / "shop.git", folder / "shop"
    bare.mkdir(parents=True)
    git(bare, "init", "--quiet", "--bare", "--initial-branch=main")
    git(bare, "config", "http.receivepack", "true")
    files = {
        "shop/__init__.py": "",
        "shop/prices.py": PRICES,
        "tests/__init__.py": "",
        "tests/test_prices.py": TESTS,
        "logs/shop.log": LOG,
        ".gitignore": "__pycache__/\nnode_modules/\n",
        **{f"node_modules/part{n % 40}/discount{n}.js": f"exports.discount = {n};\n" for n in range(IGNORED)},
    }
    for name, text in files.items():
        path = shop / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(HERE / "triage.yml", shop)
    git(shop, "init", "--quiet", "--initial-branch=main")
    git(shop, "config", "user.name", "Triage demo")
    git(shop, "config", "user.email", "triage@example.com")
    git(shop, "remote", "add", "origin", f"{url}/git/shop.git")
    git(shop, "add", "--all")
    git(shop, "commit", "--quiet", "--message", "Sell things")
    git(shop, "push", "--quiet", str(bare), "main")


if __name__ == "__main__":
    folder, url = Path(sys.argv[1]), sys.argv[2].rstrip("/")
    create(folder, url)
    config = folder / "config" / "cuebook"
    config.mkdir(parents=True)
    (config / "cuebook.toml").write_text(settings(url))
    (config / "policy.toml").write_text(policy(url.partition("//")[2]))
