"""`elmo serve`: task models and nearest occurrences as a JSON API, and a page in the browser."""
