"""A linear classifier that shows what can be read off vectors."""

from typing import NamedTuple, Sequence, Tuple

import numpy
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import cross_entropy

# Inverse strengths of L2 regularization to choose from; see `fit_probe`.
DEFAULT_STRENGTHS = (0.01, 0.1, 1.0, 10.0)

# Training ends when so many iterations lower the loss by less than this share of it.
ITERATIONS = 10
LEAST_GAIN = 5e-4
_MAX_ITERATIONS = 500
# Of the largest variance of a direction: directions that vary less are not stretched further.
_LEAST_VARIANCE = 1e-4


class LinearProbe(NamedTuple):
    """
    # Parameters

    classes : `numpy.ndarray`
        Strings, `(num_classes,)`.
    mean, scale : `Tensor`
        `(dim,)`, of the training vectors.
    weight : `Tensor`
        `(dim, num_classes)`, for vectors of mean 0 and variance 1.
    bias : `Tensor`
        `(num_classes,)`
    strength : `float`
        The one that was chosen.
    has_converged : `bool`
        Whether its training came to its end.
    """

    classes: numpy.ndarray
    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    strength: float
    has_converged: bool

    def predict(self, vectors: numpy.ndarray) -> numpy.ndarray:
        """
        # Parameters

        vectors : `numpy.ndarray`
            `(num_vectors, dim)`

        # Returns

        The most probable class of each, `(num_vectors,)`.
        """
        standard = (torch.from_numpy(vectors) - self.mean) / self.scale
        # (num_vectors, num_classes)
        logits = torch.addmm(self.bias, standard, self.weight)
        return self.classes[logits.argmax(dim=1).numpy()]


def fit_probe(
    training_vectors: numpy.ndarray,
    training_classes: numpy.ndarray,
    held_out_vectors: numpy.ndarray,
    held_out_classes: numpy.ndarray,
    strengths: Sequence[float] = DEFAULT_STRENGTHS,
) -> LinearProbe:
    """
    Fit a multinomial logistic regression for each strength of regularization, and take the one that has most
    of the held-out vectors right.

    # Parameters

    training_vectors, held_out_vectors : `numpy.ndarray`
        float32, `(num_training, dim)` and `(num_held_out, dim)`. Each dimension is set to mean 0 and variance
        1 in the training part first, so that layers of any scale are regularized alike.
    training_classes, held_out_classes : `numpy.ndarray`
        Strings, `(num_training,)` and `(num_held_out,)`.
    strengths : `Sequence[float]`, optional (default = `DEFAULT_STRENGTHS`)
        What scikit-learn calls C: the weight of the sum of the losses against half the sum of the squared
        weights. Of equally good ones the smallest is taken.

    # Raises

    `ConfigurationError` if the training vectors are of one class only.
    """
    classes, class_indices = numpy.unique(training_classes, return_inverse=True)
    if len(classes) < 2:
        raise ConfigurationError(
            f"The training part holds one class only, {classes[0]}, expected two or more. Give more text."
        )
    targets = torch.from_numpy(class_indices)
    vectors = torch.from_numpy(training_vectors)
    # (dim,); dimensions that do not vary stay 0.
    mean, scale = vectors.mean(dim=0), vectors.std(dim=0, correction=0)
    scale = scale.clamp(min=torch.finfo(scale.dtype).eps)
    vectors = (vectors - mean) / scale
    stretching = _stretching(vectors)
    probes = []
    for strength in sorted(strengths):
        weight, bias, has_converged = _fit(vectors @ stretching, targets, stretching, strength)
        probes.append(LinearProbe(classes, mean, scale, weight, bias, strength, has_converged))
    return max(
        probes, key=lambda probe: (probe.predict(held_out_vectors) == held_out_classes).mean()
    )


def _stretching(vectors: Tensor) -> Tensor:
    """
    A change of variables, `(dim, dim)`, under which all directions of `vectors`, `(num_vectors, dim)`, vary
    about alike. L-BFGS then takes a fraction of the steps to the same solution.
    """
    variances, directions = torch.linalg.eigh(vectors.T.double() @ vectors.double() / len(vectors))
    least = _LEAST_VARIANCE * variances.max()
    return (directions / variances.clamp(min=least).sqrt()).to(vectors.dtype)


def _fit(
    stretched: Tensor, targets: Tensor, stretching: Tensor, strength: float
) -> Tuple[Tensor, Tensor, bool]:
    """
    # Parameters

    stretched : `Tensor`
        The vectors times `stretching`, `(num_vectors, dim)`.
    targets : `Tensor`
        `(num_vectors,)`, indices of classes; each occurs.
    stretching : `Tensor`
        `(dim, dim)`
    strength : `float`
        See `fit_probe`.

    # Returns

    The weight for vectors that are not stretched, `(dim, num_classes)`; the bias, `(num_classes,)`; and
    whether training came to its end.
    """
    num_classes = int(targets.max()) + 1
    weight = torch.zeros(len(stretching), num_classes, requires_grad=True)  # for stretched vectors
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = (stretching @ weight).square().sum() / (2 * strength * len(targets))
        value = cross_entropy(torch.addmm(bias, stretched, weight), targets) + penalty
        value.backward()
        return value

    has_converged = False
    before = float("inf")
    for _ in range(_MAX_ITERATIONS // ITERATIONS):
        optimizer.step(loss)
        now = float(loss().detach())
        has_converged = before - now < LEAST_GAIN * now
        if has_converged:
            break
        before = now
    return (stretching @ weight).detach(), bias.detach(), has_converged
