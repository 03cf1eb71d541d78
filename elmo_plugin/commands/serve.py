"""`elmo serve`: task models as a JSON API, and as a page in the browser."""

from elmo_plugin.compat.environment import INSTALL_ALLENNLP, needing_allennlp
from elmo_plugin.errors import needing
from elmo_plugin.serving.options import ServeOptions

USAGE = "%(prog)s [ARCHIVE ...] [options]"

DESCRIPTION = f"""\
examples:
  %(prog)s
  %(prog)s runs/demo/model.tar.gz runs/sst/model.tar.gz --port 8080
  %(prog)s names=runs/ner/model.tar.gz
  curl http://127.0.0.1:8000/api/models/names/predict -d '{{"sentence": "Ada lived in London."}}'

Serve task models, and nearest occurrences of words in context. A browser shows the page at /, and programs
use the JSON routes under /api, which /openapi.json describes.
Needs: pip install "elmo-plugin[serve]" && {INSTALL_ALLENNLP}
"""


def run(options: ServeOptions) -> None:
    """Serve until a signal ends it."""
    with needing("serve needs FastAPI and uvicorn", "elmo-plugin[serve]"):
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    with needing_allennlp("serve"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.serving.server import serve

    serve(options)
