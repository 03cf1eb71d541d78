from pathlib import Path
from typing import List

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.embed_file import EmbeddedFile
from elmo_plugin.embedding.layer_choice import layer_choice
from elmo_plugin.embedding.on_ray.shard_input import ShardContent
from elmo_plugin.embedding.on_ray.shard_output import ShardOutput
from elmo_plugin.embedding.output.unfinished import UnfinishedOutput
from tests.conftest import BiLMFiles
from tests.embedding.on_ray.shard_parts_test import SENTENCES, SHARD, writer

pytest.importorskip("pyarrow", reason="pyarrow (elmo_plugin[parquet]) is not installed")

SETTINGS = {"layers": "top"}
CONTENTS = [ShardContent("texts/a.txt", 2, 5, "0123")]


def write(output: ShardOutput, bilm_files: BiLMFiles, contents: List[ShardContent]) -> None:
    with output.open(contents):
        part_writer = writer(bilm_files, output.folder, layer_choice("top"))
        output.add(part_writer.write(SHARD._replace(number=0), SENTENCES))


def test_a_run_that_was_killed_before_its_last_step_is_completed(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(unfinished: UnfinishedOutput) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(UnfinishedOutput, "publish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write(ShardOutput(path, SETTINGS), bilm_files, CONTENTS)
    assert not path.exists()
    output = ShardOutput(path, SETTINGS)
    assert output.look_for_former(overwrite=False, resume=True) is None
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == ["out"]
    assert output.complete(CONTENTS) == EmbeddedFile(num_sentences=2, num_tokens=5)


def test_a_missing_sentence_is_an_error_and_what_is_there_is_kept(
    bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    with pytest.raises(ConfigurationError, match="3 sentences were found and 2 are written"):
        write(ShardOutput(path, SETTINGS), bilm_files, [CONTENTS[0]._replace(num_sentences=3)])
    assert not path.exists()
    former = ShardOutput(path, SETTINGS).look_for_former(overwrite=False, resume=True)
    assert former is not None and former.num_sentences == 2


def test_what_a_run_has_left_that_had_no_part_yet_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), ShardOutput(path, SETTINGS).open(CONTENTS):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    # As it is after SIGKILL.
    (tmp_path / "out.partial/vectors").mkdir(parents=True)
    output = ShardOutput(path, SETTINGS)
    assert output.look_for_former(overwrite=False, resume=False) is None
    assert not list(tmp_path.iterdir())
