"""Readers of compressed files that report damage, where those of their libraries would end as if at the end."""

import gzip
import lzma
import shlex
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from regard.errors import RegardError

ByteReader = BufferedReader | gzip.GzipFile
COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst")
"""Endings of the names of compressed files."""
SIGNATURES = {
    b"\x1f\x8b\x08": ("gzip", ".gz"),
    b"\xfd7zXZ\0": ("xz", ".xz"),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst"),
    b"BZh": ("bzip2", ".bz2"),
    b"PK\x03\x04": ("zip", ".zip"),
}
"""The first bytes of compressed files, the name of the format and its usual ending."""
BZIP2_BLOCK = b"1AY&SY"
"""What follows the first four bytes of a bzip2 file: text may begin with BZh."""


def open_compressed(path: str) -> ByteReader:
    """Open a file whose name ends in one of `COMPRESSED_SUFFIXES`.

    Raises an EOFError if it has no bytes: an archive of no text has some, and an interrupted download may have none.
    """
    if Path(path).stat().st_size == 0:
        raise EOFError("the archive is empty")
    if path.endswith(".gz"):
        return gzip.GzipFile(path)
    return BufferedReader(XzReader(path) if path.endswith(".xz") else ZstdReader(path), 1 << 16)


def refuse_compressed(path: str, file: BufferedReader) -> None:
    """Raise a RegardError if a file that is read as text is compressed, which its name does not say."""
    start = file.peek(10)[:10]
    for signature, (name, suffix) in SIGNATURES.items():
        if start.startswith(signature) and (name != "bzip2" or start[4:] == BZIP2_BLOCK):
            is_known = suffix in COMPRESSED_SUFFIXES
            advice = f"rename it, so that its name ends in {suffix}" if is_known else "decompress it first"
            raise RegardError(f"{path} is compressed with {name}: {advice}")


def position_on_disk(file: ByteReader) -> int:
    """Return the number of bytes of a file that have been read, before they are decompressed."""
    if isinstance(file, gzip.GzipFile):
        compressed: Any = file.fileobj
        return 0 if compressed is None else int(compressed.tell())
    raw = file.raw
    return raw.file.tell() if isinstance(raw, XzReader | ZstdReader) else file.tell()


def import_arrow(purpose: str) -> Any:
    """Return the module pyarrow; a RegardError that names the purpose says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise RegardError(f"{purpose} needs pyarrow: pip install 'regard[jobs]'") from None
    return pyarrow


class XzReader(RawIOBase):
    """Reads an .xz file. Unlike lzma.LZMAFile, it reports a damaged stream instead of ending there."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = Path(path).open("rb")  # noqa: SIM115  # closed with this object
        self.stream: lzma.LZMADecompressor | None = lzma.LZMADecompressor()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with the next bytes and return their number; 0 at the end."""
        view = memoryview(buffer).cast("B")
        while self.stream is not None:
            compressed = self.file.read(1 << 16) if self.stream.needs_input else b""
            if self.stream.needs_input and not compressed:
                raise EOFError("the archive is truncated")
            data = self.stream.decompress(compressed, len(view))
            if self.stream.eof:
                self.stream = self._next_stream(self.stream.unused_data)
            if data:
                view[: len(data)] = data
                return len(data)
        return 0

    def _next_stream(self, rest: bytes) -> lzma.LZMADecompressor | None:
        """Return a decompressor for the stream that follows, after any zero padding, or None at the end."""
        rest = rest.lstrip(b"\0")
        while not rest:
            more = self.file.read(1 << 16)
            if not more:
                return None
            rest = more.lstrip(b"\0")
        self.file.seek(self.file.tell() - len(rest))
        return lzma.LZMADecompressor()

    def close(self) -> None:
        """Close the file as well."""
        self.file.close()
        super().close()


class ZstdReader(RawIOBase):
    """Reads a .zst file of one or several frames."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        arrow = import_arrow(f"{path}: a .zst file")
        self.file = Path(path).open("rb")  # noqa: SIM115  # closed with this object
        self.stream = arrow.CompressedInputStream(self.file, "zstd")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with the next bytes and return their number; 0 at the end."""
        view = memoryview(buffer).cast("B")
        try:
            data = self.stream.read(len(view))
        except OSError as error:  # pyarrow has no exception of its own for a damaged or truncated file
            if error.errno is not None:
                raise
            if "too much memory" in str(error):  # a window of more than 128 MB
                unpack = f"zstd -d --long=31 {shlex.quote(self.path)}"
                raise RegardError(
                    f"{self.path} was compressed with a window that is too large to be read here (zstd --long): "
                    f"decompress it first: {unpack}"
                ) from error
            raise EOFError(str(error)) from error
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file as well."""
        self.file.close()
        super().close()
