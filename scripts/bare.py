"""Runs a command as if on a machine without any of the optional programs, and with an empty home folder.

    python3 scripts/bare.py COMMAND...

Needs only the standard library.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HIDDEN = ("bwrap", "chromium", "chromium-browser", "google-chrome", "curl", "git")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bare-") as made:
        programs, home = Path(made, "bin"), Path(made, "home")
        programs.mkdir()
        home.mkdir()
        for folder in os.get_exec_path():
            link_programs(Path(folder), programs)
        environ = {name: value for name, value in os.environ.items() if name not in ("CHROMIUM", "XDG_CONFIG_HOME")}
        environ |= {"PATH": str(programs), "HOME": str(home)}
        print(f"==> Hidden from PATH: {', '.join(HIDDEN)}", file=sys.stderr, flush=True)
        return subprocess.run(sys.argv[1:], env=environ, check=False).returncode


def link_programs(folder: Path, programs: Path) -> None:
    """Links the programs in one folder of the PATH, except the hidden ones; earlier folders take precedence."""
    if not folder.is_dir():
        return
    for program in folder.iterdir():
        link = programs / program.name
        if program.name not in HIDDEN and not link.is_symlink() and os.access(program, os.X_OK):
            link.symlink_to(program)


if __name__ == "__main__":
    sys.exit(main())
