"""Pictures as parts of an HTML page."""

import base64
import struct
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Tuple
from xml.etree import ElementTree

from allennlp.common.checks import ConfigurationError

# Scales to any size, but a drawing of many thousand points is larger, and slower to show, than its pixels.
MAX_SVG_BYTES = 500_000

_PIXELS_PER_INCH = 96  # of CSS
_PIXELS_PER_UNIT = {"": 1.0, "px": 1.0, "pt": 96 / 72, "in": 96.0, "cm": 96 / 2.54, "mm": 96 / 25.4}
_METRES_PER_INCH = 0.0254
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SVG_ROOT = "{http://www.w3.org/2000/svg}svg"


class EmbeddedPicture(NamedTuple):
    """
    # Parameters

    uri : `str`
        A data URI, which holds the whole file.
    width, height : `int`
        The size at which it was drawn, in pixels of CSS, of which an inch has 96.
    """

    uri: str
    width: int
    height: int


def embed_picture(paths: Dict[str, Path]) -> EmbeddedPicture:
    """
    The SVG file of a picture, or its PNG file where there is no SVG or one of more than `MAX_SVG_BYTES`.

    # Parameters

    paths : `Dict[str, Path]`
        By suffix, `.svg` or `.png`, at least one.

    # Raises

    `ConfigurationError` naming the file if it is not what its name says.
    """
    svg, png = paths.get(".svg"), paths.get(".png")
    if svg is not None and (png is None or svg.stat().st_size <= MAX_SVG_BYTES):
        content = svg.read_bytes()
        return _embedded("image/svg+xml", content, _svg_size(svg, content))
    assert png is not None
    content = png.read_bytes()
    return _embedded("image/png", content, _png_size(png, content))


def data_uri(media_type: str, content: bytes) -> str:
    """An address that is its own content."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def _embedded(media_type: str, content: bytes, size: Tuple[float, float]) -> EmbeddedPicture:
    width, height = (max(1, round(length)) for length in size)
    return EmbeddedPicture(data_uri(media_type, content), width, height)


def _svg_size(path: Path, content: bytes) -> Tuple[float, float]:
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise _damaged(path, f"is not XML ({error})", "an SVG picture") from error
    if root.tag != _SVG_ROOT:
        raise _damaged(path, f"holds <{root.tag}>", "an SVG picture")
    width, height = (_pixels(root.get(name)) for name in ("width", "height"))
    if width is not None and height is not None:
        return width, height
    view_box = root.get("viewBox", "").replace(",", " ").split()
    try:
        _, _, box_width, box_height = (float(number) for number in view_box)
    except ValueError:
        raise _damaged(path, "has neither width and height nor a viewBox", "one of them") from None
    return box_width, box_height


def _pixels(length: Optional[str]) -> Optional[float]:
    if length is None:
        return None
    number = length.strip().rstrip("abcdefghijklmnopqrstuvwxyz%")
    factor = _PIXELS_PER_UNIT.get(length.strip()[len(number) :])
    try:
        return None if factor is None else float(number) * factor
    except ValueError:
        return None


def _png_size(path: Path, content: bytes) -> Tuple[float, float]:
    # Signature, then chunks: length, name, data, checksum. The first is IHDR, with the size in front.
    if not content.startswith(_PNG_SIGNATURE) or content[12:16] != b"IHDR" or len(content) < 24:
        raise _damaged(path, "does not begin as one", "a PNG picture")
    width, height = struct.unpack(">II", content[16:24])
    pixels_per_inch = _png_resolution(content) or _PIXELS_PER_INCH
    scale = _PIXELS_PER_INCH / pixels_per_inch
    return width * scale, height * scale


def _png_resolution(content: bytes) -> Optional[float]:
    """Pixels in an inch, if the file says so."""
    start = len(_PNG_SIGNATURE)
    while start + 8 <= len(content):
        length, name = struct.unpack(">I4s", content[start : start + 8])
        data = content[start + 8 : start + 8 + length]
        if name == b"pHYs" and len(data) == 9:
            pixels, _, unit = struct.unpack(">IIB", data)
            return pixels * _METRES_PER_INCH if unit == 1 and pixels else None
        if name == b"IDAT":
            return None
        start += 12 + length
    return None


def _damaged(path: Path, found: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: {found}, expected {expected}. Draw it again, or remove the file."
    )
