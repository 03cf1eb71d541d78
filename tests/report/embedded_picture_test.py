import base64
import struct
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError
from matplotlib.figure import Figure

from elmo_plugin.report.embedded_picture import MAX_SVG_BYTES, embed_picture
from elmo_plugin.report.figures import write_figure

SVG = "http://www.w3.org/2000/svg"


def svg_file(folder: Path, attributes: str) -> Path:
    path = folder / "curves.svg"
    path.write_text(f'<svg xmlns="{SVG}" {attributes}><path d="M0 0"/></svg>')
    return path


def png_file(folder: Path, *chunks: bytes, size: tuple = (300, 150)) -> Path:
    """The head of a PNG file."""
    path = folder / "curves.png"
    header = struct.pack(">I4sIIBBBBBI", 13, b"IHDR", *size, 8, 2, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks))
    return path


def resolution(per_metre: int, unit: int) -> bytes:
    return struct.pack(">I4sIIBI", 9, b"pHYs", per_metre, per_metre, unit, 0)


def test_both_formats_of_a_picture_have_the_size_at_which_it_was_drawn(tmp_path: Path) -> None:
    png, svg = write_figure(Figure(figsize=(5, 2.5)), tmp_path, "curves")
    for paths in ({".png": png}, {".svg": svg}):
        assert embed_picture(paths)[1:] == (480, 240)


def test_the_svg_is_taken_and_its_bytes_are_in_the_address(tmp_path: Path) -> None:
    png, svg = write_figure(Figure(), tmp_path, "curves")
    uri = embed_picture({".png": png, ".svg": svg}).uri
    head, _, data = uri.partition(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == svg.read_bytes()


def test_a_large_svg_gives_way_to_the_png_if_there_is_one(tmp_path: Path) -> None:
    png, svg = write_figure(Figure(), tmp_path, "curves")
    svg.write_text(svg.read_text() + " " * MAX_SVG_BYTES)
    assert embed_picture({".png": png, ".svg": svg}).uri.startswith("data:image/png;")
    assert embed_picture({".svg": svg}).uri.startswith("data:image/svg+xml;")


@pytest.mark.parametrize(
    "attributes, size",
    [
        ('width="72pt" height="36pt"', (96, 48)),
        ('width="2in" height="25.4mm"', (192, 96)),
        ('width="30" height="20px"', (30, 20)),
        ('width="100%" height="100%" viewBox="0 0 40 30"', (40, 30)),
        ('width="1.2.3px" height="wide" viewBox="0,0,40,30"', (40, 30)),
        ('viewBox="0 0 0.1 30"', (1, 30)),
    ],
)
def test_an_svg_says_its_size_in_many_ways(attributes: str, size: tuple, tmp_path: Path) -> None:
    assert embed_picture({".svg": svg_file(tmp_path, attributes)})[1:] == size


@pytest.mark.parametrize(
    "chunks, size",
    [
        ([resolution(7559, 1)], (150, 75)),  # 192 pixels an inch
        ([struct.pack(">I4s3sI", 3, b"tEXt", b"a\0b", 0), resolution(7559, 1)], (150, 75)),
        ([resolution(7559, 0)], (300, 150)),  # no unit: a ratio alone
        ([resolution(0, 1)], (300, 150)),
        ([struct.pack(">I4s", 0, b"IDAT"), resolution(7559, 1)], (300, 150)),
        ([], (300, 150)),
    ],
)
def test_a_png_is_shown_at_its_resolution(chunks: list, size: tuple, tmp_path: Path) -> None:
    assert embed_picture({".png": png_file(tmp_path, *chunks)})[1:] == size


@pytest.mark.parametrize(
    "content, message",
    [
        ("<svg", r"curves\.svg: is not XML \(.*\), expected an SVG picture\. Draw it again"),
        ("<html/>", r"curves\.svg: holds <html>, expected an SVG picture"),
        (f'<svg xmlns="{SVG}"/>', r"curves\.svg: has neither width and height nor a viewBox"),
    ],
)
def test_a_damaged_svg_is_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        embed_picture({".svg": path})


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0"])
def test_a_damaged_png_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    path.write_bytes(content)
    with pytest.raises(
        ConfigurationError, match=r"curves\.png: does not begin as one, expected a PNG"
    ):
        embed_picture({".png": path})
