from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report import pos
from elmo_plugin.report.pos import PosOptions, compare_tags, fit_probe, frequent_tags, read_tagged
from tests.closeness import assert_close
from tests.report.conftest import column, tables_of

LAYERS = ["0 (characters)", "1", "2", "mean of all"]
# "run" is a noun after "a" and a verb after "they": the tag depends on the context.
TEMPLATES = [
    [("a", "DT"), ("run", "NN")],
    [("they", "PRP"), ("run", "VB")],
    [("a", "DT"), ("dog", "NN"), ("ate", "VB")],
]


def write(path: Path, num_sentences: int, first: int = 0) -> str:
    lines = [f"#begin document ({path.stem}); part 000"]
    for number in range(first, first + num_sentences):
        words = [*TEMPLATES[number % 3], (f"n{number}", "CD")]
        for position, (word, tag) in enumerate(words):
            lines.append(f"d 0 {position} {word} {tag} * - - - - * -")
        lines.append("")
    path.write_text("\n".join([*lines, "#end document", ""]))
    return str(path)


@pytest.fixture
def options(tmp_path: Path) -> PosOptions:
    return PosOptions(
        output=str(tmp_path / "results"),
        model="elmo_mini",
        seeds=(1, 2),
        train=(write(tmp_path / "train.gold_conll", 120),),
        test=(write(tmp_path / "test.gold_conll", 30, first=200),),
        max_train_sentences=80,
        strengths=(1.0,),
    )


class TestCompareTags:
    def test_lstm_layers_read_the_context(self, options: PosOptions) -> None:
        report = compare_tags(options)
        table, differences = tables_of(report)
        names = ["most frequent tag of the word", *[options.bilm_name] * 4]
        assert column(table, "vectors") == [*names, *["random weights"] * 4]
        assert column(table, "layer") == ["", *LAYERS, *LAYERS]
        # 10 of each template: 100 words, of which 10 are "run" with its rarer tag. The 30 numbers are unseen,
        # and theirs is the most frequent tag.
        assert table.rows[0][2] == 90.0 and table.rows[0][4] == 100.0
        # Characters distinguish numbers from words, but not one "run" from the other.
        _, characters, first, *_ = column(table, "accuracy (%)")
        assert characters == 90.0 and first > 95.0
        assert column(table, "C")[:2] == ["", "1, 1"]
        assert differences.rows[0][:3] == ["1", "0 (characters)", 2]
        # Accuracies are of 100 words and two seeds: two decimals hold them exactly.
        assert_close(differences.rows[0][3], first - characters, scale=100)
        # Each seed draws its training sentences, so the choice of these is covered.
        (note,) = differences.notes
        assert "intervals cover what all seeds share, such as the test data, and the biLM" in note
        assert table.notes[-1].endswith(note)
        assert sorted(report.files) == sorted(Path(options.output).iterdir())

    def test_the_same_options_make_the_same_table(
        self, options: PosOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fitted: List[int] = []  # numbers of words

        def counted(vectors: numpy.ndarray, *others: Any) -> Any:
            fitted.append(len(vectors))
            return fit_probe(vectors, *others)

        monkeypatch.setattr(pos, "fit_probe", counted)
        given = replace(options, strengths=(0.001, 1.0), control=False, seeds=(1,))
        table = tables_of(compare_tags(given))[0]
        # 72 of the 80 sentences, of three or four words; eight are held out.
        assert len(fitted) == 4 and all(72 * 3 <= number <= 72 * 4 for number in fitted)
        assert set(column(table, "C")) <= {"", "0.001", "1"}
        assert table.settings["sentences"] == {"training": 80, "test": 30}
        assert tables_of(compare_tags(given))[0] == table

    def test_each_seed_draws_its_own_sentences(
        self, options: PosOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn: Dict[int, Any] = {}

        def stop(options: PosOptions, bilm: Any, training: Dict[int, Any], test: Any) -> None:
            drawn.update(training)
            raise KeyboardInterrupt

        monkeypatch.setattr(pos, "_measure", stop)
        with pytest.raises(KeyboardInterrupt):
            compare_tags(options)
        numbers = [{sentence.words[-1] for sentence in drawn[seed]} for seed in options.seeds]
        assert list(map(len, numbers)) == [80, 80] and numbers[0] != numbers[1]

    def test_without_unseen_words_there_is_no_score_of_them(self, options: PosOptions) -> None:
        for path in (*options.train, *options.test):
            lines = Path(path).read_text().splitlines()
            Path(path).write_text("\n".join(line for line in lines if " n" not in line) + "\n")
        given = replace(options, control=False, seeds=(1,))
        assert set(column(tables_of(compare_tags(given))[0], "unseen words (%)")) == {None}

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"max_train_sentences": 9}, "found 9 training sentences, .* a larger --max-train-sen"),
            ({"strengths": ()}, r"--strengths: found \[\], expected one or more positive"),
            ({"strengths": (1.0, float("nan"))}, "--strengths: found .* positive numbers"),
        ],
    )
    def test_options_are_checked_before_a_bilm_is_loaded(
        self, changes: Dict[str, Any], message: str, options: PosOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_tags(replace(options, model="no_such_bilm", **changes))


def test_a_test_file_in_a_training_folder_is_refused(options: PosOptions) -> None:
    folder = str(Path(options.test[0]).parent)
    for given in (folder, f"{folder}/./test.gold_conll"):
        with pytest.raises(
            ConfigurationError, match=r"test\.gold_conll is in both, expected other"
        ):
            compare_tags(replace(options, model="no_such_bilm", train=(given,)))


def test_a_column_that_was_not_filled_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gold_conll"
    path.write_text("#begin document (d); part 000\nd 0 0 a XX * - - - - * -\n\n#end document\n")
    with pytest.raises(ConfigurationError, match="fifth column holds only XX, expected"):
        read_tagged([str(path)])


def test_the_baseline_prefers_frequent_tags_and_then_names() -> None:
    assert frequent_tags(["a", "b", "c"], list("aaabb"), list("YXYZX")).tolist() == ["Y", "X", "X"]


def test_the_scale_of_a_dimension_does_not_matter_and_ties_go_to_the_smallest_strength() -> None:
    vectors = numpy.random.default_rng(0).normal(size=(60, 4))
    tags = numpy.where(vectors[:, 0] > 0, "A", "B")
    # Powers of two: nothing is rounded in another way.
    scaled = vectors * 2.0 ** numpy.array([-20, 0, 3, 20])
    # Held-out words that each probe classifies right, far from the border.
    is_far = numpy.abs(vectors[:, 0]) > 1
    probe, same = (
        fit_probe(one, tags, one[is_far], tags[is_far], [10.0, 1.0, 0.1])[-1]
        for one in (vectors, scaled)
    )
    assert numpy.array_equal(probe.coef_, same.coef_)
    assert probe.C == 0.1


def test_the_best_strength_on_held_out_vectors_is_chosen() -> None:
    generator = numpy.random.default_rng(2)
    vectors = generator.normal(size=(60, 40))
    noise = numpy.where(generator.random(60) < 0.3, -1, 1)
    tags = numpy.where(vectors[:, 0] * noise > 0, "A", "B")
    held_out = generator.normal(size=(500, 40))
    held_out_tags = numpy.where(held_out[:, 0] > 0, "A", "B")
    strengths = [0.01, 0.1, 100.0]
    scores = {
        strength: fit_probe(vectors, tags, held_out, held_out_tags, [strength]).score(
            held_out, held_out_tags
        )
        for strength in strengths
    }
    chosen = fit_probe(vectors, tags, held_out, held_out_tags, strengths)[-1].C
    assert scores[chosen] == max(scores.values()) > min(scores.values())
