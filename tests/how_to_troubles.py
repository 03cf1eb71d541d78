"""
Ways to provoke the errors in the how-tos, each in the folder that its how-to needs. `TROUBLES` has a
function for each how-to and error; it takes the folder of a run, and pytest's monkeypatch.
"""

import shutil
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from allennlp.common import Params, Registrable
from allennlp.modules import TokenEmbedder
from allennlp.training.util import create_serialization_dir
from pytest import MonkeyPatch

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.commands.embed import ModelOptions, embed_text
from elmo_plugin.commands.score import LanguageModelFiles, ScoreOptions, score_text
from elmo_plugin.embedding import local_engine
from elmo_plugin.embedding.bilm_options import BiLMFiles
from elmo_plugin.embedding.run import EmbeddingRun, OutputOptions
from elmo_plugin.embedding.sentences import InputOptions
from elmo_plugin.files import output_file
from elmo_plugin.modules import elmo_token_embedder  # noqa: F401 - registers what a test removes
from elmo_plugin.pretraining.export import export_model
from elmo_plugin.pretraining.make_vocabulary import make_vocabulary
from elmo_plugin.serving.options import Limits, ServeOptions
from elmo_plugin.serving.served_model import ServedModel
from elmo_plugin.serving.server import named_archives, serve
from tests.how_tos import FIXTURES, REPOSITORY, build_training, script_of

Trouble = Callable[[Path, MonkeyPatch], object]


class _DiskUsage(NamedTuple):
    free: int


def _with_elmo(old: str, new: str, run: Path, monkeypatch: MonkeyPatch) -> None:
    """Train with_elmo.jsonnet, with `new` in place of `old`."""
    config = script_of("add_elmo_to_your_config").partition("<<'END'\n")[2].partition("END\n")[0]
    assert old in config
    Path("wrong.jsonnet").write_text(config.replace(old, new), encoding="utf-8")
    build_training("wrong.jsonnet", run, {}).run()


def _without_the_package(run: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.delitem(Registrable._registry[TokenEmbedder], "elmo")
    _with_elmo("", "", run, monkeypatch)


def _into_a_used_folder(run: Path, monkeypatch: MonkeyPatch) -> None:
    folder = Path("runs") / "with_elmo"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    create_serialization_dir(Params({}), str(folder), recover=False, force=False)


def _pretrain(run: Path, monkeypatch: MonkeyPatch, max_size: int = 2500) -> None:
    make_vocabulary(["corpus/*.txt"], "vocab.txt", max_size=max_size)
    _pretrain_with("vocab.txt", run)


def _pretrain_with(vocabulary: str, run: Path) -> None:
    variables = {
        "LM_TRAIN": "corpus/*.txt",
        "LM_HELDOUT": "heldout.txt",
        "LM_VOCABULARY": vocabulary,
    }
    build_training("training_configs/bilm_mini.jsonnet", run, variables)


def _pretrain_on_little(run: Path, monkeypatch: MonkeyPatch) -> None:
    make_vocabulary(["corpus/*.txt"], "vocab.txt", max_size=2500)
    (Path("corpus") / "wikipedia.txt").unlink()
    (Path("corpus") / "novels.txt").write_text("It rained .\n")
    _pretrain_with("vocab.txt", run)


def _pretrain_in_another_order(run: Path, monkeypatch: MonkeyPatch) -> None:
    make_vocabulary(["corpus/*.txt"], "vocab.txt", max_size=2500)
    lines = Path("vocab.txt").read_text(encoding="utf-8").splitlines()
    # The first three are marks.
    turned = [*lines[:3], *reversed(lines[3:])]
    Path("turned.txt").write_text("".join(f"{line}\n" for line in turned), encoding="utf-8")
    _pretrain_with("turned.txt", run)


def _vocabulary(pattern: str, min_count: int, run: Path, monkeypatch: MonkeyPatch) -> None:
    make_vocabulary([pattern], "vocab.txt", min_count=min_count)


def _latin_1(
    function: Callable[[], object], path: str, run: Path, monkeypatch: MonkeyPatch
) -> None:
    Path(path).write_text("Où pleut-il ?\n", encoding="latin-1")
    function()


def _adapt(start: str, vocabulary: str, run: Path, monkeypatch: MonkeyPatch) -> None:
    variables = {
        "LM_START": start,
        "LM_VOCABULARY": vocabulary,
        "LM_TRAIN": "domain/*.txt",
        "LM_HELDOUT": "domain_heldout.txt",
    }
    build_training("training_configs/bilm_finetune.jsonnet", run, variables)


def _adapt_with_another_vocabulary(run: Path, monkeypatch: MonkeyPatch) -> None:
    lines = (PRETRAINED_FOLDER / "elmo_mini" / "vocab.txt").read_text(encoding="utf-8").split("\n")
    Path("vocab.txt").write_text("\n".join(lines[:3000]) + "\n", encoding="utf-8")
    _adapt("elmo_mini", "vocab.txt", run, monkeypatch)


def _adapt_on_little(run: Path, monkeypatch: MonkeyPatch) -> None:
    (Path("domain") / "train.txt").write_text("It rained .\n")
    _adapt("elmo_mini", "elmo_mini", run, monkeypatch)


def _export_again(run: Path, monkeypatch: MonkeyPatch) -> None:
    shutil.copytree(FIXTURES / "bilm" / "tiny", "my_domain_bilm")
    export_model("runs/domain/model.tar.gz", "my_domain_bilm")


def _embed(layers: Optional[str], mix: Optional[str] = None, resume: bool = False) -> None:
    run = EmbeddingRun(
        "sentences.txt",
        "vectors.hdf5",
        output_options=OutputOptions(resume=resume),
        sentences_per_part=1,
    )
    embed_text(run, ModelOptions(layers, mix, files=BiLMFiles("elmo_mini")))


def _embed_blank_lines(run: Path, monkeypatch: MonkeyPatch) -> None:
    Path("sentences.txt").write_text("It rained .\n\nIt snowed .\n")
    _embed("average")


def _embed_again(run: Path, monkeypatch: MonkeyPatch) -> None:
    Path("vectors.hdf5").write_text("")
    _embed("average")


def _embed_over_a_file_of_another_program(run: Path, monkeypatch: MonkeyPatch) -> None:
    Path("vectors.hdf5").write_text("")
    _embed("average", resume=True)


def _embed_after_an_interruption(
    run: Path, monkeypatch: MonkeyPatch, output_format: str = "average", resume: bool = False
) -> None:
    with monkeypatch.context() as patch:
        # Before the fifth sentence.
        counter = iter(range(5))
        cast_checked = local_engine.cast_checked

        def cast_until_interrupted(*arguments: Any) -> Any:
            if next(counter) == 4:
                raise KeyboardInterrupt
            return cast_checked(*arguments)

        patch.setattr(local_engine, "cast_checked", cast_until_interrupted)
        with suppress(KeyboardInterrupt):
            _embed("average")
    _embed(output_format, resume=resume)


def _embed_on_a_full_disk(run: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(output_file.shutil, "disk_usage", lambda path: _DiskUsage(free=1000))
    _embed("all")


def _embed_with_a_mix_and_files(run: Path, monkeypatch: MonkeyPatch) -> None:
    _embed(None, mix="model.tar.gz")


def _serve_at_a_used_port(run: Path, monkeypatch: MonkeyPatch) -> None:
    with socket.socket() as other:
        with suppress(OSError):  # or another program has it
            other.bind(("127.0.0.1", 8000))
            other.listen()
        serve(ServeOptions(port=8000))


def _serve_two_of_a_name(run: Path, monkeypatch: MonkeyPatch) -> None:
    named_archives(["runs/ner", "runs/old/ner"])


def _serve(archive: str, run: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)  # paths in the archive are relative to it
    ServedModel("model", archive, Limits())


def _score(run: Path, monkeypatch: MonkeyPatch, best: Optional[int] = None, **files: str) -> None:
    options = ScoreOptions(best=best, files=LanguageModelFiles(**files))
    score_text("sentences.txt", options)


def _score_without_a_softmax(run: Path, monkeypatch: MonkeyPatch) -> None:
    tiny = FIXTURES / "bilm" / "tiny"
    _score(run, monkeypatch, options_file=str(tiny), vocabulary_file="elmo_mini")


def _score_without_a_vocabulary(run: Path, monkeypatch: MonkeyPatch) -> None:
    shutil.copytree(PRETRAINED_FOLDER / "elmo_mini", "my_bilm")
    (Path("my_bilm") / "vocab.txt").unlink()
    _score(run, monkeypatch, options_file="my_bilm")


def _score_with_another_vocabulary(run: Path, monkeypatch: MonkeyPatch) -> None:
    _score(run, monkeypatch, vocabulary_file=str(FIXTURES / "lm" / "vocab.txt"))


def _score_blank_lines(run: Path, monkeypatch: MonkeyPatch) -> None:
    Path("sentences.txt").write_text("It rained .\n\nIt snowed .\n")
    _score(run, monkeypatch)


def _score_options(run: Path, monkeypatch: MonkeyPatch, **options: Any) -> None:
    ScoreOptions(best=5, **options)


_ADD, _PRETRAIN = "add_elmo_to_your_config", "pretrain_for_your_language"
_ADAPT, _EMBED, _SERVE = "adapt_to_your_domain", "embed_a_corpus", "serve_a_model"
_SCORE = "sentence_vectors_and_scores"
_INDEXER = "dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_character_ids' } } },"

TROUBLES: Dict[Tuple[str, str], Trouble] = {
    (
        _ADD,
        "elmo not in acceptable choices for model.text_field_embedder.token_embedders.elmo.type",
    ): _without_the_package,
    (
        _ADD,
        "text field embedding dim must match encoder input dim, but got 306 and 50 instead",
    ): partial(_with_elmo, "encoder+: {", "ignored:: {"),
    (
        _ADD,
        "Mismatched token keys: dict_keys(['elmo', 'tokens']) and dict_keys(['tokens'])",
    ): partial(_with_elmo, _INDEXER, ""),
    (_ADD, "options_file: cannot find my_bilm"): partial(
        _with_elmo, "'elmo_mini'", "'my_bilm', weight_file: 'my_bilm'"
    ),
    (
        _ADD,
        "Serialization directory (runs/with_elmo) already exists and is not empty",
    ): _into_a_used_folder,
    (_PRETRAIN, "matches no file, expected the path of a file or a glob"): partial(
        _vocabulary, "corpora/*.txt", 3
    ),
    (_PRETRAIN, "expected UTF-8. Convert the file"): partial(
        _latin_1, partial(make_vocabulary, ["corpus/*.txt"], "vocab.txt"), "corpus/more.txt"
    ),
    (_PRETRAIN, "but the vocabulary has only"): partial(_pretrain, max_size=500),
    (_PRETRAIN, "which do not fill a batch of"): _pretrain_on_little,
    (_PRETRAIN, "the words are not sorted by descending frequency"): _pretrain_in_another_order,
    (_PRETRAIN, "no word of the corpus occurs"): partial(_vocabulary, "corpus/*.txt", 10**6),
    (
        _ADAPT,
        "its softmax predicts other words than the vocabulary has",
    ): _adapt_with_another_vocabulary,
    (_ADAPT, "which do not fill a batch of"): _adapt_on_little,
    (_ADAPT, "(no such file or folder), expected the options"): partial(
        _adapt, "no/folder", "elmo_mini"
    ),
    (_ADAPT, "exists, expected a new path. Give another folder"): _export_again,
    (_EMBED, "line 2 is blank, expected one sentence on each line"): _embed_blank_lines,
    (_EMBED, "vectors.hdf5 exists, expected a new path"): _embed_again,
    (_EMBED, "of a run that was interrupted"): _embed_after_an_interruption,
    (
        _EMBED,
        "exists and was not written by this command",
    ): _embed_over_a_file_of_another_program,
    (_EMBED, "was made with other settings"): partial(
        _embed_after_an_interruption, output_format="top", resume=True
    ),
    (_EMBED, "expected UTF-8. Convert the file"): partial(
        _latin_1, partial(_embed, "average"), "sentences.txt"
    ),
    (_EMBED, "Make room, give a path on another disk"): _embed_on_a_full_disk,
    (_SERVE, "cannot serve at 127.0.0.1, port 8000"): _serve_at_a_used_port,
    (_SERVE, "has the name 'ner' too, expected different names"): _serve_two_of_a_name,
    (_SERVE, "expected one of elmo_ner, elmo_srl"): partial(_serve, "fixtures/earlier/bilm"),
    (_SERVE, "no such file or folder, expected an archive"): partial(_serve, "no.tar.gz"),
    (_EMBED, "the mix was learned for the biLM in that archive"): _embed_with_a_mix_and_files,
    (_SCORE, "has no group 'softmax', expected the softmax"): _score_without_a_softmax,
    (_SCORE, "there is no vocabulary beside the weights"): _score_without_a_vocabulary,
    (_SCORE, "that the softmax predicts. Give the vocabulary"): _score_with_another_vocabulary,
    (_SCORE, "found 0 blanks, expected one token ___"): partial(_score, best=5),
    (_SCORE, "spaCy splits ___ into three tokens"): partial(
        _score_options, input=InputOptions(tokenizer="spacy")
    ),
    (_SCORE, "line 2 is blank, expected one sentence on each line"): _score_blank_lines,
    (_SCORE, "--words and --best are given, expected one of them"): partial(
        _score_options, words=True
    ),
}
