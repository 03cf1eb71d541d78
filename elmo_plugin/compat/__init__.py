"""AllenNLP 2.10.1 on current Python and torch: a check of what is installed, patches, and archives."""
