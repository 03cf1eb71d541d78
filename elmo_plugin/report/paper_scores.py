"""What the paper (Peters et al. 2018, NAACL) measured: scores on dev data, in percent, by task."""

from typing import Dict, NamedTuple, Tuple


class PaperScores(NamedTuple):
    """
    A row of one of the paper's tables.

    # Parameters

    metric : `str`
        What the scores are.
    scores : `Dict[str, float]`
        By what `Variant.label` calls the variant.
    """

    metric: str
    scores: Dict[str, float]


NO_ELMO = "no ELMo"
LAST_LAYER = "last layer only"
LAMBDA_1 = "all layers, λ = 1"
LAMBDA_0_001 = "all layers, λ = 0.001"
PLACEMENT_LABELS = {
    "none": NO_ELMO,
    "input": "input",
    "both": "input and output",
    "output": "output",
}

_METRICS = {"squad": "F1", "snli": "accuracy", "srl": "F1"}


def _rows(labels: Tuple[str, ...], rows: Dict[str, Tuple[float, ...]]) -> Dict[str, PaperScores]:
    return {task: PaperScores(_METRICS[task], dict(zip(labels, row))) for task, row in rows.items()}


# Table 2.
LAYERS = _rows(
    (NO_ELMO, LAST_LAYER, LAMBDA_1, LAMBDA_0_001),
    {
        "squad": (80.8, 84.7, 85.0, 85.2),
        "snli": (88.1, 89.1, 89.3, 89.5),
        "srl": (81.6, 84.1, 84.6, 84.8),
    },
)
# Table 3; the scores without ELMo are those of table 2.
PLACEMENT = _rows(
    (NO_ELMO, *(PLACEMENT_LABELS[placement] for placement in ("input", "both", "output"))),
    {
        "squad": (80.8, 85.1, 85.6, 84.8),
        "snli": (88.1, 88.9, 89.5, 88.7),
        "srl": (81.6, 84.7, 84.3, 80.9),
    },
)
