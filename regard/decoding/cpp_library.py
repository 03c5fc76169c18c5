"""Compile the C++ sources of `regard/decoding/cpp` once, and load the library.

The library is kept in the user's cache folder. Its name is a digest of everything that it depends on: the sources, the
compiler, its options and the processor.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from regard.errors import RegardError

SOURCES = Path(__file__).parent / "cpp"
OPTIONS = (
    "-std=c++17",
    "-O3",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
)
COMPILERS = ("c++", "g++", "clang++")
COMPILE_TIMEOUT_SECONDS = 600


class CompilerError(RegardError):
    """No C++ library could be compiled here."""


@lru_cache(maxsize=2)
def load_library(portable: bool = False) -> ctypes.CDLL:
    """The compiled library; `portable` leaves out the instructions of particular processors.

    Compiles it if this has not been done before, which takes seconds. Raises CompilerError if there is no compiler, or
    if it fails.
    """
    compiler = find_compiler()
    options = OPTIONS if portable else (*OPTIONS, "-march=native")
    path = cache_folder() / f"engine-{_digest(compiler, options)}.so"
    if not path.exists():
        _compile(compiler, options, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:  # the file is damaged, or nothing in its file system may be executed
        raise CompilerError(f"the library cannot be loaded: {error}; delete it, or set XDG_CACHE_HOME") from None


def find_compiler() -> list[str]:
    """The command of the C++ compiler: that of the variable CXX, or the first compiler that is installed."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    commands = [chosen] if chosen else [[name] for name in COMPILERS]
    for name, *arguments in commands:
        if path := shutil.which(name):
            return [path, *arguments]
    names = ", ".join(name for name, *_ in commands)
    raise CompilerError(f"no C++ compiler was found ({names}): install g++ or clang, or set CXX")


def cache_folder() -> Path:
    """The folder for compiled libraries, which only the user may write: a library runs as part of the program."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
    except RuntimeError:  # a user without a home folder
        raise CompilerError("no library can be written: there is no home folder; set XDG_CACHE_HOME") from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise CompilerError(f"no library can be written: {folder}: {error.strerror}") from None
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompilerError(f"{folder} belongs to or can be changed by other users: no library is loaded from it")
    return folder


def _digest(compiler: list[str], options: tuple[str, ...]) -> str:
    sha = hashlib.sha256()
    for part in (platform.machine(), _processor_features(), _version(compiler), *compiler, *options):
        sha.update(part.encode() + b"\0")
    for source in sorted(SOURCES.iterdir()):
        sha.update(source.read_bytes())
    return sha.hexdigest()[:16]


def _processor_features() -> str:
    """The processor's instructions, which -march=native compiles for."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _version(compiler: list[str]) -> str:
    try:
        return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompilerError(f"{shlex.join(compiler)} does not run: {error}") from None


def _compile(compiler: list[str], options: tuple[str, ...], path: Path) -> None:
    """Compile the library in a temporary folder, and move it to its name when it is complete."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        output = Path(folder) / path.name
        command = [*compiler, *options, str(SOURCES / "engine.cpp"), "-o", str(output)]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMPILE_TIMEOUT_SECONDS)
            output.replace(path)
        except subprocess.CalledProcessError as error:
            first = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr.strip()[:200])
            raise CompilerError(f"{compiler[0]} failed: {first}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilerError(f"{compiler[0]} failed: {error}") from None
