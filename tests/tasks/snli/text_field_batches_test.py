import torch

from elmo_plugin.tasks.snli.text_field_batches import concatenate_text_fields


def test_rows_follow_each_other_and_the_shorter_ones_are_padded() -> None:
    first = {"words": {"tokens": torch.tensor([[1, 2, 3]])}}
    second = {"words": {"tokens": torch.tensor([[4], [5]])}}
    both = concatenate_text_fields(first, second)
    assert both["words"]["tokens"].tolist() == [[1, 2, 3], [4, 0, 0], [5, 0, 0]]
    both = concatenate_text_fields(second, first)
    assert both["words"]["tokens"].tolist() == [[4, 0, 0], [5, 0, 0], [1, 2, 3]]


def test_all_tensors_of_all_indexers_are_padded_in_every_dimension() -> None:
    first = {
        "characters": {"token_characters": torch.tensor([[[1, 2]]])},
        "pieces": {"mask": torch.tensor([[True]]), "offsets": torch.tensor([[[1, 1]]])},
    }
    second = {
        "characters": {"token_characters": torch.tensor([[[3], [4]]])},
        "pieces": {
            "mask": torch.tensor([[True, True]]),
            "offsets": torch.tensor([[[1, 2], [3, 3]]]),
        },
    }
    both = concatenate_text_fields(first, second)
    assert both["characters"]["token_characters"].tolist() == [[[1, 2], [0, 0]], [[3, 0], [4, 0]]]
    assert both["pieces"]["mask"].tolist() == [[True, False], [True, True]]
    assert both["pieces"]["offsets"].tolist() == [[[1, 1], [0, 0]], [[1, 2], [3, 3]]]


def test_what_is_given_is_not_changed() -> None:
    first = {"words": {"tokens": torch.tensor([[1]])}}
    second = {"words": {"tokens": torch.tensor([[2, 3]])}}
    concatenate_text_fields(first, second)["words"]["tokens"].zero_()
    assert first["words"]["tokens"].tolist() == [[1]]
    assert second["words"]["tokens"].tolist() == [[2, 3]]
