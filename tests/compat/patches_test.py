import io
import logging
import pickle
import random
import re
import sys
import tarfile
import time
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, List, Tuple

import numpy
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model
from allennlp.common import Params, cached_transformers, checks
from allennlp.common.file_utils import TensorCache, cached_path
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.dataset_readers import SequenceTaggingDatasetReader
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model, archival
from allennlp.training import GradientDescentTrainer, checkpointer, gradient_descent_trainer
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from allennlp.training.moving_average import ExponentialMovingAverage, MovingAverage
from transformers import BertTokenizerFast

from elmo_plugin.compat.patches import (
    SECONDS_FOR_THREADS,
    prepare_allennlp,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.starting_point import start_from_archive
from tests.closeness import assert_close

PROJECT_ROOT = Path(__file__).parents[2]

TAGGED_SENTENCES = """\
the###DET dog###NN ran###V to###P the###DET park###NN .###.
cats###NN sleep###V a###DET lot###NN .###.
dogs###NN bark###V at###P cats###NN .###.
we###PRP saw###V the###DET sea###NN .###.
"""


def tagger_config(tmp_path: Path) -> Dict[str, Any]:
    """A complete small experiment of AllenNLP's own classes."""
    data = tmp_path / "tagged.txt"
    data.write_text(TAGGED_SENTENCES)
    return {
        "dataset_reader": {"type": "sequence_tagging"},
        "train_data_path": str(data),
        "validation_data_path": str(data),
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": {
                "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}
            },
            "encoder": {"type": "lstm", "input_size": 4, "hidden_size": 4},
        },
        "data_loader": {"batch_size": 2},
        "trainer": {"optimizer": "adam", "num_epochs": 2, "cuda_device": -1},
    }


@pytest.fixture
def config(tmp_path: Path) -> Dict[str, Any]:
    return tagger_config(tmp_path)


def train(config: Dict[str, Any], serialization_dir: Path, recover: bool = False) -> Model:
    return train_model(Params(config).duplicate(), str(serialization_dir), recover=recover)


class TestReduceOnPlateau:
    @staticmethod
    def scheduler(**options: Any) -> Any:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        params = Params({"type": "reduce_on_plateau", "mode": "max", "patience": 0, **options})
        return LearningRateScheduler.from_params(params, optimizer=optimizer)

    def test_trains_in_an_experiment(self, config: Dict[str, Any], tmp_path: Path) -> None:
        config["trainer"]["learning_rate_scheduler"] = {"type": "reduce_on_plateau", "mode": "max"}
        config["trainer"]["validation_metric"] = "+accuracy"
        train(config, tmp_path / "run")

    def test_options_reach_torch_and_unnamed_ones_keep_their_defaults(self) -> None:
        scheduler = self.scheduler(factor=0.25, min_lr=0.3, threshold_mode="abs").lr_scheduler
        assert (scheduler.mode, scheduler.patience, scheduler.factor) == ("max", 0, 0.25)
        assert (scheduler.min_lrs, scheduler.threshold_mode) == ([0.3], "abs")
        assert (scheduler.threshold, scheduler.cooldown, scheduler.eps) == (1e-4, 0, 1e-8)

    @pytest.mark.parametrize("verbose, num_reports", [(True, 1), (False, 0)])
    def test_verbose_reports_each_reduction_and_only_those(
        self, verbose: bool, num_reports: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        scheduler = self.scheduler(verbose=verbose)
        with caplog.at_level(logging.INFO, logger="elmo_plugin.compat.patches"):
            for metric in [1.0, 2.0, 2.0]:  # Only the last is no improvement.
                scheduler.step(metric)
        assert scheduler.get_values() == [0.1]
        reports = [
            record.getMessage()
            for record in caplog.records
            if record.name == "elmo_plugin.compat.patches"
        ]
        assert len(reports) == num_reports
        for report in reports:
            assert "parameter group 0 from 1.0000e+00 to 1.0000e-01" in report

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(checks.ConfigurationError, match=r"Extra parameters passed.*patients"):
            self.scheduler(patients=3)


class TestRecovery:
    def test_a_recovered_training_ends_where_an_uninterrupted_one_does(
        self, config: Dict[str, Any], tmp_path: Path
    ) -> None:
        # The cosine schedule leaves NumPy numbers in the optimizer's state, which torch refuses to
        # load by default.
        config["trainer"]["learning_rate_scheduler"] = {"type": "cosine", "t_initial": 3}
        uninterrupted = train(config, tmp_path / "run").state_dict()

        for file in [*(tmp_path / "run").glob("*_e2_b0.th"), tmp_path / "run" / "best.th"]:
            file.unlink()
        recovered = train(config, tmp_path / "run", recover=True).state_dict()

        assert recovered.keys() == uninterrupted.keys()
        for name, parameter in recovered.items():
            assert torch.equal(parameter, uninterrupted[name])

    def test_a_recovered_training_follows_its_moving_average(
        self, config: Dict[str, Any], tmp_path: Path
    ) -> None:
        config["trainer"]["moving_average"] = {"type": "exponential", "decay": 0.9}
        uninterrupted = train(config, tmp_path / "run").state_dict()
        raw = torch.load(tmp_path / "run" / "model_state_e2_b0.th")
        assert not all(torch.equal(raw[name], average) for name, average in uninterrupted.items())

        for file in [*(tmp_path / "run").glob("*_e2_b0.th"), tmp_path / "run" / "best.th"]:
            file.unlink()
        recovered = train(config, tmp_path / "run", recover=True).state_dict()
        for name, average in recovered.items():
            assert torch.equal(average, uninterrupted[name])

    @staticmethod
    def save_checkpoint(folder: Path, training_state: Dict[str, Any]) -> None:
        torch.save({"weight": torch.ones(2)}, folder / "model_state_e1_b0.th")
        torch.save(training_state, folder / "training_state_e1_b0.th")

    def test_a_state_that_holds_numpy_values_is_restored(self, tmp_path: Path) -> None:
        state = {
            "metric": numpy.float64(0.5),
            "rate": numpy.float32(0.25),
            "count": numpy.int64(3),
            "random": numpy.random.get_state(),
            "python": random.getstate(),
            "flags": numpy.array([True, False]),
        }
        self.save_checkpoint(tmp_path, state)
        model_state, training_state = Checkpointer(str(tmp_path)).load_checkpoint()
        assert torch.equal(model_state["weight"], torch.ones(2))
        for key in ("metric", "rate", "count", "python"):
            assert training_state[key] == state[key]
        for ours, theirs in zip(training_state["random"], state["random"]):
            assert numpy.array_equal(ours, theirs)
        assert training_state["flags"].tolist() == [True, False]

    def test_other_pickled_objects_are_refused_by_default(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.save_checkpoint(tmp_path, {"when": Path("here")})
        with pytest.raises(
            ConfigurationError, match=r"(?s)cannot be loaded .*Path.*TORCH_FORCE_NO"
        ):
            Checkpointer(str(tmp_path)).load_checkpoint()
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
        assert Checkpointer(str(tmp_path)).load_checkpoint()[1] == {"when": Path("here")}

    def test_a_moving_average_keeps_the_format_of_allennlp(self) -> None:
        parameter = torch.nn.Parameter(torch.zeros(2))
        average = ExponentialMovingAverage([("weight", parameter)])
        state = average.state_dict()
        assert set(state) == {"parameters", "shadows", "backups"}
        average.load_state_dict({**state, "shadows": {"weight": torch.full((2,), 3.0)}})
        average.assign_average_value()
        assert parameter.tolist() == [3.0, 3.0]

    def test_nothing_is_restored_from_an_empty_directory(self, tmp_path: Path) -> None:
        assert Checkpointer(str(tmp_path)).load_checkpoint() is None


class TestTensorCache:
    def test_reads_what_it_wrote(self, tmp_path: Path) -> None:
        tensor = torch.randn(2, 3)
        writer = TensorCache(tmp_path / "cache", map_size=1024 * 1024)
        writer["image"] = tensor
        del writer
        reader = TensorCache(tmp_path / "cache", read_only=True)
        assert torch.equal(reader["image"], tensor)

    def test_gives_one_object_per_key(self, tmp_path: Path) -> None:
        cache = TensorCache(tmp_path / "cache", map_size=1024 * 1024)
        cache["image"] = torch.zeros(2)
        cache.cache_cache.clear()
        first = cache["image"]
        assert cache["image"] is first

    def test_an_entry_that_is_no_tensor_is_refused(self, tmp_path: Path) -> None:
        cache = TensorCache(tmp_path / "cache", map_size=1024 * 1024)
        buffer = io.BytesIO()
        torch.save(Path("here"), buffer)
        with cache.lmdb_env.begin(write=True) as transaction:
            transaction.put(b"image", buffer.getvalue())
        with pytest.raises(pickle.UnpicklingError, match=r"found pathlib.*, expected nothing but"):
            cache["image"]

    def test_an_unknown_key_is_a_key_error(self, tmp_path: Path) -> None:
        cache = TensorCache(tmp_path / "cache", map_size=1024 * 1024)
        with pytest.raises(KeyError, match="image"):
            cache["image"]


class TestTransformerTokenizers:
    @pytest.fixture
    def transformer(self, tmp_path: Path) -> str:
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "a", "b"]
        (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
        BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        return str(tmp_path)

    @pytest.mark.parametrize(
        "add_special_tokens, expected",
        [(True, "[CLS] the dog ##s [SEP]"), (False, "the dog ##s")],
    )
    def test_special_tokens_are_added_where_the_config_says_so(
        self, transformer: str, add_special_tokens: bool, expected: str
    ) -> None:
        tokenizer = PretrainedTransformerTokenizer(
            transformer, add_special_tokens=add_special_tokens
        )
        assert " ".join(token.text for token in tokenizer.tokenize("the dogs")) == expected

    def test_other_options_reach_transformers(self, transformer: str) -> None:
        tokenizer = cached_transformers.get_tokenizer(transformer, use_fast=False)
        assert not tokenizer.is_fast


@pytest.mark.slow
def test_a_spawned_data_worker_reads_all_instances(tmp_path: Path) -> None:
    data = tmp_path / "tagged.txt"
    data.write_text(TAGGED_SENTENCES)
    loader = MultiProcessDataLoader(
        SequenceTaggingDatasetReader(),
        str(data),
        batch_size=2,
        num_workers=1,
        start_method="spawn",
    )
    words = [instance["tokens"][0].text for instance in loader.iter_instances()]
    assert words == ["the", "cats", "dogs", "we"]


class TestMixedPrecisionWarnings:
    @staticmethod
    def warnings_in(module: ModuleType) -> List[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            prepare_allennlp.__wrapped__.__globals__["_hide_mixed_precision_warnings"]()
            exec("torch.cuda.amp.autocast(False)", module.__dict__)
        return [str(warning.message) for warning in caught]

    def test_those_of_allennlp_are_hidden_and_no_others(self) -> None:
        assert self.warnings_in(gradient_descent_trainer) == []
        assert "is deprecated" in self.warnings_in(sys.modules[__name__])[0]


def test_patching_again_changes_nothing() -> None:
    scheduler_class = LearningRateScheduler.by_name("reduce_on_plateau")
    before = (
        scheduler_class.__init__,
        Checkpointer.load_checkpoint,
        cached_transformers.get_tokenizer,
    )
    prepare_allennlp()
    after = (
        scheduler_class.__init__,
        Checkpointer.load_checkpoint,
        cached_transformers.get_tokenizer,
    )
    assert after == before


class TestNormsOfSparseGradients:
    @pytest.mark.parametrize("max_norm", [0.1, 100.0])
    def test_sparse_gradients_are_clipped_as_dense_ones_are(self, max_norm: float) -> None:
        from allennlp.training import gradient_descent_trainer

        words = torch.tensor([1, 3, 1])
        norms, gradients = [], []
        for sparse in (False, True):
            torch.manual_seed(0)
            embedding = torch.nn.Embedding(5, 2, sparse=sparse)
            linear = torch.nn.Linear(2, 1)
            linear(embedding(words)).pow(2).sum().backward()
            parameters = [*embedding.parameters(), *linear.parameters()]
            norms.append(gradient_descent_trainer.clip_grad_norm_(parameters, max_norm))
            assert embedding.weight.grad.is_sparse == sparse
            gradients.append([embedding.weight.grad.to_dense(), linear.weight.grad])
        # A norm sums the squares of an embedding of ten numbers, of two weights and of a bias. A row that
        # occurs twice adds two gradients.
        assert_close(norms[0], norms[1], terms=10 + 2 + 1 + 2)
        for dense, sparse_made_dense in zip(*gradients):
            assert_close(dense, sparse_made_dense, terms=10 + 2 + 1 + 2)


def exchange_and_end(rank: int, store: str) -> None:
    sys.setswitchinterval(1000)  # gloo's threads get Python's lock only where it is given up
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", world_size=2, rank=rank
    )

    def exchange(trainer: Any) -> Tuple[Dict[str, Any], int]:
        for _ in range(10):
            exchanges = [
                torch.distributed.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)
            ]
            for exchange in exchanges:
                exchange.wait()
        return {}, 0

    trainer = object.__new__(GradientDescentTrainer)
    trainer._distributed, trainer._primary, trainer._callbacks = True, False, []
    trainer._checkpointer = None
    GradientDescentTrainer._try_train = exchange
    trainer.train()


@pytest.mark.slow
def test_workers_of_distributed_training_end_in_order(tmp_path: Path) -> None:
    # Without the patch one of the workers aborts, more often than not.
    torch.multiprocessing.spawn(exchange_and_end, args=(str(tmp_path / "store"),), nprocs=2)


def test_other_processes_do_not_wait_at_their_end(
    config: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: List[Any] = []
    monkeypatch.setattr("atexit.register", lambda *call: registered.append(call))
    train(config, tmp_path / "run")
    assert (time.sleep, SECONDS_FOR_THREADS) not in registered


def test_patches_do_not_change_names_of_other_modules() -> None:
    assert checkpointer.torch is torch
    assert gradient_descent_trainer.amp is torch.cuda.amp
    assert tarfile.TarFile.extraction_filter is None
    assert Checkpointer.save_checkpoint.__module__ == checkpointer.__name__
    assert MovingAverage.state_dict.__module__ == MovingAverage.__module__


def test_allennlps_checkpointer_deletes_only_what_it_always_did(
    config: Dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    config["trainer"]["num_epochs"] = 1
    train(config, tmp_path / "run")
    newer = tmp_path / "run" / "model_state_e9_b0.th"
    newer.write_bytes(b"weights without a state of training")
    state = SimpleNamespace(
        model_state={}, trainer_state={"epochs_completed": 2, "batches_in_epoch_completed": 0}
    )
    saving = Checkpointer(tmp_path / "run", keep_most_recent_by_count=None)
    saving.save_checkpoint(SimpleNamespace(get_checkpoint_state=lambda: state))
    assert newer.exists()


MEMBERS = {
    "a path with '..'": ("../../../outside", {}),
    "an absolute path": ("/OUTSIDE", {}),
    "a device or pipe": ("pipe", {"type": tarfile.FIFOTYPE}),
}
LINKS = {
    "a link that leaves": ("link", {"type": tarfile.SYMTYPE, "linkname": "../../outside"}),
    "an absolute link": ("link", {"type": tarfile.SYMTYPE, "linkname": "/OUTSIDE"}),
    "a hard link that leaves": ("link", {"type": tarfile.LNKTYPE, "linkname": "../outside"}),
    "a path with '..' to the neighbour of the folder": ("../pathtest2/outside", {}),
}


class TestArchives:
    @pytest.fixture
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "deep" / "temporary"
        folder.mkdir(parents=True)
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        return folder

    @pytest.fixture(params=[*MEMBERS, *LINKS])
    def archive(self, request: pytest.FixtureRequest, temporary: Path, tmp_path: Path) -> Path:
        name, attributes = {**MEMBERS, **LINKS}[request.param]
        path = tmp_path / "deep" / "model.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for member_name in ("config.json", name.replace("/OUTSIDE", str(tmp_path / "outside"))):
                member = tarfile.TarInfo(member_name)
                if member_name != "config.json":
                    for key, value in attributes.items():
                        setattr(member, key, value)
                content = b"{}" if member.type == tarfile.REGTYPE else b""
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return path

    @staticmethod
    def assert_refused(open_archive: Callable[[], Any], archive: Path) -> None:
        root = archive.parents[1]
        before = set(root.rglob("*"))
        message = (
            rf"{re.escape(str(archive))}: member '.*' is (a|an) .*, expected files and folders"
        )
        with pytest.raises(ConfigurationError, match=message):
            open_archive()
        left = {path for path in set(root.rglob("*")) - before if path.suffix != ".lock"}
        assert left <= {root / "cache"}

    def test_predict_refuses_what_would_be_written_elsewhere(
        self, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "input.jsonl").write_text("{}\n")
        arguments = ["allennlp", "predict", str(archive), str(tmp_path / "input.jsonl")]
        monkeypatch.setattr(sys, "argv", arguments)
        self.assert_refused(lambda: main(prog="allennlp"), archive)

    def test_our_own_openers_refuse_it(self, archive: Path) -> None:
        self.assert_refused(lambda: start_from_archive(archive), archive)

    def test_cached_path_refuses_it(self, archive: Path, tmp_path: Path) -> None:
        self.assert_refused(
            lambda: cached_path(archive, cache_dir=tmp_path / "cache", extract_archive=True),
            archive,
        )

    def test_ordinary_archives_are_extracted(self, temporary: Path, tmp_path: Path) -> None:
        (tmp_path / "vocabulary").mkdir()
        (tmp_path / "vocabulary" / "tokens.txt").write_text("a")
        (tmp_path / "hard").hardlink_to(tmp_path / "vocabulary" / "tokens.txt")
        (tmp_path / "soft").symlink_to("vocabulary/tokens.txt")
        with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
            for name in ("vocabulary", "hard", "soft"):
                archive.add(tmp_path / name, arcname=name)
        with archival.extracted_archive(tmp_path / "model.tar.gz") as folder:
            for name in ("vocabulary/tokens.txt", "hard", "soft"):
                assert (Path(folder) / name).read_text() == "a"
        assert list(temporary.iterdir()) == []
        with archival.extracted_archive(tmp_path / "model.tar.gz", cleanup=False) as folder:
            pass
        assert Path(folder).exists()

    def test_a_truncated_archive_leaves_nothing(self, temporary: Path, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as archive:
            archive.add(__file__, arcname="config.json")
        half = tmp_path / "model.tar.gz"
        half.write_bytes((tmp_path / "whole.tar.gz").read_bytes()[:1000])
        with pytest.raises(
            ConfigurationError, match=r"model\.tar\.gz: cannot be loaded as an archive"
        ):
            start_from_archive(half)
        assert list(temporary.iterdir()) == []
