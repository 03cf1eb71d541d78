"""AllenNLP's vocabulary of a model that pretrains a biLM."""

from typing import List

from allennlp.data import Vocabulary

from elmo_plugin.bilm.lm_vocabulary import LMVocabulary

WORDS_NAMESPACE = "lm_words"


@Vocabulary.register("elmo_lm_words", constructor="from_vocabulary_file")
class LMWordVocabulary(Vocabulary):
    """
    AllenNLP's vocabulary with the words of a bilm-tf vocabulary file, in the order of the file, in the
    namespace `lm_words`. It is part of an archive, so that a trained biLM can be exported without the file.

    Registered as a `Vocabulary` with name `elmo_lm_words`.

    # Parameters

    vocabulary_file : `str`
        See `LMVocabulary`.
    """

    @classmethod
    def from_vocabulary_file(cls, vocabulary_file: str) -> "LMWordVocabulary":
        """Build the vocabulary of a config."""
        words = LMVocabulary.from_file(vocabulary_file).words
        return cls(tokens_to_add={WORDS_NAMESPACE: words}, non_padded_namespaces=[WORDS_NAMESPACE])


def words_of(vocab: Vocabulary) -> List[str]:
    """Return the words that a biLM with this vocabulary predicts, by index."""
    words = vocab.get_index_to_token_vocabulary(WORDS_NAMESPACE)
    return [words[index] for index in range(len(words))]


def first_difference(found: List[str], expected: List[str]) -> str:
    """Describe how two vocabularies differ, for errors: "'a' in line 4, expected 'b'"."""
    if len(found) != len(expected):
        return f"{len(found):,} words, expected {len(expected):,}"
    line = next(line for line, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
    return f"'{found[line]}' in line {line + 1}, expected '{expected[line]}'"
