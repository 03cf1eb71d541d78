"""Let AllenNLP find archives by name, and extract nothing outside of a temporary folder."""

import functools
import logging
import os
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Union

from elmo_plugin.errors import ConfigurationError

# AllenNLP and torch are imported inside functions only, as in patches.py.

logger = logging.getLogger(__name__)


def patch_archives() -> None:
    """
    Accept the name of a task model that comes with this package wherever AllenNLP loads an archive, and check
    the members of archives. AllenNLP extracted them with any names and links, so that a member `../../x` was
    written outside of its folder. `cached_path` checks the names, but not all of them.
    """
    from allennlp.common.file_utils import cached_path
    from allennlp.models import archival
    from cached_path import _cached_path

    from elmo_plugin.bilm.model_files import archive_path

    check_members = _cached_path.check_tarfile

    @functools.wraps(check_members)
    def check_all_members(tar_file: tarfile.TarFile) -> None:
        for _ in _checked_members(tar_file, str(tar_file.name)):
            pass
        check_members(tar_file)
        if hasattr(tarfile, "data_filter"):
            # This extracts a file without another filter.
            tar_file.extraction_filter = tarfile.data_filter

    @functools.wraps(cached_path)
    def find_archive(archive_file: Union[str, os.PathLike], *args: Any, **kwargs: Any) -> str:
        return cached_path(archive_path(archive_file), *args, **kwargs)

    _cached_path.check_tarfile = check_all_members
    archival.extracted_archive = extracted_archive
    archival.cached_path = find_archive


@contextmanager
def extracted_archive(
    resolved_archive_file: Union[str, os.PathLike], cleanup: bool = True
) -> Iterator[str]:
    """
    Extract a model archive to a temporary folder, as AllenNLP's function of this name does; without `cleanup`
    the folder remains.

    # Raises

    `ConfigurationError` naming archive and member, if a member would be written outside of the folder, is a
    link to the outside, or a device. Extracted files are removed then.
    """
    folder = tempfile.mkdtemp()
    is_extracted = False
    try:
        logger.info("Extracting %s to %s", resolved_archive_file, folder)
        with tarfile.open(resolved_archive_file, "r:gz") as archive:
            # Python versions before 2023 have no filter.
            options: Dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            members = _checked_members(archive, str(resolved_archive_file))
            archive.extractall(folder, members, **options)
        is_extracted = True
        yield folder
    finally:
        if cleanup or not is_extracted:
            shutil.rmtree(folder, ignore_errors=True)


def _checked_members(archive: tarfile.TarFile, name: str) -> Iterator[tarfile.TarInfo]:
    """
    Check and yield the members of an archive: files, folders, and links to them, without absolute paths or
    `..`. This is stricter than tarfile's data filter, which moves absolute paths, and which links to links
    could evade.
    """
    for member in archive:
        is_link = member.issym() or member.islnk()
        paths = [member.name, member.linkname] if is_link else [member.name]
        if not (member.isfile() or member.isdir() or is_link):
            found = "a device or pipe"
        elif any(path.startswith("/") or os.path.isabs(path) for path in paths):
            found = "an absolute path"
        elif any(".." in path.replace("\\", "/").split("/") for path in paths):
            found = "a path with '..'"
        else:
            yield member
            continue
        raise ConfigurationError(
            f"{name}: member {' -> '.join(paths)!r} is {found}, expected files and folders inside of the "
            "archive. Do not trust this file; get it from another source."
        )
