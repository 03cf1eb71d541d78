"""`layers`, `placement`, `vectors` and `sample-efficiency`: training is faked, its results are not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import pytest
from allennlp.common import Params

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.tables import versions
from elmo_plugin.report.task_reports import (
    PlacementOptions,
    SampleEfficiencyOptions,
    VectorsOptions,
    compare_layers,
    compare_placements,
    compare_shares,
    compare_vectors,
)
from elmo_plugin.report.variants import ELMO_KEY
from tests.report.conftest import FAILURE, REPOSITORY, FakeTraining, column, tables_of, write_run

LABELS = ["no ELMo", "last layer only", "all layers, λ = 1", "all layers, λ = 0.001"]
TINY = REPOSITORY / "fixtures" / "ner" / "tiny"
Options = Callable[..., Any]


class TestLayers:
    def test_the_table_has_every_seed_mean_and_deviation(
        self, training: FakeTraining, options: Options
    ) -> None:
        report = compare_layers(options())
        assert report.failures == []
        table = tables_of(report)[0]
        assert (table.name, table.title) == ("layers-ner", "Which layers: ner")
        expected = {
            "variant": LABELS,
            "seeds": [2] * 4,
            "dev f1 (%), seed 1": [31.0, 46.0, 51.0, 51.0],
            "dev f1 (%), seed 2": [32.0, 47.0, 52.0, 52.0],
            "dev mean": [31.5, 46.5, 51.5, 51.5],
            "dev std": [0.71] * 4,
            "test f1 (%), seed 1": [29.0, 44.0, 49.0, 49.0],
            "test f1 (%), seed 2": [30.0, 45.0, 50.0, 50.0],
            "test mean": [29.5, 44.5, 49.5, 49.5],
            "test std": [0.71] * 4,
            "epochs": [3] * 4,
            "minutes": [1.51] * 4,
            "peak GB": [1.31] * 4,  # of the largest: 1,250 times 2^20 bytes
        }
        assert {name: column(table, name) for name in table.columns} == expected
        settings = table.settings
        assert settings["command"].startswith("ELMO=elmo_mini NER_DATA=data ")
        assert settings["train_data_path"].endswith("train.conll")
        assert (settings["seeds"], settings["versions"]) == ([1, 2], versions())
        assert sorted(report.files) == sorted(Path(options().output).glob("layers-*"))
        assert {path.suffix for path in report.files} == {".md", ".csv", ".json", ".png", ".svg"}
        assert training.started[::2] == [
            *("ner-none-seed1", "ner-input-last-seed1"),
            *("ner-input-l2_1-seed1", "ner-input-l2_0.001-seed1"),
        ]

    def test_scores_that_are_no_shares_are_shown_as_they_are(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.scores["ner-none-seed1"] = 31.0
        table = tables_of(compare_layers(options()))[0]
        assert column(table, "test f1, seed 1") == [31.0, 0.44, 0.49, 0.49]

    def test_each_two_variants_are_compared_over_the_same_seeds(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.failing = {"ner-none-seed1"}
        table = tables_of(compare_layers(options(seeds=(1, 2, 3))))[1]
        assert table.name == "layers-differences-ner"
        assert table.rows[0][:4] == [LABELS[1], LABELS[0], 2, 15.0]
        assert table.rows[3][:4] == [LABELS[2], LABELS[1], 3, 5.0]
        assert column(table, "dev 95 % interval over seeds")[0] == "two seeds: no claim"
        assert column(table, "dev 95 % interval over seeds")[3] == "5.00 to 5.00"
        # The items differ, but each by the same from itself with another variant.
        assert column(table, "test 95 % interval over items")[0] == "15.00 to 15.00"
        assert "test p, Holm" not in table.columns
        assert column(table, "test difference")[3] == 5.0

    def test_what_the_intervals_cover_is_said(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.scores["ner-none-seed1"] = 0.0
        scores, table = tables_of(compare_layers(options()))
        assert "bootstrap over test sentences" in table.notes[1]
        assert "each biLM is one run of it" in table.notes[2]
        warning = "Score 0, nothing was learned: no ELMo, 1 (variant, seed)."
        assert warning in scores.notes
        # Nothing can be counted without weights, or with damaged ones; and four items are few.
        runs = [options().runs_folder / f"ner-input-last-seed{seed}" for seed in (1, 2)]
        for run in runs:
            (run / "item_counts.json").unlink()
        (runs[1] / "best.th").write_bytes(b"cut short")
        other = options().runs_folder / "ner-none-seed2" / "item_counts.json"
        other.write_text(json.dumps({"f1": json.loads(other.read_text())["f1"][:4]}))
        scores, table = tables_of(compare_layers(options()))
        assert "test 95 % interval over items" not in table.columns
        names = ", ".join(["ner-none-seed2", *(run.name for run in runs)])
        assert f"of {names} there is no best.th that can be loaded" in table.notes[1]
        assert len(column(table, "dev difference")) == 6

    def test_every_variant_starts_from_the_word_vectors(
        self, training: FakeTraining, options: Options, words: Any
    ) -> None:
        given = options(seeds=(1,), word_vectors=words("glove", 3))
        table = tables_of(compare_layers(given))[0]
        folder, name = Path(given.word_vectors).parts[-2:]
        assert table.settings["word vectors"] == f".../{folder}/{name}"
        names = ["none-vectors_glove", "input-vectors_glove-last"]
        names += ["input-vectors_glove-l2_1", "input-vectors_glove-l2_0.001"]
        assert training.started == [f"ner-{name}-seed1" for name in names]

    def test_the_papers_scores_are_shown(self, training: FakeTraining, options: Options) -> None:
        overrides = {"trainer.validation_metric": "+f1"}  # what the fake runs measure
        table = tables_of(compare_layers(options(task="snli", overrides=overrides)))[0]
        assert column(table, "paper, dev accuracy (%)") == [88.1, 89.1, 89.3, 89.5]

    def test_failed_runs_are_marked_and_the_others_are_kept(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.failing = {"ner-none-seed1", "ner-input-last-seed1", "ner-input-last-seed2"}
        report = compare_layers(options())
        assert len(report.failures) == 3
        table = tables_of(report)[0]
        assert column(table, "seeds") == [1, 0, 2, 2]
        assert column(table, "dev f1 (%), seed 1") == ["failed", "failed", 51.0, 51.0]
        assert column(table, "dev mean") == [32.0, None, 51.5, 51.5]
        assert column(table, "dev std") == [None, None, 0.71, 0.71]
        assert column(table, "test f1 (%), seed 1") == ["failed", "failed", 49.0, 49.0]
        assert column(table, "epochs") == [3, None, 3, 3]
        assert f"ner-none-seed1 failed: {FAILURE} (log: .../runs/ner-none-seed1.log)" in table.notes


def test_placements_are_compared_in_the_papers_order(
    training: FakeTraining, options: Options
) -> None:
    given = options(PlacementOptions, task="srl", overrides={"dataset_reader.share": 1})
    table = tables_of(compare_placements(given))[0]
    assert table.name == "placement-srl"
    assert column(table, "variant") == ["no ELMo", "input", "input and output", "output"]
    assert column(table, "dev mean") == [31.5, 51.5, 61.5, 41.5]
    table = tables_of(compare_placements(replace(given, placements=("output", "none"))))[0]
    assert column(table, "variant") == ["no ELMo", "output"]
    assert column(table, "paper, dev F1 (%)") == [81.6, 80.9]


@pytest.fixture
def words(tmp_path: Path) -> Callable[[str, int], str]:
    """`words(name, dim)`: the path of a new file of word vectors."""

    def make(name: str, dim: int) -> str:
        path = tmp_path / f"{name}.txt"
        path.write_text(f"the{' 0.1' * dim}\ncat{' 0.4' * dim}\n", encoding="utf-8")
        return str(path)

    return make


NONE, WORDS, WIDE = "no vectors", "word vectors glove.txt", "wide word vectors wide.txt"
OTHER = str(REPOSITORY / "fixtures" / "bilm" / "tiny")
OTHER_WIDTH = 16


def test_a_placement_that_there_is_not_is_an_error(options: Options) -> None:
    with pytest.raises(ConfigurationError, match="placements is 'nowhere', expected one of none, "):
        options(PlacementOptions, placements=("none", "nowhere"))


def test_placements_and_shares_start_from_word_vectors_too(
    training: FakeTraining, options: Options, words: Any
) -> None:
    given = {"config_file": TINY / "experiment_elmo.jsonnet", "seeds": (1,)}
    given["word_vectors"] = words("glove", 3)
    compare_placements(options(PlacementOptions, placements=("none", "output"), **given))
    compare_shares(options(SampleEfficiencyOptions, shares=(0.5,), **given))
    assert training.started == [
        "ner-none-vectors_glove-seed1",
        "ner-output-vectors_glove-seed1",
        "ner-none-vectors_glove-share_0.5-batches_2-seed1",
        "ner-both-vectors_glove-share_0.5-batches_2-seed1",
    ]


class TestVectors:
    def test_word_vectors_bilms_and_both_are_compared_with_none(
        self, training: FakeTraining, options: Options, words: Any
    ) -> None:
        glove = words("glove", 3)
        given = options(VectorsOptions, seeds=(1,), word_vectors=glove, bilms=("elmo_mini", OTHER))
        table, differences = tables_of(compare_vectors(given))
        labels = [NONE, WORDS, "ELMo elmo_mini", "ELMo tiny"]
        labels += [f"{WORDS} and ELMo elmo_mini", f"{WORDS} and ELMo tiny"]
        assert column(table, "variant") == labels
        assert differences.name == "vectors-differences-ner"
        names = ["ner-none", "ner-none-vectors_glove", "ner-input", "ner-input-bilm_tiny"]
        names += ["ner-input-vectors_glove", "ner-input-bilm_tiny-vectors_glove"]
        assert training.started == [f"{name}-seed1" for name in names]

        def model(name: str) -> Dict[str, Any]:
            config = given.runs_folder / f"{name}-seed1" / "config.json"
            return json.loads(config.read_text())["model"]["text_encoder"]

        for name in ("ner-none-vectors_glove", "ner-input-bilm_tiny-vectors_glove"):
            embedders = model(name)["text_field_embedder"]["token_embedders"]
            expected = {"type": "embedding", "embedding_dim": 3, "pretrained_file": glove}
            assert embedders["tokens"] == {**expected, "trainable": True}
        for name in ("ner-input-bilm_tiny", "ner-input-bilm_tiny-vectors_glove"):
            elmo = model(name)["elmo"]
            assert (elmo["options_file"], elmo["weight_file"]) == (OTHER, None)

    def test_word_vectors_of_the_config_are_in_no_variant_without(
        self, training: FakeTraining, options: Options, words: Any
    ) -> None:
        embedding = "model.text_encoder.text_field_embedder.token_embedders.tokens"
        own, glove = words("own", 4), words("glove", 3)
        frozen = {f"{embedding}.pretrained_file": own, f"{embedding}.trainable": False}
        given = options(VectorsOptions, seeds=(1,), word_vectors=glove, overrides=frozen)
        compare_vectors(given)
        found = {}
        for name in training.started:
            config = Params(json.loads((given.runs_folder / name / "config.json").read_text()))
            values = config.as_flat_dict()
            found[name] = [values[key] for key in frozen]
        # Vectors that start at random are trained.
        assert found == {
            "ner-none-vectors_none-seed1": [None, True],
            "ner-none-vectors_glove-seed1": [glove, False],
            "ner-input-vectors_none-seed1": [None, True],
            "ner-input-vectors_glove-seed1": [glove, False],
        }

    def test_without_word_vectors_only_bilms_are_compared(
        self, training: FakeTraining, options: Options
    ) -> None:
        table = tables_of(compare_vectors(options(VectorsOptions)))[0]
        assert table.settings["word vectors"] == "none"
        assert column(table, "variant") == [NONE, "ELMo elmo_mini"]

    def test_only_planned_comparisons_have_a_corrected_p(
        self, training: FakeTraining, options: Options, words: Any
    ) -> None:
        # By seed; without noise the fake runs of two variants differ by the same with each seed.
        for name, scores in {
            "none": (0.30, 0.31, 0.29),
            "none-vectors_glove": (0.30, 0.33, 0.31),
            "none-vectors_wide": (0.33, 0.31, 0.35),
            "input-bilm_tiny": (0.50, 0.53, 0.49),
            "input-bilm_tiny-vectors_glove": (0.50, 0.55, 0.52),
        }.items():
            for seed, score in enumerate(scores, start=1):
                training.scores[f"ner-{name}-seed{seed}"] = score
        given = options(
            VectorsOptions,
            seeds=(1, 2, 3),
            word_vectors=words("glove", 3),
            wide_vectors=(words("wide", 3 + OTHER_WIDTH),),
            bilms=(OTHER,),
        )
        table = tables_of(compare_vectors(given))[1]
        p_of = {(row[0], row[1]): row[-1] for row in table.rows if row[-1] is not None}
        # Student's t of the differences (0, 2, 2), (20, 22, 20), (20, 22, 21) and (17, 24, 17): 2, 31, 36.4
        # and 8.29, with two degrees of freedom p = 1 - t / sqrt(2 + t ** 2). Holm: the smallest times 4, the
        # next times 3, ...
        assert p_of == {
            (f"{WORDS} and ELMo tiny", WORDS): "0.003",
            ("ELMo tiny", NONE): "0.0031",
            (f"{WORDS} and ELMo tiny", WIDE): "0.029",
            (WORDS, NONE): "0.18",
        }
        assert "for the 4 comparisons" in table.notes[-1]

    def test_wide_vectors_are_as_wide_as_both(
        self, training: FakeTraining, options: Options, words: Any
    ) -> None:
        width = 3 + OTHER_WIDTH
        given = {"bilms": (OTHER,), "wide_vectors": (words("wide", width + 1),)}
        with pytest.raises(ConfigurationError, match="--word-vectors: found nothing beside"):
            compare_vectors(options(VectorsOptions, **given))
        with pytest.raises(ConfigurationError, match=f"width {width + 1}, expected {width}, of"):
            compare_vectors(options(VectorsOptions, word_vectors=words("glove", 3), **given))
        assert training.started == []

    def test_the_bilm_of_a_config_may_have_two_names(
        self, training: FakeTraining, options: Options, words: Any
    ) -> None:
        files = {"options_file": f"{OTHER}/options.json", "weight_file": f"{OTHER}/weights.hdf5"}
        given = options(
            VectorsOptions,
            seeds=(1,),
            word_vectors=words("glove", 3),
            wide_vectors=(words("wide", 3 + OTHER_WIDTH),),
            overrides={f"{ELMO_KEY}.{key}": file for key, file in files.items()},
        )
        table = tables_of(compare_vectors(given))[0]
        assert column(table, "variant") == [NONE, WORDS, WIDE, "ELMo", f"{WORDS} and ELMo"]

    @pytest.mark.parametrize(
        "text, found",
        [
            (None, "No such file"),
            ("400000 300\nthe 0.1 0.2\n", "the first line has 1 numbers"),
            ("", "the first line has 0 numbers"),
            ("the cat sat\n", "cannot be read .*'cat'"),
        ],
    )
    def test_files_of_another_format_are_refused_before_training(
        self,
        text: Optional[str],
        found: str,
        training: FakeTraining,
        options: Options,
        tmp_path: Path,
    ) -> None:
        path = tmp_path / "vectors.txt"
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=found):
            compare_vectors(options(VectorsOptions, word_vectors=str(path)))
        assert training.started == []


@pytest.fixture
def shares(options: Options) -> Options:
    """Of the tiny config: eight sentences, in batches of four."""

    def make(**changes: Any) -> SampleEfficiencyOptions:
        given = {"config_file": TINY / "experiment_elmo.jsonnet", "seeds": (1,), **changes}
        return options(SampleEfficiencyOptions, **given)

    return make


def test_scores_by_share(training: FakeTraining, shares: Options) -> None:
    report = compare_shares(shares(shares=(1.0, 0.5, 0.25, 0.5), seeds=(1, 2)))
    table, _, differences = tables_of(report)
    assert table.name == "sample-efficiency-ner"
    assert column(table, "share") == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert column(table, "instances") == [2, 2, 4, 4, 8, 8]
    assert column(table, "variant") == ["no ELMo", "ELMo"] * 3
    assert column(table, "dev f1 (%), seed 1") == [7.75, 15.25, 15.5, 30.5, 31.0, 61.0]
    assert [row[:5] for row in differences.rows] == [
        [0.25, "ELMo", "no ELMo", 2, 7.5],
        [0.5, "ELMo", "no ELMo", 2, 15.0],
        [1.0, "ELMo", "no ELMo", 2, 30.0],
    ]
    # Of the smallest share the fake runs have items with scores below 0.
    intervals = column(differences, "test 95 % interval over items")[1:]
    assert intervals == ["15.00 to 15.00", "30.00 to 30.00"]
    assert len(report.files) == 11 and all(path.is_file() for path in report.files)
    assert training.started[-2:] == ["ner-both-seed1", "ner-both-seed2"]


def test_scores_by_epoch(training: FakeTraining, shares: Options) -> None:
    given = shares(shares=(0.5, 1.0))
    by_epoch = tables_of(compare_shares(given))[1]
    assert by_epoch.name == "sample-efficiency-epochs-ner"
    assert by_epoch.columns[:3] == ["share", "seed", "no ELMo, best dev f1 (%)"]
    # The fake runs are best in their second epoch, and with ELMo half as good in the first.
    assert by_epoch.rows == [[0.5, 1, 15.5, 2, 30.5, 2, 2], [1.0, 1, 31.0, 2, 61.0, 2, 2]]
    folder = given.runs_folder / "ner-both-seed1"
    config = json.loads((folder / "config.json").read_text())
    for curve, passes in [([0.4, 0.5], 1), ([0.31, 0.32, 0.5], 2), ([0.3, 0.31], None)]:
        write_run(folder, config, curve)
        again = tables_of(compare_shares(shares(shares=(1.0,))))[1]
        assert column(again, "passes in epoch") == [passes]


def test_of_a_loss_the_smallest_is_best(training: FakeTraining, shares: Options) -> None:
    overrides = {"trainer.validation_metric": "-f1"}
    report = compare_shares(shares(overrides=overrides, shares=(1.0,)))
    # 0.305 in its first epoch is less than 0.31.
    assert tables_of(report)[1].rows == [[1.0, 1, 0.31, 2, 0.61, 2, 1]]


def test_a_share_has_the_batches_of_an_epoch_of_all_data(
    training: FakeTraining, shares: Options
) -> None:
    given = shares(shares=(0.25, 1.0))
    compare_shares(given)
    assert training.started[0] == "ner-none-share_0.25-batches_2-seed1"
    config_file = given.runs_folder / training.started[1] / "config.json"
    config = json.loads(config_file.read_text())
    assert config["data_loader"]["batches_per_epoch"] == 2
    assert (config["dataset_reader"]["share"], config["dataset_reader"]["seed"]) == (0.25, 1)
    training.started.clear()
    loader = {"batch_sampler": {"type": "bucket", "batch_size": 3, "sorting_keys": ["tokens"]}}
    compare_shares(shares(overrides={"data_loader": loader}, shares=(0.5,)))
    assert training.started[0] == "ner-none-share_0.5-batches_3-seed1"


@pytest.mark.parametrize(
    "overrides, num_batches",
    [
        ({"distributed": {"cuda_devices": [-1, -1]}}, 1),
        ({"data_loader.batches_per_epoch": 5}, 5),
        ({"data_loader": {"batch_sampler": None, "batch_size": 3}}, 3),
    ],
)
def test_a_share_has_the_batches_of_one_worker_or_of_the_config(
    overrides: Dict[str, Any], num_batches: int, training: FakeTraining, shares: Options
) -> None:
    compare_shares(shares(overrides=overrides, shares=(0.5,)))
    assert training.started[0] == f"ner-none-share_0.5-batches_{num_batches}-seed1"


def test_failed_runs_are_marked_in_both_tables(training: FakeTraining, shares: Options) -> None:
    training.failing = {"ner-both-share_0.5-batches_2-seed1", "ner-none-seed1"}
    report = compare_shares(shares(shares=(0.5, 1.0)))
    assert len(report.failures) == 2
    by_share, by_epoch, _ = tables_of(report)
    assert column(by_share, "dev f1 (%), seed 1") == [15.5, "failed", "failed", 61.0]
    assert by_epoch.rows == [
        [0.5, 1, 15.5, 2, "failed", None, None],
        [1.0, 1, "failed", None, 61.0, 2, None],
    ]


EMBEDDERS = "model.text_encoder.text_field_embedder.token_embedders"


@pytest.mark.parametrize(
    "compare, given, match",
    [
        (compare_layers, {"overrides": {f"{ELMO_KEY}.placement": "none"}},
         "placement is 'none', expected a config with ELMo"),
        (compare_vectors, {"options_class": VectorsOptions, "word_vectors": "glove.txt", "overrides": {
            f"{EMBEDDERS}.other": {"type": "embedding", "embedding_dim": 3}}},
         "found 2 embedders of type 'embedding' .*token_embedders.other.*, expected one"),
        (compare_layers, {"overrides": {f"{ELMO_KEY}.scalar_mix_parameters": [0, 1, 0]}},
         "fixes the weights of the layers"),
        (compare_vectors, {"options_class": VectorsOptions, "bilms": ("elmo_large",)},
         "elmo_large"),
        (compare_vectors, {"options_class": VectorsOptions, "bilms": ("one/a", "two/a")},
         "found ELMo a, ELMo a, expected"),
    ],
)  # fmt: skip
def test_options_that_make_no_comparison_are_refused_before_training(
    compare: Any, given: Dict[str, Any], match: str, training: FakeTraining, options: Options
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        compare(options(**given))
    assert training.started == []


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"shares": (0.5, 0.0)}, r"--shares: found 0\.0, .*larger than 0, at most 1"),
        ({"shares": (float("nan"),)}, "--shares: found nan"),
        ({"overrides": {f"{ELMO_KEY}.placement": "none"}}, "placement is 'none'"),
        ({"overrides": {"train_data_path": "no/such/file"}}, "no/such/file"),
        ({"overrides": {"dataset_reader.max_instances": 0}}, "found no instance"),
        ({"overrides": {"data_loader": {"batch_sampler": {"type": "a"}}}}, "neither data_load"),
    ],
)
def test_what_has_no_shares_is_refused_before_training(
    changes: Dict[str, Any], match: str, training: FakeTraining, shares: Options
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        compare_shares(shares(**changes))
    assert training.started == []
