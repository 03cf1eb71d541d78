"""
Print the answers of a task model to the first examples of a file, not selected: a part of the model's card.

    python scripts/examples_of_card.py MODEL FILE >> card.md
"""

import itertools
import sys
from typing import Any, Callable, Dict, Sequence, Tuple

from allennlp.data import Instance

from elmo_plugin import plugin  # noqa: F401, registers the tasks
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.tasks.predicting import TaskPredictor, bracketed
from elmo_plugin.tasks.tags import tags_to_spans

NUM_EXAMPLES = 10
MOST_WORDS = 60  # shown of a text

Answer = Dict[str, Any]


def of_tags(scheme: str) -> Callable[[Instance, Answer], Tuple[str, str]]:
    """Return a function from an instance and the model's answer to the spans of both, in brackets."""

    def shown(instance: Instance, answer: Answer) -> Tuple[str, str]:
        words = instance["metadata"].metadata["words"]
        found, gold = answer["tags"], instance["tags"].labels
        return spans_in(words, found, scheme), spans_in(words, gold, scheme)

    return shown


def spans_in(words: Sequence[str], tags: Sequence[str], scheme: str) -> str:
    return bracketed(words, tags_to_spans(tags, scheme))


def of_predicates(instance: Instance, answer: Answer) -> Tuple[str, str]:
    predicates = answer["predicates"]
    tags = predicates[0]["tags"] if predicates else ["O"] * len(answer["words"])
    return of_tags("BIO")(instance, {"tags": tags})


def of_questions(instance: Instance, answer: Answer) -> Tuple[str, str]:
    metadata = instance["metadata"].metadata
    answers = " / ".join(dict.fromkeys(metadata["answers"]))
    question = metadata["question"]
    return f"{question} **{answer['best_span_text']}**", f"{question} **{answers}**"


def of_clusters(instance: Instance, answer: Answer) -> Tuple[str, str]:
    """Of the first words of a document."""
    words = answer["words"][:MOST_WORDS]

    def marked(clusters: Sequence[Sequence[Tuple[int, int]]]) -> str:
        mentions = [
            (start, end, number)
            for number, cluster in enumerate(sorted(map(sorted, clusters)), start=1)
            for start, end in cluster
            if end <= len(words)
        ]
        return bracketed(words, mentions)

    return marked(answer["clusters"]), marked(instance["metadata"].metadata["clusters"])


KINDS: Dict[str, Callable[[Instance, Answer], Tuple[str, str]]] = {
    "elmo_ner": of_tags("BIOUL"),
    "elmo_srl": of_predicates,
    "elmo_squad": of_questions,
    "elmo_coref": of_clusters,
}


def main(model: str, file: str) -> None:
    archive = opened_archive(model)
    predictor = TaskPredictor.from_archive(archive)
    kind = archive.config["model"]["type"]
    instances = itertools.islice(archive.validation_dataset_reader.read(file), NUM_EXAMPLES)
    print(f"\n## The first {NUM_EXAMPLES} examples of the test part\n")
    for instance in instances:
        found, gold = KINDS[kind](instance, predictor.predict_instance(instance))
        print(f"- {found}" + ("" if found == gold else f"\n  - annotated: {gold}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
