"""Trained models in Python: by name or path, with text as their input."""

import json
from pathlib import Path
from typing import List

import pytest
from allennlp.data import Instance, Token
from allennlp.models import SimpleTagger

from elmo_plugin import Elmo, load_predictor
from elmo_plugin.errors import ConfigurationError
from tests.conftest import FIXTURES, REPOSITORY
from tests.tasks.task_testing import overfitted_archive, run_predict


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = FIXTURES / "snli" / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)  # paths in the experiment are relative to it
        return overfitted_archive(
            tiny / "experiment_elmo.jsonnet", tmp_path_factory.mktemp("run"), 2
        )


def test_archives_and_folders_are_loaded_with_changes(archive_file: Path) -> None:
    texts = ("A man sleeps outside.", "A man sleeps.")
    predictor = load_predictor(archive_file)
    answer = predictor.predict(*texts)
    assert load_predictor(archive_file.parent).predict(*texts) == answer
    # Nothing can be trained, and the biLM runs as a snapshot.
    assert not any(parameter.requires_grad for parameter in predictor._model.parameters())
    assert not any("_elmo_lstm" in name for name, _ in predictor._model.named_parameters())
    whitespace = {"tokenizer": {"type": "whitespace"}}
    changed = load_predictor(archive_file, predictor_args=whitespace).predict(*texts)
    assert changed["premise_words"] == ["A", "man", "sleeps", "outside."]
    assert answer["premise_words"] == ["A", "man", "sleeps", "outside", "."]
    overrides = {"model.text_encoder.elmo.precision": "bfloat16"}
    changed = load_predictor(archive_file, overrides)
    changed.predict(*texts)
    elmos = [module for module in changed._model.modules() if isinstance(module, Elmo)]
    assert [elmo.snapshot.precision for elmo in elmos] == ["bfloat16"]
    with pytest.raises(
        ConfigurationError, match=r"^predictor_args: found {'no': 1}, expected arg.*'no'"
    ):
        load_predictor(archive_file, predictor_args={"no": 1})
    with pytest.raises(ConfigurationError, match=r"^no\.tar\.gz: no such file or folder"):
        load_predictor("no.tar.gz")


SIMPLE_TAGGER = """
{
  dataset_reader: { type: 'sequence_tagging', token_indexers: { tokens: { type: 'single_id' } } },
  train_data_path: 'train.txt',
  model: {
    type: 'simple_tagger',
    text_field_embedder: { token_embedders: { tokens: { type: 'embedding', embedding_dim: 8 } } },
    encoder: { type: 'lstm', input_size: 8, hidden_size: 8, bidirectional: true },
  },
}
"""


def test_taggers_of_allennlp_need_no_model_of_spacy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("Ada###NNP sleeps###VBZ .###.\n", encoding="utf-8")
    Path("config.jsonnet").write_text(SIMPLE_TAGGER)
    Path("run").mkdir()
    archive_file = overfitted_archive(Path("config.jsonnet"), Path("run"))
    predictor = load_predictor(archive_file)
    words, tags = ["Ada", "sleeps", "."], ["NNP", "VBZ", "."]
    assert predictor.predict_json({"tokens": words}) == {"words": words, "tags": tags}
    # Split by rules, as for the models of this package.
    answer = {"words": words, "tags": tags, "sentence": "Ada sleeps."}
    assert predictor.predict("Ada sleeps.") == answer
    Path("in.jsonl").write_text('{"sentence": "Ada sleeps."}')
    run_predict(
        archive_file, "in.jsonl", "--predictor", "elmo_tagger", "--output-file", "out.jsonl"
    )
    assert json.loads(Path("out.jsonl").read_text())["tags"] == tags
    short, _ = predictor.predict_batch_json([{"tokens": ["Ada"]}, {"tokens": words}])
    assert short == {"words": ["Ada"], "tags": ["NNP"]}
    arguments = {"tokenizer": {"type": "whitespace"}}
    of_whitespace = load_predictor(archive_file, predictor_args=arguments)
    assert of_whitespace.predict("Ada sleeps .")["tags"] == tags
    with pytest.raises(ConfigurationError, match="exactly one of 'sentence', 'tokens', as in"):
        predictor.predict_json({"text": "Ada sleeps ."})
    # A reader of another package may give less than AllenNLP's.
    reader = predictor._dataset_reader
    complete_instance = reader.text_to_instance

    def instance_without_metadata(tokens: List[Token]) -> Instance:
        instance = complete_instance(tokens)
        del instance.fields["metadata"]
        return instance

    with monkeypatch.context() as patch:
        patch.setattr(reader, "text_to_instance", instance_without_metadata)
        assert predictor.predict("Ada sleeps.") == answer
        assert predictor.predict_tokens(words) == {"words": words, "tags": tags}
    monkeypatch.setattr(SimpleTagger, "default_predictor", None)
    with pytest.raises(
        ConfigurationError, match=r"SimpleTagger have no default predictor.*--predictor"
    ):
        load_predictor(archive_file)
    assert (
        load_predictor(archive_file, predictor="elmo_tagger").predict("Ada sleeps.")["tags"] == tags
    )
