import io
import pickle
import random
import re
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model
from allennlp.common import Params, util
from allennlp.common.meta import Meta
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer, gradient_descent_trainer
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.learning_rate_schedulers import LearningRateScheduler
from transformers import BertTokenizerFast

from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.compat.patches import hide_mixed_precision_warnings, prepare_allennlp
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_close
from tests.conftest import file_size_limit

TAGGED_SENTENCES = """\
the###DET dog###NN ran###V to###P the###DET park###NN .###.
cats###NN sleep###V a###DET lot###NN .###.
dogs###NN bark###V at###P cats###NN .###.
we###PRP saw###V the###DET sea###NN .###.
"""


@pytest.fixture
def config(tmp_path: Path) -> Dict[str, Any]:
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


def train(config: Dict[str, Any], serialization_dir: Path, recover: bool = False) -> Model:
    return train_model(Params(config).duplicate(), str(serialization_dir), recover=recover)


def test_options_of_reduce_on_plateau_reach_torch_and_others_keep_their_defaults() -> None:
    options = {"mode": "max", "factor": 0.25, "min_lr": 0.3, "verbose": True}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    params = Params({"type": "reduce_on_plateau", **options})
    scheduler = LearningRateScheduler.from_params(params, optimizer=optimizer).lr_scheduler
    assert (scheduler.mode, scheduler.factor, scheduler.min_lrs) == ("max", 0.25, [0.3])
    assert (scheduler.patience, scheduler.threshold, scheduler.threshold_mode) == (10, 1e-4, "rel")


@pytest.mark.parametrize(
    "option",
    [
        # It leaves NumPy numbers in the optimizer's state, which torch by default refuses to load.
        {"learning_rate_scheduler": {"type": "cosine", "t_initial": 3}},
        {"moving_average": {"type": "exponential", "decay": 0.9}},
    ],
    ids=lambda option: next(iter(option)),
)
def test_a_recovered_training_ends_where_an_uninterrupted_one_does(
    option: Dict[str, Any], config: Dict[str, Any], tmp_path: Path
) -> None:
    config["trainer"].update(option)
    uninterrupted = train(config, tmp_path / "run").state_dict()
    last = torch.load(tmp_path / "run" / "model_state_e2_b0.th")
    assert all(torch.equal(last[name], uninterrupted[name]) for name in last) == (
        "moving_average" not in option
    )
    for file in [*(tmp_path / "run").glob("*_e2_b0.th"), tmp_path / "run" / "best.th"]:
        file.unlink()
    recovered = train(config, tmp_path / "run", recover=True).state_dict()
    assert recovered.keys() == uninterrupted.keys()
    for name, parameter in recovered.items():
        # The same bits: it repeats the same steps.
        assert torch.equal(parameter, uninterrupted[name])


def test_a_training_state_with_numpy_values_is_restored_and_other_objects_are_refused(
    tmp_path: Path,
) -> None:
    def restored(state: Dict[str, Any]) -> Dict[str, Any]:
        torch.save({}, tmp_path / "model_state_e1_b0.th")
        torch.save(state, tmp_path / "training_state_e1_b0.th")
        return Checkpointer(str(tmp_path)).load_checkpoint()[1]

    state = {
        "metric": numpy.float64(0.5),
        "rate": numpy.float32(0.25),
        "count": numpy.int64(3),
        "python": random.getstate(),
    }
    assert restored(state) == state
    numpy_state = numpy.random.get_state()
    for found, expected in zip(restored({"random": numpy_state})["random"], numpy_state):
        assert numpy.array_equal(found, expected)
    assert restored({"flags": numpy.array([True, False])})["flags"].tolist() == [True, False]
    with pytest.raises(pickle.UnpicklingError, match="Path"):
        restored({"when": Path("here")})


@pytest.mark.parametrize(
    "add_special_tokens, expected", [(True, "[CLS] the dog ##s [SEP]"), (False, "the dog ##s")]
)
def test_transformer_tokenizers_add_special_tokens_where_the_config_says_so(
    add_special_tokens: bool, expected: str, tmp_path: Path
) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "a", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer = PretrainedTransformerTokenizer(
        str(tmp_path), add_special_tokens=add_special_tokens, tokenizer_kwargs={"use_fast": False}
    )
    assert " ".join(token.text for token in tokenizer.tokenize("the dogs")) == expected


def test_warnings_of_mixed_precision_in_allennlp_are_hidden_and_no_others() -> None:
    for module, number in ((gradient_descent_trainer, 0), (sys.modules[__name__], 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hide_mixed_precision_warnings()
            exec("torch.cuda.amp.autocast(False)", module.__dict__)
        assert len(caught) == number


@pytest.mark.parametrize("max_norm", [0.1, 100.0])
def test_sparse_gradients_are_clipped_as_dense_ones_are(max_norm: float) -> None:
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
    prepare_allennlp()  # this is another process
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
    torch.multiprocessing.start_processes(
        exchange_and_end, args=(str(tmp_path / "store"),), nprocs=2, start_method="forkserver"
    )


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "deep" / "temporary"
    folder.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    "name, kind, target",
    [
        ("../../../outside", tarfile.REGTYPE, ""),
        ("../folder2/outside", tarfile.REGTYPE, ""),
        ("/OUTSIDE", tarfile.REGTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
        ("link", tarfile.SYMTYPE, "../../outside"),
        ("link", tarfile.SYMTYPE, "config.json"),
        ("link", tarfile.LNKTYPE, "../outside"),
    ],
)
def test_harmful_members_of_archives_are_refused(
    name: str,
    kind: bytes,
    target: str,
    temporary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = tarfile.TarInfo(name.replace("/OUTSIDE", str(tmp_path / "outside")))
    member.type, member.linkname = kind, target
    path = tmp_path / "deep" / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("config.json"), io.BytesIO())
        archive.addfile(member, io.BytesIO())
    before = set(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["allennlp", "predict", str(path), "input.jsonl"])
    message = rf"{re.escape(str(path))}: member '.*' is a link or a device, or has an absolute"
    for open_archive in (lambda: main(prog="allennlp"), lambda: opened_archive(path)):
        with pytest.raises(ConfigurationError, match=message):
            open_archive()
        assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "write",
    [
        lambda path: Params({"key": "value" * 100}).to_file(str(path)),
        lambda path: Meta.new().to_file(path),
        lambda path: util.dump_metrics(str(path), {"f1": 0.123456789}),
    ],
    ids=["config", "meta", "metrics"],
)
def test_a_full_disk_leaves_the_previous_file_of_a_training(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write(path)
    previous = path.read_text()
    with file_size_limit(10), pytest.raises(OSError, match="File too large"):
        write(path)
    assert path.read_text() == previous
    assert list(tmp_path.iterdir()) == [path]
    util.dump_metrics(None, {})  # as AllenNLP calls it without a folder
