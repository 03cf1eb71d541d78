import json
from pathlib import Path
from typing import Any, List

import numpy
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.embedding.checked_sentences import Sentence
from elmo_plugin.embedding.layer_choice import LayerChoice, layer_choice
from elmo_plugin.embedding.on_ray.ray_workers import RayWorkers
from elmo_plugin.embedding.on_ray.shard_input import Shard, ShardContent
from elmo_plugin.embedding.on_ray.shard_parts import (
    METADATA_KEY,
    Part,
    PartWriter,
    check_parts,
    complete_parts,
    lines_by_shard,
)
from elmo_plugin.embedding.on_ray.worker_embedder import WorkerSettings
from tests.conftest import BiLMFiles

pytest.importorskip("pyarrow", reason="pyarrow (elmo_plugin[parquet]) is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is built without Parquet")

SHARD = Shard(3, "texts/a.txt", "/data/texts/a.txt")
SENTENCES = [Sentence(7, "a b", ["a", "b"]), Sentence(9, "the word c", ["the", "word", "c"])]
PART = Part(shard=3, first_line=7, last_line=9, num_sentences=2, num_tokens=5)


class Unshared:
    """What stands for a `SharedBiLM` where there is no Ray."""

    def __init__(self, bilm: BiLM) -> None:
        self._bilm = bilm

    def bilm(self) -> BiLM:
        return self._bilm


def writer(bilm_files: BiLMFiles, folder: Path, layers: LayerChoice, **changes: Any) -> PartWriter:
    values = {
        "shared": Unshared(BiLM.from_files(*bilm_files)),
        "layers": layers,
        "dtype": "float32",
        "batch_size": 64,
        "batch_tokens": None,
        "workers": RayWorkers(1, 1, 1.0, 0),
        **changes,
    }
    return PartWriter(WorkerSettings(**values), folder)


class TestWriting:
    def test_a_part_holds_sentences_and_says_which(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        assert writer(bilm_files, tmp_path, layer_choice("all")).write(SHARD, SENTENCES) == PART
        (path,) = tmp_path.glob("*.parquet")
        assert path.name == "part-00003-0000000007.parquet"
        metadata = parquet.read_metadata(path).metadata
        assert json.loads(metadata[METADATA_KEY]) == PART._asdict()
        rows = parquet.read_table(path).to_pylist()
        for row, sentence in zip(rows, SENTENCES):
            layers = [row.pop(f"layer_{number}") for number in range(3)]
            assert row == {
                "source": "texts/a.txt",
                "line": sentence.line_index,
                "sentence": sentence.text,
                "tokens": sentence.tokens,
            }
            expected = ElmoEmbedder(*bilm_files).embed_sentence(sentence.tokens)
            numpy.testing.assert_allclose(numpy.array(layers), expected, atol=1e-5)

    def test_a_part_that_is_written_twice_is_there_once(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        parts = writer(bilm_files, tmp_path, layer_choice("top"))
        assert parts.write(SHARD, SENTENCES) == parts.write(SHARD, SENTENCES)
        assert complete_parts(tmp_path) == [PART]

    def test_vectors_that_the_type_cannot_hold_are_an_error_that_names_the_line(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        large = LayerChoice("large", lambda layers: layers[-1] + 1e5)
        with pytest.raises(ConfigurationError, match=r"^texts/a.txt, line 8: a vector holds"):
            writer(bilm_files, tmp_path, large, dtype="float16").write(SHARD, SENTENCES)
        assert not list(tmp_path.glob("part*"))


class TestCompleteParts:
    def test_whatever_else_is_in_the_folder_is_removed(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        folder = tmp_path / "vectors"
        folder.mkdir()
        parts = writer(bilm_files, folder, layer_choice("top"))
        parts.write(SHARD._replace(number=10), SENTENCES[:1])
        parts.write(SHARD, SENTENCES)
        whole = (folder / PART.file_name).read_bytes()
        (folder / "part-00004-0000000000.parquet").write_bytes(whole[:-9])
        (folder / "part-00005-0000000000.parquet").write_bytes(whole)  # under another's name
        (folder / ".part-00006-0000000000.parquet.x2k").write_bytes(whole[:99])
        (folder / "_embedding.json").write_text("{}")
        foreign = parquet.read_table(folder / PART.file_name).replace_schema_metadata({})
        parquet.write_table(foreign, folder / "part-00007-0000000000.parquet")
        assert complete_parts(folder) == [PART, Part(10, 7, 7, 1, 2)]
        names = sorted(path.name for path in folder.iterdir())
        assert names == [PART.file_name, "part-00010-0000000007.parquet"]


class TestCheck:
    CONTENTS = [ShardContent("a.txt", 5, 9, ""), ShardContent("b.txt", 2, 2, "")]
    PARTS = [Part(0, 0, 3, 3, 5), Part(0, 4, 6, 2, 4), Part(1, 0, 1, 2, 2)]

    def test_all_sentences_once_is_what_is_wanted(self) -> None:
        check_parts(self.PARTS, self.CONTENTS)
        assert lines_by_shard(self.PARTS[::-1]) == {0: [(0, 3), (4, 6)], 1: [(0, 1)]}

    @pytest.mark.parametrize(
        "parts, match",
        [
            (PARTS[1:], r"a\.txt: 5 sentences were found and 2 are written"),
            (PARTS[:2], r"b\.txt: 2 sentences were found and 0 are written"),
            (
                [PARTS[0], Part(0, 3, 6, 2, 4), PARTS[2]],
                r"a\.txt: lines 4 to 4 were written twice, to part-00000-0000000000\.parquet and part",
            ),
            ([*PARTS, Part(1, 7, 7, 1, 1)], r"b\.txt: 2 sentences were found and 3 are written"),
        ],
    )
    def test_anything_else_is_an_error(self, parts: List[Part], match: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{match}.*--overwrite"):
            check_parts(parts, self.CONTENTS)
