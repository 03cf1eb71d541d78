"""ELMo in other libraries: `spacy` and `sklearn`. Neither is imported before it is needed."""
