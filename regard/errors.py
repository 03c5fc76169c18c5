"""The exceptions that Regard raises for bad input, and how operating-system errors are worded."""

import errno
import os
import re
from pathlib import Path


class RegardError(ValueError):
    """An error caused by input: a file, a text, an option or a value. The message says what is wrong and what to do.

    Any other exception is a bug in Regard (or in the caller's program) and keeps its traceback.
    """


class ModelError(RegardError):
    """An error caused by the model, not by the input: its weights are damaged. A server responds with status 500."""

    def __init__(self, message: str = "the model produced non-finite values (NaN or infinity): check its weights"):
        super().__init__(message)


class TextError(RegardError):
    """An error caused by one of the texts of a call. Callers who know where it came from can name its file and line."""

    def __init__(self, number: int, count: int, problem: str) -> None:
        super().__init__(f"text {number} {problem}" if count > 1 else f"the text {problem}")
        self.number = number
        """Index of the text among the texts of the call."""
        self.problem = problem
        """What is wrong with it: a sentence without its subject."""


class CallError(RegardError):
    """An error whose remedy is a call or an argument in Python, and a command or an option on the command line."""

    def __init__(self, message: str, command_line_message: str) -> None:
        super().__init__(message, command_line_message)  # both, so that it can be sent to another process
        self.command_line_message = command_line_message
        """The message with the command or option to use."""

    def __str__(self) -> str:
        return str(self.args[0])


DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers that mean the disk is full, or the user's share of it."""
UNWRITABLE_ERRNOS = (*DISK_FULL_ERRNOS, errno.EROFS)
"""Error numbers that mean that nothing more can be written to this location."""
ERRNO_ADVICE = {
    errno.ENOSPC: "free some space, or choose another location",
    errno.EDQUOT: "free some of your quota, or choose another location",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another location",
    errno.EROFS: "choose a location that can be written",
    errno.EACCES: "check the permissions, or choose another location",
    errno.EPERM: "check the permissions, or choose another location",
}
"""Advice for errors of the operating system."""


class WriteError(OSError, RegardError):
    """A file could not be written. The message names the file and says why, and what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.message = message

    def __str__(self) -> str:
        return self.message


def error_number(error: BaseException) -> int:
    """Return the operating system's error number, or 0. Libraries written in Rust have it only in their message."""
    if isinstance(error, OSError):
        return error.errno or 0
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else 0


def describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system, without its number, and say what to do about it."""
    if isinstance(error, WriteError) or error.strerror is None:
        return str(error)
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    advice = ERRNO_ADVICE.get(error.errno or 0)
    return f"{where}{error.strerror}" + (f": {advice}" if advice else "")


def write_error(error: BaseException, path: Path) -> WriteError:
    """Return the error to raise when `path` could not be written."""
    code = error_number(error)
    reason = os.strerror(code) if code else str(error)
    advice = ERRNO_ADVICE.get(code)
    return WriteError(code, f"{path} cannot be written: {reason}" + (f"; {advice}" if advice else ""))
