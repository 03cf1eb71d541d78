import errno
import importlib.metadata
import logging
import os
import re
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Dict

import numpy
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params, cached_transformers
from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import TensorCache
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.dataset_readers import SequenceTaggingDatasetReader
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model
from allennlp.training import checkpointer, gradient_descent_trainer
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from packaging.specifiers import SpecifierSet
from transformers import BertTokenizerFast

from elmo_plugin.compat import INSTALL_TORCH_PAIR, REQUIREMENTS, check_environment, mend_allennlp

PROJECT_ROOT = Path(__file__).parents[1]

FITTING_VERSIONS = {
    "torch": "2.12.1",
    "torchvision": "0.27.1",
    "transformers": "4.49.0",
    "huggingface-hub": "0.36.2",
    "allennlp": "2.10.1",
}

TAGGED_SENTENCES = """\
the###DET dog###NN ran###V to###P the###DET park###NN .###.
cats###NN sleep###V a###DET lot###NN .###.
dogs###NN bark###V at###P cats###NN .###.
we###PRP saw###V the###DET sea###NN .###.
"""


def version_lookup(**changes: str) -> Callable[[str], str]:
    """Look versions up in `FITTING_VERSIONS` with some changed (`_` for `-`), or missing where ''."""
    versions = {
        **FITTING_VERSIONS,
        **{key.replace("_", "-"): version for key, version in changes.items()},
    }

    def version_of(package: str) -> str:
        if not versions[package]:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    return version_of


def nothing() -> None:
    """A torchvision that imports well."""


def pinned_versions() -> Dict[str, str]:
    """What requirements*.txt pin: package to version."""
    lines = [
        line
        for file in PROJECT_ROOT.glob("requirements*.txt")
        for line in file.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]
    return dict(line.split("==") for line in lines)


class TestCheckEnvironment:
    def test_accepts_what_is_installed(self) -> None:
        check_environment()

    @pytest.mark.parametrize(
        "changes",
        [
            {"torch": "2.12.1+cpu", "torchvision": "0.27.1+cpu"},
            {"torch": "2.13.0.dev20260101+cu130"},
            {"transformers": "4.40.0"},
        ],
    )
    def test_accepts_local_builds_nightly_builds_and_older_fitting_versions(
        self, changes: Dict[str, str]
    ) -> None:
        check_environment(version_lookup(**changes), nothing)

    @pytest.mark.parametrize(
        "changes, message",
        [
            (
                {"allennlp": ""},
                "allennlp: found none, expected ==2.10.1. Run: pip install --no-deps allennlp==2.10.1",
            ),
            (
                {"allennlp": "2.9.3"},
                "allennlp: found 2.9.3, expected ==2.10.1. Run: pip install --no-deps allennlp==2.10.1",
            ),
            (
                {"torch": ""},
                "torch: found none, expected >=2.4. "
                "Run: pip install torch==2.12.1 torchvision==0.27.1",
            ),
            (
                {"torch": "1.12.1+cu116"},
                "torch: found 1.12.1+cu116, expected >=2.4. "
                "Run: pip install torch==2.12.1 torchvision==0.27.1",
            ),
            (
                {"transformers": "4.50.0"},
                "transformers: found 4.50.0, expected >=4.40,<4.50. "
                "Run: pip install transformers==4.49.0",
            ),
            (
                {"transformers": "4.20.1"},
                "transformers: found 4.20.1, expected >=4.40,<4.50. "
                "Run: pip install transformers==4.49.0",
            ),
            (
                {"huggingface_hub": "1.2.0"},
                "huggingface-hub: found 1.2.0, expected <1. "
                "Run: pip install huggingface-hub==0.36.2",
            ),
        ],
    )
    def test_a_missing_or_wrong_package_is_named_with_the_command_that_mends_it(
        self, changes: Dict[str, str], message: str
    ) -> None:
        with pytest.raises(ImportError, match=re.escape(message)):
            check_environment(version_lookup(**changes), nothing)

    def test_all_wrong_packages_are_named_at_once(self) -> None:
        with pytest.raises(ImportError, match=r"(?s)- torch: .*- transformers: .*- allennlp: "):
            check_environment(version_lookup(torch="", transformers="", allennlp=""), nothing)

    def test_a_missing_torchvision_is_named_with_the_pair_to_install(self) -> None:
        def import_torchvision() -> None:
            raise ModuleNotFoundError("No module named 'torchvision'")

        message = (
            "torchvision: found none, expected the one that fits torch 2.12.1. "
            f"Run: {INSTALL_TORCH_PAIR}"
        )
        with pytest.raises(ImportError, match=re.escape(message)):
            check_environment(version_lookup(torchvision=""), import_torchvision)

    @pytest.mark.parametrize("error_class", [ImportError, OSError, RuntimeError])
    def test_a_torchvision_of_another_build_is_reported_with_its_own_error(
        self, error_class: type
    ) -> None:
        def import_torchvision() -> None:
            raise error_class("operator torchvision::nms does not exist")

        message = (
            "torchvision: found 0.27.1, which fails on import beside torch 2.12.1+cpu "
            "(operator torchvision::nms does not exist), expected the build published together with "
            f"that torch. Run: pip uninstall --yes torch torchvision && {INSTALL_TORCH_PAIR}"
        )
        with pytest.raises(ImportError, match=re.escape(message)):
            check_environment(version_lookup(torch="2.12.1+cpu"), import_torchvision)

    def test_importing_the_package_says_what_is_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "torchvision.py").write_text(
            "raise RuntimeError('operator torchvision::nms does not exist')"
        )
        python_path = os.pathsep.join([str(tmp_path), str(PROJECT_ROOT)])
        result = subprocess.run(
            [sys.executable, "-c", "import elmo_plugin"],
            env={**os.environ, "PYTHONPATH": python_path},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 1
        assert "ImportError: elmo_plugin cannot run in this environment" in result.stderr
        assert "pip uninstall --yes torch torchvision" in result.stderr

    def test_requirements_files_pin_what_the_check_accepts_and_recommends(self) -> None:
        pinned = pinned_versions()
        for requirement in REQUIREMENTS:
            assert SpecifierSet(requirement.versions).contains(pinned[requirement.package])
            for package, version in re.findall(r"(\S+)==(\S+)", requirement.command):
                assert pinned[package] == version


@pytest.fixture
def config(tmp_path: Path) -> Dict[str, Any]:
    """A complete small experiment."""
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
        with caplog.at_level(logging.INFO, logger="elmo_plugin.compat"):
            for metric in [1.0, 2.0, 2.0]:  # Only the last is no improvement.
                scheduler.step(metric)
        assert scheduler.get_values() == [0.1]
        reports = [
            record.getMessage() for record in caplog.records if record.name == "elmo_plugin.compat"
        ]
        assert len(reports) == num_reports
        for report in reports:
            assert "parameter group 0 from 1.0000e+00 to 1.0000e-01" in report

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"Extra parameters passed.*patients"):
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

    def test_a_state_that_holds_more_than_tensors_is_restored(self, tmp_path: Path) -> None:
        torch.save({"weight": torch.ones(2)}, tmp_path / "model_state_e1_b0.th")
        torch.save(
            {"metric": numpy.float64(0.5), "when": Path("here")},
            tmp_path / "training_state_e1_b0.th",
        )
        model_state, training_state = Checkpointer(str(tmp_path)).load_checkpoint()
        assert torch.equal(model_state["weight"], torch.ones(2))
        assert training_state == {"metric": 0.5, "when": Path("here")}

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


class TestSpawnedDataWorkers:
    @pytest.mark.parametrize("start_method", ["fork", "spawn"])
    def test_a_worker_of_each_start_method_reads_all_instances(
        self, start_method: str, tmp_path: Path
    ) -> None:
        data = tmp_path / "tagged.txt"
        data.write_text(TAGGED_SENTENCES)
        loader = MultiProcessDataLoader(
            SequenceTaggingDatasetReader(),
            str(data),
            batch_size=2,
            num_workers=1,
            start_method=start_method,
        )
        words = [instance["tokens"][0].text for instance in loader.iter_instances()]
        assert words == ["the", "cats", "dogs", "we"]


class TestMixedPrecisionNames:
    def test_training_gives_no_deprecation_warning(
        self, config: Dict[str, Any], tmp_path: Path
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            train(config, tmp_path / "run")

    def test_they_mean_half_precision_on_cuda(self) -> None:
        context = gradient_descent_trainer.amp.autocast(False)
        assert (context.device, context.fast_dtype) == ("cuda", torch.float16)
        with warnings.catch_warnings():
            # Without a GPU torch says that the scaler will do nothing.
            warnings.simplefilter("ignore", UserWarning)
            scaler = gradient_descent_trainer.amp.GradScaler()
        assert scaler._device == "cuda"


def test_mending_again_changes_nothing() -> None:
    scheduler_class = LearningRateScheduler.by_name("reduce_on_plateau")
    before = (
        scheduler_class.__init__,
        Checkpointer.load_checkpoint,
        cached_transformers.get_tokenizer,
    )
    mend_allennlp()
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
        assert norms[0].item() == pytest.approx(norms[1].item())
        for dense, sparse_made_dense in zip(*gradients):
            assert torch.allclose(dense, sparse_made_dense)


class TestInterruptedCheckpoints:
    @staticmethod
    def fill_disk(monkeypatch: pytest.MonkeyPatch, name: str, spared: int = 0) -> None:
        """Let files of this name break off half-way, but for the first few."""
        whole_save = torch.save
        remaining = spared

        def save(content: Any, file: Any) -> None:
            nonlocal remaining
            if name in file.name:
                if remaining == 0:
                    file.write(b"half of it")
                    raise OSError(errno.ENOSPC, "No space left on device")
                remaining -= 1
            whole_save(content, file)

        monkeypatch.setattr(torch, "save", save)

    @staticmethod
    def assert_same_weights(ours: Dict[str, torch.Tensor], theirs: Dict[str, torch.Tensor]) -> None:
        assert ours.keys() == theirs.keys()
        for name, parameter in ours.items():
            assert torch.equal(parameter, theirs[name]), name

    @pytest.mark.parametrize("name", ["model_state_e2_b0", "training_state_e2_b0"])
    def test_a_full_disk_is_reported_and_leaves_the_checkpoint_before(
        self, name: str, config: Dict[str, Any], tmp_path: Path
    ) -> None:
        uninterrupted = train(config, tmp_path / "uninterrupted").state_dict()
        folder = tmp_path / "run"
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.fill_disk(monkeypatch, name)
            with pytest.raises(OSError, match=r"No space left on device"):
                train(config, folder)
        assert {file.name for file in folder.iterdir() if ".th" in file.name} == {
            "best.th",
            "model_state_e1_b0.th",
            "training_state_e1_b0.th",
        }
        recovered = train(config, folder, recover=True)
        self.assert_same_weights(recovered.state_dict(), uninterrupted)

    @pytest.mark.parametrize("num_values", [10, 100_000])
    def test_the_reason_of_a_failed_write_is_named_whatever_torch_makes_of_it(
        self, num_values: int, tmp_path: Path
    ) -> None:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))  # bytes of a file
        try:
            with pytest.raises(OSError, match=r"File too large"):
                checkpointer.torch.save({"weight": torch.zeros(num_values)}, tmp_path / "weights")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert list(tmp_path.iterdir()) == []

    def test_half_a_checkpoint_is_neither_the_latest_nor_a_part_of_the_next(
        self, config: Dict[str, Any], tmp_path: Path
    ) -> None:
        uninterrupted = train(config, tmp_path / "run").state_dict()
        half, kept = (
            tmp_path / "run" / "model_state_e2_b0.th",
            tmp_path / "run" / "model_state_e0_b1.th",
        )
        (tmp_path / "run" / "training_state_e2_b0.th").unlink()
        # Of a training that went another way; and weights that somebody kept.
        for file in (half, kept):
            torch.save(
                {name: torch.zeros_like(weight) for name, weight in uninterrupted.items()}, file
            )
        latest = Checkpointer(str(tmp_path / "run")).find_latest_checkpoint()
        assert [Path(file).name for file in latest] == [
            "model_state_e1_b0.th",
            "training_state_e1_b0.th",
        ]
        train(config, tmp_path / "run", recover=True)
        self.assert_same_weights(torch.load(half), uninterrupted)
        assert kept.exists()

    def test_the_best_weights_stay_until_better_ones_are_written(
        self, config: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config["trainer"]["checkpointer"] = {"save_completed_epochs": False}
        config["trainer"]["num_epochs"] = 1
        first = train(config, tmp_path / "first").state_dict()
        config["trainer"]["num_epochs"] = 2
        self.fill_disk(monkeypatch, "best.th", spared=1)
        with pytest.raises(OSError, match=r"No space left on device"):
            train(config, tmp_path / "run")
        self.assert_same_weights(torch.load(tmp_path / "run" / "best.th"), first)


def exchange_and_end(rank: int, store: str) -> None:
    sys.setswitchinterval(1000)  # gloo's threads get Python's lock only where it is given up
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", world_size=2, rank=rank
    )
    for _ in range(10):
        exchanges = [
            torch.distributed.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)
        ]
        for exchange in exchanges:
            exchange.wait()


def test_workers_of_distributed_training_end_in_order(tmp_path: Path) -> None:
    # Without the mend one of the workers aborts, more often than not.
    torch.multiprocessing.spawn(exchange_and_end, args=(str(tmp_path / "store"),), nprocs=2)
