"""Classifies programs by name: shells, interpreters of their input, wrappers of other commands, and read-only programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from posixpath import basename, normpath
from typing import NamedTuple

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
"""Programs that execute their input, so the input is as much a command as the arguments."""

FILTERS = frozenset(
    (
        *("cat", "tac", "tee", "echo", "printf", "head", "tail", "wc", "nl", "sort", "uniq", "comm", "join", "paste"),
        *("cut", "tr", "rev", "fold", "fmt", "column", "grep", "egrep", "fgrep", "diff", "cmp", "jq", "iconv"),
        *("od", "xxd", "hexdump", "base64", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum", "gzip", "gunzip"),
    )
)
"""Programs that only read their input and start no other programs, so their arguments are file names or text."""

ALIKE_EVERYWHERE = FILTERS | frozenset(
    (
        *("ls", "pwd", "true", "false", "test", "[", "stat", "file", "du", "df", "basename", "dirname", "realpath"),
        *("readlink", "date", "seq", "sleep", "which"),
    )
)
"""Programs that only read and ignore the settings of the folder they run in."""

_FOLDER_OPTIONS: dict[str, tuple[str, ...]] = {
    "git": ("-C", "--git-dir", "--work-tree", "-c", "--config-env", "--exec-path"),
    "env": ("-C", "--chdir"),
    **dict.fromkeys(("make", "gmake"), ("-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir")),
    **dict.fromkeys(("npm", "npx"), ("-C", "--prefix", "--userconfig", "--globalconfig")),
    **dict.fromkeys(("pnpm", "pnpx"), ("-C", "--dir")),
    **dict.fromkeys(("yarn", "bun", "bunx"), ("--cwd", "-c", "--config")),
    "deno": ("-c", "--config"),
    "cargo": ("-C", "--manifest-path", "--config"),
    "go": ("-C", "-modfile", "-overlay"),
    **dict.fromkeys(("pytest", "py.test"), ("-c", "--config-file", "--rootdir", "--confcutdir")),
    "tox": ("-c", "--conf", "--root", "--workdir"),
    "nox": ("-f", "--noxfile"),
    "mvn": ("-f", "--file"),
    "gradle": ("-p", "--project-dir", "-b", "--build-file", "-c", "--settings-file", "-I", "--init-script"),
    "ninja": ("-C", "-f"),
    "meson": ("-C",),
    "cmake": ("-S", "-P", "-C", "--build"),
    "just": ("-f", "--justfile", "-d", "--working-directory"),
    "task": ("-d", "--dir", "-t", "--taskfile"),
    "rake": ("-f", "--rakefile"),
    "bundle": ("--gemfile",),
    "composer": ("-d", "--working-dir"),
    **dict.fromkeys(("terraform", "tofu"), ("-chdir",)),
    "uv": ("--directory", "--project", "--config-file"),
    "poetry": ("-C", "--directory", "-P", "--project"),
    "pre-commit": ("-c", "--config"),
    "mypy": ("--config-file",),
    "eslint": ("-c", "--config"),
    "jest": ("-c", "--config", "--rootDir"),
    "vitest": ("-c", "--config", "-r", "--root", "--dir"),
    "tsc": ("-p", "--project", "-b", "--build"),
}
"""Options that make a program use another folder, or another folder's settings, and so decide what code it runs."""
_BEFORE_THE_VERB: dict[str, frozenset[str]] = {
    "git": frozenset({"--namespace", "--super-prefix", "--attr-source"}),
    "env": frozenset({"-u", "--unset", "-a", "--argv0"}),
    **dict.fromkeys(("terraform", "tofu"), frozenset[str]()),
}
"""Programs that accept these options only before their first plain argument; after it, the same letters mean something
else. Each is listed with its other options whose value is the next word.
"""


def choices_of_folder(argv: Sequence[str]) -> list[int]:
    """For each argument that selects another folder: the number of words up to and including its value."""
    name = basename(argv[0]) if argv else ""
    options = _FOLDER_OPTIONS.get(name, ())
    ends: list[int] = []
    for at, word in enumerate(argv[1:] if options else (), start=2):
        value_of_last = (bool(ends) and ends[-1] == at) or argv[at - 2] in _BEFORE_THE_VERB.get(name, ())
        if name in _BEFORE_THE_VERB and not word.startswith("-") and not value_of_last:
            break
        if any(_chooses(word, option) for option in options):
            alone = "=" not in word and (word.startswith("--") or len(word) == 2)
            ends.append(min(at + alone, len(argv)))
    return ends


def _chooses(word: str, option: str) -> bool:
    """Long options may be abbreviated; short ones may be combined, also with their value."""
    if option.startswith("--") or len(option) > 2:
        given = word.partition("=")[0]
        return len(given) > 3 and option.startswith(given)
    return word.startswith("-") and not word.startswith("--") and option[1] in word[1:]


_BARE_WRAPPERS = (
    *("env", "nice", "nohup", "time", "stdbuf", "setsid", "sudo", "doas", "xargs", "busybox", "toybox", "command"),
    *("exec", "builtin", "ionice", "watch", "strace", "ltrace", "unbuffer", "chronic", "unshare", "nsenter"),
    *("caffeinate", "systemd-run", "parallel"),
)
WRAPPERS = {
    **dict.fromkeys(_BARE_WRAPPERS, 0),
    **dict.fromkeys(("timeout", "chrt", "taskset", "flock", "chroot", "runuser"), 1),
}
"""Programs that run another command given after their own options, with the number of arguments that precede it."""


def is_interpreter(word: str) -> bool:
    """Recognises paths and versions too: `/usr/bin/python3.11` is Python, and so is the image `python:3.11`."""
    return _name(basename(word).partition(":")[0]) in INTERPRETERS


def _name(word: str) -> str:
    return word.lower().removesuffix(".exe").rstrip("-.0123456789")


# --- where an interpreter reads its code from ---


class _Options(NamedTuple):
    """The known options of an interpreter. Any other option could make it read code from its input."""

    flags: str = r"(?!)"
    """Options that do not affect where the code is, as a pattern."""
    valued: frozenset[str] = frozenset()
    """Options like `flags` whose value is the next word."""
    inline: str = r"(?!)"
    """Options followed by the code itself, as a pattern."""
    file: frozenset[str] = frozenset()
    """Options followed by the file name of the script."""
    commands: frozenset[str] = frozenset()
    """Words that come before the script."""
    refused: frozenset[str] = frozenset()
    """Words that can appear where a script is expected but are not scripts."""


_SHELL = _Options(r"[-+][abefhkmnpuvxBCEHPT]+|--(?:norc|noprofile|posix)", frozenset({"-o", "+o", "-O", "+O"}))
_AWK = _Options(r"-F.+|-v.+=.*|--posix|--csv", frozenset({"-F", "-v"}), file=frozenset({"-f"}))
_SCRIPT = _Options()
"""Interpreters that are recognised only with the script as the first argument."""

_OPTIONS: dict[str, _Options] = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "rbash", "rksh", "yash"), _SHELL),
    **dict.fromkeys(("fish", "csh", "tcsh", "nu", "xonsh", "tclsh", "wish", "expect", "julia", "rscript"), _SCRIPT),
    **dict.fromkeys(("groovy", "scala", "guile", "racket", "ocaml", "octave", "osascript", "gnuplot"), _SCRIPT),
    **dict.fromkeys(
        ("python", "pypy"),
        _Options(
            r"-[bBdEIOPqsSuvx]+|-[WX].+", frozenset({"-W", "-X", "--check-hash-based-pycs"}), "-[bBdEIOPqsSuvx]*c"
        ),
    ),
    "perl": _Options(r"-[acnpstTwWX]+|-[lF0][^eE]*|-[ImM].+", frozenset({"-I"}), r"-[acnplstTwWX0]*[eE]"),
    "ruby": _Options(r"-[acnplswW]+|-W[0-2]|-[IrEK].+", frozenset({"-I", "-r", "-E", "-C"}), r"-[acnplsw]*e"),
    "node": _Options(
        r"--(?:no-warnings|no-deprecation|enable-source-maps|use-strict)|--max-old-space-size=\d+|--(?:require|import)=.+",
        frozenset({"-r", "--require", "--import"}),
        r"-e|-p|-pe|--eval|--print",
        refused=frozenset({"inspect", "debug"}),
    ),
    "deno": _Options(
        r"-A|-q|--quiet|--no-[a-z-]+|--(?:allow|deny)-[a-z-]+(?:=.*)?",
        commands=frozenset({"run"}),
        refused=frozenset({"repl", "eval", "task", "test", "jupyter"}),
    ),
    "bun": _Options(commands=frozenset({"run"}), refused=frozenset({"repl", "x", "exec"})),
    "php": _Options(r"-[nqC]+|-d.+", frozenset({"-d", "-c"}), "-[rRBE]", frozenset({"-f", "-F"})),
    **dict.fromkeys(("lua", "luajit"), _Options(r"-[WE]|-l.+", frozenset({"-l"}), "-e")),
}
_AWKS = frozenset({"awk", "gawk", "mawk"})
_INPUT_VARIABLES = frozenset({"PYTHONINSPECT", "BASH_ENV", "ENV", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "PHPRC"})
"""Variables that can make an interpreter read code from its input even if it is given a script."""


def takes_code_from_input(argv: Sequence[str | None]) -> bool:
    """Whether an interpreter takes code from its input. With a script or the code itself as an argument, it reads its input as
    data. None stands for a word that is not known yet. When in doubt, returns True.
    """
    first, *rest = argv
    name = _name(basename(first or ""))
    options = _AWK if name in _AWKS else _OPTIONS.get(name)
    if options is None:
        return True
    words = iter(rest)
    for word in words:
        if word is None:
            return True
        if word in options.commands:
            continue
        if word in options.valued:
            if next(words, None) is None:
                return True
        elif re.fullmatch(options.inline, word):
            return next(words, None) is None
        elif word in options.file or word == "--":
            return not _is_script(next(words, None), options)
        elif re.fullmatch(options.flags, word):
            continue
        elif word.startswith(("-", "+")):
            return True
        else:  # awk's first word is its program
            return name not in _AWKS and not _is_script(word, options)
    return True


def code_argument(argv: Sequence[str]) -> str:
    """The code in an interpreter's arguments, as in `python3 -c CODE`; empty for shells, whose scripts are parsed."""
    options = _OPTIONS.get(_name(basename(argv[0]))) if argv else None
    if options is None:
        return ""
    for option, code in pairwise(argv[1:]):
        if re.fullmatch(options.inline, option):
            return code
    return ""


def modules_of(argv: Sequence[str]) -> list[str]:
    """The modules that a Python command runs, as in `python3 -m NAME`."""
    if not argv or _name(basename(argv[0])) not in ("python", "pypy"):
        return []
    found = [word for option, word in pairwise(argv[1:]) if re.fullmatch(r"-[bBdEIOPqsSuvx]*m", option)]
    joined = (re.fullmatch(r"-[bBdEIOPqsSuvx]*m([\w.]+)", word) for word in argv[1:])
    return [*found, *(one[1] for one in joined if one)]


def _is_script(word: str | None, options: _Options) -> bool:
    """Whether the word is the name of a file that is not an alias for stdin."""
    if word is None or word.startswith("-") or word in options.refused or not re.search(r"\w", word):
        return False
    path = normpath(word)
    return not (path.startswith(("/", "..")) and re.search(r"/(?:dev|proc)/", path))


def makes_input_code(variable: str) -> bool:
    """Whether this variable can make an interpreter take code from its input."""
    return variable in _INPUT_VARIABLES or variable.startswith("LUA_INIT")
