"""What is known of programs by their names alone: which are shells, which do as their input says, which start others, which only look."""

from __future__ import annotations

from posixpath import basename

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish"})

INTERPRETERS = SHELLS | frozenset(
    (
        *("csh", "tcsh", "rbash", "rksh", "yash", "nu", "xonsh", "pwsh", "powershell", "su", "newgrp", "script"),
        *(
            "python",
            "ipython",
            "pypy",
            "uv",
            "node",
            "deno",
            "bun",
            "perl",
            "ruby",
            "irb",
            "pry",
            "php",
            "lua",
            "luajit",
        ),
        *("tclsh", "wish", "expect", "r", "rscript", "julia", "octave", "ghci", "iex", "jshell", "groovy", "scala"),
        *("guile", "racket", "sbcl", "ocaml", "awk", "gawk", "mawk", "m4", "gnuplot", "gdb", "osascript"),
        *("ed", "ex", "vi", "vim", "nvim", "make", "xargs", "parallel", "env", "ssh", "at", "batch", "crontab"),
        *("psql", "mysql", "mariadb", "sqlite", "duckdb", "redis-cli", "mongosh"),
    )
)
"""Programs that do what their input says, so that it is as much a command as their arguments are."""

FILTERS = frozenset(
    (
        *("cat", "tac", "tee", "echo", "printf", "head", "tail", "wc", "nl", "sort", "uniq", "comm", "join", "paste"),
        *("cut", "tr", "rev", "fold", "fmt", "column", "grep", "egrep", "fgrep", "diff", "cmp", "jq", "iconv"),
        *("od", "xxd", "hexdump", "base64", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum", "gzip", "gunzip"),
    )
)
"""Programs that only look at their input and start no other: a word after them names a file or a text."""

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
    """Also by its path, and with its version: `/usr/bin/python3.11` is a python, and so is the image `python:3.11`."""
    name = basename(word).partition(":")[0].lower()
    return name.removesuffix(".exe").rstrip("-.0123456789") in INTERPRETERS
