"""Models of ELMoForManyLangs, compared with vectors of their original code: fixtures/bilm/README.md."""

import json
import logging
import shutil
import zipfile
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
import torch

from elmo_plugin import BiLM, Elmo, ElmoEmbedder, SentenceScorer, batch_to_ids
from elmo_plugin.bilm.options import BiLMOptions, ManyLangsEncoderOptions
from elmo_plugin.errors import ConfigurationError, warn_once
from tests.closeness import assert_accurate, assert_close
from tests.conftest import of_allennlp

FIXTURES = Path(__file__).parents[2] / "fixtures" / "bilm" / "many_langs"
MODELS = ("both", "characters", "words")
SENTENCES = [line.split() for line in (FIXTURES / "sentences.txt").read_text("utf-8").splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a model, to be damaged."""
    return Path(shutil.copytree(FIXTURES / "both", tmp_path / "model"))


def expected_vectors(name: str) -> List[numpy.ndarray]:
    with numpy.load(FIXTURES / name / "vectors.npz") as stored:
        return list(stored.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_vectors_are_those_of_elmoformanylangs(name: str, kernel: str) -> None:
    embedder = ElmoEmbedder(FIXTURES / name, kernel=kernel)
    expected = expected_vectors(name)
    assert max(abs(vectors).max() for vectors in expected if vectors.size) > 1
    for _ in range(2):  # of new words, and of those in the cache
        assert_accurate(embedder.embed_batch(SENTENCES), expected)
    assert_accurate([embedder.embed_sentence(sentence) for sentence in SENTENCES], expected)


@pytest.mark.parametrize("name", MODELS)
def test_new_sentences_as_elmoformanylangs_reads_them(name: str) -> None:
    oracle = pytest.importorskip(
        "elmoformanylangs",
        reason="pip install --no-deps elmoformanylangs==0.0.4.post2 overrides==3.1.0",
    )
    random = numpy.random.RandomState(0)
    letters = list("abc今天好 привет مرحبا 😀👩\u200d")
    sentences = [
        ["".join(random.choice(letters, random.randint(1, 13))) for _ in range(length)]
        for length in random.randint(0, 12, size=30)
    ]
    embedder = oracle.Embedder(str(FIXTURES / name), batch_size=len(sentences))
    expected = embedder.sents2elmo([list(words) for words in sentences], output_layer=-2)
    assert_accurate(ElmoEmbedder(FIXTURES / name).embed_batch(sentences), expected)
    # It carries the states of a batch, sorted by length, to the next one.
    sentences.sort(key=len, reverse=True)
    stateful = ElmoEmbedder(FIXTURES / name, stateful=True)
    embedder = oracle.Embedder(str(FIXTURES / name), batch_size=len(sentences))
    for batch in (sentences, sentences[:4], sentences[::3]):
        expected = embedder.sents2elmo([list(words) for words in batch], output_layer=-2)
        assert_accurate(stateful.embed_batch(batch), expected)


def test_weights_that_were_saved_on_a_gpu(folder: Path) -> None:
    for name in ("encoder.pkl", "token_embedder.pkl"):
        content = (folder / name).read_bytes()
        for of_cpu, of_gpu in (
            (b"ctorch\nFloatStorage\n", b"ctorch.cuda\nFloatStorage\n"),
            (b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0"),
        ):
            assert of_cpu in content
            content = content.replace(of_cpu, of_gpu)
        (folder / name).write_bytes(content)
    assert_accurate(ElmoEmbedder(folder).embed_batch(SENTENCES), expected_vectors("both"))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_lower_precisions_are_near(precision: str) -> None:
    embedder = ElmoEmbedder(FIXTURES / "both", precision=precision, kernel="reference")
    steps = max(map(len, SENTENCES)) + 2
    # The widest filter, two highways and the projection; gates and projections of each step of two layers.
    terms = 3 * 5 + 2 * 13 + 20 + 2 * steps * (6 + 6 + 10)
    roundings = 1 + 2 + 1 + 2 * steps * 2
    bilm = embedder.elmo_bilm
    assert (bilm.precision, bilm.kernel) == (precision, "reference")
    found, expected = embedder.embed_batch(SENTENCES), expected_vectors("both")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, terms, dtype=precision, roundings=roundings)


def test_a_zip_stands_for_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLENNLP_CACHE_ROOT", str(tmp_path / "allennlp"))
    with zipfile.ZipFile(tmp_path / "204.zip", "w") as archive:
        for path in (FIXTURES / "both").iterdir():
            archive.write(path, f"204/{path.name}")
    for _ in range(2):  # the second time from the cache
        vectors = ElmoEmbedder(tmp_path / "204.zip").embed_batch(SENTENCES)
        assert_accurate(vectors, expected_vectors("both"))


def test_the_embedder_of_configs(tmp_path: Path, folder: Path) -> None:
    params = of_allennlp("common.Params")
    import elmo_plugin.plugin  # noqa: F401 - registers it

    config = {"type": "elmo", "options_file": str(folder), "dropout": 0.0}
    embedder_class = of_allennlp("modules.TokenEmbedder")
    embedder = embedder_class.from_params(params(dict(config)))
    torch.save(embedder.state_dict(prefix="embedder."), tmp_path / "weights.th")
    shutil.rmtree(folder)
    archived = embedder_class.from_params(params(dict(config)), serialization_dir=str(tmp_path))
    for same in (embedder, archived):
        vectors = same(batch_to_ids(SENTENCES[:1]))
        assert_accurate(vectors.detach(), [expected_vectors("both")[0].mean(axis=0)])


def test_words_that_were_cut(caplog: pytest.LogCaptureFixture) -> None:
    embedder = ElmoEmbedder(FIXTURES / "both")
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        embedder.embed_sentence(["a" * 60, "了" * 15])
        assert not caplog.messages
        longer, other, shorter = (
            embedder.embed_sentence(["了" * 16 + end]) for end in ("了好", "é", "")
        )
    assert numpy.array_equal(longer, shorter)
    assert numpy.array_equal(other, shorter)
    (message,) = caplog.messages
    assert "Words are read up to 48 bytes of UTF-8, 16 characters of Chinese" in message


def test_it_scores_no_sentences() -> None:
    message = "both: found a model of ELMoForManyLangs, which has vectors but no softmax"
    with pytest.raises(ConfigurationError, match=message):
        SentenceScorer.from_files(FIXTURES / "both")


def test_a_saved_model_is_the_same(tmp_path: Path) -> None:
    files = tmp_path / "options.json", tmp_path / "weights.hdf5"
    character_ids = batch_to_ids(SENTENCES)
    for name in MODELS:
        bilm = BiLM.from_files(FIXTURES / name, stateful=True)
        bilm.save(*files)
        again = BiLM.from_files(*files, stateful=True)
        for _ in range(2):  # from zeros, and from the states of the first batch
            assert_accurate(again(character_ids)["activations"], bilm(character_ids)["activations"])
        for names in (files, (tmp_path, None)):
            vectors = ElmoEmbedder(*names).embed_batch(SENTENCES)
            assert_accurate(vectors, expected_vectors(name))
    change_json(files[0], {"encoder.dim": 11})
    with pytest.raises(ConfigurationError, match=r"Cell0/LSTMCell/W_0 has shape \(12, 40\), exp"):
        BiLM.from_files(*files)
    change_json(files[0], {"words": None})
    with pytest.raises(ConfigurationError, match="words is null, expected the number of each"):
        BiLM.from_files(*files)


def test_a_saved_model_with_a_large_dictionary_is_read_again(tmp_path: Path) -> None:
    # As JSON longer than other options may be: a Cyrillic letter is escaped as 6 bytes.
    words = ["<oov>", "<pad>", *(letter * 400_000 for letter in "абвгд")]
    sizes = {
        "encoder": {"name": "elmo", "dim": 4, "projection_dim": 3, "n_layers": 1},
        "token_embedder": {"name": "lstm", "word_dim": 2, "char_dim": 0},
        "words": {word: number for number, word in enumerate(words)},
    }
    BiLM(BiLMOptions.from_dict(sizes)).save(tmp_path / "options.json", tmp_path / "weights.hdf5")
    encoder = BiLM.from_files(tmp_path).options.encoder
    assert isinstance(encoder, ManyLangsEncoderOptions)
    assert encoder.words == sizes["words"]


def test_weights_of_other_dictionaries_are_refused(folder: Path) -> None:
    path = folder / "word.dic"
    words = path.read_text("utf-8")
    path.write_text(words.replace("naïve\t", "x\t").replace("!\t", "naïve\t"), "utf-8")
    assert path.read_text("utf-8") != words
    elmo, other = Elmo(str(folder)), Elmo(str(FIXTURES / "both"))
    with pytest.raises(ConfigurationError, match=r"has encoder ManyLangs.* expected ManyLangs"):
        elmo.load_state_dict(other.state_dict())
    other.load_state_dict(Elmo(str(FIXTURES / "both")).state_dict())


def test_it_is_not_trained() -> None:
    message = "A biLM of ELMoForManyLangs cannot be trained"
    with pytest.raises(ConfigurationError, match=message):
        Elmo(str(FIXTURES / "both"), None, 1, requires_grad=True)
    assert BiLM.from_files(FIXTURES / "both").requires_grad_(False).is_frozen


def change_json(path: Path, changes: Dict[str, Any]) -> None:
    content = json.loads(path.read_text())
    for key, value in changes.items():
        *parents, last = key.split(".")
        inner = content
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    path.write_text(json.dumps(content))


def assert_refused(folder: Path, start: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        BiLM.from_files(folder)
    assert str(error.value).startswith(start)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "place, changes, message",
    [
        ("sizes.json", {"encoder.name": "lstm"}, 'encoder.name is "lstm", expected "elmo"'),
        ("sizes.json", {"encoder.dim": 6}, "dim is 6, expected a width other than encoder.proj"),
        ("sizes.json", {"token_embedder.name": "lstm"}, 'name is "lstm", expected "cnn" (LSTMs ov'),
        ("sizes.json", {"token_embedder.max_characters_per_token": 6}, "is 6, expected an integer"),
        ("sizes.json", {"encoder.n_layers": 10**9}, "is 1000000000, expected an integer from 1 to"),
        ("sizes.json", {"token_embedder": 3}, "found no token_embedder, expected the sizes"),
        # Those of another model.
        ("", {"encoder.dim": 11}, "size mismatch for forward_layers.0.gate_weight"),
        ("", {"encoder.n_layers": 3}, 'Missing key(s) in state_dict: "forward_layers.2.gate_w'),
        ("", {"encoder.n_layers": 1}, 'Unexpected key(s) in state_dict: "forward_layers.1.gat'),
    ],
)
def test_wrong_sizes(place: str, changes: Dict[str, Any], message: str, folder: Path) -> None:
    change_json(folder / "sizes.json", changes)
    assert_refused(folder, f"{folder / place}: ", message)


@pytest.mark.parametrize("key", ["words", "characters"])
@pytest.mark.parametrize("entries", [{"<oov>": 0, "a": 5000}, {"<oov>": -1}, [1, 2], {}])
def test_options_with_numbers_that_no_embedding_has(key: str, entries: Any) -> None:
    values = BiLM.from_files(FIXTURES / "both").options.to_dict()
    assert BiLMOptions.from_dict(values, "kept.json").to_dict() == values
    with pytest.raises(
        ConfigurationError, match=rf"kept\.json: {key} is .* less than the number of"
    ):
        BiLMOptions.from_dict({**values, key: entries}, "kept.json")


def test_shorter_words(folder: Path) -> None:
    change_json(folder / "sizes.json", {"token_embedder.max_characters_per_token": 7})
    assert max(len(word) for sentence in SENTENCES for word in sentence) > 5
    cut = [[word[:5] for word in sentence] for sentence in SENTENCES]
    embedder = ElmoEmbedder(folder)
    assert_accurate(embedder.embed_batch(SENTENCES), embedder.embed_batch(cut))


def replace_tensor(path: Path, name: str, value: Any) -> None:
    """Write another value in a file of weights; `None` deletes it."""
    weights = torch.load(path, weights_only=True)
    assert name in weights
    weights[name] = value
    if value is None:
        del weights[name]
    torch.save(weights, path)


@pytest.mark.parametrize(
    "value, message",
    [
        # A terabyte, but not in the file.
        (torch.zeros(1).expand(2**38), "is sparse, quantized, or repeats numbers, expected"),
        (torch.zeros(1).half().expand(2**38), "is sparse, quantized, or repeats numbers"),
        (torch.zeros(2**38, device="meta"), "is sparse, quantized, or repeats numbers"),
        (torch.zeros(6).to_sparse(), "is sparse, quantized, or repeats numbers"),
        (torch.zeros(6, dtype=torch.complex64), "holds NaN or infinite values or is no tensor"),
        (torch.tensor([0.0, torch.inf]), "holds NaN or infinite values or is no tensor"),
        (3, "holds NaN or infinite values or is no tensor"),
    ],
)
def test_weights_that_are_no_finite_numbers_in_the_file(
    value: Any, message: str, folder: Path
) -> None:
    path = folder / "token_embedder.pkl"
    replace_tensor(path, "projection.bias", value)
    assert_refused(folder, f"{path}: projection.bias ", message)


@pytest.mark.parametrize(
    "file, name, value, message",
    [
        ("token_embedder.pkl", "highways._layers.0.bias", torch.zeros(1), "size mismatch for"),
        ("token_embedder.pkl", "highways._layers.0.bias", torch.tensor(0.0), "dimension"),
        ("encoder.pkl", "forward_layer_0.input_linearity.weight", torch.zeros(3), "imension"),
        ("encoder.pkl", "forward_layer_0.state_linearity.weight", None, "0.state_linearity.weight"),
    ],
)
def test_weights_of_other_dimensions_and_missing_ones(
    file: str, name: str, value: Any, message: str, folder: Path
) -> None:
    replace_tensor(folder / file, name, value)
    assert_refused(folder, f"{folder}: the weights are not of the sizes and dictionaries", message)


def test_weights_that_expand_a_thousandfold_are_refused(folder: Path) -> None:
    path = folder / "token_embedder.pkl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("weights/data/0", bytes(20_000_000))
    assert_refused(folder, f"{path}: ", "expand to 20,000,000")


@pytest.mark.parametrize("name", ["a" * 300, "\x00", {"a": []}, "../sizes.json", "/sizes.json"])
def test_sizes_are_read_from_the_folder(name: Any, folder: Path) -> None:
    shutil.move(folder / "sizes.json", folder.parent)
    where = str(folder.parent / "sizes.json") if name == "/sizes.json" else name
    (folder / "config.json").write_text(json.dumps({"config_path": where}))
    assert_refused(folder, f"{folder}/", "cannot be read (")


def test_where_the_sizes_are(folder: Path) -> None:
    character_ids = batch_to_ids(SENTENCES)
    expected = BiLM.from_files(folder)(character_ids)["activations"][-1]
    (folder / "configs").mkdir()
    shutil.move(folder / "sizes.json", folder / "configs")
    with pytest.raises(ConfigurationError, match=r"sizes\.json: cannot be read \(No"):
        BiLM.from_files(folder)
    (folder / "config.json").write_text('{"config_path": "configs/sizes.json"}')
    assert torch.equal(BiLM.from_files(folder)(character_ids)["activations"][-1], expected)
    shutil.copy(folder / "configs" / "sizes.json", folder / "config.json")
    assert torch.equal(BiLM.from_files(folder)(character_ids)["activations"][-1], expected)
    # The sizes of the published models are known.
    (folder / "config.json").write_text('{"config_path": "/x/cnn_50_100_512_4096_sample.json"}')
    assert_refused(folder, f"{folder}: ", "the shape in current model is torch.Size([24, 100])")


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("config.json", None, "cannot be read (No such file or directory)"),
        ("config.json", b"[]", "found no token_embedder, expected the sizes"),
        ("word.dic", None, "cannot be read (No such file"),
        ("word.dic", b"<oov>\t0\nhaus", "word.dic, line 2: found 'haus', expected an entry, a tab"),
        ("word.dic", b"<oov>\t" + b"9" * 5000, "word.dic, line 1: found '<oov>\\t9999"),
        ("char.dic", b"<oov>\t0\n", "found no entry <pad> in 1 entries"),
        ("word.dic", b"<oov>\t0\n<pad>\t2\n", "found the number 2 of '<pad>' in 2 entries, exp"),
        ("encoder.pkl", None, "cannot be read as weights ([Errno 2] No such file"),
        ("token_embedder.pkl", b"\x80\x02cos\nsystem\nq\x00.", "cannot be read as weights"),
        ("token_embedder.pkl", "cut short", "cannot be read as weights"),
        ("token_embedder.pkl", torch.zeros(3), "found a Tensor, expected weights by name"),
    ],
)
def test_missing_and_damaged_files(file: str, content: Any, message: str, folder: Path) -> None:
    path = folder / file
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "cut short":
        path.write_bytes(path.read_bytes()[:-1000])
    else:
        torch.save(content, path)
    assert_refused(folder, str(path), message)


def test_full_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*arguments: Any, **options: Any) -> None:
        # As torch says it.
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] . can't allocate memory: 1 TB")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(ConfigurationError, match=r"\.pkl: there is no memory .* Free some; or, if"):
        BiLM.from_files(FIXTURES / "both", None)
