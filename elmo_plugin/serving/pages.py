"""Pages of the server: headers that allow a page nothing but its own content, and the documentation."""

import base64
import hashlib
import re
from importlib import resources
from typing import Any, Dict, List


def html_headers(page: str) -> Dict[str, str]:
    """
    Return the headers of a page. It can load nothing, run only its own scripts, have only its own style
    sheets, call only this server, and be in no frame.
    """
    scripts, styles = (
        " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for text in re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        )
        or "'none'"
        for tag in ("script", "style")
    )
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}


def documentation_page(openapi: Dict[str, Any]) -> str:
    """Return a page that shows an OpenAPI description, without scripts."""
    import jinja2

    source = resources.files("elmo_plugin.serving").joinpath("docs.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    operations: List[Dict[str, Any]] = [
        {"method": method.upper(), "path": path, "body": _schema(operation), **operation}
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    return environment.from_string(source).render(info=openapi["info"], operations=operations)


def _schema(operation: Dict[str, Any]) -> Dict[str, Any]:
    """Return the schema of the body, empty if there is none."""
    content = operation.get("requestBody", {}).get("content", {})
    schema: Dict[str, Any] = content.get("application/json", {}).get("schema", {})
    return schema
