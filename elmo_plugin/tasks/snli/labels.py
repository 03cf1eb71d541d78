"""How a hypothesis can follow from a premise."""

LABELS = ("entailment", "neutral", "contradiction")
