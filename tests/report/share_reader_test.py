from itertools import pairwise
from typing import Any, Iterable, List

import pytest
from allennlp.common import Params
from allennlp.data import DatasetReader, Instance
from allennlp.data.dataset_readers.dataset_reader import DistributedInfo, WorkerInfo
from allennlp.data.fields import MetadataField

from elmo_plugin.report.share_reader import ShareReader
from tests.conftest import FIXTURES

NER = FIXTURES / "ner" / "tiny" / "train.conll"


class NumberReader(DatasetReader):
    """Reads the number of instances that is the name of the file."""

    def _read(self, file_path: Any) -> Iterable[Instance]:
        for number in range(int(file_path)):
            yield self.text_to_instance(number)

    def text_to_instance(self, number: int) -> Instance:  # type: ignore[override]
        return Instance({"number": MetadataField(number)})


def numbers(share: float, seed: int = 0, count: int = 100) -> List[int]:
    reader = ShareReader(NumberReader(), share, seed)
    return [instance["number"].metadata for instance in reader.read(str(count))]


def test_a_smaller_share_is_a_part_of_a_larger_one_in_the_order_of_the_file() -> None:
    shares = [numbers(share, seed=13) for share in (0.01, 0.1, 0.35, 0.5, 1.0)]
    assert [len(share) for share in shares] == [1, 10, 35, 50, 100]
    for smaller, larger in pairwise(shares):
        assert set(smaller) < set(larger)
    for share in shares:
        assert share == sorted(share)
    assert numbers(0.1, seed=13) == shares[1] != numbers(0.1, seed=14)
    # Spread over the file: the mean of 50 of the numbers 0 to 99 has a standard deviation of 2.9.
    assert abs(sum(shares[3]) / 50 - 49.5) < 5 * 2.9


@pytest.mark.parametrize(
    "count, share, size",
    [(100, 0.5, 50), (3, 0.5, 2), (5, 0.5, 3), (100, 0.001, 1), (0, 0.5, 0), (7, 1, 7)],
)
def test_halves_are_rounded_up_and_one_at_least_is_kept(
    count: int, share: float, size: int
) -> None:
    assert len(numbers(share, count=count)) == size


def test_it_is_built_by_a_config_around_any_reader() -> None:
    indexers = {"elmo": {"type": "elmo_characters"}}
    inner = {"type": "elmo_ner", "token_indexers": indexers}
    whole = list(DatasetReader.from_params(Params(dict(inner))).read(NER))
    reader = DatasetReader.from_params(
        Params({"type": "elmo_share", "reader": inner, "share": 0.25, "seed": 3})
    )
    share = list(reader.read(NER))
    assert len(whole) == 8 and len(share) == 2
    assert reader.tokenizer is reader.reader.tokenizer
    words = [[token.text for token in instance["tokens"].tokens] for instance in whole]
    for instance in share:
        assert [token.text for token in instance["tokens"].tokens] in words
        assert list(instance["tokens"].token_indexers) == ["elmo"]
    assert reader.text_to_instance(whole[0]["tokens"].tokens)["tokens"].tokens


@pytest.mark.filterwarnings("ignore:Using multi-process data loading without")
@pytest.mark.parametrize("kind", ["processes", "workers"])
def test_those_that_read_together_read_different_instances(kind: str) -> None:
    read = []
    for number in range(2):
        reader = ShareReader(NumberReader(), 0.5)
        if kind == "processes":  # AllenNLP's readers know theirs when they are built
            for each in (reader, reader.reader):
                each._set_distributed_info(DistributedInfo(world_size=2, global_rank=number))
        else:
            reader._set_worker_info(WorkerInfo(num_workers=2, id=number))
        read += [instance["number"].metadata for instance in reader.read("8")]
    assert len(read) == len(set(read)) == 4


@pytest.mark.filterwarnings("ignore:Using multi-process data loading without")
def test_in_a_worker_of_a_data_loader_texts_have_no_indexers_yet() -> None:
    """AllenNLP adds them in the main process, and refuses them before."""
    reader = ShareReader(DatasetReader.from_params(Params({"type": "elmo_ner"})), 0.5)
    reader._set_worker_info(WorkerInfo(num_workers=1, id=0))
    instances = list(reader.read(NER))
    assert len(instances) == 4
    assert not any(instance["tokens"]._token_indexers for instance in instances)
