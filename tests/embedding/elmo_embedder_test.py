import inspect
import random
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Sequence

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder, ElmoTokenEmbedder, batch_to_ids
from elmo_plugin.embedding import elmo_embedder
from tests.closeness import assert_accurate, assert_close
from tests.conftest import SCALE, SENTENCES, TINY_OPTIONS, BiLMFiles, allennlp_elmo, terms_of


def random_sentences(num_sentences: int) -> List[List[str]]:
    generator = random.Random(0)
    words = [word for sentence in SENTENCES for word in sentence]
    return [
        generator.choices(words, k=generator.choice([0, 1, 2, 5, 17, 40]))
        for _ in range(num_sentences)
    ]


def allennlps_layers(
    files: BiLMFiles, batches: Sequence[Sequence[List[str]]], stateful: bool
) -> List[numpy.ndarray]:
    """A plain loop over the biLM in AllenNLP's `Elmo`, `(num_layers, num_tokens, dim)` per sentence."""
    bilm = allennlp_elmo(files, 1, stateful=stateful)._elmo_lstm
    layers = []
    for batch in batches:
        with torch.no_grad():
            activations = bilm(batch_to_ids(batch))["activations"]
        for row, sentence in enumerate(batch):
            layers.append(
                torch.stack([layer[row, 1 : 1 + len(sentence)] for layer in activations]).numpy()
            )
    return layers


def assert_all_close(found: Sequence[numpy.ndarray], expected: Sequence[numpy.ndarray]) -> None:
    assert {vectors.dtype for vectors in found} <= {numpy.dtype("float32")}
    assert_accurate(found, expected)


@pytest.fixture
def bilm_files(write_bilm: Callable[..., BiLMFiles]) -> BiLMFiles:
    """
    A biLM in which rounding errors do not grow from step to step, as in a trained one. With weights of 0.5
    they do: after 40 steps AllenNLP's own vectors are up to 1e-5 from those in float64.
    """
    return write_bilm(scale=0.25)


@pytest.fixture
def embedder(bilm_files: BiLMFiles) -> ElmoEmbedder:
    return ElmoEmbedder(*bilm_files)


class TestVectors:
    @pytest.mark.parametrize("batch_size", [64, 1, 2])
    def test_they_are_those_of_a_loop_over_allennlps_elmo(
        self, batch_size: Any, bilm_files: BiLMFiles
    ) -> None:
        sentences = SENTENCES + random_sentences(30)
        expected = allennlps_layers(bilm_files, [[s] for s in sentences], stateful=False)
        embedder = ElmoEmbedder(*bilm_files)
        found = list(embedder.embed_sentences(iter(sentences), batch_size))
        assert_all_close(found, expected)

    def test_all_ways_to_embed_agree(self, embedder: ElmoEmbedder) -> None:
        expected = [embedder.embed_sentence(sentence) for sentence in SENTENCES]
        assert (embedder.num_layers, embedder.get_output_dim()) == (3, 12)
        assert expected[0].shape == (3, 7, 12)
        assert_all_close(embedder.embed_batch(SENTENCES), expected)
        assert_all_close(list(embedder.embed_sentences(SENTENCES)), expected)
        activations, mask = embedder.batch_to_embeddings(SENTENCES)
        assert activations.shape == (5, 3, 7, 12)
        assert mask.dtype == torch.bool
        assert mask.sum(dim=1).tolist() == [len(sentence) for sentence in SENTENCES]
        for row, vectors in enumerate(expected):
            length = len(SENTENCES[row])
            assert_all_close([activations[row, :, :length].numpy()], [vectors])
            assert not activations[row, :, length:].any()

    def test_each_array_has_its_own_memory(self, embedder: ElmoEmbedder) -> None:
        for vectors in embedder.embed_batch(SENTENCES):
            assert vectors.flags.c_contiguous
            assert vectors.base is None or vectors.base.nbytes == vectors.nbytes

    def test_a_long_line_is_embedded_like_a_short_one(self, bilm_files: BiLMFiles) -> None:
        # More tokens than any kernel takes in one block, and a short sentence.
        long = [f"w{number % 500}" for number in range(20_000)]
        embedder = ElmoEmbedder(*bilm_files)
        found, short = embedder.embed_sentences([long, ["w1"]])
        assert found.shape == (3, 20_000, 12)
        assert short.shape == (3, 1, 12)
        assert numpy.isfinite(found).all()
        # The forward direction knows nothing of what follows, the backward one of what came before.
        begin, end = embedder.embed_sentence(long[:3_000]), embedder.embed_sentence(long[-3_000:])
        assert_all_close([found[..., :3_000, :6]], [begin[..., :6]])
        assert_all_close([found[..., -3_000:, 6:]], [end[..., 6:]])


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("num_empty", [0, 1, 3])
def test_empty_sentences_have_layers_of_the_right_width(
    num_empty: int, stateful: bool, bilm_files: BiLMFiles
) -> None:
    embedder = ElmoEmbedder(*bilm_files, stateful=stateful)
    batch: List[List[str]] = [[]] * num_empty
    expected = [numpy.zeros((3, 0, 12), dtype="float32")] * num_empty
    assert_all_close(embedder.embed_batch(batch), expected)
    assert_all_close(list(embedder.embed_sentences(batch)), expected)
    activations, mask = embedder.batch_to_embeddings(batch)
    assert activations.shape == (num_empty, 3, 0, 12)
    assert mask.shape == (num_empty, 0)


class TestStates:
    def test_stateful_vectors_equal_those_of_stateful_allennlp(self, bilm_files: BiLMFiles) -> None:
        sentences = SENTENCES + random_sentences(10)
        batches = [sentences[start : start + 4] for start in range(0, len(sentences), 4)]
        expected = allennlps_layers(bilm_files, batches + batches, stateful=True)
        embedder = ElmoEmbedder(*bilm_files, stateful=True)
        found = list(embedder.embed_sentences(iter(sentences), batch_size=4))
        for batch in batches:  # carried over all calls
            found += embedder.embed_batch(batch)
        assert_all_close(found, expected)
        assert not numpy.allclose(found[0], found[len(sentences)], atol=1e-3)

    def test_a_batch_without_tokens_does_not_change_them(self, bilm_files: BiLMFiles) -> None:
        embedder, other = (ElmoEmbedder(*bilm_files, stateful=True) for _ in range(2))
        for instance in (embedder, other):
            instance.embed_sentence(["a"])
        embedder.embed_sentence([])
        assert_all_close([embedder.embed_sentence(["a"])], [other.embed_sentence(["a"])])


# 10 tokens have vectors of the memory set below.
@pytest.mark.parametrize("batch_size, num_read", [(1, 1), (64, 5)])
def test_number_of_sentences_read_before_the_first_result(
    batch_size: int, num_read: int, embedder: ElmoEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elmo_embedder, "BYTES_AHEAD", 10 * 3 * 12 * 4)
    read: List[List[str]] = []

    def sentences() -> Iterator[List[str]]:
        while True:
            read.append(["a", "b"])
            yield read[-1]

    next(embedder.embed_sentences(sentences(), batch_size))
    assert len(read) == num_read


@pytest.mark.parametrize("stateful", [False, True])
def test_a_batch_with_much_padding_is_run_in_parts_unless_states_are_carried(
    stateful: bool,
    bilm_files: BiLMFiles,
    monkeypatch: pytest.MonkeyPatch,
    shapes_run: List[torch.Size],
) -> None:
    monkeypatch.setattr(elmo_embedder, "BYTES_AHEAD", 10 * 3 * 12 * 4)
    batch = [["a"], ["a", "b"] * 4, ["b"]]
    embedder = ElmoEmbedder(*bilm_files, stateful=stateful)
    found = embedder.embed_batch(batch)
    assert shapes_run == ([(3, 8, 50)] if stateful else [(1, 8, 50), (2, 1, 50)])
    assert_all_close(found, [ElmoEmbedder(*bilm_files).embed_sentence(one) for one in batch])


def test_the_checksum_is_that_of_options_and_weights(
    write_bilm: Callable[..., BiLMFiles],
) -> None:
    clipped = replace(TINY_OPTIONS, cell_clip=0.5)
    files = [write_bilm(name="a"), write_bilm(name="b")]
    files += [write_bilm(clipped, name="c"), write_bilm(seed=1, name="d")]
    checksums = [ElmoEmbedder(*one).checksum for one in files]
    assert checksums[0] == checksums[1]
    assert len(set(checksums)) == 3


class TestConstruction:
    def test_the_first_arguments_are_those_of_allennlp_0_9(self) -> None:
        parameters = inspect.signature(ElmoEmbedder).parameters
        assert list(parameters)[:3] == ["options_file", "weight_file", "cuda_device"]
        token_embedder = inspect.signature(ElmoTokenEmbedder).parameters
        for name in ("options_file", "weight_file"):
            assert parameters[name].default == token_embedder[name].default

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    @pytest.mark.parametrize("stateful", [False, True])
    def test_a_gpu_gives_the_same_arrays(
        self, stateful: bool, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # By default torch rounds convolutions, as those of characters, to TF32.
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        on_gpu = ElmoEmbedder(*bilm_files, cuda_device=0, stateful=stateful)
        assert on_gpu.elmo_bilm.device == torch.device("cuda", 0)
        expected = ElmoEmbedder(*bilm_files, stateful=stateful).embed_batch(SENTENCES)
        for found, vectors in zip(on_gpu.embed_batch(SENTENCES), expected, strict=True):
            assert_close(found, vectors, terms_of(9), SCALE)
        activations, mask = on_gpu.batch_to_embeddings(SENTENCES)
        assert activations.is_cuda and mask.is_cuda


@pytest.mark.parametrize(
    "sentence, message",
    [
        ("abc", r"Sentence 1 is 'abc', expected a list of tokens\. Split it"),
        (b"abc", r"Sentence 1 is b'abc', expected a list of tokens\. Split it"),
        (None, "Sentence 1 is None, expected a list of tokens"),
        (["a", 3], "Token 1 of sentence 1 is 3, expected a string"),
        (["a", "b\udc80"], r"Token 1 of sentence 1 is 'b\\udc80', expected a string that UTF-8"),
    ],
)
def test_bad_input_is_named(sentence: Any, message: str, embedder: ElmoEmbedder) -> None:
    batch = [["fine"], sentence]
    for embed in (embedder.embed_batch, embedder.batch_to_embeddings, embedder.embed_sentences):
        with pytest.raises(ValueError, match=message):
            list(embed(batch))
