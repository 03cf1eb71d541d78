"""
Models of strangers: zips, folders of ELMoForManyLangs, archives of task models, and pickles in them. They run
nothing, write nothing but what is extracted, and expand no further than a limit.
"""

import io
import json
import os
import pickle
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path
from random import Random
from typing import Any, Callable, Dict, List, Tuple

import torch

import elmo_plugin.plugin  # noqa: F401 - registers what archives name
from attacks import FIXTURES
from attacks.canary import Canary
from attacks.mutations import ODD_TEXT, mutated_bytes, mutated_json, odd_lines
from attacks.parsers import VALID_SHARE, one_clear_error
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.model_files import ENDINGS
from elmo_plugin.compat.archives import opened_archive
from tests.tasks.task_testing import TASKS, overfitted_archive

PROMISE = (
    "models of strangers run nothing, write nowhere else, connect to nothing and expand to a limit"
)
BOMB = bytes(3 * 10**7)
Contents = Dict[str, bytes]

# What a pickle calls, with its arguments. `planted` is a file that must not appear.
CALLS: List[Tuple[Callable[..., Any], Tuple[Any, ...]]] = [
    (os.system, ("touch planted",)),
    (eval, ("open('planted', 'w')",)),
    (exec, ("open('planted', 'w')",)),
    (open, ("planted", "w")),
    (os.mkdir, ("planted",)),
    (Path.write_text, (Path("planted"), "x")),
    (torch.save, ({}, "planted")),
    (torch.hub.download_url_to_file, ("http://127.0.0.1:9/x", "planted")),
]
# What a config can name in the place of a class, and the arguments.
CLASSES: List[Dict[str, Any]] = [
    {"type": "subprocess.Popen", "args": ["touch", "planted"]},
    {"type": "os.system", "command": "touch planted"},
    {"type": "builtins.exec", "source": "open('planted', 'w')"},
    {"type": "builtins.open", "file": "planted", "mode": "w"},
    {"type": "torch.save", "obj": {}, "f": "planted"},
    {"type": "urllib.request.urlopen", "url": "http://127.0.0.1:9/"},
    {"type": "antigravity.x"},
    {"type": "idlelib.idle.x"},
    {"type": "logging.FileHandler", "filename": "planted"},
    {"type": "zipfile.ZipFile", "file": "planted", "mode": "w"},
    {"type": "allennlp.common.Registrable"},
    {"type": "elmo_plugin.tasks.ner.NerTagger"},
]
PROGRAMS = [
    "local f(n) = f(n + 1) + f(n); f(0)",
    'std.length(std.repeat("x", 1e10))',
    'local x = [x, x]; {"a": x}',
    '{"a": importstr "/etc/hostname"}',
    'import "planted"',
]
NAMES = [
    *("../planted.json", "../../../planted.hdf5", "a/../../planted.pkl", "..\\..\\planted.json"),
    *("C:\\planted.json", "folder/", "./options.json", "config.json", "config.json/x.json"),
    *("weights.th", ".json", "a" * 300 + ".json", "é\u202e.json", "a\x00.json", "-rf.json"),
]


class _Calls:
    def __init__(self, call: Tuple[Callable[..., Any], Tuple[Any, ...]]) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call


def hostile_pickle(random: Random, data: bytes) -> bytes:
    """Return weights with damage, with calls of functions, or with tensors that no model has."""
    kind = random.randrange(6)
    if kind == 0:
        return mutated_bytes(random, data)
    call = _Calls(random.choice(CALLS))
    if kind == 1:
        return pickle.dumps(random.choice([call, {"a": call}]), protocol=random.randint(0, 4))
    state_dict = torch.load(io.BytesIO(data), weights_only=True)
    name = random.choice(list(state_dict))
    is_zip = random.random() < 0.7
    if kind == 2:
        state_dict[random.choice([name, "a"])] = call
    elif kind == 3:
        state_dict[name] = _odd_tensor(random, state_dict[name])
    elif kind == 4:
        state_dict[random.choice([*ODD_TEXT, name + ".a"])] = state_dict.pop(name)
    else:
        # Zeros, which are stored once or compressed.
        huge = torch.zeros(1, dtype=random.choice([torch.float16, torch.float32]))
        state_dict[name] = huge.expand(10 ** random.choice([9, 12]))
        if random.random() < 0.5:
            state_dict[name], is_zip = torch.zeros(2**24), True
            return _compressed(_saved(state_dict, is_zip))
    return _saved(state_dict, is_zip)


def _odd_tensor(random: Random, tensor: torch.Tensor) -> Any:
    kinds: List[Callable[[], Any]] = [
        lambda: tensor * random.choice([float("nan"), float("inf"), 1e38]),
        lambda: tensor.to(
            random.choice([torch.float16, torch.float64, torch.int8, torch.complex64])
        ),
        lambda: tensor[None],
        lambda: tensor.reshape(-1)[:0],
        lambda: tensor.to_sparse(),
        lambda: tensor.t() if tensor.dim() == 2 else tensor.sum(),
        lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        lambda: torch.empty(10**13, device="meta"),
        lambda: random.choice([None, "a", [1], {"a": 1}, 3]),
    ]
    return random.choice(kinds)()


def _saved(state_dict: Any, is_zip: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(state_dict, buffer, _use_new_zipfile_serialization=is_zip)
    return buffer.getvalue()


def _compressed(data: bytes) -> bytes:
    """Return a zip whose members torch wrote without compression."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return buffer.getvalue()


def changed_contents(random: Random, contents: Contents) -> Contents:
    """Damage one or two files of a model, or leave one out."""
    contents = dict(contents)
    # The config more often: it says most, and is one of many files.
    names = random.sample(list(contents), random.randint(1, 2))
    if "config.json" in contents and random.random() < 0.3:
        names = ["config.json"]
    for name in names:
        data = contents[name]
        if random.random() < 0.1:
            del contents[name]
        elif name.endswith((".pkl", ".th")):
            contents[name] = hostile_pickle(random, data)
        elif name.endswith(".json") and random.random() < 0.8:
            contents[name] = _hostile_config(random, data)
        elif random.random() < 0.2:
            contents[name] = odd_lines(random).encode("utf-8", "surrogatepass")
        else:
            contents[name] = mutated_bytes(random, data)
    return contents


def _hostile_config(random: Random, data: bytes) -> bytes:
    if random.random() < 0.1:
        return random.choice(PROGRAMS).encode()
    config = json.loads(data)
    if random.random() < 0.5:
        return json.dumps(_bounded(mutated_json(random, config))).encode()
    # Parts that are built from their type, and the others.
    parts: List[Tuple[Any, Any]] = [(config, key) for key in config]
    for parent, key in parts:
        value = parent[key]
        if isinstance(value, (dict, list)):
            parts.extend(
                (value, inner)
                for inner in (value if isinstance(value, dict) else range(len(value)))
            )
    built = [
        (parent, key) for parent, key in parts if key == "type" or "type" in _keys(parent[key])
    ]
    parent, key = random.choice(random.choice([parts, built or parts]))
    changed = random.choice(CLASSES)
    parent[key] = changed["type"] if key == "type" or random.random() < 0.3 else changed
    return json.dumps(config).encode()


def _keys(value: Any) -> Any:
    return value if isinstance(value, dict) else ()


def _bounded(value: Any) -> Any:
    """Replace sizes that fit in the memory of a large machine: models of any size can be asked for."""
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bounded(item) for item in value]
    is_size = isinstance(value, (int, float)) and 1000 < value < 2**50
    return 1000 if is_size else value


def tiny_archives(folder: Path) -> Dict[str, Path]:
    """Return archives of models of the six tasks, with ELMo."""
    os.chdir(FIXTURES.parent)  # paths in the experiments are relative to it
    archives = {}
    for task in TASKS:
        (folder / task).mkdir()
        experiment = FIXTURES / task / "tiny" / "experiment_elmo.jsonnet"
        archives[task] = overfitted_archive(experiment, folder / task, 1)
    return archives


def read_contents(folder: Path) -> Contents:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("model.tar.gz", "vectors.npz", ".lock")
    }


def write_contents(contents: Contents, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def hostile_model(
    random: Random, original: Contents, packed: Path, pack: Callable[[Random, Contents, Path], bool]
) -> Tuple[Path, bool]:
    """Write a model, as a folder or packed. Return its path, and whether its files are the original ones."""
    is_changed = random.random() < 0.6
    contents = changed_contents(random, original) if is_changed else original
    folder = write_contents(contents, packed.with_name("model"))
    if is_changed and random.random() >= 0.6:
        return folder, False
    return packed, pack(random, contents, packed) and not is_changed


def hostile_zip(random: Random, contents: Contents, path: Path) -> bool:
    """Write a zip with further members or damage. Return whether its files are those of the model."""
    kinds = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    members = [
        (zipfile.ZipInfo(random.choice(["", "a/b/"]) + name), contents[name]) for name in contents
    ]
    for _ in range(random.choice([0, 1, 2])):
        member = zipfile.ZipInfo(
            random.choice([*NAMES, os.path.abspath("planted.json"), *contents])
        )
        member.external_attr = random.choice([0, 0o120777, 0o060666, 0o040755]) << 16  # a link
        data = random.choice([b"{}", b"../../planted", BOMB])
        members.insert(random.randint(0, len(members)), (member, data))
    if random.random() < 0.02:
        members += [(zipfile.ZipInfo(f"{number}.json"), b"") for number in range(5000)]
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members:
            # lzma is slow, also for zeros.
            few = kinds if len(data) < 10**6 else kinds[:2]
            archive.writestr(member, data, random.choice(few), compresslevel=1)
    if random.random() < 0.5:
        return True
    data = path.read_bytes()
    if random.random() < 0.3:
        place = data.rfind(b"PK\x01\x02")  # a member of the directory: flags, times, sizes, names
        data = data[:place] + mutated_bytes(random, data[place:])
    elif random.random() < 0.3:
        data = data.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")
    else:
        data = mutated_bytes(random, data)
    path.write_bytes(data)
    return False


def bilms(folder: Path) -> Trial:
    """`BiLM.from_files` with zips and folders, of bilm-tf and of ELMoForManyLangs."""
    canary, cache = _prepared(folder)
    models = ["bilm/tiny", *(f"bilm/many_langs/{name}" for name in ("both", "characters", "words"))]
    originals = [
        (read_contents(FIXTURES / model), BiLM.from_files(FIXTURES / model)) for model in models
    ]
    expected = [(contents, bilm.state_dict()) for contents, bilm in originals]

    def trial(random: Random) -> None:
        original, weights = random.choice(expected)
        is_valid = random.random() < VALID_SHARE
        if is_valid:
            path, is_exact = folder / "model.zip", True
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
                for name, data in original.items():
                    file.writestr(name, data)
        else:
            path, is_exact = hostile_model(random, original, folder / "model.zip", hostile_zip)
        before = set(folder.rglob("*"))
        clear_error = one_clear_error(str(path), str(cache), is_valid=is_valid)
        with clear_error, canary.only_writes_in(cache):
            bilm = BiLM.from_files(path)
            found = bilm.state_dict()
            for name, tensor in found.items() if is_exact else ():
                check(f"the weights {name}", torch.equal(tensor, weights[name]))
            for layer in bilm(batch_to_ids([["a", "été", "日本"], []]))["activations"]:
                check("activations", layer.shape == (2, 5, bilm.get_output_dim()))
        _check_written(folder, before, cache)
        shutil.rmtree(cache, ignore_errors=True)

    return trial


def _prepared(folder: Path) -> Tuple[Canary, Path]:
    """Work in a folder, with caches and temporary files in it."""
    os.chdir(folder)
    cache = folder / "cache"
    os.environ["ALLENNLP_CACHE_ROOT"] = str(cache)
    tempfile.tempdir = str(folder / "temporary")
    (folder / "temporary").mkdir()
    torch.set_num_threads(1)
    return Canary(), cache


def _check_written(folder: Path, before: Any, cache: Path) -> None:
    """Check the files by their names too, for what the canary cannot see."""
    added = [path for path in set(folder.rglob("*")) - before if path.name != ".lock"]
    outside = [path for path in added if path != cache and cache not in path.parents]
    check(f"no new files {outside[:3]}", not outside)
    extracted = [path for path in added if path.is_file()]
    check(
        "files of models",
        all(path.name.endswith(ENDINGS) for path in extracted),
    )
    check("no links", not any(path.is_symlink() for path in added))
    size = sum(path.stat().st_size for path in extracted)
    check(f"at most 100 times the size of the zip and 10 MB: {size:,}", size < 100 * 2**20)


def task_archives(folder: Path) -> Trial:
    """`opened_archive` with a `model.tar.gz` and with a folder."""
    archives = tiny_archives(folder)
    canary, cache = _prepared(folder)
    originals = []
    for archive in archives.values():
        with tarfile.open(archive) as file:
            file.extractall(folder / archive.parent.name, filter="data")
        originals.append(read_contents(folder / archive.parent.name))
    temporary = folder / "temporary"

    def trial(random: Random) -> None:
        original = random.choice(originals)
        path, is_exact = hostile_model(random, original, folder / "model.tar.gz", hostile_tar)
        before = set(folder.rglob("*"))
        allowed = [temporary, folder / "model" / "vocabulary"]  # where AllenNLP locks
        is_opened = False
        with one_clear_error(""), canary.only_writes_in(*allowed):
            opened_archive(path)
            is_opened = True
        check("an archive that can be opened", is_opened or not is_exact)
        check("no temporary files", not list(temporary.iterdir()))
        _check_written(folder, before, cache)

    return trial


def hostile_tar(random: Random, contents: Contents, path: Path) -> bool:
    """Write an archive with further members or damage. Return whether it is a model without anything else."""
    members = [(tarfile.TarInfo(name), data) for name, data in contents.items()]
    is_exact = random.random() < 0.1
    for _ in range(0 if is_exact else random.choice([1, 2])):
        member = tarfile.TarInfo(
            random.choice([*NAMES, os.path.abspath("planted.json"), *contents])
        )
        member.type = random.choice([*b"0123456", *b"000SLKx7"]).to_bytes(1, "little")
        member.linkname = random.choice(["../planted", "/etc/hostname", "config.json", "link", "."])
        member.mode = random.choice([0, 0o644, 0o7777])
        data = random.choice([b"{}", b"13 path=../planted\n", BOMB])
        members.insert(random.randint(0, len(members)), (member, data))
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for member, data in members:
            member.size = len(data) if member.isreg() or member.type in b"SLKx" else 0
            archive.addfile(member, io.BytesIO(data))
    if not is_exact and random.random() < 0.3:
        path.write_bytes(mutated_bytes(random, path.read_bytes()))
    return is_exact


ATTACKS = [
    Attack("bilms", PROMISE, bilms, max_megabytes=500),
    Attack("task_archives", PROMISE, task_archives, max_megabytes=500),
]
