import logging
from pathlib import Path

import pytest
import torch
from allennlp.data import Vocabulary

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.ner import NerReader
from elmo_plugin.tasks.tags import find_tag_fault
from tests.closeness import assert_close
from tests.tasks.task_testing import FIXTURES, as_tensors, build_tiny, read_tiny

TINY_FILE = FIXTURES / "ner" / "tiny" / "train.conll"


def write(folder, *columns):
    """A file of one sentence, with the given tokens and tags."""
    file_path = Path(folder) / "data.conll"
    file_path.write_text("".join(f"{column} -X- O {tag}\n" for column, tag in columns))
    return file_path


def test_sentences_words_and_tags_are_read():
    instances = list(NerReader().read(TINY_FILE))
    assert [len(instance["tokens"]) for instance in instances] == [6, 4, 4, 8, 7, 6, 7, 1]
    words = ["Peter", "flew", "from", "Paris", "to", "São", "Paulo", "."]
    assert [token.text for token in instances[3]["tokens"]] == words
    assert list(instances[3]["tags"]) == ["U-PER", "O", "O", "U-LOC", "O", "B-LOC", "L-LOC", "O"]
    assert list(instances[4]["tags"]) == ["O", "U-LOC", "U-LOC", "O", "O", "O", "O"]
    expected = {"words": ["Rain"], "character_offsets": None, "unmarked": []}
    expected["gold_tags"] = ["O"]
    assert instances[7]["metadata"].metadata == expected


@pytest.mark.parametrize(
    "scheme, tags",
    [
        ("IOB1", ["I-PER", "I-PER", "B-PER"]),
        ("BIO", ["B-PER", "I-PER", "B-PER"]),
        ("BIOUL", ["B-PER", "L-PER", "U-PER"]),
    ],
)
def test_the_scheme_of_a_file_is_found_and_logged(tmp_path, caplog, scheme, tags):
    caplog.set_level(logging.INFO)
    file_path = write(tmp_path, *zip(["Mary", "Smith", "Peter"], tags))
    for options in ({}, {"input_scheme": scheme}):
        [instance] = NerReader(**options).read(file_path)
        assert list(instance["tags"]) == ["B-PER", "L-PER", "U-PER"]
    assert f"data.conll: reading tags in the {scheme} scheme" in caplog.text


def test_tags_of_no_one_scheme_are_counted_and_the_odd_ones_named(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file_path = tmp_path / "data.conll"
    file_path.write_text("Mary B-PER\n\nPaul B-PER\n\nRain O\n\nPeter I-PER\n")
    message = r"line 7: found tag 'I-PER' at the start of a sentence, impossible in the BIO scheme"
    with pytest.raises(ConfigurationError, match=message):
        list(NerReader().read(file_path))
    assert "of the sentences 2 fit IOB1, 3 fit BIO, 1 fit BIOUL" in caplog.text


def test_numbers_of_tokens_are_not_words(tmp_path):
    file_path = write(tmp_path, ("1 Mary", "B-PER"), ("2 ran", "O"))
    with pytest.raises(ConfigurationError, match="line 1: the first column numbers the tokens"):
        list(NerReader(skip_invalid=True).read(file_path))
    file_path.write_text("1 O\n2 O\n")  # as in a table
    assert len(list(NerReader().read(file_path))) == 1


def test_an_invalid_first_sentence_is_left_out_as_any_other(tmp_path):
    file_path = tmp_path / "data.conll"
    file_path.write_text("1 NNP B-PER\nran\n\nPaul NNP B-PER\n")
    [instance] = NerReader(skip_invalid=True).read(file_path)
    assert instance["metadata"].metadata["words"] == ["Paul"]


@pytest.mark.parametrize(
    "input_scheme, tags, fault, advice",
    [
        ("IOB1", ["O", "B-PER"], "tag 'B-PER' after 'O'", ", or give .* input_scheme BIO"),
        ("BIOUL", ["O", "B-PER"], "tag 'B-PER' at the end", ", or give .* input_scheme BIO"),
        ("BIO", ["O", "U-PER"], "tag 'U-PER'", ", or give .* input_scheme BIOUL"),
        ("IOB1", ["I-PER", "S-PER"], "tag 'S-PER', impossible in the IOB1", ""),
    ],
)
def test_the_error_for_another_scheme_names_the_right_one(
    tmp_path, input_scheme, tags, fault, advice
):
    file_path = write(tmp_path, *zip(["Mary", "ran"], tags, strict=True))
    message = rf"line 2: found {fault}.*\. Correct the tag{advice}\.$"
    with pytest.raises(ConfigurationError, match=message):
        list(NerReader(input_scheme=input_scheme).read(file_path))


def test_files_are_read_one_after_another_each_with_the_classes_that_it_does_not_mark(
    tmp_path, caplog
):
    paths = []
    for source, tag in (("wiki", "I-MISC"), ("web", "B-PER"), ("chat", "O")):
        (tmp_path / source).mkdir()
        paths.append(str(write(tmp_path / source, ("Mary", tag))))
    unmarked = {"web/*.conll": ["MISC"], "chat/*": ["LOC"], "data.conl": ["ORG"]}
    reader = NerReader(unmarked={**unmarked, "a*/data.conll": ["PER"], "chat/data.conll": ["ORG"]})
    with caplog.at_level(logging.INFO):
        instances = list(reader.read(paths))
    assert [list(instance["tags"]) for instance in instances] == [["U-MISC"], ["U-PER"], ["O"]]
    found = [instance["metadata"].metadata["unmarked"] for instance in instances]
    assert found == [[], ["MISC"], ["LOC", "ORG"]]
    assert f"{paths[2]}: does not mark LOC, ORG." in caplog.text
    message = r"wiki/data\.conll, line 1: found an entity of class MISC, which by"
    with pytest.raises(ConfigurationError, match=message):
        list(NerReader(unmarked={"*.conll": ["MISC"]}).read(paths))


def short_sentences():
    """Sentences of four tokens and less, and the vocabulary of all."""
    instances, vocab = read_tiny("ner")
    short = [instance for instance in instances if len(instance["tokens"]) <= 4]
    assert [len(instance["tokens"]) for instance in short] == [4, 4, 1]
    return short, vocab


def all_sequences_and_scores(model, logits):
    """
    All sequences of tags of a sentence, and their scores: each tag, each step between tags, and, if the model
    has them, both ends. `logits` are `(length, num_tags)`.
    """
    crf = model.crf
    length, num_tags = logits.shape
    sequences = torch.cartesian_prod(*[torch.arange(num_tags)] * length).view(-1, length)
    scores = logits[torch.arange(length), sequences].sum(dim=1)
    scores = scores + crf.transitions[sequences[:, :-1], sequences[:, 1:]].sum(dim=1)
    if crf.include_start_end_transitions:
        scores = scores + crf.start_transitions[sequences[:, 0]]
        scores = scores + crf.end_transitions[sequences[:, -1]]
    return sequences, scores


@pytest.mark.parametrize("include_ends", [True, False])
@pytest.mark.parametrize("unmarked", [[], ["LOC", "ORG"]])
def test_loss_is_the_mean_negative_log_likelihood_of_all_sequences_that_agree_with_the_tags(
    include_ends, unmarked
):
    instances, vocab = short_sentences()
    model = build_tiny("ner", vocab, include_start_end_transitions=include_ends)
    assert model.crf.include_start_end_transitions is include_ends
    # One sentence marks all classes, in a batch with others that do not.
    for instance in (instances[0], instances[2]):
        instance["metadata"].metadata["unmarked"] = unmarked
        assert not {"LOC", "ORG"} & {tag[2:] for tag in instance["tags"].labels}
    output = model(**as_tensors(instances, vocab))
    losses, log_sums = [], []
    for row, instance in enumerate(instances):
        gold = instance["tags"].labels
        sequences, scores = all_sequences_and_scores(model, output["logits"][row, : len(gold)])
        names = instance["metadata"].metadata.get("unmarked", [])
        agreeing = []
        for tag_ids in sequences.tolist():
            tags = [model.tags[tag_id] for tag_id in tag_ids]
            agreeing.append(
                all(
                    tag == gold_tag or (gold_tag == "O" and tag[2:] in names)
                    for tag, gold_tag in zip(tags, gold)
                )
                and find_tag_fault(tags, "BIOUL") is None
            )
        log_sums.append(scores.logsumexp(0))
        losses.append(log_sums[-1] - scores[torch.tensor(agreeing)].logsumexp(0))
        assert sum(agreeing) > 1 if names else sum(agreeing) == 1
    # A score sums logits, transitions and both ends; their exponentials are summed over all sequences.
    terms = 4 + 3 + 2 + len(model.tags) ** 4
    scale = max(log_sums).item()
    assert_close(output["loss"], torch.stack(losses).mean(), terms=terms, scale=scale)


def test_in_training_nothing_is_decoded(monkeypatch):
    instances, vocab = read_tiny("ner")
    model = build_tiny("ner", vocab)
    with monkeypatch.context() as patch:
        patch.setattr(model.crf, "viterbi_tags", None)  # would fail
        output = model(**as_tensors(instances, vocab))
    assert set(output) == {"logits", "mask", "words", "loss"}
    assert model.get_metrics() == {}
    # As the predictor's default way with a training model.
    assert len(model.make_output_human_readable(output)["tags"][0]) == 6


def test_metrics_count_exact_spans_but_of_classes_that_a_file_does_not_mark():
    instances, vocab = read_tiny("ner")
    # Gold: [PER Mary Smith] visited [LOC New York] .
    predicted = ["B-PER", "L-PER", "U-ORG", "O", "U-LOC", "U-ORG"]
    model = build_tiny("ner", vocab).eval()
    ids = torch.tensor([[model.tags.index(tag) for tag in predicted]])
    logits = 100.0 * torch.nn.functional.one_hot(ids, len(model.tags)).float()
    model.tag_projection.forward = lambda encoded: logits
    model(**as_tensors(instances[:1], vocab))
    metrics = model.get_metrics(reset=True)
    assert (metrics["precision"], metrics["recall"]) == (1 / 4, 1 / 2)
    assert [metrics[f"_f1-{label}"] for label in ("LOC", "ORG", "PER")] == [0.0, 0.0, 1.0]
    # Other readers give no names of gold tags, or no metadata.
    batch = as_tensors(instances[:1], vocab)
    for metadata in ([{"words": batch["metadata"][0]["words"]}], None):
        model(**{**batch, "metadata": metadata})
        assert model.get_metrics(reset=True) == metrics
    instances[0]["metadata"].metadata["unmarked"] = ["ORG"]
    output = model(**as_tensors(instances[:1], vocab))
    assert model.get_metrics(reset=True)["precision"] == 1 / 2
    # The prediction has them.
    assert model.make_output_human_readable(output)["tags"] == [predicted]
    instances[0]["metadata"].metadata["unmarked"] = ["Org"]
    with pytest.raises(
        ConfigurationError, match=r"has the class 'Org', expected .*: LOC, ORG, PER"
    ):
        model(**as_tensors(instances[:1], vocab))


@pytest.mark.parametrize("is_in_vocabulary", [False, True])
def test_a_class_that_the_model_has_not_learned_is_missed_and_cannot_be_trained(
    is_in_vocabulary, caplog
):
    """In the vocabulary it is if a model `from_archive` got those of new data."""
    instances, vocab = read_tiny("ner")
    # `O` need not be the first tag.
    labels = sorted(vocab.get_token_to_index_vocabulary("labels"))
    vocab = Vocabulary(tokens_to_add={"tokens": ["Mary"], "labels": labels})
    # As known tags; here the first is also of a span that the model knows but for its length.
    tags = ["B-PER", "I-PER", "L-PER", "O", "U-EVENT", "O"]
    assert {"I-PER", "U-EVENT"}.isdisjoint(vocab.get_token_to_index_vocabulary("labels"))
    instance = NerReader().text_to_instance(instances[0]["tokens"].tokens, tags)
    instance["tokens"].token_indexers = instances[0]["tokens"].token_indexers
    model = build_tiny("ner", vocab).eval()
    if is_in_vocabulary:
        for tag in ("I-PER", "U-EVENT"):
            vocab.add_token_to_namespace(tag, "labels")
    outside = [model.tags.index("O")] * len(tags)
    known = [model.tags.index("B-PER"), outside[0], model.tags.index("L-PER"), *outside[3:]]
    batch = as_tensors([instance], vocab)
    output = model(**batch)
    log_likelihood = model.crf(output["logits"], torch.tensor([known]), output["mask"])
    assert_close(
        output["loss"], -log_likelihood, terms=len(tags), scale=log_likelihood.abs().item()
    )
    model._best_tags = lambda logits, mask: [outside]
    model.get_metrics(reset=True)
    model(**batch)
    messages = [
        record.getMessage()
        for record in caplog.records
        if record.name == "elmo_plugin.tasks.models"
    ]
    found = [message.partition(", expected one of")[0] for message in messages]
    assert found == ["found tag 'I-PER'", "found tag 'U-EVENT'"]
    assert model._span_f1.counts() == [(0, 0, 0, 2)]
    with pytest.raises(ConfigurationError, match="training data have tags that the model does"):
        model.train()(**batch)


def test_entities_are_described(predictor):
    sentence = "Mary  Smith visited New York."
    mary = {"start": 0, "end": 2, "text": "Mary  Smith", "start_char": 0, "end_char": 11}
    new_york = {"start": 3, "end": 5, "text": "New York", "start_char": 20, "end_char": 28}
    assert predictor.predict(sentence) == {
        "words": ["Mary", "Smith", "visited", "New", "York", "."],
        "tags": ["B-PER", "L-PER", "O", "B-LOC", "L-LOC", "O"],
        "spans": [{"label": "PER", **mary}, {"label": "LOC", **new_york}],
        "tagged": "[PER Mary Smith] visited [LOC New York] .",
        "sentence": sentence,
    }
