"""What is known of programs by their names alone: which are shells, which do as their input says, which start others."""

from __future__ import annotations

from posixpath import basename

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish"})

INTERPRETERS = SHELLS | frozenset(
    (
        *("csh", "tcsh", "pwsh", "powershell", "python", "pypy", "node", "deno", "bun", "perl", "ruby", "php", "lua"),
        *("luajit", "tclsh", "rscript", "julia", "awk", "gawk", "mawk", "ed", "make", "osascript", "xargs", "parallel"),
        *(
            "env",
            "ssh",
            "at",
            "batch",
            "crontab",
            "psql",
            "mysql",
            "mariadb",
            "sqlite",
            "duckdb",
            "redis-cli",
            "mongosh",
        ),
    )
)
"""Programs that do what their input says, so that it is as much a command as their arguments are."""

_BARE_WRAPPERS = (
    *("env", "nice", "nohup", "time", "stdbuf", "setsid", "sudo", "doas", "xargs", "busybox", "toybox", "command"),
    *("exec", "builtin", "ionice", "watch", "strace", "ltrace", "unbuffer", "chronic", "unshare", "nsenter"),
    *("caffeinate", "systemd-run", "parallel"),
)
WRAPPERS = {
    **dict.fromkeys(_BARE_WRAPPERS, 0),
    **dict.fromkeys(("timeout", "chrt", "taskset", "flock", "chroot", "runuser"), 1),
}
"""Programs that run the command after their own options, and how many words of their own come before it."""


def is_interpreter(word: str) -> bool:
    """Also by its path, and with its version: `/usr/bin/python3.11` is a python."""
    return basename(word).lower().removesuffix(".exe").rstrip("-.0123456789") in INTERPRETERS
