import sys
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.figures import figure_class, write_figure


def test_a_figure_is_written_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = figure_class()()
    figure.subplots().plot([1, 2])
    png, svg = write_figure(figure, tmp_path / "new", "layers-ner")
    assert (png.name, svg.name) == ("layers-ner.png", "layers-ner.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text(encoding="utf-8")
    assert len(list(png.parent.iterdir())) == 2


def test_a_missing_matplotlib_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match=r'pip install "elmo_plugin\[plots\]"'):
        figure_class()
