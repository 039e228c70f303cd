"""A zip that is read like a folder, where it is: what is not unpacked lands nowhere and fills no disk."""
import contextlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator

MOST_ZIPPED = 64 << 20  # bytes of one, which has a whole work/
Broken = zipfile.BadZipFile


@contextlib.contextmanager
def opened(data: bytes) -> Iterator[tuple[list[str], Callable[[str, int], bytes]]]:
    """The names in it, and what gives a file's first bytes. Whatever is wrong, here or while it is read, is Broken."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield [info.filename for info in archive.infolist() if not info.is_dir()], lambda name, most: archive.open(name).read(most)
    except (RuntimeError, EOFError, zlib.error) as error:
        raise Broken(str(error)) from None
