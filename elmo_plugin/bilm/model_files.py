"""Find the files of a model by the names that users give: paths, URLs, folders, `.zip` files, `elmo_mini`."""

import hashlib
import logging
import os
import shutil
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.compressed import check_zip
from elmo_plugin.files.text import FileName

# The models of this package, a folder each. The name of a biLM names both of its files, and that of a task
# model its archive.
PRETRAINED_FOLDER = Path(__file__).parents[1] / "pretrained"

# The name of the paper's model, and the address at which AI2 publishes its two files.
ORIGINAL = "original"
ORIGINAL_MODEL = (
    "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
    "elmo_2x4096_512_2048cnn_2xhighway_"
)

# The files of a model of ELMoForManyLangs, beside `config.json`.
CHARACTERS_NAME, WORDS_NAME = "char.dic", "word.dic"
TOKEN_EMBEDDER_NAME, ENCODER_NAME = "token_embedder.pkl", "encoder.pkl"
MANY_LANGS_NAMES = (CHARACTERS_NAME, WORDS_NAME, TOKEN_EMBEDDER_NAME, ENCODER_NAME)

OPTIONS_NAME, WEIGHTS_NAME = "options.json", "weights.hdf5"
# The words of a softmax, in the folder of its weights.
VOCABULARY_NAME = "vocab.txt"
# Endings of the files in a .zip that are extracted.
ENDINGS = (".json", ".hdf5", ".dic", ".pkl", VOCABULARY_NAME)
MAX_FILES = 100  # of these, in a zip: each is synced to the disk, which takes milliseconds


def resolve_model_files(
    options_file: Optional[FileName], weight_file: Optional[FileName]
) -> Tuple[Path, Path]:
    """
    Find or fetch the options and the weights of a biLM, which are named as for `BiLM.from_files`. Return
    their local paths; of ELMoForManyLangs those of `config.json` and `encoder.pkl`.

    # Raises

    `ConfigurationError` naming the argument and the file.
    """
    options_file, weight_file = _expanded(options_file), _expanded(weight_file)
    names = [name for name in (options_file, weight_file) if name is not None]
    for name in names:
        if not _names_both_files(name):
            continue
        if any(str(other) != str(name) for other in names):
            raise ConfigurationError(
                f"options_file is {options_file} and weight_file is {weight_file}, but {name} names both "
                "files. Leave the other one out."
            )
        if is_pretrained(name):
            return pretrained_files(str(name))
        if _is_original(name):
            options_file, weight_file = (
                f"{ORIGINAL_MODEL}{OPTIONS_NAME}",
                f"{ORIGINAL_MODEL}{WEIGHTS_NAME}",
            )
            break
        return _files_or_error(Path(name) if Path(name).is_dir() else _extracted(name), name)
    if options_file is None or weight_file is None:
        raise ConfigurationError(_error_in_names(names))
    return _model_file("options_file", options_file), _model_file("weight_file", weight_file)


def _expanded(name: Optional[FileName]) -> Optional[FileName]:
    """Return a name with the home folder in place of `~`. Raise `ConfigurationError` for an empty one."""
    if name == "":
        raise ConfigurationError(
            f"The name of the model is empty, expected one: {model_choices()}."
        )
    return name if name is None else os.path.expanduser(name)


def _names_both_files(name: FileName) -> bool:
    """Return whether a name names both files: of a biLM, a folder or a `.zip`, see `model_choices`."""
    return (
        str(name).endswith(".zip")
        or is_pretrained(name)
        or _is_original(name)
        or Path(name).is_dir()
    )


def model_choices() -> str:
    """Return what can name both files of a biLM, for errors."""
    return (
        f"{', '.join(pretrained_names())}, {ORIGINAL} (the paper's, which is downloaded), or a folder or "
        ".zip with the options and the weights"
    )


def _error_in_names(names: List[FileName]) -> str:
    """Return the error for no name, or for one that does not name both files."""
    if not names:
        return f"No model is named, expected one: {model_choices()}."
    (name,) = names
    if is_task_model(name):
        return (
            f"{name}: that is a task model, expected a biLM: {model_choices()}. Correct the name."
        )
    if "://" not in str(name) and not Path(name).exists():
        return f"{name}: no such model, expected {model_choices()}. Correct the name."
    return (
        f"{name}: one file, expected both files of a model, the options (JSON) and the weights (HDF5). Give "
        f"options_file and weight_file (--options-file and --weight-file), or one name: {model_choices()}."
    )


def _model_file(what: str, name: FileName) -> Path:
    return local_path(what, name, f"No download is needed for {', '.join(pretrained_names())}.")


def _is_original(name: FileName) -> bool:
    return str(name) == ORIGINAL and not Path(name).exists()


def pretrained_names() -> List[str]:
    """Return the names of the biLMs of this package."""
    return sorted(path.parent.name for path in PRETRAINED_FOLDER.glob(f"*/{OPTIONS_NAME}"))


def pretrained_files(name: str) -> Tuple[Path, Path]:
    """Return options and weights of a biLM of this package."""
    folder = PRETRAINED_FOLDER / name
    return folder / OPTIONS_NAME, folder / WEIGHTS_NAME


def task_model_names() -> List[str]:
    """Return the names of the task models of this package."""
    return sorted(path.parent.name for path in PRETRAINED_FOLDER.glob("*/config.json"))


def is_task_model(name: FileName) -> bool:
    """Return whether this is the name of a task model of this package, and of no file or folder."""
    return str(name) in task_model_names() and not Path(name).exists()


def archive_path(name: FileName) -> FileName:
    """
    Return the folder of a task model of this package for its name, and any other path or URL unchanged. A
    file or folder of this name in the current folder comes first.

    # Raises

    `ConfigurationError` for a folder without a config, and for an unknown name, with a list of the task
    models.
    """
    if is_task_model(name):
        return PRETRAINED_FOLDER / str(name)
    if Path(name).is_dir() and not Path(name, "config.json").exists():
        raise ConfigurationError(
            f"{name}: a folder without config.json, expected the folder of a training run or of an exported "
            "task model. Give another path. (A folder takes precedence over the task model of this name.)"
        )
    if Path(name).name == str(name) and not Path(name).exists():
        is_bilm = str(name) in pretrained_names()
        raise ConfigurationError(
            f"{name}: {'that is the name of a biLM' if is_bilm else 'no such file or folder'}, expected an "
            "archive (model.tar.gz), the folder of a training run, or the name of a task model of this "
            f"package: {', '.join(task_model_names())}. Correct the name."
        )
    return name


def local_path(
    what: str, name: FileName, without_download: str = "Or give the path of a file."
) -> Path:
    """
    Find or fetch one file or folder. `what` says in errors which it is, such as a key of a config, and
    `without_download` what to do where a URL cannot be reached.

    # Raises

    `ConfigurationError` if it is not there, or cannot be fetched.
    """
    if "://" in str(name):
        return _fetched(what, str(name), without_download)
    path = Path(name).expanduser()
    if not path.exists():
        raise ConfigurationError(
            f"{what}: cannot find {name} (no such file or folder). Give the path of an existing file, or a "
            "URL or hf:// name."
        )
    return path


def cache_folder() -> Path:
    """Return AllenNLP's folder of downloads: `cache` in `~/.allennlp` or in `ALLENNLP_CACHE_ROOT`."""
    return Path(os.environ.get("ALLENNLP_CACHE_ROOT", Path.home() / ".allennlp")) / "cache"


def is_pretrained(name: FileName) -> bool:
    """Return whether this is the name of a biLM of this package, and of no file or folder."""
    return str(name) in pretrained_names() and not Path(name).exists()


def _fetched(what: str, url: str, without_download: str) -> Path:
    advice = ", or download the file and give its path"
    with needing(f"The download of {url} needs cached-path", "elmo-plugin[url]", advice):
        from cached_path import cached_path
    try:
        with _without_warnings("urllib3", "cached_path"):
            return Path(cached_path(url, cache_dir=cache_folder()))
    # OSError: unreachable hosts and refused downloads. ValueError: malformed names of hubs.
    except (OSError, ValueError) as error:
        # Without its text, which is a list of addresses and errors inside errors.
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = type(error).__name__ if status is None else f"HTTP status {status}"
        raise ConfigurationError(
            f"{what}: {url} could not be downloaded ({reason}). Check the address and the connection. "
            f"{without_download}"
        ) from error


@contextmanager
def _without_warnings(*names: str) -> Iterator[None]:
    """Log nothing with these loggers: they repeat for each attempt what one error says."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def is_many_langs_file(weight_path: Path) -> bool:
    """Return whether these weights are of ELMoForManyLangs, in its own form."""
    return weight_path.name == ENCODER_NAME


def files_in_folder(folder: Path) -> Optional[Tuple[Path, Path]]:
    """Return the options and the weights in bilm-tf's form in a folder; `None` if it is not clear which."""
    usual = folder / OPTIONS_NAME, folder / WEIGHTS_NAME
    if all(path.is_file() for path in usual):
        return usual
    options, weights = _candidates(folder)
    return (options[0], weights[0]) if len(options) == len(weights) == 1 else None


def _files_or_error(folder: Path, name: FileName) -> Tuple[Path, Path]:
    """Return the options and the weights in a folder, or in one that was extracted from `name`."""
    files = files_in_folder(folder)
    if files is not None:
        return files
    if any((folder / file).exists() for file in MANY_LANGS_NAMES):
        return folder / "config.json", folder / ENCODER_NAME
    options, weights = (
        ", ".join(path.name for path in paths) or "none" for paths in _candidates(folder)
    )
    is_hidden = str(name) in [*pretrained_names(), ORIGINAL]
    raise ConfigurationError(
        f"{name}: found options*.json: {options}, and *.hdf5: {weights}, expected exactly one of each, as "
        "`elmo export` writes them, or the files of ELMoForManyLangs. Correct the path, or give the names of "
        f"both files.{' (A folder takes precedence over the biLM of this name.)' * is_hidden}"
    )


def _candidates(folder: Path) -> List[List[Path]]:
    """Return what can be options, and what can be weights; hidden files are not."""
    return [
        sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))
        for pattern in ("options*.json", "*.hdf5")
    ]


def _extracted(name: FileName) -> Path:
    """
    Return the folder of the extracted model files of a `.zip`, without subfolders. It appears in the cache
    complete, with files that are synced to the disk, or not at all.
    """
    path = local_path("model", name)
    found = path.stat()
    state = (str(path.resolve()), found.st_size, found.st_mtime_ns)
    folder = cache_folder() / f"bilm-{hashlib.sha256(repr(state).encode()).hexdigest()[:32]}"
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"model: {name} cannot be extracted into {folder.parent} ({error}). Name a folder in place "
            "of ~/.allennlp by the environment variable ALLENNLP_CACHE_ROOT."
        ) from error
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new_folder = Path(temporary, "files")
        new_folder.mkdir()
        try:
            check_zip(path)
            with zipfile.ZipFile(path) as archive:
                members = [member for member in archive.namelist() if member.endswith(ENDINGS)]
                if len(members) > MAX_FILES:
                    raise ConfigurationError(
                        f"model: {name} has {len(members):,} files ({', '.join(ENDINGS)}), expected "
                        f"those of one model, at most {MAX_FILES}. Extract it, and give a model's folder."
                    )
                for member in members:
                    file = new_folder / _name(member)
                    # x: two members of one name are an error.
                    with archive.open(member) as source, open(file, "xb") as target:
                        shutil.copyfileobj(source, target)
                        target.flush()
                        os.fsync(target.fileno())
        except ConfigurationError:
            raise
        # In damaged and encrypted files zipfile finds errors of nearly every class.
        except Exception as error:
            raise ConfigurationError(
                f"model: {name} cannot be extracted ({error}), expected a zip with options and "
                f"weights. Get another copy of the file, or make room in {folder.parent}."
            ) from error
        try:
            new_folder.rename(folder)
        except OSError:
            # Another process may have extracted the same file.
            if not folder.exists():
                raise
    return folder


def _name(member: str) -> Path:
    """Return the name of a member of a zip without its folders."""
    return Path(member.rpartition("/")[2])
