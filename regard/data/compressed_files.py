"""Readers of compressed files that report damage, where those of their libraries would end as if at the end."""

import gzip
import lzma
import shlex
from io import BufferedReader, FileIO, RawIOBase
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

MAX_READ_BYTES = 1 << 16
"""Compressed bytes that are read at a time from a large file."""
MIN_READ_BYTES = 16
"""Compressed bytes that are read at a time at least: gzip's reader wants the first two together."""
READS_PER_FILE = 256
"""Number of reads that a small file takes: progress is known to this fraction of it."""
ZSTD_BLOCK_BYTES = 1 << 17
"""Largest size of a block of zstd, which is decompressed as one."""


def open_compressed(path: str) -> ByteReader:
    """Open a file whose name ends in one of `COMPRESSED_SUFFIXES`.

    Raises an EOFError if it has no bytes: an archive of no text has some, and an interrupted download may have none.
    """
    if Path(path).stat().st_size == 0:
        raise EOFError("the archive is empty")
    if path.endswith(".gz"):
        return GzipReader(path)
    if path.endswith(".xz"):
        return BufferedReader(XzReader(path), 1 << 16)
    return BufferedReader(ZstdReader(path), ZSTD_BLOCK_BYTES)


def refuse_compressed(path: str, file: BufferedReader) -> None:
    """Raise a RegardError if a file that is read as text is compressed, which its name does not say."""
    start = file.peek(10)[:10]
    for signature, (name, suffix) in SIGNATURES.items():
        if start.startswith(signature) and (name != "bzip2" or start[4:] == BZIP2_BLOCK):
            is_known = suffix in COMPRESSED_SUFFIXES
            advice = f"rename it, so that its name ends in {suffix}" if is_known else "decompress it first"
            raise RegardError(f"{path} is compressed with {name}: {advice}")


def position_on_disk(file: ByteReader) -> int:
    """Return the number of bytes of a file on disk, before they are decompressed, that hold what was read of it.

    Of compressed files, it is an estimate.
    """
    if isinstance(file, gzip.GzipFile):
        compressed: Any = file.fileobj
        return 0 if compressed is None else int(compressed.tell())
    raw = file.raw
    if isinstance(raw, XzReader):
        return raw.file.tell()
    return raw.position_on_disk(file.tell()) if isinstance(raw, ZstdReader) else file.tell()


def import_arrow(purpose: str) -> Any:
    """Return the module pyarrow; a RegardError that names the purpose says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise RegardError(f"{purpose} needs pyarrow: pip install 'regard[jobs]'") from None
    return pyarrow


class ShortReadFile(FileIO):
    """A file that is read little by little, so that its position shows how much of it has been decompressed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.max_read = max(MIN_READ_BYTES, min(MAX_READ_BYTES, Path(path).stat().st_size // READS_PER_FILE))

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, at most `max_read`; none at the end."""
        is_limited = size is not None and 0 <= size <= self.max_read
        return super().read(size if is_limited else self.max_read) or b""


class GzipReader(gzip.GzipFile):
    """Reads a .gz file."""

    def __init__(self, path: str) -> None:
        self.file = ShortReadFile(path)
        super().__init__(fileobj=self.file)

    def close(self) -> None:
        """Close the file as well."""
        super().close()
        self.file.close()


class XzReader(RawIOBase):
    """Reads an .xz file. Unlike lzma.LZMAFile, it reports a damaged stream instead of ending there."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = ShortReadFile(path)
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
        self.file = ShortReadFile(path)
        self.stream = arrow.CompressedInputStream(self.file, "zstd")
        self.before = self.now = (0, 0)
        """Bytes that have been decompressed, and the position on disk: before the latest read, and after it."""

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
        self.before, self.now = self.now, (self.now[0] + len(data), self.file.tell())
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes that have been decompressed."""
        return self.now[0]

    def position_on_disk(self, decompressed: int) -> int:
        """Return the position on disk of one of the bytes of the latest read: a read has a whole block of them."""
        (start, start_on_disk), (end, end_on_disk) = self.before, self.now
        read = (decompressed - start) / max(1, end - start)
        return start_on_disk + int((end_on_disk - start_on_disk) * read)

    def close(self) -> None:
        """Close the file as well."""
        self.file.close()
        super().close()
