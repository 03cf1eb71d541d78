import numpy
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from sklearn.linear_model import LogisticRegression

from elmo_plugin.report import linear_probe
from elmo_plugin.report.linear_probe import fit_probe

NUM_TRAINING = 400


def data(seed: int = 1, noise: float = 1.5) -> tuple:
    """Vectors whose dimensions are of very different scales, three classes, and some noise."""
    generator = numpy.random.default_rng(seed)
    vectors = generator.normal(size=(600, 8))
    logits = vectors @ generator.normal(size=(8, 3)) + noise * generator.gumbel(size=(600, 3))
    classes = numpy.array(["A", "B", "C"])[logits.argmax(axis=1)]
    mixed = vectors @ generator.normal(size=(8, 8)) * 10.0 ** numpy.arange(-4, 4) + 3
    return mixed.astype(numpy.float32), classes


def fitted(strengths: list, seed: int = 1, noise: float = 1.5) -> linear_probe.LinearProbe:
    vectors, classes = data(seed, noise)
    return fit_probe(
        vectors[:NUM_TRAINING],
        classes[:NUM_TRAINING],
        vectors[NUM_TRAINING:],
        classes[NUM_TRAINING:],
        strengths,
    )


@pytest.mark.parametrize("strength", [0.001, 0.1, 10.0])
def test_it_is_scikit_learns_logistic_regression(
    strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Trained to the end, as the other is.
    monkeypatch.setattr(linear_probe, "LEAST_GAIN", 1e-7)
    probe = fitted([strength])
    vectors, classes = data()
    standard = (vectors - vectors[:NUM_TRAINING].mean(axis=0)) / vectors[:NUM_TRAINING].std(axis=0)
    oracle = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000)
    oracle.fit(standard[:NUM_TRAINING].astype(numpy.float64), classes[:NUM_TRAINING])
    # float32 and the end of training leave differences in the third digit.
    numpy.testing.assert_allclose(probe.weight.numpy().T, oracle.coef_, rtol=0.02, atol=0.005)
    agreement = probe.predict(vectors) == oracle.predict(standard.astype(numpy.float64))
    assert agreement.mean() > 0.99
    assert probe.has_converged


def test_the_early_end_of_training_is_near_enough() -> None:
    vectors, _ = data()
    probe = fitted([1.0])
    assert probe.has_converged
    standard = (vectors - vectors[:NUM_TRAINING].mean(axis=0)) / vectors[:NUM_TRAINING].std(axis=0)
    oracle = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000)
    oracle.fit(standard[:NUM_TRAINING].astype(numpy.float64), data()[1][:NUM_TRAINING])
    agreement = probe.predict(vectors) == oracle.predict(standard.astype(numpy.float64))
    assert agreement.mean() > 0.98


def test_scales_and_shifts_of_dimensions_do_not_matter() -> None:
    vectors, classes = data()
    other = (vectors * 2.0 ** numpy.arange(8) - 5).astype(numpy.float32)
    probes = [
        fit_probe(one[:400], classes[:400], one[400:], classes[400:]) for one in (vectors, other)
    ]
    predictions = [probe.predict(one) for probe, one in zip(probes, (vectors, other))]
    assert (predictions[0] == predictions[1]).mean() > 0.99
    assert probes[0].strength == probes[1].strength


def test_a_dimension_that_does_not_vary_is_left_out() -> None:
    vectors, classes = data()
    constant = numpy.concatenate([vectors, numpy.full_like(vectors[:, :1], 7)], axis=1)
    probe = fit_probe(constant[:400], classes[:400], constant[400:], classes[400:])
    assert torch.isfinite(probe.weight).all()
    assert (probe.predict(constant) == classes).mean() > 0.6


def test_the_strength_that_does_best_on_held_out_vectors_is_taken() -> None:
    strengths = [100.0, 1e-6, 0.01]
    vectors, classes = data(noise=4.0)

    def score(strength: float) -> float:
        probe = fitted([strength], noise=4.0)
        return float((probe.predict(vectors[NUM_TRAINING:]) == classes[NUM_TRAINING:]).mean())

    scores = {strength: score(strength) for strength in strengths}
    best = max(scores.values())
    expected = min(strength for strength in strengths if scores[strength] == best)
    assert len(set(scores.values())) > 1
    assert fitted(strengths, noise=4.0).strength == expected


def test_training_that_is_stopped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_probe, "_MAX_ITERATIONS", linear_probe.ITERATIONS)
    assert not fitted([1.0]).has_converged


def test_one_class_is_too_few() -> None:
    vectors, classes = data()
    classes[:] = "A"
    with pytest.raises(ConfigurationError, match="one class only, A, expected two or more"):
        fit_probe(vectors[:400], classes[:400], vectors[400:], classes[400:])
