"""The models of the package."""

from typing import Any, Callable, Dict, Tuple

import pytest
import torch
from allennlp.modules.elmo import Elmo as AllenNLPElmo

from elmo_plugin import BiLM, Elmo, SentenceScorer, batch_to_ids, load_predictor
from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER, pretrained_names, task_model_names
from elmo_plugin.embedding.scoring import ScoreTotals
from elmo_plugin.embedding.sentences import read_sentences
from elmo_plugin.pretraining.corpus import find_corpus
from tests.closeness import assert_close
from tests.conftest import FIXTURES, SENTENCES

HELDOUT = FIXTURES / "lm" / "heldout.txt"
BILMS = ["elmo_mini", "elmo_small"]


@pytest.mark.parametrize(
    "name, width, most_bytes", [("elmo_mini", 256, 12_000_000), ("elmo_small", 512, 40_000_000)]
)
def test_they_are_small_and_complete(name: str, width: int, most_bytes: int) -> None:
    assert pretrained_names() == BILMS
    folder = PRETRAINED_FOLDER / name
    names = {"options.json", "weights.hdf5", "vocab.txt", "README.md"}
    assert {path.name for path in folder.iterdir()} == names
    assert sum(path.stat().st_size for path in folder.iterdir()) <= most_bytes
    assert BiLM.from_files(name).get_output_dim() == width


@pytest.mark.parametrize("name", BILMS)
def test_one_name_is_enough(name: str) -> None:
    character_ids = batch_to_ids(SENTENCES)
    ours = Elmo(name, None, 1, dropout=0.0)(character_ids)["elmo_representations"][0]
    folder = PRETRAINED_FOLDER / name
    files = str(folder / "options.json"), str(folder / "weights.hdf5")
    theirs = AllenNLPElmo(*files, 1, dropout=0.0)(character_ids)["elmo_representations"][0]
    # AllenNLP adds to the forget bias of float16 files in float16, which rounds a gate of each step.
    steps = max(map(len, SENTENCES)) + 2
    assert_close(ours, theirs, terms=steps, scale=1.0, dtype=torch.float16, roundings=steps)


@pytest.mark.parametrize("name", BILMS)
def test_they_predict_words_of_text_that_they_have_not_seen(name: str) -> None:
    totals = ScoreTotals()
    for score in SentenceScorer.from_files(name).score_sentences(
        read_sentences(find_corpus(HELDOUT))
    ):
        totals.add(score)
    perplexities = totals.perplexities()
    # Over 20,000 words or more, in each direction; one that only knows how frequent words are has over 500.
    assert perplexities["forward_perplexity"] < 150
    assert perplexities["backward_perplexity"] < 150


# For each task model an easy input, and what is to be found in its answer.
EASY: Dict[str, Tuple[Dict[str, Any], Callable[[Dict[str, Any]], Any], Any]] = {
    "elmo_ner_small": (
        {"sentence": "Maria Lopez visited the University of Oxford in England."},
        lambda answer: [(span["text"], span["label"]) for span in answer["spans"]],
        [("Maria Lopez", "PER"), ("University of Oxford", "ORG"), ("England", "LOC")],
    ),
    "elmo_srl_small": (
        {"sentence": "The cat that sat on the mat saw a dog."},
        lambda answer: answer["predicates"][-1]["description"],
        "[ARG0: The cat that sat on the mat] [V: saw] [ARG1: a dog] .",
    ),
    "elmo_coref_small": (
        {"document": "John told Mary that he had lost his keys. She gave him hers."},
        lambda answer: answer["marked"],
        "[1 John] told [2 Mary] that [1 he] had lost [1 his] keys . [2 She] gave [1 him] hers .",
    ),
    "elmo_squad_small": (
        {"question": "When did it rain?", "passage": "It rained in Paris on Monday."},
        lambda answer: answer["best_span_text"],
        "Monday",
    ),
}


@pytest.mark.parametrize("name", task_model_names())
def test_a_task_model_is_small_and_answers_an_easy_input(name: str) -> None:
    folder = PRETRAINED_FOLDER / name
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 6_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    for part in (
        "**Data.**",
        "**Known errors.**",
        "**Limits.**",
        "**Speed and memory.**",
        "## Scores",
    ):
        assert part in card
    assert f"**Made by** `bash scripts/task_model.sh {name} DATA`" in card
    # An answer that is right has no line of annotation.
    examples = card.partition("## The first 10 examples of the test part")[2].partition("\n## ")[0]
    assert sum(line.startswith("- ") for line in examples.splitlines()) == 10
    given, found, expected = EASY[name]
    predictor = load_predictor(name)
    answer = predictor.predict(*given.values())
    assert found(answer) == expected
    assert answer == predictor.predict(**given) == predictor.predict_json(given)
