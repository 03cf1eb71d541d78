"""Words in context with their senses, and how they are divided into training and test parts."""

from collections import Counter, defaultdict
from os import PathLike
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.json_input import find_key, get_text, get_words, parse_json_object
from elmo_plugin.tasks.reading import placed_lines

_TRAINING = -1  # the number of no test part
_EXAMPLE = '{"tokens": ["a", "hard", "rock"], "index": 1, "sense": "solid"}'


class SenseInstance(NamedTuple):
    """
    # Parameters

    tokens : `Tuple[str, ...]`
        A sentence, or several.
    position : `int`
        Which of the tokens is meant.
    sense : `str`
        What it means there.
    """

    tokens: Tuple[str, ...]
    position: int
    sense: str


class AmbiguousWord(NamedTuple):
    """
    # Parameters

    name : `str`
        Stem of its file.
    file_path : `str`
        Where it is from.
    instances : `List[SenseInstance]`
        In the order of the file.
    left_out : `Dict[str, int]`
        Senses that were too rare, with the number of their instances.
    """

    name: str
    file_path: str
    instances: List[SenseInstance]
    left_out: Dict[str, int]

    @property
    def senses(self) -> List[str]:
        """Of each instance."""
        return [instance.sense for instance in self.instances]

    @property
    def distinct_senses(self) -> List[str]:
        """Each once, sorted."""
        return sorted(set(self.senses))

    def test_parts(
        self, seed: int, num_folds: int, test_share: Optional[float] = None
    ) -> List[numpy.ndarray]:
        """
        Divide the instances at random, each sense for itself. Instances of the same tokens stay together, so
        that no test sentence is in the training part.

        # Parameters

        seed : `int`
            Of the division.
        num_folds : `int`
            Into so many parts of about the same size, each of which is the test part once.
        test_share : `float`, optional
            In place of `num_folds`: one test part, of this share of the sentences of each sense.

        # Returns

        For each test part a boolean array `(num_instances,)`, `True` at its instances. Each sense is in each
        test part and in the rest.

        # Raises

        `ConfigurationError` naming a sense that has too few sentences for that.
        """
        generator = numpy.random.default_rng(seed)
        part_of: Dict[Tuple[str, ...], int] = {}
        start = 0
        for sense, sentences in self._sentences_of_senses().items():
            numbers = numpy.arange(len(sentences))
            if test_share is None:
                self._check_number(sense, len(sentences), num_folds, "one for each of --folds")
                # Goes on where it ended, so that the first parts do not become larger than the others.
                parts = ((start + numbers) % num_folds).tolist()
                start += len(sentences)
            else:
                self._check_number(
                    sense, len(sentences), 2, "one to learn from and one to test with"
                )
                size = min(max(1, round(test_share * len(sentences))), len(sentences) - 1)
                parts = numpy.where(numbers < size, 0, _TRAINING).tolist()
            for row, part in zip(generator.permutation(len(sentences)), parts):
                part_of[sentences[row]] = part
        part_of_instance = numpy.array([part_of[instance.tokens] for instance in self.instances])
        return [part_of_instance == part for part in range(num_folds if test_share is None else 1)]

    def _sentences_of_senses(self) -> Dict[str, List[Tuple[str, ...]]]:
        """Distinct sentences by the sense of their first instance."""
        sense_of: Dict[Tuple[str, ...], str] = {}
        for instance in self.instances:
            sense_of.setdefault(instance.tokens, instance.sense)
        sentences: Dict[str, List[Tuple[str, ...]]] = {sense: [] for sense in self.distinct_senses}
        for tokens, sense in sense_of.items():
            sentences[sense].append(tokens)
        return sentences

    def _check_number(self, sense: str, num_sentences: int, expected: int, why: str) -> None:
        if num_sentences < expected:
            num_instances = self.senses.count(sense)
            raise ConfigurationError(
                f"{self.file_path}: the sense '{sense}' has {num_sentences} different sentences "
                f"({num_instances} instances), expected at least {expected}, {why}. Leave rare senses out "
                f"with --min-instances {num_instances + 1}, or give more text or fewer --folds."
            )


def read_senses(path: Union[str, PathLike], min_instances: int = 1) -> AmbiguousWord:
    """
    Read a file with the instances of one word: a JSON object on each line, with `tokens`, the `index` of the
    word among them, counted from 0, and its `sense`. Other keys may stand beside them.

    # Parameters

    path : `str` or `PathLike`
        The file. Its name, without the suffix, is the name of the word.
    min_instances : `int`, optional (default = 1)
        Senses with fewer are left out.

    # Raises

    `ConfigurationError` naming file and line, if there is no such file or a line is not as described; and
    naming the file, if fewer than two senses remain.
    """
    instances = []
    for place, line in placed_lines(path, "a JSON object"):
        try:
            instances.append(_instance(line))
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}: {error}. Correct the line.") from error
    counts = Counter(instance.sense for instance in instances)
    left_out = {sense: count for sense, count in counts.items() if count < min_instances}
    if len(counts) - len(left_out) < 2:
        found = ", ".join(f"'{sense}' ({count} instances)" for sense, count in counts.items())
        raise ConfigurationError(
            f"{path}: found the senses {found}, expected two or more of at least {min_instances} instances, "
            "as with one there is nothing to tell apart. Give another file, or a smaller --min-instances."
        )
    kept = [instance for instance in instances if instance.sense not in left_out]
    return AmbiguousWord(Path(path).stem, str(path), kept, left_out)


def check_distinct_names(words: List[AmbiguousWord]) -> None:
    """
    # Raises

    `ConfigurationError` if two words have the same name.
    """
    files = defaultdict(list)
    for word in words:
        files[word.name].append(word.file_path)
    for name, paths in files.items():
        if len(paths) > 1:
            raise ConfigurationError(
                f"{', '.join(paths)}: the word of each would be called '{name}' after its file, expected "
                "another name for each. Rename a file."
            )


def _instance(line: str) -> SenseInstance:
    values = parse_json_object(line, _EXAMPLE)
    tokens = get_words(values, "tokens", _EXAMPLE)
    find_key(values, ["index"], _EXAMPLE)
    index = values["index"]
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(tokens):
        raise ConfigurationError(
            f"'index' is {index!r}, expected the place of the word among the {len(tokens)} tokens, from 0 to "
            f"{len(tokens) - 1}"
        )
    return SenseInstance(tuple(tokens), index, get_text(values, "sense", _EXAMPLE))
