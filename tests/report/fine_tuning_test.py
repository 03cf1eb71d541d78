import json
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.pretraining import LMVocabulary
from elmo_plugin.report.fine_tuning import (
    FineTuning,
    Perplexities,
    Start,
    perplexities_of,
    prepare_fine_tuning,
    prepare_start,
    slug,
)
from elmo_plugin.report.task_text import TextFiles
from tests.conftest import BiLMFiles

CONFIG = str(Path(__file__).parents[2] / "training_configs" / "bilm_finetune.jsonnet")
TEXT = TextFiles(Path("texts/train.txt"), Path("texts/heldout.txt"), 2, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A biLM with its softmax, as `elmo-export` writes it."""
    return Path(shutil.copytree(PRETRAINED_FOLDER / "elmo_mini", tmp_path / "my_bilm"))


class TestPrepareStart:
    def test_a_name_stays_a_name(self, tmp_path: Path) -> None:
        start = prepare_start("elmo_mini", tmp_path)
        assert start == Start("elmo_mini", "elmo_mini", tmp_path / "elmo_mini-vocab.txt")
        expected = LMVocabulary.from_file("elmo_mini").words
        assert LMVocabulary.from_file(start.vocabulary_file).words == expected

    def test_a_folder_is_told_from_a_name_by_its_slash(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder.parent)
        assert prepare_start("my_bilm", tmp_path).variable == "./my_bilm"
        start = prepare_start(f"{folder}/", tmp_path)
        assert start.variable == str(folder)
        assert start.slug == slug(str(folder)) and "/" not in start.slug

    def test_without_a_softmax_nothing_is_predicted(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        folder = tmp_path / "published"
        folder.mkdir()
        shutil.copy(bilm_files.options_file, folder / "options.json")
        shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
        with pytest.raises(
            ConfigurationError, match="published: found no softmax, expected the so"
        ):
            prepare_start(str(folder), tmp_path)

    def test_a_softmax_without_words_is_refused(self, folder: Path, tmp_path: Path) -> None:
        (folder / "vocab.txt").unlink()
        with pytest.raises(
            ConfigurationError, match=r"found no vocab\.txt beside its weights, exp"
        ):
            prepare_start(str(folder), tmp_path)

    def test_what_is_no_bilm_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="--bilm nothing: there is no such folder"):
            prepare_start("nothing", tmp_path)


class TestPrepareFineTuning:
    @pytest.fixture
    def start(self, tmp_path: Path) -> Start:
        return prepare_start("elmo_mini", tmp_path)

    def prepare(self, start: Start, tmp_path: Path, **changes: Any) -> FineTuning:
        arguments: Dict[str, Any] = {"config_file": CONFIG, "overrides": {}, **changes}
        return prepare_fine_tuning(
            "adapting", start=start, text=TEXT, folder=tmp_path / "runs", **arguments
        )

    def test_the_config_is_evaluated_for_the_bilm_and_the_text(
        self, start: Start, tmp_path: Path
    ) -> None:
        experiment = self.prepare(start, tmp_path, overrides={"trainer.num_epochs": 7})
        assert experiment.config_file == str(tmp_path / "runs" / "adapting.json")
        config = json.loads(Path(experiment.config_file).read_text())
        assert config == experiment.config
        assert config["train_data_path"] == ["texts/train.txt"]
        assert config["validation_data_path"] == ["texts/heldout.txt"]
        assert config["model"]["options_file"] == "elmo_mini"
        assert config["vocabulary"]["vocabulary_file"] == str(start.vocabulary_file)
        assert config["trainer"]["num_epochs"] == 7
        assert experiment.metric == "perplexity" and not experiment.is_larger_better
        assert experiment.variables() == {}

    def test_an_archive_is_started_from_as_one(self, start: Start, tmp_path: Path) -> None:
        archive = start._replace(variable="run/model.tar.gz")
        assert self.prepare(archive, tmp_path).config["model"]["archive_file"] == archive.variable

    def test_a_seed_changes_all_seeds_and_nothing_else(self, start: Start, tmp_path: Path) -> None:
        experiment = self.prepare(start, tmp_path)
        cell = experiment.cell_of_seed(5)
        assert (cell.name, cell.seed) == ("adapting-seed5", 5)
        keys = {"random_seed", "numpy_seed", "pytorch_seed", "data_loader.seed"}
        assert cell.overrides == dict.fromkeys(keys, 5)
        expected = json.loads(json.dumps(experiment.config))
        expected.update(random_seed=5, numpy_seed=5, pytorch_seed=5)
        expected["data_loader"]["seed"] = 5
        assert cell.config == expected

    def test_a_loader_without_a_seed_gets_none(self, start: Start, tmp_path: Path) -> None:
        loader = {"type": "elmo_bilm_streams", "rows": 2}
        experiment = self.prepare(start, tmp_path)
        path = Path(experiment.config_file)
        path.write_text(json.dumps({**experiment.config, "data_loader": loader}))
        assert FineTuning(path, name="x").cell_of_seed(5).config["data_loader"] == loader

    def test_a_config_that_does_not_measure_before_is_refused(
        self, start: Start, tmp_path: Path
    ) -> None:
        overrides = {"trainer.callbacks": ["elmo_bilm_state"]}
        with pytest.raises(ConfigurationError, match=r"callbacks is \['elmo_bilm_state'\], expec"):
            self.prepare(start, tmp_path, overrides=overrides)
        callback = {"type": "elmo_validate_first"}
        self.prepare(start, tmp_path, overrides={"trainer.callbacks": [callback]})

    def test_a_config_that_is_not_there_is_named(self, start: Start, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"--config: there is no file a\.jsonnet, exp"):
            self.prepare(start, tmp_path, config_file="a.jsonnet")

    def test_a_config_that_cannot_be_evaluated_is_named(self, start: Start, tmp_path: Path) -> None:
        path = tmp_path / "other.jsonnet"
        path.write_text("{ a: std.extVar('NO_SUCH_VARIABLE') }")
        with pytest.raises(
            ConfigurationError, match=r"other\.jsonnet: cannot be evaluated .*NO_SU"
        ):
            self.prepare(start, tmp_path, config_file=str(path))


class TestPerplexitiesOf:
    def test_they_are_those_before_and_of_the_best_epoch(self, tmp_path: Path) -> None:
        before = {"perplexity": 3.0, "forward_perplexity": 2.0, "backward_perplexity": 4.0}
        after = {f"best_validation_{name}": value / 2 for name, value in before.items()}
        (tmp_path / "metrics_before.json").write_text(json.dumps(before))
        (tmp_path / "metrics.json").write_text(json.dumps(after))
        expected = [Perplexities(3.0, 2.0, 4.0), Perplexities(1.5, 1.0, 2.0)]
        assert perplexities_of(tmp_path) == expected

    @pytest.mark.parametrize("content", [None, "{", '{"perplexity": 3.0}'])
    def test_metrics_that_cannot_be_read_are_named(self, content: Any, tmp_path: Path) -> None:
        if content is not None:
            (tmp_path / "metrics_before.json").write_text(content)
        with pytest.raises(ConfigurationError, match=r"metrics_before\.json: cannot be read .*Rem"):
            perplexities_of(tmp_path)


@pytest.mark.parametrize(
    "name, expected",
    [("elmo_mini", "elmo_mini"), ("runs/b/model.tar.gz", "runs_b_model.tar.gz"), ("../a b", "a_b")],
)
def test_a_slug_can_name_a_file(name: str, expected: str) -> None:
    assert slug(name) == expected
